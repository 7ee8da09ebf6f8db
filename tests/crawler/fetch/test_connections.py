"""Connections that are kept for a host's next fetch, and what happens when no more can be opened."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import os
import re
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import StreamReader, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from anabranch.crawler.fetch import connections
from anabranch.crawler.fetch.connection_limits import ConnectionLimits
from anabranch.crawler.fetch.connections import DISTRUST_S
from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.fetch.options import SiteOptions
from anabranch.crawler.fetch.response import MEMORY_BYTES, Scratch
from anabranch.crawler.outcomes.failures import ConnectionLost, KeptConnectionClosed, ServiceAway
from tests.crawler.fetch.servers import LIMIT_S, OK, Web, saying


class Kept:
    """A server that keeps its connections and sees which are closed."""

    def __init__(self, body: bytes = b"hi", *, length: int | None = None) -> None:
        self.numbers: list[int] = []  #: the connection of each request, from 1
        self.closed: list[int] = []
        self.is_closed = asyncio.Event()
        self._answer = OK + b"Content-Length: %d\r\n\r\n" % (length or len(body)) + body
        self._count = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        number = self._count
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.numbers.append(number)
                writer.write(self._answer)
        finally:
            self.closed.append(number)
            self.is_closed.set()


async def get_all(fetcher: Fetcher, *urls: str) -> None:
    for url in urls:
        (await fetcher.get(url)).body.close()


@contextmanager
def no_more_files() -> Iterator[None]:
    """Inside, the process may open no file and no socket."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def hosts(site: Web, server: Kept, count: int) -> list[str]:
    """URLs of so many hosts, all on that server."""
    port = await site.listen(server)
    names = [f"h{number}.test" for number in range(count)]
    site.hosts |= dict.fromkeys(names, f"127.0.0.1:{port}")
    return [f"http://{name}/" for name in names]


async def test_of_connections_that_wait_the_one_used_longest_ago_goes_first(site: Web) -> None:
    """With room for two: a third host's connection closes the one that was not used since."""
    server = Kept()
    a, b, c = await hosts(site, server, 3)
    await get_all(site.fetcher(connections=ConnectionLimits(idle=2)), a, b, a, c)
    await server.is_closed.wait()
    assert (server.numbers, server.closed) == ([1, 2, 1, 3], [2])


async def test_a_connection_that_was_dropped_is_made_anew(site: Web) -> None:
    """It is not taken for one that can be used, and nothing of it is remembered."""
    server = Kept()
    a, b = await hosts(site, server, 2)
    fetcher = site.fetcher(connections=ConnectionLimits(idle=1))
    await get_all(fetcher, a, b, a)
    assert server.numbers == [1, 2, 3]
    assert [len(waiting) for waiting in fetcher._connector(None)._conns.values()] == [1]


async def test_an_informational_answer_behind_the_final_one_ends_the_connection(site: Web) -> None:
    """Nobody asked for it, whichever packet it came in."""
    server = Kept(b"hi" + b"HTTP/1.1 103 Early Hints\r\n\r\n", length=2)
    (a,) = await hosts(site, server, 1)
    await get_all(site.fetcher(), a, a)
    assert server.numbers == [1, 2]


async def test_bytes_that_nobody_asked_for_end_the_connection_that_waits(site: Web) -> None:
    """They would be taken for the answer of whoever asks next over it, and archived as another page's."""
    numbers = itertools.count()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.transport.is_closing():
            await reader.readuntil(b"\r\n\r\n")
            answer = OK + b"Content-Length: 1\r\n\r\n%d" % next(numbers)
            writer.write(answer)
            await asked.wait()
            writer.write(answer)
            if await reader.read(1) == b"":
                gone.set()

    asked, gone = asyncio.Event(), asyncio.Event()
    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetcher = site.fetcher()
    first = await fetcher.get(url)
    asked.set()
    await asyncio.wait_for(gone.wait(), LIMIT_S)
    assert (first.body.read(), (await fetcher.get(url)).body.read()) == (b"0", b"1")
    assert site.connections == 2


