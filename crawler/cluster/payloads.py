"""The payloads that the workers of a job have archived, as rows: what one has written, the others need not write.

    job_payload(digest, worker, url, date)

A worker notes a payload when the journal has recorded its record, and writes the row with the next transaction of its Frontier.
So a kill may cost a row, and the payload is written twice; no row is without its record. A worker asks for payloads that are
new to itself alone, one question at a time: those that come meanwhile are the next one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from anabranch.crawler.archive.records import Original
from anabranch.crawler.archive.sink import JournalEntry, JournalSink
from anabranch.crawler.job.database import JobDatabase, execute
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.stores.sql import execution

#: Payloads that are waiting for a transaction; beyond that the oldest are forgotten, and may be written twice.
MOST_WAITING = 20_000
#: Between two questions: the first is asked at once, and then many go together.
GATHER_S = 0.02
_PUT = "INSERT INTO job_payload VALUES (:digest, :worker, :url, :date) ON CONFLICT (digest, worker) DO NOTHING"


class SharedPayloads(JournalSink):
    """One worker's part in the payloads of its job. Gets the groups of the journal from its history.

    Payloads below `min_bytes` are left out. A page waits for an answer no longer than `timeout_s`.
    """

    def __init__(self, database: JobDatabase, worker: str, *, min_bytes: int, timeout_s: float) -> None:
        self._database = database
        self._worker = worker
        self._min_bytes = min_bytes
        self._timeout_s = timeout_s
        self._changing = threading.Lock()  # the journal's thread adds, the store's takes
        self._appended: list[Original] = []  # of this group
        self._waiting: list[Original] = []
        self._carrying: list[Original] = []
        self._questions: dict[bytes, asyncio.Future[Original | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._next_s = 0.0  # the next question waits until then, by the loop's clock

    @property
    def path(self) -> Path:
        """The database."""
        return Path(self._database.place)

    def append(self, entries: Sequence[JournalEntry]) -> None:
        """Note the payloads that were written."""
        self._appended = [
            Original(exchange.url, exchange.date, exchange.response.body.digest)
            for exchange in (entry.exchange for entry in entries if entry.place is not None)
            if exchange is not None
            and exchange.revisit is None
            and exchange.may_be_original
            and exchange.response.body.size >= self._min_bytes
        ]

    def keep(self) -> None:
        """The records count: their rows go with the next transaction."""
        with self._changing:
            self._waiting = [*self._waiting, *self._appended][-MOST_WAITING:] if self._appended else self._waiting
        self._appended = []

    def take_back(self) -> None:
        """Forget what was appended."""
        self._appended = []

    def close(self) -> None:
        """Do nothing: the database is the job's."""

    def put(self, connection: Connection) -> bool:
        """Write what is waiting in the running transaction, until `carried` again and again; whether there was anything."""
        with self._changing:
            if not self._carrying:
                self._carrying, self._waiting = self._waiting, []
        put_payloads(connection, self._worker, self._carrying)
        return bool(self._carrying)

    def carried(self) -> None:
        """The transaction was committed."""
        self._carrying = []

    async def original(self, digest: bytes) -> Original | None:
        """The record of a worker that has this payload; None also without an answer in time."""
        if digest not in self._questions:
            self._questions[digest] = asyncio.get_running_loop().create_future()
        answer = self._questions[digest]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        await asyncio.wait([answer], timeout=self._timeout_s)
        return answer.result() if answer.done() else None

    async def _ask(self) -> None:
        """Ask until no question is left. A database that is away has no answer."""
        now_s = asyncio.get_running_loop().time
        while self._questions:
            await asyncio.sleep(max(self._next_s - now_s(), 0.0))
            self._next_s = now_s() + GATHER_S
            asked, self._questions = self._questions, {}
            found: dict[bytes, Original] = {}
            try:
                with suppress(StoreUnavailable):
                    found = await asyncio.to_thread(self._database.do, partial(payloads_elsewhere, digests=[*asked]))
            finally:  # also after a defect, which the task raises
                for digest, answer in asked.items():
                    answer.set_result(found.get(digest))


def put_payloads(connection: Connection, worker: str, payloads: Sequence[Original]) -> None:
    """Write that a worker has these records, in the running transaction. Cost: 15 µs a row."""
    if payloads:
        execute(
            connection,
            _PUT,
            [{"digest": one.digest, "worker": worker, "url": one.url, "date": one.date} for one in payloads],
        )


def payloads_elsewhere(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, Original]:
    """The records of these payloads, as far as a worker has them. Cost: 45 µs and 1 a digest, with the transaction."""
    marks = ", ".join("?" * len(digests))
    question = f"SELECT digest, url, date FROM job_payload WHERE digest IN ({marks})"  # noqa: S608 - marks alone
    rows = execution.fetch(connection, question, digests)
    return {bytes(digest): Original(url, date, bytes(digest)) for digest, url, date in rows}


def forget_payloads(connection: Connection, worker: str) -> None:
    """The records of a worker are lost."""
    execute(connection, "DELETE FROM job_payload WHERE worker = :worker", worker=worker)
