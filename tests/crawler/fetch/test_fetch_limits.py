"""Tests of the limits of a fetch in bytes, memory and time, whatever the server does."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from aiohttp import StreamReader

from anabranch.crawler.fetch.options import FetchLimits
from anabranch.crawler.fetch.response import Cut, PageHead, Response, Scratch, header_fields
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.outcomes.failures import ConnectFailed, ConnectionLost, FetchError, FetchTimeout
from tests.crawler.fetch.servers import LIMIT_S, MAX_BODY, Web, get_raw, raw, saying
from tests.rows import each_row

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("size", "cuts"), [(MAX_BODY - 1, ()), (MAX_BODY, ()), (MAX_BODY + 1, (Cut.LENGTH,))])
async def test_a_body_is_cut_at_the_limit(site: Web, size: int, cuts: tuple[Cut, ...]) -> None:
    """The bytes read until then are returned and marked; a body of exactly the limit is whole."""
    response = await get_raw(site, raw(f"Content-Length: {size}", b"x" * size))
    assert (response.body.size, response.cuts) == (min(size, MAX_BODY), cuts)


async def test_the_rest_of_a_cut_body_is_never_read(site: Web) -> None:
    """The connection of an endless body is closed."""
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw("Content-Type: text/plain"))
        try:
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()
        except ConnectionError:
            closed.set()

    response = await site.fetcher().get(f"http://127.0.0.1:{await site.listen(talk)}/")
    assert (response.body.size, response.cuts) == (MAX_BODY, (Cut.LENGTH,))
    await asyncio.wait_for(closed.wait(), LIMIT_S)


async def test_a_body_that_is_not_wanted_is_not_read(site: Web) -> None:
    """The head is asked about; the body is empty and marked, and its connection is not used again."""
    asked: list[PageHead] = []
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw("Content-Type: Video/MP4; x=y\r\nContent-Length: 1000000"))  # and no body, ever
        if not await reader.read():
            closed.set()

    def wants(head: PageHead) -> bool:
        asked.append(head)
        return False

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    response = await site.fetcher().get(url, wants_body=wants)
    assert (response.status, response.body.size, response.cuts) == (200, 0, (Cut.ABORT,))
    assert [(head.url, head.status, head.media_type, head.length, head.address) for head in asked] == [
        (url, 200, "video/mp4", 1_000_000, "127.0.0.1")
    ]
    await asyncio.wait_for(closed.wait(), LIMIT_S)


@pytest.mark.parametrize("length", ["", "Content-Length: 0\r\n"])
async def test_where_there_is_no_body_nothing_is_asked(site: Web, length: str) -> None:
    """Its connection can be used again."""
    status = "200 OK" if length else "304 Not Modified"
    port = await site.listen(saying(f"HTTP/1.1 {status}\r\n{length}\r\n".encode()))

    def wants(_: PageHead) -> bool:
        raise AssertionError

    response = await site.fetcher().get(f"http://127.0.0.1:{port}/", wants_body=wants)
    assert response.cuts == ()


@each_row(
    ("field", "length"),
    [
        ("7", 7),
        ("", None),
        ("-1", None),
        ("7, 7", None),
        ("x", None),
        ("\u0667", None),
        ("0" * 20 + "7", 7),
        ("9" * 5000, None),
    ],
)
def test_the_length_of_a_head_is_what_the_server_says(field: str, length: int | None) -> None:
    """None where it is no number, or an absurd one."""
    head = PageHead("http://a.test/", 200, header_fields([(b"Content-Length", field.encode())]))
    assert head.length == length


async def test_a_decompression_bomb_costs_no_more_than_the_limit(site: Web) -> None:
    """64 MiB of zeros in 64 KiB: cut while it is decoded, never decoded as a whole."""
    bomb = gzip.compress(bytes(64 << 20))
    port = await site.listen(saying(raw("Content-Encoding: gzip", bomb)))
    fetcher = site.fetcher(max_body_bytes=1 << 20)
    tracemalloc.start()
    response = await fetcher.get(f"http://127.0.0.1:{port}/")
    content = response.content(1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert content == (bytes(1 << 20), True)
    assert (response.body.size, response.cuts) == (len(bomb), ())
    assert peak < 8 << 20


SILENCE_S = 0.3


STATUS, HEAD = (b"HTTP/1.1 2",), (raw("Content-Length: 10"),)
OVER, SILENT = r"^not done within 0\.3 s$", r"^nothing came for too long$"


@pytest.mark.parametrize(
    ("parts", "limit", "words"),
    [
        ((), "timeout_s", OVER),
        (STATUS, "timeout_s", OVER),
        (HEAD, "timeout_s", OVER),
        ((), "first_byte_timeout_s", SILENT),
        (STATUS, "read_timeout_s", SILENT),
        (HEAD, "read_timeout_s", SILENT),
    ],
)
async def test_an_answer_whose_time_runs_out_before_its_body_is_a_time_out(
    site: Web, parts: tuple[bytes, ...], limit: str, words: str
) -> None:
    """The whole fetch, the first byte, and the next bytes have limits of their own; then the connection is over."""
    over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(*parts)(reader, writer)
        await reader.read()
        over.set()

    port = await site.listen(talk)
    with pytest.raises(FetchTimeout, match=words):
        await site.fetcher(**{limit: SILENCE_S}).get(f"http://127.0.0.1:{port}/")
    await asyncio.wait_for(over.wait(), LIMIT_S)


@pytest.mark.parametrize("limit", ["timeout_s", "read_timeout_s"])
@pytest.mark.parametrize("parts", [(raw("Content-Length: 10", b"half"),), (raw("Content-Length: 10"), b"ha", b"lf")])
async def test_a_body_whose_time_runs_out_is_kept(site: Web, limit: str, parts: tuple[bytes, ...]) -> None:
    """It is an answer with the bytes that came, like Heritrix's timeTrunc, and its connection is closed."""
    over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(*parts)(reader, writer)
        await reader.read()
        over.set()

    port = await site.listen(talk)
    response = await site.fetcher(**{limit: SILENCE_S}).get(f"http://127.0.0.1:{port}/")
    assert (response.status, response.body.read(), response.cuts) == (200, b"half", (Cut.TIME,))
    await asyncio.wait_for(over.wait(), LIMIT_S)


