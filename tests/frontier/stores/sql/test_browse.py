"""Tables of all queues and gates: sorted, filtered and paged as plain Python would do it."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.frontier.composition import open_frontier
from anabranch.frontier.errors import PolicyError, StoreDamaged
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.records import Candidate, QueueKey
from anabranch.frontier.stores.sql import browse
from anabranch.frontier.stores.sql.browse import (
    NOT_SET,
    QUEUE_COLUMNS,
    QUEUE_STATES,
    QUEUES,
    BrowsedTable,
    PageQuery,
    browsed_tables,
    first_urls,
    make_tables,
    write_table,
)
from anabranch.frontier.stores.sql.store import SqlStore
from tests.postgres_server import server

ORDER = FrontierOrder(policy="host")

ROWS = st.dictionaries(
    st.text("aAbé-", min_size=1, max_size=4),
    st.tuples(st.sampled_from(QUEUE_STATES), st.integers(0, 3), st.none() | st.integers(-1, 1) | st.just(1 << 40)),
    max_size=12,
)
QUERIES = st.builds(
    PageQuery,
    sort=st.sampled_from(["key", "state", "urls", "budget"]),
    descending=st.booleans(),
    text=st.text("aAbé", max_size=2),
    states=st.lists(st.sampled_from(QUEUE_STATES), max_size=4).map(tuple),
    least_urls=st.integers(0, 2),
    limit=st.integers(1, 5),
    after=st.none(),
    offset=st.just(0),
)
Rows = dict[str, tuple[str, int, int | None]]


def fold(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def value_of(rows: Rows, key: str, sort: str) -> Any:
    state, urls, budget = rows[key]
    return {"key": key, "state": state, "urls": urls, "budget": budget}[sort]


def place_of(rows: Rows, key: str, sort: str) -> tuple[Any, str]:
    value = value_of(rows, key, sort)
    if sort == "key":
        return ("", key)
    if sort == "state":
        return (QUEUE_STATES.index(value), key)
    return (NOT_SET if value is None else value, key)


def expected(rows: Rows, query: PageQuery) -> list[str]:
    chosen = [
        key
        for key, (state, urls, _) in rows.items()
        if fold(query.text) in fold(key) and urls >= query.least_urls and (not query.states or state in query.states)
    ]
    return sorted(chosen, key=lambda key: place_of(rows, key, query.sort), reverse=query.descending)


def table_of(folder: Path, rows: Rows) -> BrowsedTable:
    columns: dict[str, Any] = {name: np.zeros(len(rows), np.int64) for name in QUEUE_COLUMNS}
    columns["urls"] = np.array([urls for _, urls, _ in rows.values()], np.int64)
    budgets = [NOT_SET if budget is None else budget for _, _, budget in rows.values()]
    columns["budget"] = np.array(budgets, np.int64)
    states = np.array([QUEUE_STATES.index(state) for state, _, _ in rows.values()], np.int8)
    write_table(folder / QUEUES, list(rows), columns, states)
    return BrowsedTable(folder / QUEUES)


@given(rows=ROWS, query=QUERIES, known=st.dictionaries(st.integers(0, 11), st.sampled_from(QUEUE_STATES)))
@settings(deadline=None)
def test_the_pages_of_a_query_are_the_rows_in_order_each_once(
    rows: Rows, query: PageQuery, known: dict[int, str]
) -> None:
    """By a row or by an offset; states that the crawl tells count as if they were in the rows."""
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(Path(folder), rows)
        known = {row: state for row, state in known.items() if row < len(table)}
        rows = {**rows, **{table.key(row): (state, *rows[table.key(row)][1:]) for row, state in known.items()}}
        wanted = expected(rows, query)
        by_row: list[str] = []
        by_offset: list[str] = []
        while found := table.find(query, known=known).rows:
            by_row += map(table.key, found)
            assert len(by_row) <= len(rows)
            query = query._replace(after=(value_of(rows, by_row[-1], query.sort), by_row[-1]))
        query = query._replace(after=None)
        while (page := table.find(query._replace(offset=len(by_offset)), known=known)).rows:
            by_offset += map(table.key, page.rows)
            assert page.total == len(wanted)
        assert by_row == by_offset == wanted


@given(rows=ROWS, query=QUERIES, gone=st.tuples(st.integers(0, 3), st.text("aAbé-", min_size=1, max_size=4)))
@settings(deadline=None)
def test_a_page_after_a_row_that_is_gone_begins_where_the_row_was(
    rows: Rows, query: PageQuery, gone: tuple[int, str]
) -> None:
    """So no row is shown twice after the tables were made anew."""
    query = query._replace(sort="urls", after=gone, limit=100)
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(Path(folder), rows)
        found = [table.key(row) for row in table.find(query).rows]
    places = [place_of(rows, key, "urls") for key in expected(rows, query)]
    assert [place_of(rows, key, "urls") for key in found] == [
        place for place in places if (place < gone if query.descending else place > gone)
    ]


def test_an_unknown_column_or_state_is_refused_by_name(tmp_path: Path) -> None:
    """With those that there are."""
    table = table_of(tmp_path, {"a": ("ready", 1, None)})
    with pytest.raises(PolicyError, match="'size' is no column; choose one of key, state, "):
        table.find(PageQuery(sort="size"))
    with pytest.raises(PolicyError, match="'busy' is no state; choose one of in-flight, "):
        table.find(PageQuery(states=("busy",)))


def test_the_tables_of_a_store_have_its_rows_while_its_owner_writes(tmp_path: Path) -> None:
    """Counts, states and the next URLs fit together, as of one moment."""
    (tmp_path / "tables").mkdir()
    store = tmp_path / "live" / "frontier.db"
    with open_frontier(tmp_path / "live", ORDER) as frontier:
        frontier.schedule([Candidate(f"http://{host}.test/{page}") for host in "abc" for page in range(3)])
        frontier.flush()
        frontier.operations.pause(QueueKey("b.test"))
        frontier.flush()
        make_tables(store, tmp_path / "tables", is_running=True)
        frontier.schedule([Candidate("http://d.test/")])
        frontier.flush()
    queues, gates = browsed_tables(tmp_path / "tables")
    assert [queues.key(row) for row in range(len(queues))] == ["a.test", "b.test", "c.test"]
    assert [queues.value("urls", row) for row in range(3)] == [3, 3, 3]
    assert [queues.state(row, 0.0) for row in range(3)] == ["ready", "paused", "ready"]
    assert queues.values(0) == {
        "urls": 3, "waiting": 0, "precedence": queues.value("precedence", 0), "spent": 0, "budget": None, "gates": 1,
        "successes": 0, "errors": 0,
    }  # fmt: skip
    assert [(gates.key(row), gates.value("urls", row)) for row in range(len(gates))] == [
        ("a.test", 3),
        ("b.test", 3),
        ("c.test", 3),
    ]
    of_queue = first_urls(store, tmp_path / "tables", 2, queue="a.test")
    assert [found.url for found in of_queue] == ["http://a.test/0", "http://a.test/1"]
    of_gate = first_urls(store, tmp_path / "tables", 9, gate="c.test")
    assert [found.url for found in of_gate] == [f"http://c.test/{page}" for page in range(3)]


def test_a_table_works_when_its_files_are_removed(tmp_path: Path) -> None:
    """They are replaced while a page is read."""
    table = table_of(tmp_path, {"a": ("ready", 1, None), "b": ("empty", 0, 5)})
    shutil.rmtree(tmp_path / QUEUES)
    assert table.find(PageQuery(text="B", sort="budget")).rows == [1]


def test_a_disk_without_room_for_the_copy_is_told_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written."""
    (tmp_path / "frontier.db").write_bytes(b"x")
    (tmp_path / "tables").mkdir()
    monkeypatch.setattr(browse, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="no room for a copy of the queue") as caught:
        make_tables(tmp_path / "frontier.db", tmp_path / "tables", is_running=False)
    assert caught.value.errno == errno.ENOSPC
    assert [*(tmp_path / "tables").iterdir()] == []


