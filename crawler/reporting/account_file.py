"""The rows of `state/accounts.sqlite`: one connection adds to them, another one reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import Table, bindparam, delete, select

from crawler.jobs.databases import as_system_errors, engine_for, is_damaged
from crawler.reporting import account_tables as tables
from crawler.reporting.account_tables import adding, setting
from crawler.reporting.accounting import SUMS, Additions, Totals

log = structlog.get_logger(__name__)

#: The file's name in the state folder.
ACCOUNTS_FILE = "accounts.sqlite"


class AccountsFile:
    """The rows: one connection writes them, another one reads. Raises: OSError, as for every file."""

    def __init__(self, path: Path) -> None:
        """Connect; a file that is broken is made anew, since all of it stands in the log."""
        self._path = path
        try:
            self._connect()
        except OSError as error:
            if not is_damaged(error):
                raise
            log.warning("the accounts are damaged; they are counted again from crawl.log", file=str(path))
            for part in (path, *(Path(f"{path}{ending}") for ending in ("-wal", "-shm"))):
                part.unlink(missing_ok=True)
            self._connect()

    def read(self, host: str) -> tuple[int, Totals]:
        """How much of the log the rows count, and a host's row, both of one moment."""
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

    def write(self, added: Additions, end: int, run: tuple[float, float]) -> None:
        """Add to the rows, in one transaction: they count the log up to `end` then; `run` is when this one began and is now."""
        with as_system_errors(self._path), self._writer.begin():
            for table, rows in _rows(added):
                if rows:
                    self._writer.execute(_ADD[table.name], rows)
            self._writer.execute(_SET_RUN, {"started_s": run[0], "until_s": run[1]})
            self._writer.execute(_SET_COVERED, {"id": 0, "bytes": end})

    def forget(self) -> None:
        """No rows but those of the runs."""
        with as_system_errors(self._path), self._writer.begin():
            for table in tables.METADATA.sorted_tables:
                if table is not tables.RUN:
                    self._writer.execute(delete(table))

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

    def _connect(self) -> None:
        with as_system_errors(self._path):
            self._writer = engine_for(self._path).connect()
            try:
                with self._writer.begin():
                    tables.METADATA.create_all(self._writer)
                self._reader = engine_for(self._path, is_reader=True).connect()
            except BaseException:
                self._writer.close()
                raise


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


_ADD = {
    table.name: adding(table)
    for table in (tables.HOST, tables.TOTAL, tables.MIME, tables.STATUS, tables.SOURCE, tables.PROCESSOR)
}
_SET_RUN = setting(tables.RUN)
_SET_COVERED = setting(tables.COVERED)
_ROW_OF_HOST = select(
    tables.COVERED.c.bytes, *(column for column in tables.HOST.columns if not column.primary_key)
).select_from(tables.COVERED.outerjoin(tables.HOST, tables.HOST.c.host == bindparam("asked")))
