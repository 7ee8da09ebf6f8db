"""Tests of the address at which a console listens."""

import asyncio
from contextlib import asynccontextmanager
from socket import create_server

import pytest
import uvicorn
from fastapi import FastAPI
from uvicorn.lifespan.off import LifespanOff

from anabranch.crawler.console import server
from anabranch.crawler.console.guard import IS_KNOWN
from anabranch.crawler.console.server import ConsoleOptions, _config, checked_address, serve
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from tests.crawler.console.sockets import taken_port
from tests.patience import HANG_S
from tests.rows import each_row


def no_app(*_: object) -> FastAPI:
    """None is served."""
    return FastAPI()


def options(listen, **more):
    return ConsoleOptions(place=".", listen=listen, **more)


@pytest.mark.parametrize("listen", ["127.0.0.1:8700", "127.9.9.9:1", "[::1]:8700"])
def test_a_loopback_address_needs_nothing_more(listen):
    """No other machine reaches it."""
    assert checked_address(options(listen))[1] > 0


@pytest.mark.parametrize("listen", ["0.0.0.0:8700", "[::]:8700", "192.0.2.1:8700", "[::ffff:127.0.0.1]:8700"])
def test_other_addresses_need_tls_or_a_proxy_that_has_it(listen, tmp_path):
    """Or tokens would pass in the clear."""
    with pytest.raises(UsageError, match="so it needs TLS"):
        checked_address(options(listen))
    assert checked_address(options(listen, tls=(tmp_path, tmp_path)))
    assert checked_address(options(listen, hosts=["crawls.example.org"]))


@each_row("listen", ["127.0.0.1", "::1", "localhost:8700", "", "127.0.0.1:0", "127.0.0.1:65536"])
def test_an_address_is_an_ip_with_a_port(listen):
    """The line names the option."""
    with pytest.raises(UsageError, match="--listen "):
        checked_address(options(listen))


def test_a_port_that_is_taken_is_one_line(tmp_path):
    """With what to do."""
    with taken_port() as port, pytest.raises(CrawlerError, match="already in use; choose another address or port"):
        serve(ConsoleOptions(place=str(tmp_path), listen=f"127.0.0.1:{port}", state=tmp_path / "state"), no_app, print)


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_certificate_that_cannot_be_used_is_one_line(tmp_path, text):
    """Missing, or something else."""
    files = (tmp_path / "cert.pem", tmp_path / "key.pem")
    for file in files if text else ():
        file.write_text(text)
    with pytest.raises(UsageError, match="--tls-cert, --tls-key: cannot be used"):
        serve(options("127.0.0.1:8700", tls=files, state=tmp_path / "state"), no_app, print)


ONE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8700\r\n\r\n"
UPGRADE = b"\r\n".join([
    b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"", b"",
])  # fmt: skip


@asynccontextmanager
async def serving(app, **more):
    """Opens connections to a server of this application."""
    config = _config(options("127.0.0.1:8700", **more), app, "127.0.0.1", 8700)
    config.lifespan_class = LifespanOff
    running, writers = uvicorn.Server(config), []
    with create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(running.serve([listener]))

        async def opened():
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writers.append(writer)
            return reader, writer

        yield opened
        for writer in writers:
            writer.close()
        running.should_exit = True
        await task


@asynccontextmanager
async def connection(app):
    """To a server that waits for 50 ms for a head."""
    async with serving(app) as opened:
        yield await opened()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", ONE + b"GET / HT"])
async def test_a_connection_that_asks_nothing_is_closed(monkeypatch, sent):
    """So that connections without requests do not take all places; also behind a first request."""
    monkeypatch.setattr(server, "_HEAD_S", 0.05)
    async with connection(no_app()) as (reader, writer):
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), HANG_S)
        assert answer.startswith(b"HTTP/1.1 404") == sent.startswith(ONE)


async def test_a_socket_and_a_slow_answer_stay_open(monkeypatch):
    """Many times as long as a head may take."""
    monkeypatch.setattr(server, "_HEAD_S", 0.01)
    looks = asyncio.Semaphore(0)
    close_idle = server._HurriedProtocol._close_idle

    def looked(self, last):
        close_idle(self, last)
        looks.release()

    monkeypatch.setattr(server._HurriedProtocol, "_close_idle", looked)

    async def app(scope, receive, send):
        await looks.acquire()
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": "still here"})
            return
        await looks.acquire()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    for sent, expected in ((ONE[:-2] + UPGRADE, b"still here"), (ONE, b" 204 ")):
        async with connection(app) as (reader, writer):
            writer.write(sent)
            assert expected in await asyncio.wait_for(reader.read(), HANG_S)


async def answers(reader, writer):
    """The server answers a request on this connection."""
    writer.write(ONE)
    try:
        return b" 204 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


async def app_of_users(scope, receive, send):
    """Knows whoever asks."""
    scope["state"][IS_KNOWN] = True
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def test_connections_of_strangers_make_room_for_new_ones(monkeypatch):
    """The oldest that waits for nothing is closed first; one of a user stays."""
    monkeypatch.setattr(server, "_MOST_OF_STRANGERS", 3)
    async with serving(app_of_users) as opened:
        user = await opened()
        assert await answers(*user)
        strangers = [await opened() for _ in range(3)]
        for _, writer in strangers:
            writer.write(b"GET / HT")
        newest = await opened()
        assert await answers(*newest)
        assert not await answers(*strangers[0])
        assert await answers(*user)


@pytest.mark.parametrize(("is_local", "is_proxied"), [(False, False), (True, False), (False, True)])
async def test_one_address_has_a_part_of_the_places(monkeypatch, is_local, is_proxied):
    """Unless it is that of this machine, or of the proxy: all users have that one."""
    monkeypatch.setattr(server, "_MOST_OF_ADDRESS", 2)
    monkeypatch.setattr(server._HurriedProtocol, "is_local", is_local)
    async with serving(app_of_users, hosts=["crawls.example.org"] if is_proxied else []) as opened:
        first, *_, last = [await opened() for _ in range(3)]
        assert await answers(*last)
        assert await answers(*first) == (is_local or is_proxied)