async def test_with_room_for_none_no_connection_is_kept(site: Web) -> None:
    """Each fetch has its own."""
    server = Kept()
    (a,) = await hosts(site, server, 1)
    await get_all(site.fetcher(connections=ConnectionLimits(idle=0)), a, a)
    assert server.numbers == [1, 2]


async def test_connections_in_use_are_none_that_wait(site: Web) -> None:
    """Both hosts are asked at once; each keeps its connection until its fetch has ended, then one may stay."""
    server = Kept()
    a, b = await hosts(site, server, 2)
    fetcher = site.fetcher(connections=ConnectionLimits(idle=1))
    await asyncio.gather(get_all(fetcher, a), get_all(fetcher, b))
    await server.is_closed.wait()
    assert sorted(server.numbers) == [1, 2]
    assert len(server.closed) == 1


async def test_fetches_for_which_there_is_no_connection_wait_for_one(site: Web) -> None:
    """With few open files allowed, three fetches at once use one connection at a time."""
    open_now, most = 0, 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await saying(OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n")(reader, writer)
        open_now -= 1

    port = await site.listen(talk)
    fetcher = site.fetcher(connections=ConnectionLimits(busy=1))
    await asyncio.gather(*(get_all(fetcher, f"http://127.0.0.1:{port}/{number}") for number in range(3)))
    assert (site.connections, most) == (3, 1)


async def test_all_ways_out_share_one_bound(site: Web) -> None:
    """A connection through a SOCKS proxy waits beside the others."""

    async def socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\5\0")
        await reader.readexactly(4 + 1 + len("b.test") + 2)
        writer.write(b"\5\0\0\1" + bytes(6))
        await server(reader, writer)

    server = Kept()
    (a,) = await hosts(site, server, 1)
    proxy = f"socks5://127.0.0.1:{await site.listen(socks)}"
    fetcher = site.fetcher(SiteOptions(surts=("b.test",), proxy=proxy), connections=ConnectionLimits(idle=1))
    await get_all(fetcher, a, "http://b.test/", a)
    assert server.numbers == [1, 2, 3]


@pytest.mark.parametrize(("distrust_s", "then"), [(DISTRUST_S, ["/fresh", "/fresh"]), (0.0, ["/fresh", "/kept"])])
async def test_a_kept_connection_that_proves_dead_ends_the_fetch_and_all_others_of_its_origin(
    site: Web, monkeypatch: pytest.MonkeyPatch, distrust_s: float, then: list[str]
) -> None:
    """The server may have read the request, so only the host's gate may send it again; no connection is kept for a while."""
    monkeypatch.setattr("anabranch.crawler.fetch.connections.DISTRUST_S", distrust_s)
    served = asyncio.Barrier(2)
    asked: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) <= 2:
            await served.wait()  # both at once, so that there are two connections
        writer.write(OK + b"Content-Length: 0\r\n\r\n")
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if b"/kept" in asked[-1]:
            writer.write(OK + b"Content-Length: 0\r\n\r\n")
        else:
            writer.transport.abort()

    port = await site.listen(talk)
    fetcher = site.fetcher()
    await asyncio.gather(*(get_all(fetcher, f"http://127.0.0.1:{port}/{n}") for n in range(2)))
    with pytest.raises(KeptConnectionClosed) as caught:
        await fetcher.get(f"http://127.0.0.1:{port}/dead")
    assert caught.value.end_s > caught.value.start_s > 0, "its slot rests"
    await get_all(fetcher, *(f"http://127.0.0.1:{port}{path}" for path in then))
    assert site.connections == 2 + then.count("/fresh")
    assert [request.split()[1].decode() for request in asked[2:]] == ["/dead", *then]


async def test_a_fresh_connection_that_breaks_is_not_tried_again_at_once(site: Web) -> None:
    """That would be a fetch that the host's gate never saw."""
    port = await site.listen(saying())
    with pytest.raises(ConnectionLost):
        await site.fetcher().get(f"http://127.0.0.1:{port}/")
    assert site.connections == 1


async def test_a_socket_that_cannot_be_made_is_our_trouble(site: Web) -> None:
    """Too many open files: the fetch is tried again later, and nothing is told of the host."""
    (a,) = await hosts(site, Kept(), 1)
    with no_more_files(), pytest.raises(ServiceAway, match=r"too many files are open; raise the limit \(ulimit -n\)"):
        await site.fetcher().get(a)


