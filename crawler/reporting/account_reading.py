"""Reads what the accounts hold, row by row, in this process or another one, while the crawl goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Select, func, select

from anabranch.crawler.jobs.databases import as_system_errors, engine_for
from anabranch.crawler.reporting.account_file import ACCOUNTS_FILE, totals_of
from anabranch.crawler.reporting.account_tables import HOST, MIME, PROCESSOR, RUN, SOURCE, STATUS, TOTAL
from anabranch.crawler.reporting.accounting import Totals

#: Rows that are read at a time.
_PAGE = 1000

Row = tuple[Any, ...]


class AccountsView:
    """The accounts of a job as they were written back last (`Accounts.sync`). Memory: a page of rows. Raises: OSError."""

    def __init__(self, state: Path) -> None:
        self._file = state / ACCOUNTS_FILE
        if not self._file.is_file():
            raise FileNotFoundError(2, "there are no accounts yet", str(self._file))
        with as_system_errors(self._file):
            self._connection = engine_for(self._file, is_reader=True).connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. A second call does nothing."""
        self._connection.close()

    def total(self) -> Totals:
        """All hosts together."""
        row = next(self._rows(select(*list(TOTAL.columns)[1:])), None)
        return Totals() if row is None else totals_of(row)

    def hosts_visited(self) -> int:
        """Hosts of which something was answered, look-ups of names left out."""
        return int(next(self._rows(select(func.count()).where(HOST.c.urls > 0, HOST.c.host != "dns:")))[0])

    def hosts(self) -> Iterator[tuple[str, Totals]]:
        """Every host with its totals, most URLs first."""
        for host, *row in self._rows(select(*HOST.columns).order_by(HOST.c.urls.desc(), HOST.c.host)):
            yield host, totals_of(row)

    def mime_types(self) -> Iterator[Row]:
        """(type, URLs, bytes), most URLs first."""
        return self._rows(select(*MIME.columns).order_by(MIME.c.urls.desc(), MIME.c.mime))

    def statuses(self) -> Iterator[Row]:
        """(status, URLs), most URLs first."""
        return self._rows(select(*STATUS.columns).order_by(STATUS.c.urls.desc(), STATUS.c.status))

    def sources(self) -> Iterator[Row]:
        """(seed, host, URLs), by seed, most URLs first."""
        return self._rows(select(*SOURCE.columns).order_by(SOURCE.c.source, SOURCE.c.urls.desc(), SOURCE.c.host))

    def processors(self) -> Iterator[Row]:
        """(processor, counter, number)."""
        return self._rows(select(*PROCESSOR.columns).order_by(PROCESSOR.c.processor, PROCESSOR.c.counter))

    def duration_s(self) -> float:
        """How long the job has run, all runs together."""
        found = next(self._rows(select(func.coalesce(func.sum(RUN.c.until_s - RUN.c.started_s), 0.0))))
        return float(found[0])

    def _rows(self, question: Select[Any]) -> Iterator[Row]:
        with as_system_errors(self._file):
            answer = self._connection.execution_options(yield_per=_PAGE).execute(question)
            try:
                for row in answer:
                    yield tuple(row)
            finally:
                answer.close()