async def drip(site: Web, **limits: float) -> Response:
    """An endless body, a byte at each turn of the loop."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw("Content-Type: text/plain"))
        while not writer.transport.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0)

    return await site.fetcher(**limits).get(f"http://127.0.0.1:{await site.listen(talk)}/")


async def test_a_body_that_comes_too_slowly_is_cut(site: Web) -> None:
    """Each byte comes in time, but a window had too few of them."""
    response = await drip(site, min_rate=1 << 40, rate_window_s=0.01, max_body_bytes=1 << 40)
    assert (response.cuts, response.body.size > 0) == ((Cut.TIME,), True)


async def test_a_body_within_the_grace_is_not_too_slow(site: Web) -> None:
    """The rate is not looked at before a window has passed."""
    response = await drip(site, min_rate=1 << 40, rate_window_s=LIMIT_S, max_body_bytes=10)
    assert response.cuts == (Cut.LENGTH,)


async def test_without_a_least_rate_a_slow_body_is_read(site: Web) -> None:
    """0 is off."""
    response = await drip(site, min_rate=0, rate_window_s=0.0, max_body_bytes=10)
    assert response.cuts == (Cut.LENGTH,)


async def test_a_connection_that_is_not_made_in_time_is_a_failed_connect(site: Web) -> None:
    """Here TLS with a server that says nothing; connecting has a limit of its own."""

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    port = await site.listen(talk)
    with pytest.raises(ConnectFailed, match="timeout"):
        await site.fetcher(connect_timeout_s=SILENCE_S).get(f"https://127.0.0.1:{port}/")


async def test_a_cancelled_fetch_is_cancelled(site: Web) -> None:
    """CancelledError is no failure of the site; the connection is closed."""
    asked, over = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        over.set()

    port = await site.listen(talk)
    task = asyncio.create_task(site.fetcher().get(f"http://127.0.0.1:{port}/"))
    await asyncio.wait_for(asked.wait(), LIMIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(over.wait(), LIMIT_S)


# Memory


@pytest.mark.parametrize(
    "parts",
    [
        (raw("Content-Length: 10", b"half"),),
        (raw("Content-Length: 10"), b"half"),
        (raw("Content-Length: 10", b"ha"), b"lf"),
        (raw("Transfer-Encoding: chunked", b"4\r\nhalf\r\n"),),
        (raw("Transfer-Encoding: chunked", b"5\r\nhalf"),),
    ],
)
async def test_what_came_of_a_body_that_breaks_off_is_kept_on_demand(site: Web, parts: tuple[bytes, ...]) -> None:
    """Too few bytes, or chunks without the last, in one packet or several: all that came is there, and marked."""
    response = await get_raw(site, *parts, keep_broken=True)
    assert (response.status, response.body.read(), response.cuts) == (200, b"half", (Cut.DISCONNECT,))


@pytest.mark.parametrize("framing", ["Content-Length: 10", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("status", ["302 Found", "404 Not Found", "500 Odd"])
async def test_a_body_that_breaks_off_is_no_failure_of_an_answer_that_is_no_success(
    site: Web, status: str, framing: str
) -> None:
    """Its status and its fields are whole: a robots.txt that is redirected, or is not there, says so in its head."""
    answer = f"HTTP/1.1 {status}\r\nLocation: /next\r\n{framing}\r\n\r\nzz".encode()
    response = await get_raw(site, answer)
    assert (response.status, response.headers["Location"]) == (int(status[:3]), "/next")
    assert response.cuts == (Cut.DISCONNECT,)
    with pytest.raises(FetchError):
        await get_raw(site, answer.replace(status.encode(), b"200 OK"))


async def test_what_came_before_a_bad_chunk_is_kept_on_demand(site: Web, tmp_path: Path) -> None:
    """If it was read before: of one that comes with the head there is no answer."""
    scratch = Scratch(tmp_path)
    is_read = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(raw("Transfer-Encoding: chunked", b"4\r\nhalf\r\n"))(reader, writer)
        await is_read.wait()
        writer.write(b"ZZ\r\n")

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetch = asyncio.create_task(site.fetcher(scratch=scratch).get(url, keep_broken=True))
    while not scratch.held_bytes:
        await asyncio.sleep(0)
    is_read.set()
    response = await fetch
    assert (response.body.read(), response.cuts) == (b"half", (Cut.DISCONNECT,))


@pytest.mark.parametrize("limit", [1 << 20, 100_000])
async def test_what_came_in_one_packet_with_a_bad_chunk_is_kept_up_to_the_limit(
    site: Web, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The reader hears of the chunk before it has taken what stands in front of it; behind the limit nothing has broken."""
    begin = StreamReader._wait

    async def late(reader: StreamReader, name: str) -> None:
        await begin(reader, name)
        while reader.exception() is None:
            await asyncio.sleep(0)
        raise reader.exception() or AssertionError

    monkeypatch.setattr(StreamReader, "_wait", late)
    size = 100_001
    chunk = b"%x\r\n" % size + b"x" * size + b"\r\n"
    parts = (raw("Transfer-Encoding: chunked"), chunk + b"ZZ\r\n")
    response = await get_raw(site, *parts, keep_broken=True, max_body_bytes=limit)
    cut = Cut.DISCONNECT if limit > size else Cut.LENGTH
    assert (response.body.size, response.cuts) == (min(size, limit), (cut,))