async def test_a_body_for_which_no_file_can_be_had_is_our_trouble(site: Web, tmp_path: Path) -> None:
    """It ends its fetch, not the crawl."""
    server = Kept(b"x" * (MEMORY_BYTES + 1))
    (a,) = await hosts(site, server, 1)
    fetcher = site.fetcher(scratch=Scratch(tmp_path), max_body_bytes=2 * MEMORY_BYTES)
    await get_all(fetcher, a)
    with no_more_files(), pytest.raises(ServiceAway, match="open files: "):
        await fetcher.get(a)
    assert server.numbers == [1, 1]


NEXT_ANSWER = OK + b"Content-Length: 4\r\n\r\nnext"


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"200 OK\r\nContent-Length: 5\r\n", b"whole"),
        (b"302 Found\r\nLocation: /x\r\nContent-Length: 5\r\n", b"whole"),
        (b"200 OK\r\nContent-Length: 0\r\n", b""),
        (b"204 No Content\r\n", b""),
        (b"204 No Content\r\nContent-Length: 9\r\n", b""),
        (b"304 Not Modified\r\nContent-Length: 9\r\n", b""),
        (b"200 OK\r\nTransfer-Encoding: chunked\r\n", b"5\r\nwhole\r\n0\r\n\r\n"),
        (b"200 OK\r\nTransfer-Encoding: chunked\r\n", b"5\r\nwhole\r\n0\r\nTrailer: 1\r\n\r\n"),
        (b"103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n", b"whole"),
    ],
)
@pytest.mark.parametrize("pieces", ["at once", "head first", "byte by byte"])
async def test_bytes_behind_a_whole_answer_take_nothing_from_it(
    site: Web, head: bytes, body: bytes, pieces: str
) -> None:
    """The answer counts, the surplus is noted, and the connection is not used again."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                answer, begin = b"HTTP/1.1 " + head + b"\r\n" + body, 0
                if pieces == "head first":
                    begin = len(answer) - max(len(body), 1)
                elif pieces == "byte by byte":
                    begin = len(answer) - 1
                for place in range(begin) if pieces == "byte by byte" else ():
                    writer.write(answer[place : place + 1])
                    await turn()
                if pieces == "head first":
                    writer.write(answer[:begin])
                    await turn()
                writer.write(answer[begin:] + surplus)

    async def turn() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    url, fetcher = f"http://127.0.0.1:{await site.listen(talk)}/", site.fetcher()
    for number, surplus in enumerate((b"x", b"surplus " * 9999, OK + b"X", NEXT_ANSWER, b"\0\xff\n\n", b"x"), 1):
        response = await fetcher.get(url)
        assert (response.body.read(), response.has_surplus, response.cuts) == (b"whole" if body else b"", True, ())
        assert (surplus, site.connections) == (surplus, number)
        response.body.close()


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nwhole",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nwhole\r\n0\r\nTrailer: 1\r\n\r\n",
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_an_answer_without_surplus_keeps_its_connection(site: Web, answer: bytes, size: int) -> None:
    """However its bytes are cut into packets."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                for place in range(0, len(answer), size):
                    writer.write(answer[place : place + size])
                    for _ in range(5):
                        await asyncio.sleep(0)

    url = f"http://127.0.0.1:{await site.listen(talk)}/"
    fetcher = site.fetcher()
    for _ in range(3):
        response = await fetcher.get(url)
        assert (response.body.read(), response.has_surplus) == (b"whole", False)
        response.body.close()
    assert site.connections == 1


