"""What a fetch may cost: bytes, memory and time, whatever the server does."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc

import pytest

from crawler.outcomes.failures import FetchTimeout
from tests.crawler.fetching.servers import LIMIT_S, MAX_BODY, Web, get_raw, raw, saying


@pytest.mark.parametrize(("size", "truncated"), [(MAX_BODY - 1, False), (MAX_BODY, False), (MAX_BODY + 1, True)])
async def test_a_body_is_cut_at_the_limit(site: Web, size: int, truncated: bool) -> None:
    """What was read until then is returned and marked; a body of exactly the limit is whole."""
    response = await get_raw(site, raw(f"Content-Length: {size}", b"x" * size))
    assert (len(response.body), response.truncated) == (min(size, MAX_BODY), truncated)


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
    assert (len(response.body), response.truncated) == (MAX_BODY, True)
    await asyncio.wait_for(closed.wait(), LIMIT_S)


async def test_a_decompression_bomb_costs_no_more_than_the_limit(site: Web) -> None:
    """64 MiB of zeros in 64 KiB: cut after decoding, never decoded as a whole."""
    bomb = gzip.compress(bytes(64 << 20))
    port = await site.listen(saying(raw("Content-Encoding: gzip", bomb)))
    fetcher = site.fetcher()
    tracemalloc.start()
    response = await fetcher.get(f"http://127.0.0.1:{port}/")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (response.body, response.truncated) == (bytes(MAX_BODY), True)
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (raw("Content-Length: 10", b"half"),),
        (raw("Content-Length: 10"), b"x", b"y"),
        (b"HTTP/1.1 2",),
    ],
    ids=["silence", "in the body", "byte by byte", "in the status line"],
)
async def test_the_time_is_for_the_whole_fetch(site: Web, parts: tuple[bytes, ...]) -> None:
    """However far the answer came: after the time it is over, and the connection too."""
    over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(*parts)(reader, writer)
        await reader.read()
        over.set()

    port = await site.listen(talk)
    with pytest.raises(FetchTimeout, match=r"^not done within 0\.3 s$"):
        await site.fetcher(timeout_s=0.3).get(f"http://127.0.0.1:{port}/")
    await asyncio.wait_for(over.wait(), LIMIT_S)


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