async def test_a_large_body_that_is_reset_is_kept_as_far_as_it_came(site: Web) -> None:
    """None of the bytes that were read is lost to the buffer in between."""
    came = MAX_BODY - 1

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(raw(f"Content-Length: {MAX_BODY}", b"x" * came))(reader, writer)

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    response = await site.fetcher().get(url, keep_broken=True)
    assert (response.body.size, response.cuts) == (came, (Cut.DISCONNECT,))


async def test_a_body_that_breaks_off_behind_its_limit_is_cut_by_the_limit(site: Web) -> None:
    """No more of it was wanted."""
    parts = raw(f"Content-Length: {MAX_BODY + 2}", b"x" * (MAX_BODY + 1))
    for keep_broken in (True, False):
        response = await get_raw(site, parts, keep_broken=keep_broken)
        assert (response.body.size, response.cuts) == (MAX_BODY, (Cut.LENGTH,))


def coming(size: int) -> tuple[bytes, ...]:
    return (raw(f"Content-Length: {size}", b"x" * size),)


async def test_a_large_body_goes_to_the_scratch_folder(site: Web, tmp_path: Path) -> None:
    """It is the same body, and no file is left of it."""
    scratch = Scratch(tmp_path, memory_bytes=1000)
    fetcher = site.fetcher(scratch=scratch)
    small = await fetcher.get(f"http://127.0.0.1:{await site.listen(saying(*coming(1000)))}/")
    large = await fetcher.get(f"http://127.0.0.1:{await site.listen(saying(*coming(50_000)))}/")
    assert (small.body.is_in_memory, large.body.is_in_memory, scratch.held_bytes) == (True, False, 1000)
    assert large.body.read() == b"x" * 50_000
    assert large.body.digest == hashlib.sha1(b"x" * 50_000).digest()
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a test may wait for it
    small.body.close()
    large.body.close()


