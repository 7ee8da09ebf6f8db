"""Plans of the statements on SQLite: what is asked for each URL seeks, whatever is queued."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.frontier.stores import statements
from anabranch.frontier.stores.dialect import ManyRows
from tests.frontier.stores.crawl_file import Crawl, crawl

HOT = [
    "HEADS", "QUEUED", "RETRIES", "ENDED", "DELETE_URL", "SEEN", "DONE", "NEXT_PRECEDENCE", "URL_AT",
    "QUEUED_KEYS", "ENDED_KEYS", "READ_LANES", "DELETE_LANES", "LINE", "LANES_OF_QUEUE", "ROWS_OF_QUEUE",
    "SHELVE", "QUEUE", "QUEUE_FACTS", "QUEUES", "OPEN_QUEUES", "CLOSED_QUEUES", "ANY_CLOSED", "CLOSED",
    "PUT_QUEUES", "STANDING", "SET_STANDING", "GATE", "WAKE_GATES", "LEAVE_GATES", "OPEN_GATES", "NEXT_GATES",
    "NEXT_WAKE", "HOLD_GATES", "REST_GATES", "FREE_HELD", "WAKE_GATES_OF_QUEUE", "MOVE_RETRIES", "QUEUES_BY_ID",
    "GATES_BY_ID",
]  # fmt: skip
#: A scan of these costs as much as what is asked for: lists in the statement, and an index of few rows.
CHEAP = re.compile(
    r"SCAN (\d+ CONSTANT ROWS|gone|asked|new|taken|empty"
    r"|gate USING INDEX gate_held|url USING INDEX url_due|queue USING COVERING INDEX queue_standing)"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        yield made


def plan(store: Crawl, statement: str | ManyRows) -> list[str]:
    if isinstance(statement, ManyRows):
        marks = f"({', '.join('?' * statement.columns)})"
        statement = f"{statement.before}{marks}, {marks}{statement.after}"
    with store.connection.begin():
        parameters = (1,) * statement.count("?")
        return [row[3] for row in store.connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)]


@pytest.mark.parametrize("name", HOT)
def test_no_hot_statement_scans_or_sorts(store: Crawl, name: str) -> None:
    """A table is entered by an index only, and rows come in its order."""
    steps = plan(store, getattr(statements, name))
    assert steps
    assert not [step for step in steps if step.startswith("SCAN") and not CHEAP.fullmatch(step)]
    assert not [step for step in steps if "TEMP B-TREE" in step or "AUTOMATIC" in step]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("LINE", "lane_turn"), ("NEXT_GATES", "gate_turn"), ("NEXT_WAKE", "gate_wakes"), ("OPEN_GATES", "gate_wakes"),
        ("FREE_HELD", "gate_held"), ("RETRIES", "url_due"), ("CLOSED_QUEUES", "queue_standing"),
        ("ANY_CLOSED", "queue_standing"),
    ],
)  # fmt: skip
def test_a_partial_index_serves_its_question(store: Crawl, name: str, index: str) -> None:
    """It is used only where the statement says its condition in the same words."""
    assert [step for step in plan(store, getattr(statements, name)) if index in step]


def test_a_plan_with_a_scan_is_noticed(store: Crawl) -> None:
    """The lookup without a lane is the one that scans `url`, and says so."""
    assert [step for step in plan(store, statements.URL_ANYWHERE) if step == "SCAN url"]
