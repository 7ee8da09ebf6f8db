"""Payloads of a job's workers: one asks for what is new to itself, and no row is without its record."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import Connection

from anabranch.crawler.archive.history import FetchHistory
from anabranch.crawler.archive.records import SAME_PAYLOAD, Exchange, Original, RecordLocation, Revisit
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.cluster import payloads
from anabranch.crawler.cluster.payloads import SharedPayloads, forget_payloads
from anabranch.crawler.job.database import JobDatabase, fetch, make_tables
from anabranch.frontier.errors import StoreUnavailable
from tests.crawler.archive.exchanges import Cut, Payload, exchange
from tests.crawler.cluster.stores import shared_store

DATE = "2026-01-01T00:00:00.250000Z"
PLACE = RecordLocation("test-00000.warc.gz", 512)
#: Time that no test comes near.
LONG_S = 100.0


@pytest.fixture(params=["file", "server"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobDatabase]:
    with shared_store(request.param, tmp_path) as store, JobDatabase(store) as opened:
        make_tables(opened)
        yield opened


def worker(database: JobDatabase, name: str, *, min_bytes: int = 0, timeout_s: float = LONG_S) -> SharedPayloads:
    return SharedPayloads(database, name, min_bytes=min_bytes, timeout_s=timeout_s)


def archive(shared: SharedPayloads, *exchanges: Exchange) -> None:
    """A group of the journal counts."""
    shared.append([JournalEntry(exchange=one, place=PLACE) for one in exchanges])
    shared.keep()


def carry(database: JobDatabase, shared: SharedPayloads) -> bool:
    """A transaction of the worker's Frontier."""
    has_any = database.do(shared.put)
    shared.carried()
    return has_any


def rows(connection: Connection) -> list[tuple[str, str]]:
    return [tuple(row) for row in fetch(connection, "SELECT worker, url FROM job_payload ORDER BY worker, url")]


async def test_what_one_worker_has_archived_the_others_know(database: JobDatabase) -> None:
    """With URL and date of its record; another payload is unknown."""
    one, two = worker(database, "one"), worker(database, "two")
    archive(one, exchange("http://a.test/1", b"data"))
    assert carry(database, one)
    digest = Payload(b"data").digest
    assert await two.original(digest) == Original("http://a.test/1", DATE, digest)
    assert await two.original(Payload(b"other").digest) is None