@pytest.mark.parametrize("surplus", [b"x", b"surplus\n\n", b"surplus " * 99999, NEXT_ANSWER, NEXT_ANSWER + b"x"])
async def test_surplus_that_comes_after_the_next_request_fails_no_url(site: Web, surplus: bytes) -> None:
    """The surplus is dropped, and the URL is requested again over a fresh connection, without a counted try."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            for late in (b"", surplus):
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
                writer.write(late + OK + b"Content-Length: %d\r\n\r\n%s" % (len(path), path))
            await reader.read()

    url = f"http://127.0.0.1:{await site.listen(talk)}"
    fetcher = site.fetcher()
    await get_all(fetcher, f"{url}/1")
    with pytest.raises(KeptConnectionClosed):
        await fetcher.get(f"{url}/2")
    for path in ("/2", "/3"):
        response = await fetcher.get(url + path)
        assert response.body.read() == path.encode()
    assert site.connections == 3


#: Private names of aiohttp that `connections` uses -> what breaks if a new aiohttp drops or renames them.
CALLED = {
    "ResponseHandler._loop": "connections have no timer: no read and no exchange ever times out",
    "ResponseHandler._payload": "an answer's body is taken for surplus, and is lost when the server closes its connection",
    "StreamReader._buffer": "a body that came with its head is not found: each fetch fails",
    "StreamReader._read_nowait": "what came of a body before it broke off is lost, and so is `keep_broken`",
    "TCPConnector._acquired": "idle connections that are used again do not count as busy: the limit does not hold",
    "TCPConnector._conns": "idle connections are not found: each fetch connects anew, and evicted ones stay open",
    "TCPConnector._factory": "connections are aiohttp's own objects, without bounds on heads and surplus",
    "TCPConnector._loop": "connections cannot be made",
    "TCPConnector._wrap_existing_connection": "no connection can be made through a SOCKS proxy",
    "Connection._protocol": "each connection is closed when its fetch begins, with a warning",
}
#: Private methods of aiohttp that `connections` overrides: aiohttp must still call them.
OVERRIDDEN = {
    "ResponseHandler._drop_timeout": "the time limit of a fetch ends with its answer's head",
    "ResponseHandler._reschedule_timeout": "each read makes a timer, and none of them knows the time limit of the fetch",
    "TCPConnector._create_connection": "a new connection that breaks is taken for a kept one: its URL is tried again uncounted",
    "TCPConnector._create_direct_connection": "a proxy that is away counts as a failure of each host behind it",
    "TCPConnector._get_ssl_context": "servers of old TLS are not archived",
    "TCPConnector._get": "idle connections that are used again are evicted as if they were idle",
    "TCPConnector._release": "the idle connections of all connectors have no common bound",
    "TCPConnector._resolve_host": "names are resolved here and not by the SOCKS proxy",
    "TCPConnector._wrap_create_connection": "the SOCKS proxy is not used: fetches go straight to the host",
}


@pytest.fixture
async def library() -> AsyncIterator[dict[str, object]]:
    """The objects of aiohttp, by class name."""
    loop = asyncio.get_running_loop()
    protocol, connector = ResponseHandler(loop), TCPConnector()
    connection = Connection(connector, cast("Any", None), protocol, loop)
    yield {type(one).__name__: one for one in (protocol, connector, connection, StreamReader(protocol, 1, loop=loop))}
    connection._protocol = None
    await connector.close()


@pytest.mark.parametrize("name", CALLED)
async def test_aiohttp_has_each_private_name_that_is_used(library: dict[str, object], name: str) -> None:
    """The right column of the table is what breaks without it."""
    owner, _, attribute = name.partition(".")
    assert hasattr(library[owner], attribute), CALLED[name]


@pytest.mark.parametrize("name", OVERRIDDEN)
async def test_aiohttp_calls_each_private_method_that_is_overridden(library: dict[str, object], name: str) -> None:
    """An override that is not called any more fails in silence; `on_eof(self._drop_timeout)` is a call, too."""
    owner, _, method = name.partition(".")
    module = sys.modules[type(library[owner]).__module__]
    assert callable(getattr(library[owner], method)), OVERRIDDEN[name]
    assert re.search(rf"\.{method}\b", inspect.getsource(module)), OVERRIDDEN[name]


async def test_the_tables_of_private_names_are_complete(library: dict[str, object]) -> None:
    """Every name that begins with an underscore in `connections` is in a table, or our own and unknown to aiohttp."""
    nodes = list(ast.walk(ast.parse(inspect.getsource(connections))))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    private = {name for name in names if re.match("_[a-z]", name)}
    known = {name.partition(".")[2] for name in (*CALLED, *OVERRIDDEN)}
    theirs = {name for one in library.values() for name in private if hasattr(one, name)}
    assert theirs == known