def test_a_file_that_is_no_store_is_told_by_its_own_name(tmp_path: Path) -> None:
    """Not by that of the copy."""
    (tmp_path / "frontier.db").write_bytes(b"no database" * 1000)
    (tmp_path / "tables").mkdir()
    with pytest.raises(StoreDamaged, match=rf"^{tmp_path}/frontier.db: "):
        make_tables(tmp_path / "frontier.db", tmp_path / "tables", is_running=False)


def test_a_database_is_read_as_of_one_moment_while_its_owner_writes(tmp_path: Path) -> None:
    """By a read-only transaction; nothing is copied."""
    (tmp_path / "tables").mkdir()
    with server() as url:
        with open_frontier(tmp_path / "live", ORDER, store=SqlStore(url)) as frontier:
            frontier.schedule([Candidate(f"http://{host}.test/{page}") for host in "ab" for page in range(3)])
            frontier.flush()
            make_tables(url, tmp_path / "tables", is_running=True)
            found = first_urls(url, tmp_path / "tables", 1, gate="b.test")
            assert [one.url for one in found] == ["http://b.test/0"]
        table, _ = browsed_tables(tmp_path / "tables")
        assert [(table.key(row), table.value("urls", row), table.value("budget", row)) for row in range(2)] == [
            ("a.test", 3, None),
            ("b.test", 3, None),
        ]
    assert not (tmp_path / "tables" / browse.COPY).exists()
