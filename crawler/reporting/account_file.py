"""The rows of `state/accounts.sqlite`: one connection adds to them, another one reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Table, bindparam, delete, func, select, text

from anabranch.crawler.jobs.databases import as_system_errors, engine_for
from anabranch.crawler.reporting import account_tables as tables
from anabranch.crawler.reporting.account_tables import adding, setting
from anabranch.crawler.reporting.accounting import SUMS, Additions, Totals

#: The file's name in the state folder.
ACCOUNTS_FILE = "accounts.sqlite"
#: What is committed is synced: the journal forgets it then.
_DURABLE = ("PRAGMA synchronous = FULL",)
#: Rows that are read at a time.
_PAGE = 1000


class AccountsFile:
    """The rows: one connection writes them, another one reads. Raises: OSError, as for every file."""

    def __init__(self, path: Path) -> None:
        """Connect, and make the tables that are missing."""
        self._path = path
        with as_system_errors(path):
            self._writer = engine_for(path, pragmas=_DURABLE).connect()
            try:
                with self._writer.begin():
                    tables.METADATA.create_all(self._writer)
                self._reader = engine_for(path, is_reader=True).connect()
            except BaseException:
                self._writer.close()
                raise

    def is_sound(self) -> bool:
        """The file is whole, and the sums of the hosts are those of all. Cost: linear in the file."""
        with as_system_errors(self._path):
            words = self._reader.execute(text("PRAGMA quick_check(1)")).scalars().all()
            of_hosts = self._reader.execute(select(*(func.total(tables.HOST.c[name]) for name in SUMS))).one()
            of_all = self._reader.execute(select(*(func.total(tables.TOTAL.c[name]) for name in SUMS))).one()
            self._reader.rollback()
        return words == ["ok"] and tuple(of_hosts) == tuple(of_all)

    def places(self) -> tuple[int | None, int]:
        """Up to which place of the journal the rows count (None: they know no journal), and how much of crawl.log."""
        with as_system_errors(self._path):
            place = self._reader.execute(select(tables.PLACE.c.place)).scalar_one_or_none()
            covered = self._reader.execute(select(tables.COVERED.c.bytes)).scalar_one_or_none()
            self._reader.rollback()
        return place, covered or 0

    def read(self, host: str) -> tuple[int, Totals]:
        """Up to which place of the journal the rows count, and a host's row, both of one moment."""
        with as_system_errors(self._path):
            row = self._reader.execute(_ROW_OF_HOST, {"asked": host}).one_or_none()
            self._reader.rollback()
        if row is None:
            return 0, Totals()
        return row[0], totals_of(row[1:]) if row[1] is not None else Totals()

    def types(self, limit: int) -> list[str]:
        """Media types that have a row, at most so many."""
        with as_system_errors(self._path):
            names = list(self._reader.execute(select(tables.MIME.c.mime).limit(limit)).scalars())
            self._reader.rollback()
        return names

    def write(self, added: Additions, run: tuple[float, float], *, place: int | None = None, covered: int = 0) -> None:
        """Add to the rows, in one durable transaction: they count the journal up to `place` then, or without a place crawl.log
        up to `covered`; `run` is when this one began and is now.
        """
        with as_system_errors(self._path), self._writer.begin():
            for table, rows in _rows(added):
                if rows:
                    self._writer.execute(_ADD[table.name], rows)
            self._writer.execute(_SET_RUN, {"started_s": run[0], "until_s": run[1]})
            if place is not None:
                self._writer.execute(_SET_PLACE, {"id": 0, "place": place})
            else:
                self._writer.execute(_SET_COVERED, {"id": 0, "bytes": covered})

    def sum_up(self, parts: Sequence[Path], run: tuple[float, float]) -> None:
        """Make the rows the sums of other accounts' rows, in one transaction; those of the runs stay. Cost: linear in rows."""
        with as_system_errors(self._path), self._writer.begin():
            for table in (*_ADDED, tables.PLACE, tables.COVERED):
                self._writer.execute(delete(table))
            self._writer.execute(_SET_RUN, {"started_s": run[0], "until_s": run[1]})
            for part in parts:
                with engine_for(part, is_reader=True).connect() as reader:
                    for table in _ADDED:
                        answer = reader.execution_options(yield_per=_PAGE).execute(select(table))
                        for page in answer.mappings().partitions():
                            self._writer.execute(_ADD[table.name], [dict(row) for row in page])

    def fold(self) -> None:
        """Leave one file, without a log beside it."""
        with as_system_errors(self._path):
            self._writer.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").close()  # in no transaction

    def close(self) -> None:
        """Let go of the file. A second call does nothing."""
        self._writer.close()
        self._reader.close()

    @property
    def is_closed(self) -> bool:
        """Nothing can be read or written any more."""
        return self._writer.closed


def totals_of(row: Sequence[float | None]) -> Totals:
    """The columns of a row of `host` or `total`, behind its key."""
    return Totals(*row)  # type: ignore[arg-type]


def _columns(totals: Totals) -> dict[str, float | None]:
    return {name: getattr(totals, name) for name in (*SUMS, tables.FIRST, tables.LAST)}


def _rows(added: Additions) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    yield tables.HOST, [{"host": host, **_columns(totals)} for host, totals in added.hosts.items()]
    yield tables.TOTAL, [{"id": 0, **_columns(added.total)}]
    mimes = added.mime_urls.items()
    yield tables.MIME, [{"mime": mime, "urls": urls, "bytes": added.mime_bytes[mime]} for mime, urls in mimes]
    yield tables.STATUS, [{"status": status, "urls": urls} for status, urls in added.statuses.items()]
    yield tables.SOURCE, [{"source": tag, "host": host, "urls": urls} for (tag, host), urls in added.sources.items()]
    numbers = added.processors.items()
    yield tables.PROCESSOR, [{"processor": of, "counter": what, "number": number} for (of, what), number in numbers]


#: The tables whose rows are sums.
_ADDED = (tables.HOST, tables.TOTAL, tables.MIME, tables.STATUS, tables.SOURCE, tables.PROCESSOR)
_ADD = {table.name: adding(table) for table in _ADDED}
_SET_RUN = setting(tables.RUN)
_SET_PLACE = setting(tables.PLACE)
_SET_COVERED = setting(tables.COVERED)
_ROW_OF_HOST = select(
    tables.PLACE.c.place, *(column for column in tables.HOST.columns if not column.primary_key)
).select_from(tables.PLACE.outerjoin(tables.HOST, tables.HOST.c.host == bindparam("asked")))
