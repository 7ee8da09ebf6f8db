"""How statements reach the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import ClauseElement, Column, Connection, Integer, MetaData, String, Table, insert, select
from sqlalchemy.dialects import sqlite as sqlalchemys

from anabranch.frontier.stores.sql import postgres, sqlite, statements
from anabranch.frontier.stores.sql.execution import AllRows, ManyRows, fetch, fetch_for, given_rows, write
from tests.frontier.stores.crawl_file import Crawl, crawl

TABLES = MetaData()
PAIR = Table("pair", TABLES, Column("a", Integer, primary_key=True), Column("b", String))
TYPES = (PAIR.c.a.type, PAIR.c.b.type)
INSERT = ManyRows(sqlalchemys.insert(PAIR).from_select(["a", "b"], AllRows(TYPES)).on_conflict_do_nothing(), TYPES)
ASKED = ManyRows(
    select(PAIR.c.a).where(PAIR.c.a.in_(select(given_rows(TYPES[:1], "asked")))).order_by(PAIR.c.a), TYPES[:1]
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    with sqlite.connected(tmp_path / "pairs.db", None) as made, made.begin():
        TABLES.create_all(made)
        yield made


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 64, 100, 1023, 1024, 1025, 3000])
def test_any_number_of_rows_is_written_once_each(connection: Connection, rows: int) -> None:
    """The count of changed rows is the sum over all statements."""
    pairs = [(number, str(number)) for number in range(rows)]
    assert write(connection, INSERT, pairs) == rows
    assert fetch(connection, select(PAIR).order_by(PAIR.c.a)) == pairs


def test_rows_that_were_there_are_not_counted(connection: Connection) -> None:
    """That is how duplicates are noticed."""
    write(connection, INSERT, [(1, "old"), (5, "old")])
    assert write(connection, INSERT, [(number, "new") for number in range(7)]) == 5


def test_answers_of_several_statements_are_one_list(connection: Connection) -> None:
    """1,500 questions are more than one statement takes."""
    write(connection, INSERT, [(number, "") for number in range(2000)])
    asked = [(number,) for number in range(1000, 2500)]
    assert sorted(fetch_for(connection, ASKED, asked)) == [(number,) for number in range(1000, 2000)]


def test_a_wide_row_stays_within_the_bound_of_parameters(connection: Connection) -> None:
    """SQLite takes 32,766 in its default build: rows of 200 columns go 128 at a time."""
    names = [f"c{number}" for number in range(200)]
    wide = Table("wide", MetaData(), *[Column(name, Integer) for name in names])
    wide.create(connection)
    types = (Integer(),) * 200
    said: list[str] = []
    connection.connection.driver_connection.set_trace_callback(said.append)  # type: ignore[union-attr]
    statement = ManyRows(insert(wide).from_select(names, AllRows(types)), types, may_repeat=False)
    assert write(connection, statement, [tuple(range(200))] * 300) == 300
    assert len(said) == 2 + 3  # 128, 128, 32, 8, 4


@pytest.mark.parametrize(("rows", "steps"), [(95, 2), (100, 1), (127, 1), (255, 1), (300, 4)])
def test_few_steps_take_many_rows(connection: Connection, rows: int, steps: int) -> None:
    """At each step Python's lock goes to another thread: a last row that comes again fills a statement, and counts once."""
    said: list[str] = []
    connection.connection.driver_connection.set_trace_callback(said.append)  # type: ignore[union-attr]
    assert write(connection, INSERT, [(number, "") for number in range(rows)]) == rows
    assert len(said) == steps


def test_every_statement_has_the_same_parameters_for_both_engines() -> None:
    """Compiled for either, it takes the same tuple; a list of rows is in its text once, with a value for each column."""
    every = {name: statement for name, statement in vars(statements).items() if name.isupper()}
    single = [statement for statement in every.values() if isinstance(statement, ClauseElement)]
    many = [statement for statement in every.values() if isinstance(statement, ManyRows)]
    assert len(single) > 70
    assert len(many) > 30
    for statement in single:
        assert sqlite.text_of(statement).count("?") == postgres.text_of(statement).count(b"%s")
    for statement in many:
        width = len(statement.types)
        assert sqlite.text_of_rows(statement, 3).count(f"({', '.join('?' * width)})") == 3
        assert sqlite.text_of_rows(statement, 3).count("?") == 3 * width
        assert (
            postgres.text_of(statement.statement).count(b"%")
            == postgres.text_of(statement.statement).count(b"%b")
            == width
        )


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
    r"SCAN (\d+ CONSTANT ROWS|listed|asked|new"
    r"|gate USING INDEX gate_held|url USING INDEX url_due|queue USING COVERING INDEX queue_standing)"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        yield made


def plan(store: Crawl, name: str) -> list[str]:
    statement: ClauseElement | ManyRows = (
        statements.open_gates(1) if name == "OPEN_GATES" else getattr(statements, name)
    )
    text = sqlite.text_of_rows(statement, 2) if isinstance(statement, ManyRows) else sqlite.text_of(statement)
    with store.connection.begin():
        parameters = (1,) * text.count("?")
        return [row[3] for row in store.connection.exec_driver_sql("EXPLAIN QUERY PLAN " + text, parameters)]


@pytest.mark.parametrize("name", HOT)
def test_no_hot_statement_scans_or_sorts(store: Crawl, name: str) -> None:
    """A table is entered by an index only, and rows come in its order."""
    steps = plan(store, name)
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
    assert [step for step in plan(store, name) if index in step]


def test_a_plan_with_a_scan_is_noticed(store: Crawl) -> None:
    """The lookup without a lane is the one that scans `url`, and says so."""
    assert [step for step in plan(store, "URL_ANYWHERE") if step == "SCAN url"]