async def test_a_payload_is_unknown_until_its_record_counts_and_the_row_is_committed(database: JobDatabase) -> None:
    """The record might be taken back, the transaction rolled back; it is repeated with the same rows."""
    one, two = worker(database, "one"), worker(database, "two")
    entry = JournalEntry(exchange=exchange("http://a.test/1", b"data"), place=PLACE)
    one.append([entry])
    one.take_back()
    one.keep()
    assert not carry(database, one)
    one.append([entry])
    assert not carry(database, one)
    one.keep()

    def broken(connection: Connection) -> None:
        assert one.put(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.do(broken)
    assert await two.original(Payload(b"data").digest) is None
    archive(one, exchange("http://a.test/2", b"more"))
    assert carry(database, one)
    assert await two.original(Payload(b"data").digest) is not None
    assert await two.original(Payload(b"more").digest) is None
    assert carry(database, one)
    assert not carry(database, one)
    assert await two.original(Payload(b"more").digest) is not None


@pytest.mark.parametrize(
    "left_out",
    [
        exchange(data=b""),
        exchange(data=b"large", cuts=(Cut.LENGTH,)),
        exchange(data=b"large", status=302),
        exchange(data=b"large", revisit=Revisit(SAME_PAYLOAD, Original("http://b.test/", DATE, b"x" * 20))),
        exchange(data=b"tiny"),
    ],
    ids=["empty", "cut", "redirect", "revisit", "small"],
)
def test_what_no_revisit_refers_to_has_no_row(tmp_path: Path, left_out: Exchange) -> None:
    """A payload that has just the least size has one; an entry without a record has none."""
    with JobDatabase(tmp_path / "frontier.db") as database:
        make_tables(database)
        one = worker(database, "one", min_bytes=5)
        archive(one, left_out, exchange("http://a.test/5", b"large"))
        one.append([JournalEntry(crawl_log=b"line\n"), JournalEntry(exchange=exchange(data=b"unwritten"))])
        one.keep()
        carry(database, one)
        assert database.do(rows) == [("one", "http://a.test/5")]


async def test_payloads_of_a_lost_worker_are_forgotten(database: JobDatabase) -> None:
    """What another worker has, too, stays."""
    one, two, three = (worker(database, name) for name in ("one", "two", "three"))
    archive(one, exchange("http://a.test/1", b"both"), exchange("http://a.test/2", b"lost"))
    archive(two, exchange("http://b.test/1", b"both"))
    carry(database, one)
    carry(database, two)
    database.do(partial(forget_payloads, worker="one"))
    assert await three.original(Payload(b"lost").digest) is None
    assert await three.original(Payload(b"both").digest) == Original("http://b.test/1", DATE, Payload(b"both").digest)


async def test_questions_that_come_meanwhile_are_asked_as_one(
    database: JobDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one payload is asked for once."""
    asked: list[list[bytes]] = []
    free, ask = Event(), payloads.payloads_elsewhere

    def slow(connection: Connection, digests: list[bytes]) -> dict[bytes, Original]:
        asked.append(digests)
        free.wait(LONG_S)
        return ask(connection, digests)

    monkeypatch.setattr(payloads, "payloads_elsewhere", slow)
    one, two = worker(database, "one"), worker(database, "two")
    archive(one, exchange("http://a.test/1", b"1"))
    carry(database, one)
    digests = [Payload(str(number).encode()).digest for number in range(5)]
    first = asyncio.create_task(two.original(digests[0]))
    while not asked:
        await asyncio.sleep(0)
    others = [asyncio.create_task(two.original(digest)) for digest in (*digests[1:], digests[1])]
    await asyncio.sleep(0)
    others[2].cancel()
    free.set()
    assert await first is None
    found = await asyncio.gather(*others, return_exceptions=True)
    assert [isinstance(one, Original) for one in found] == [True, False, False, False, True]
    assert asked == [[digests[0]], digests[1:]]


async def test_a_database_that_is_away_or_slow_has_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The payload is written; the next question is asked again."""
    free, raised = Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))

    def away(_: Connection, digests: list[bytes]) -> dict[bytes, Original]:
        raise StoreUnavailable("away")

    def slow(_: Connection, digests: list[bytes]) -> dict[bytes, Original]:
        free.wait(LONG_S)
        return {}

    with JobDatabase(tmp_path / "frontier.db") as database:
        make_tables(database)
        ask = payloads.payloads_elsewhere
        one, two = worker(database, "one"), worker(database, "two", timeout_s=0.05)
        archive(one, exchange("http://a.test/1", b"data"))
        carry(database, one)
        for broken in (away, slow):
            monkeypatch.setattr(payloads, "payloads_elsewhere", broken)
            assert await two.original(Payload(b"data").digest) is None
        gc.collect()
        assert not raised, "a database that is away is no defect"
        free.set()
        monkeypatch.setattr(payloads, "payloads_elsewhere", ask)
        patient = worker(database, "three")
        assert await patient.original(Payload(b"data").digest) is not None


async def test_the_history_of_a_worker_gives_its_groups_on(tmp_path: Path) -> None:
    """Those that count, and no others."""
    with JobDatabase(tmp_path / "frontier.db") as database:
        make_tables(database)
        one, history = worker(database, "one"), FetchHistory(tmp_path / "payloads.sqlite")
        history.share(one)
        for number, ends in enumerate((history.take_back, history.keep)):
            history.append([JournalEntry(exchange=exchange(f"http://a.test/{number}", b"%d" % number), place=PLACE)])
            ends()
            history.keep()
        carry(database, one)
        assert database.do(rows) == [("one", "http://a.test/1")]
        history.close()


def test_payloads_that_no_transaction_takes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stay."""
    monkeypatch.setattr(payloads, "MOST_WAITING", 2)
    with JobDatabase(tmp_path / "frontier.db") as database:
        make_tables(database)
        one = worker(database, "one")
        for number in range(4):
            archive(one, exchange(f"http://a.test/{number}", b"%d" % number))
        carry(database, one)
        assert database.do(rows) == [("one", "http://a.test/2"), ("one", "http://a.test/3")]
