"""CDX servers: an answer in time is compared by digest; whatever else a server does, a page waits for a bounded time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs

from anabranch.crawler.archive import cdxserver
from anabranch.crawler.archive.cdxserver import MOST_BYTES, CdxServers, UnfitAnswer, captures_in
from anabranch.crawler.archive.records import Original, digest_text
from tests.crawler.archive.exchanges import Payload

DIGEST = Payload(b"page").digest
URL = "http://a.test/page?a=1&b=*"
KNOWN = Original(URL, "2026-01-02T03:04:05Z", DIGEST)
NAMED = {"timestamp": "20260102030405", "url": URL, "mime": "text/html", "status": "200", "digest": digest_text(DIGEST)}
ROW = [
    "test,a)/page?a=1&b=*",
    "20260102030405",
    URL,
    "text/html",
    "200",
    digest_text(DIGEST),
    "-",
    "-",
    "10",
    "0",
    "a.warc.gz",
]
#: Time that no test comes near.
LONG_S = 100.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answering(body: bytes, status: str = "200 OK", head: str = "") -> Serve:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body)

    return serve


class Server:
    """A server that notes what it is asked."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.asked: list[str] = []
        self.address = ""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.asked.append(head.split()[1].decode())
                await self.serve(reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[Server]:
    server = Server(serve)
    listener = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    server.address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/coll/cdx"
    try:
        yield server
    finally:
        listener.close()


@asynccontextmanager
async def asking(*urls: str, timeout_s: float = LONG_S) -> AsyncIterator[tuple[CdxServers, list[None]]]:
    """The servers, and an entry for each page that is written without an answer."""
    unanswered: list[None] = []
    servers = CdxServers(urls, timeout_s=timeout_s, user_agent="test", count_unanswered=lambda: unanswered.append(None))
    try:
        yield servers, unanswered
    finally:
        await servers.close()


async def asked(servers: CdxServers, digest: bytes = DIGEST, url: str = URL) -> Original | None:
    captures = servers.ask(url)
    try:
        return await captures.original(digest)
    finally:
        captures.close()


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(NAMED),
        json.dumps({**NAMED, "digest": "sha1:" + "A" * 32}) + "\n\n" + json.dumps(NAMED) + "\n",
        "test,a)/page 20260102030405 " + json.dumps({**NAMED, "timestamp": "20260102030405"}),
        "test,a)/page 20260102030405 " + json.dumps({key: NAMED[key] for key in NAMED if key != "timestamp"}),
        json.dumps([ROW]),
        json.dumps(
            [["urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length"], [*ROW[:6], "10"]]
        ),
        json.dumps([["test,a)/page", 20260102030405, URL, "text/html", 200, digest_text(DIGEST)]]),
    ],
    ids=["pywb", "several", "cdxj with a time", "cdxj", "OutbackCDX", "Wayback machine", "numbers"],
)
async def test_a_capture_with_the_payload_is_the_original(body: str) -> None:
    """In the answers of all servers; one with another payload is not."""
    async with served(answering(body.encode())) as server, asking(server.address) as (servers, unanswered):
        assert await asked(servers) == KNOWN
        assert await asked(servers, Payload(b"other").digest) is None
        assert not unanswered


async def test_the_newest_captures_of_the_url_alone_are_asked_for() -> None:
    """Its characters are encoded, and an asterisk at its end asks for no others."""
    async with served(answering(b"")) as server, asking(server.address, f"{server.address}?key=1") as (servers, _):
        assert await asked(servers) is None
    for target, key in zip(sorted(server.asked), (["1"], None), strict=True):
        query = parse_qs(urlsplit(target).query)
        assert query.pop("key", None) == key
        assert query == {
            "url": [URL],
            "matchType": ["exact"],
            "output": ["json"],
            "sort": ["reverse"],
            "limit": ["100"],
        }


