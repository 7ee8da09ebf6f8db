"""What knows payloads of other archives: the same captures, the same answers, whoever is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from anabranch.crawler.archive.cdxj import IndexLine
from anabranch.crawler.archive.cdxserver import CdxServers
from anabranch.crawler.archive.earlier import open_earlier
from anabranch.crawler.archive.records import Original, digest_text
from anabranch.crawler.cluster.payloads import SharedPayloads, put_payloads
from anabranch.crawler.job.database import JobDatabase, make_tables
from anabranch.crawler.processors.recorder import ExchangeMaker, KnownPayloads
from tests.crawler.archive.exchanges import Payload
from tests.crawler.builder import response

URL = "http://a.test/ü?a=1"
OLD = Original(URL, "2026-01-02T03:04:05Z", Payload(b"page").digest)
CAPTURES = [OLD, Original(URL, "2025-01-02T03:04:05Z", Payload(b"older").digest)]


@asynccontextmanager
async def of_an_index(folder: Path, captures: Sequence[Original]) -> AsyncIterator[KnownPayloads]:
    """The CDXJ file of an earlier job."""
    (folder / "a.cdxj").write_bytes(b"".join(map(index_line, captures)))
    known = await open_earlier(folder / "earlier.sqlite", [str(folder)])
    yield known
    known.close()


def index_line(capture: Original) -> bytes:
    digest = digest_text(capture.digest)
    return IndexLine(capture.url, capture.date, "text/html", 200, digest, 10, 0, "a.warc.gz").to_bytes()


@asynccontextmanager
async def of_a_server(_: Path, captures: Sequence[Original]) -> AsyncIterator[KnownPayloads]:
    """A CDX server, which has been asked for the URL."""
    body = b"".join(map(index_line, captures))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = "http://{}:{}/cdx".format(*listener.sockets[0].getsockname())
    servers = CdxServers([address], timeout_s=100.0, user_agent="test", count_unanswered=lambda: None)
    asked = servers.ask(URL)
    yield asked
    asked.close()
    await servers.close()
    listener.close()


@asynccontextmanager
async def of_a_worker(folder: Path, captures: Sequence[Original]) -> AsyncIterator[KnownPayloads]:
    """The rows of another worker of the job."""
    with JobDatabase(folder / "frontier.db") as database:
        make_tables(database)
        database.do(partial(put_payloads, worker="other", payloads=captures))
        yield SharedPayloads(database, "this", min_bytes=0, timeout_s=100.0)


SOURCES = {"an index": of_an_index, "a server": of_a_server, "a worker": of_a_worker}


class Nothing:
    """A job that has not written anything."""

    async def original(self, digest: bytes) -> None:
        return None


@pytest.fixture(params=SOURCES)
async def known(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KnownPayloads]:
    async with SOURCES[request.param](tmp_path, CAPTURES) as opened:
        yield opened


async def test_each_payload_has_its_own_record(known: KnownPayloads) -> None:
    """With the URL as it was fetched and a date that is one; again, if it is asked again."""
    for capture in (*CAPTURES, OLD):
        found = await known.original(capture.digest)
        assert found == capture
        assert found.place is None, "it is in none of the job's own files"
        assert datetime.fromisoformat(found.date)


async def test_another_payload_has_none(known: KnownPayloads) -> None:
    """Whatever digest it has."""
    for digest in (Payload(b"new").digest, bytes(20), b"\xff" * 20):
        assert await known.original(digest) is None


async def test_many_ask_at_once(known: KnownPayloads) -> None:
    """Each gets its own answer."""
    digests = [capture.digest for capture in CAPTURES] * 20 + [bytes(20)]
    found = await asyncio.gather(*map(known.original, digests))
    assert found == [*CAPTURES * 20, None]


@pytest.mark.parametrize(("body", "original"), [(b"page", OLD), (b"new", None)])
async def test_a_page_with_the_payload_becomes_a_revisit_of_the_record(
    known: KnownPayloads, body: bytes, original: Original | None
) -> None:
    """Of an exchange's sources the job itself comes first."""
    maker = ExchangeMaker(Nothing(), revisit=True, elsewhere=[known])
    exchange = await maker.exchange(URL, response(200, body), hops="", via=None)
    assert (exchange.revisit and exchange.revisit.original) == original
    answered = ExchangeMaker(Nothing(), revisit=True)
    exchange = await answered.exchange(URL, response(200, body), hops="", via=None, captures=known)
    assert (exchange.revisit and exchange.revisit.original) == original
