"""The tables of `state/accounts.sqlite`, and the statements on them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, Double, Integer, MetaData, String, Table, func
from sqlalchemy.dialects.sqlite import Insert, insert

from anabranch.crawler.reporting.accounting import SUMS

METADATA = MetaData()

#: Their columns in `Totals`' order: sums, then the times of the first and the last success.
FIRST, LAST = "first_success_s", "last_success_s"


def _totals_columns() -> list[Column[Any]]:
    sums = [Column(name, Integer, nullable=False) for name in SUMS]
    return [*sums, Column(FIRST, Double), Column(LAST, Double)]


HOST = Table("host", METADATA, Column("host", String, primary_key=True), *_totals_columns(), sqlite_with_rowid=False)
#: One row, number 0.
TOTAL = Table("total", METADATA, Column("id", Integer, primary_key=True), *_totals_columns())
MIME = Table(
    "mime",
    METADATA,
    Column("mime", String, primary_key=True),
    Column("urls", Integer, nullable=False),
    Column("bytes", Integer, nullable=False),
    sqlite_with_rowid=False,
)
STATUS = Table("status", METADATA, Column("status", Integer, primary_key=True), Column("urls", Integer, nullable=False))
SOURCE = Table(
    "source",
    METADATA,
    Column("source", String, primary_key=True),
    Column("host", String, primary_key=True),
    Column("urls", Integer, nullable=False),
    sqlite_with_rowid=False,
)
PROCESSOR = Table(
    "processor",
    METADATA,
    Column("processor", String, primary_key=True),
    Column("counter", String, primary_key=True),
    Column("number", Integer, nullable=False),
    sqlite_with_rowid=False,
)
#: When each run of the job began, and until when it is known to have run.
RUN = Table("run", METADATA, Column("started_s", Double, primary_key=True), Column("until_s", Double, nullable=False))
#: One row, number 0: up to which place of the journal the rows count. None in accounts that were never opened with one.
PLACE = Table("place", METADATA, Column("id", Integer, primary_key=True), Column("place", Integer, nullable=False))
#: One row, number 0: how much of crawl.log was counted before there was a journal.
COVERED = Table("covered", METADATA, Column("id", Integer, primary_key=True), Column("bytes", Integer, nullable=False))


def adding(table: Table) -> Insert:
    """Add a row's numbers to those of the row with its key, or make it: first times are the least, last ones the greatest."""
    statement = insert(table)
    changed: dict[str, ColumnElement[Any]] = {}
    for column in table.columns:
        new = statement.excluded[column.name]
        if column.primary_key:
            continue
        if column.name in {FIRST, LAST}:
            either = func.coalesce(column, new), func.coalesce(new, column)
            changed[column.name] = func.min(*either) if column.name == FIRST else func.max(*either)
        else:
            changed[column.name] = column + new
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)


def setting(table: Table) -> Insert:
    """Set a row's values, whether it is there or not."""
    statement = insert(table)
    changed = {column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)