@pytest.mark.parametrize(
    "other",
    [
        {"mime": "warc/revisit"},
        {"status": "301"},
        {"status": "-"},
        {"url": "urn:a"},
        {"timestamp": "2026"},
        {"digest": "-"},
    ],
)
def test_a_capture_that_no_revisit_may_refer_to_is_left_out(other: dict[str, str]) -> None:
    """The answer is fit all the same."""
    assert captures_in(json.dumps({**NAMED, **other}).encode()) == []


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"\xff",
        b"{}",
        b"[1]",
        b"[[1, 2]]",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"timestamp": 1, "url": 2, "digest": {"a": 3}}',
        b'{"timestamp": ' + b"1" * 5000 + b', "url": "", "digest": ""}',
        b'{"timestamp": NaN, "url": [], "digest": null}',
        json.dumps(NAMED).encode() + b"\nnull",
    ],
)
def test_an_answer_that_is_none_of_a_cdx_server_is_unfit(body: bytes) -> None:
    """Whatever it holds."""
    with pytest.raises(UnfitAnswer):
        captures_in(body)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    await reader.read()  # until the client has gone


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """100 MB."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n")
    for _ in range(1600):
        writer.write(b"\n" * 65536)
        await writer.drain()


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize(
    ("serve", "timeout_s", "reason"),
    [
        (hang, 0.05, "no answer within 0.05 s"),
        (answering(b"", "500 Internal Server Error"), LONG_S, "it answered 500"),
        (answering(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n"), LONG_S, "it answered 302"),
        (answering(b"<html>"), LONG_S, "it does not answer like a CDX server"),
        (endless, LONG_S, f"its answer is longer than {MOST_BYTES >> 10} KiB"),
        (hang_up, LONG_S, "Server disconnected"),
        (answering(b"\0" * 20, "200 OK", "X: " + "a" * 100_000 + "\r\n"), LONG_S, "400, message"),
    ],
    ids=["hangs", "500", "redirect", "nonsense", "100 MB", "hangs up", "long head"],
)
async def test_a_server_without_a_fit_answer_is_named_once_and_rests(
    serve: Serve, timeout_s: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages are written and counted; the first one alone has asked the server."""
    monkeypatch.setattr(cdxserver, "FIRST_REST_S", LONG_S)
    with capture_logs() as logs:
        async with served(serve) as server, asking(server.address, timeout_s=timeout_s) as (servers, unanswered):
            for _ in range(3):
                assert await asked(servers) is None
            assert len(unanswered) == 3
            assert len(server.asked) <= 2  # the library tries a lost connection once more
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warning["server"] == server.address
    assert reason in warning["reason"]
    assert len(warning["reason"]) <= 200


async def test_a_server_that_is_away_is_asked_again_by_one_page_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it answers, all ask it again."""
    monkeypatch.setattr(cdxserver, "FIRST_REST_S", 0.0)
    waiting = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await waiting.wait()
        await answering(json.dumps(NAMED).encode())(reader, writer)

    async with served(answering(b"", "503 Busy")) as server, asking(server.address) as (servers, unanswered):
        assert await asked(servers) is None
        server.serve = wait
        first, *others = [servers.ask(URL) for _ in range(3)]
        assert [await other.original(DIGEST) for other in others] == [None, None]
        assert len(unanswered) == 3
        waiting.set()
        assert await first.original(DIGEST) == KNOWN
        assert [await asked(servers) for _ in range(3)] == [KNOWN] * 3
        assert len(unanswered) == 3


async def test_a_server_that_fails_again_and_again_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log would fill with a server that comes and goes."""
    monkeypatch.setattr(cdxserver, "FIRST_REST_S", 0.0)
    with capture_logs() as logs:
        async with served(answering(b"", "503 Busy")) as server, asking(server.address) as (servers, unanswered):
            for _ in range(3):
                assert await asked(servers) is None
            assert (len(unanswered), len(server.asked)) == (3, 3)
    assert [entry["log_level"] for entry in logs] == ["warning"]


async def test_a_page_that_asked_a_server_whether_it_is_back_may_end_before_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next page asks then."""
    monkeypatch.setattr(cdxserver, "FIRST_REST_S", 0.0)
    async with served(answering(b"", "503 Busy")) as server, asking(server.address) as (servers, _):
        assert await asked(servers) is None
        server.serve = answering(json.dumps(NAMED).encode())
        servers.ask(URL).close()
        await asyncio.sleep(0)
        assert await asked(servers) == KNOWN


def test_rests_grow_to_a_bound() -> None:
    """A second, then twice as long each time in a row; questions that were on their way count once."""
    server, rests = cdxserver._Server("http://cdx.test/"), []
    for _ in range(12):
        server.failed(server._failed_s + 1e9, "away")
        server.failed(0.0, "asked before")
        began_s = server._failed_s
        low, high = 0.0, 1000.0
        while high - low > 0.01:
            middle = (low + high) / 2
            low, high = (low, middle) if server.may_be_asked(began_s + middle) else (middle, high)
        rests.append(round(high))
    assert rests == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


async def test_another_server_is_asked_at_the_same_time() -> None:
    """One that is away does not hide what the other one has; such a page is not counted."""
    async with (
        served(answering(json.dumps(NAMED).encode())) as server,
        asking("http://127.0.0.1:1/cdx", server.address) as (servers, unanswered),
    ):
        assert await asked(servers) == KNOWN
        assert not unanswered


async def test_nothing_is_left_of_questions_that_nobody_waits_for() -> None:
    """Their connections are closed with the servers."""
    async with served(hang) as server:
        async with asking(server.address) as (servers, unanswered):
            servers.ask(URL)
            servers.ask(URL).close()
        assert not unanswered
    assert [task for task in asyncio.all_tasks() if "_captures" in repr(task)] == []
