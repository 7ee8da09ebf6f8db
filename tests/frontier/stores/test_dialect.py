"""How statements reach the driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from anabranch.frontier.stores import sqlite
from anabranch.frontier.stores.dialect import ManyRows, execute, fetch, fetch_for, write

INSERT = ManyRows("INSERT INTO pair VALUES ", 2, " ON CONFLICT (a) DO NOTHING")
ASKED = ManyRows("SELECT a FROM pair WHERE a IN (SELECT * FROM (VALUES ", 1, ") AS asked) ORDER BY a")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    with sqlite.connected(tmp_path / "pairs.db", None) as made, made.begin():
        execute(made, "CREATE TABLE pair (a INTEGER PRIMARY KEY, b TEXT)")
        yield made


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 64, 100, 1023, 1024, 1025, 3000])
def test_any_number_of_rows_is_written_once_each(connection: Connection, rows: int) -> None:
    """The count of changed rows is the sum over all statements."""
    pairs = [(number, str(number)) for number in range(rows)]
    assert write(connection, INSERT, pairs) == rows
    assert fetch(connection, "SELECT a, b FROM pair ORDER BY a") == pairs


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
    columns = ", ".join(f"c{number}" for number in range(200))
    execute(connection, f"CREATE TABLE wide ({columns})")
    said: list[str] = []
    connection.connection.driver_connection.set_trace_callback(said.append)  # type: ignore[union-attr]
    assert (
        write(connection, ManyRows("INSERT INTO wide VALUES ", 200, may_repeat=False), [tuple(range(200))] * 300) == 300
    )
    assert len(said) == 2 + 3  # 128, 128, 32, 8, 4


@pytest.mark.parametrize(("rows", "steps"), [(95, 2), (100, 1), (127, 1), (255, 1), (300, 4)])
def test_few_steps_take_many_rows(connection: Connection, rows: int, steps: int) -> None:
    """At each step Python's lock goes to another thread: a last row that comes again fills a statement, and counts once."""
    said: list[str] = []
    connection.connection.driver_connection.set_trace_callback(said.append)  # type: ignore[union-attr]
    assert write(connection, INSERT, [(number, "") for number in range(rows)]) == rows
    assert len(said) == steps