@pytest.mark.parametrize("ending", ["lost", "cancelled"])
async def test_a_fetch_without_an_answer_gives_its_memory_back(site: Web, tmp_path: Path, ending: str) -> None:
    """However it ends."""
    scratch = Scratch(tmp_path)
    half = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(raw("Content-Length: 10", b"half"))(reader, writer)
        await half.wait()

    fetch = asyncio.create_task(site.fetcher(scratch=scratch).get(f"http://127.0.0.1:{await site.listen(talk)}/"))
    while not scratch.held_bytes:
        await asyncio.sleep(0)
    if ending == "cancelled":
        fetch.cancel()
    half.set()
    with pytest.raises((ConnectionLost, asyncio.CancelledError)):
        await fetch
    assert scratch.held_bytes == 0


async def test_a_full_disk_is_no_failure_of_the_page(site: Web, tmp_path: Path) -> None:
    """The crawl ends and can be resumed; the page is not blamed."""
    scratch = Scratch(tmp_path / "gone", memory_bytes=1)
    port = await site.listen(saying(*coming(10)))
    with pytest.raises(StorageError, match="gone"):
        await site.fetcher(scratch=scratch).get(f"http://127.0.0.1:{port}/")
    assert scratch.held_bytes == 0


async def test_one_fetch_may_have_narrower_limits_than_others(site: Web) -> None:
    """It gets no more bytes and no more time than it asks for, and never more than the order grants."""
    port = await site.listen(saying(raw("Content-Length: 6", b"longer")))
    fetcher, url = site.fetcher(max_body_bytes=4), f"http://127.0.0.1:{port}/"
    narrow = await fetcher.get(url, limits=FetchLimits(LIMIT_S, 2))
    assert (narrow.body.read(), narrow.cuts) == (b"lo", (Cut.LENGTH,))
    assert (await fetcher.get(url, limits=FetchLimits(LIMIT_S, 100))).body.read() == b"long"
    with pytest.raises(FetchTimeout, match=r"^not done within 0 s$"):
        await fetcher.get(url, limits=FetchLimits(0.0, 2))
