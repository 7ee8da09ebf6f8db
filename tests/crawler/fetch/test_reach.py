"""Whose fault a failed fetch is: the host's, the proxy's, or this machine's network; by real sockets on loopback."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anabranch.crawler.fetch import reach
from anabranch.crawler.fetch.reach import has_route, is_anybody_there
from anabranch.crawler.outcomes.failures import NETWORK, ConnectFailed, ConnectionLost, FetchTimeout, ServiceAway
from tests.crawler.fetch.servers import Web, refused_port

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
NO_ROUTE = OSError(101, "Network is unreachable")


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(HELLO)


async def is_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(-1)


@contextmanager
def full() -> Iterator[int]:
    """A port that accepts no connection and refuses none: its queue is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield port


def test_there_is_a_route_to_a_host_on_this_machine() -> None:
    """Also if there is none to anywhere else, as on a machine without a network."""
    assert has_route([("127.0.0.1", 80)])


def test_without_any_route_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has answered before."""
    monkeypatch.setattr(reach, "_is_routed", lambda _: False)
    assert not has_route([("127.0.0.1", 80)])


async def test_a_refusal_is_an_answer_and_silence_is_none(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers is enough."""
    monkeypatch.setattr(reach, "PATIENCE_S", 0.3)
    refused = ("127.0.0.1", await refused_port())
    there = ("127.0.0.1", await site.listen(answers))
    with full() as port:
        silent = ("127.0.0.1", port)
        assert await is_anybody_there([silent, refused])
        assert await is_anybody_there([there])
        assert not await is_anybody_there([silent])
        assert not await is_anybody_there([])


async def test_without_a_route_a_failed_connection_is_the_networks(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's gate hears nothing of it."""
    fetcher = site.fetcher()
    url = f"http://127.0.0.1:{await refused_port()}/"
    with pytest.raises(ConnectFailed):
        await fetcher.get(url)
    monkeypatch.setattr("anabranch.crawler.fetch.fetcher.has_route", lambda _: False)
    with pytest.raises(ServiceAway, match=f"^{NETWORK}: "):
        await fetcher.get(url)
    assert not await fetcher.has_network()


async def test_a_silent_host_is_told_from_a_silent_network(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the hosts that have answered before: while one of them does, it is the host."""
    monkeypatch.setattr(reach, "PATIENCE_S", 0.3)
    fetcher = site.fetcher(first_byte_timeout_s=0.3, connect_timeout_s=0.3)
    silent = f"http://127.0.0.1:{await site.listen(is_silent)}/"
    with pytest.raises(FetchTimeout):  # nothing has answered yet: nobody can tell
        await fetcher.get(silent)
    await fetcher.get(f"http://127.0.0.1:{await site.listen(answers)}/")
    with pytest.raises(FetchTimeout):
        await fetcher.get(silent)
    assert await fetcher.has_network()

    async def nobody(_: object) -> bool:
        return False

    monkeypatch.setattr("anabranch.crawler.fetch.fetcher.is_anybody_there", nobody)
    with pytest.raises(ServiceAway, match=f"^{NETWORK}: "):
        await fetcher.get(silent)
    assert not await fetcher.has_network()


@pytest.mark.parametrize("code", [errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN])
async def test_a_host_without_a_way_is_told_from_a_network_without_one(
    site: Web, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """There is a route, but its next router does not answer: no host that has answered before can be reached either."""
    fetcher, loop = site.fetcher(), asyncio.get_running_loop()
    connect, ways = loop.sock_connect, {"127.0.0.1"}

    async def connect_if_there_is_a_way(sock: socket.socket, address: tuple[str, int]) -> None:
        if address[0] not in ways:
            raise OSError(code, os.strerror(code))
        await connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", connect_if_there_is_a_way)
    port = await site.listen(answers)
    await fetcher.get(f"http://127.0.0.1:{port}/")
    with pytest.raises(ConnectFailed):
        await fetcher.get(f"http://127.0.0.2:{port}/")
    ways.clear()
    with pytest.raises(ServiceAway, match=f"^{NETWORK}: "):
        await fetcher.get(f"http://127.0.0.2:{port}/")
    assert not await fetcher.has_network()
    ways.add("127.0.0.1")
    assert await fetcher.has_network()


class TalkingProxy:
    """A proxy that answers each request by its method and host; without an answer it closes the connection."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        name = f"{method} {target.removeprefix('http://').partition('/')[0]}"
        self.asked.append(name)
        writer.write(self.answers.get(name, b""))
        writer.close()


HI = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
NO = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"
BAD_GATEWAY = b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("tunnel", "fault"),
    [
        (HI, ""),
        (NO, ""),  # it lets nobody make tunnels there, but it is there
        (BAD_GATEWAY, "it answers 502 for hosts that it has reached before"),
        (b"", "it gives no answer: it closes the connection"),
    ],
)
async def test_a_host_that_fails_behind_a_proxy_is_told_from_a_proxy_that_reaches_nothing(
    site: Web, scheme: str, tunnel: bytes, fault: str
) -> None:
    """It is asked for a tunnel to a host that has answered before; nothing is sent through it. It is asked until it is back."""
    failed = "GET b.test" if scheme == "http" else "CONNECT b.test:443"
    talk = TalkingProxy(
        {"GET a.test": HI, failed: b"" if scheme == "http" else BAD_GATEWAY, "CONNECT a.test:80": tunnel}
    )
    fetcher = site.fetcher(proxy=f"http://127.0.0.1:{await site.listen(talk)}")
    assert (await fetcher.get("http://a.test/")).status == 200
    (proxy,) = fetcher.proxies.values()
    with pytest.raises(ServiceAway if fault else (ConnectionLost, ConnectFailed), match=fault or None) as failure:
        await fetcher.get(f"{scheme}://b.test/")
    assert not fault or failure.value.reason == await fetcher.reaches(proxy) == fault
    talk.answers["CONNECT a.test:80"] = HI
    assert await fetcher.reaches(proxy) == ""
    assert talk.asked.count(failed) == 1


async def test_a_connection_lost_behind_a_proxy_is_the_proxys_only_if_it_is_gone_or_says_nothing(site: Web) -> None:
    """A proxy that answers anything has lost the host. None of its hosts has answered before."""
    talk = TalkingProxy({"CONNECT a.test:80": BAD_GATEWAY})
    fetcher = site.fetcher(proxy=f"http://127.0.0.1:{await site.listen(talk)}")
    with pytest.raises(ConnectionLost):
        await fetcher.get("http://a.test/")
    del talk.answers["CONNECT a.test:80"]
    with pytest.raises(ServiceAway, match="it gives no answer: it closes the connection"):
        await fetcher.get("http://a.test/")

    async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        server_of_one.close()
        writer.close()

    server_of_one = await asyncio.start_server(gone, "127.0.0.1", 0)
    proxy = f"http://127.0.0.1:{server_of_one.sockets[0].getsockname()[1]}"
    with pytest.raises(ServiceAway, match=f"^proxy {proxy}: it cannot be reached"):
        await site.fetcher(proxy=proxy).get("http://a.test/")
