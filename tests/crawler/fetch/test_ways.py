"""A failed fetch is blamed on the host, the proxy, or this machine's network; tested by real sockets on loopback."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from anabranch.crawler.fetch import reach
from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.fetch.ways import NetworkWay, SharedLook
from anabranch.crawler.outcomes.failures import NETWORK, ConnectFailed, ConnectionLost, FetchTimeout, ServiceAway
from tests.crawler.fetch.servers import Clock, Web, answers, is_silent, refused_port


async def test_all_who_ask_share_a_look_that_finds_a_fault() -> None:
    begun: list[asyncio.Event] = []

    async def look() -> str:
        begun.append(asyncio.Event())
        await begun[-1].wait()
        return "it is gone"

    shared = SharedLook(look)
    askers = [asyncio.ensure_future(shared.fault()) for _ in range(5)]
    while not begun:
        await asyncio.sleep(0)
    begun[0].set()
    assert await asyncio.gather(*askers) == ["it is gone"] * 5
    assert len(begun) == 1


async def test_a_look_that_began_before_the_question_and_found_nothing_is_followed_by_one_more() -> None:
    """It may have looked before the way was gone."""
    begun: list[asyncio.Event] = []

    async def look() -> str:
        begun.append(asyncio.Event())
        await begun[-1].wait()
        return "it is gone" if len(begun) == 2 else ""

    shared = SharedLook(look)
    first = asyncio.ensure_future(shared.fault())
    while not begun:
        await asyncio.sleep(0)
    later = [asyncio.ensure_future(shared.fault()) for _ in range(3)]
    await asyncio.sleep(0)
    begun[0].set()
    assert await first == ""
    while len(begun) < 2:
        await asyncio.sleep(0)
    begun[1].set()
    assert await asyncio.gather(*later) == ["it is gone"] * 3
    assert len(begun) == 2


async def test_one_who_leaves_does_not_end_the_look_of_the_others() -> None:
    release = asyncio.Event()

    async def look() -> str:
        await release.wait()
        return "it is gone"

    shared = SharedLook(look)
    first, second = asyncio.ensure_future(shared.fault()), asyncio.ensure_future(shared.fault())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    release.set()
    assert await second == "it is gone"


async def test_a_look_under_way_ends_with_its_way() -> None:
    shared = SharedLook(asyncio.Event().wait)  # type: ignore[arg-type]
    asker = asyncio.ensure_future(shared.fault())
    await asyncio.sleep(0)
    await shared.close()
    assert asker.cancelled() or isinstance(
        (await asyncio.gather(asker, return_exceptions=True))[0], asyncio.CancelledError
    )


async def test_without_a_route_a_failed_connection_is_the_networks(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's gate hears nothing of it."""
    fetcher = site.fetcher()
    url = f"http://127.0.0.1:{await refused_port()}/"
    with pytest.raises(ConnectFailed):
        await fetcher.get(url)
    monkeypatch.setattr("anabranch.crawler.fetch.ways.has_route", lambda _: False)
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

    monkeypatch.setattr("anabranch.crawler.fetch.ways.is_anybody_there", nobody)
    with pytest.raises(ServiceAway, match=f"^{NETWORK}: "):
        await fetcher.get(silent)
    assert not await fetcher.has_network()


async def test_the_network_is_away_only_if_all_that_answered_before_are_silent_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not if the fetch was answered with an error, another host answered meanwhile, or no other host ever did."""

    async def nobody(_: object) -> bool:
        return False

    monkeypatch.setattr("anabranch.crawler.fetch.ways.has_route", lambda _: True)
    monkeypatch.setattr("anabranch.crawler.fetch.ways.is_anybody_there", nobody)
    network = NetworkWay(Resolver(["127.0.0.1:9"], {}, clock=Clock()))
    network.note_answer(("127.0.0.1", 80), 5.0)
    error = OSError("no answer from 127.0.0.2")
    assert await network.away(error, 6.0, is_silent=True) is not None
    assert await network.away(error, 6.0, is_silent=False) is None
    assert await network.away(error, 4.0, is_silent=True) is None
    assert await network.away(OSError("no answer from 127.0.0.1"), 6.0, is_silent=True) is None


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
    assert not fault or failure.value.reason == await fetcher.fault_of(proxy) == fault
    talk.answers["CONNECT a.test:80"] = HI
    assert await fetcher.fault_of(proxy) == ""
    assert talk.asked.count(failed) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_an_answer_in_a_hosts_place_is_no_page_while_the_proxy_reaches_nothing(site: Web, status: int) -> None:
    """It is an answer of the host as long as the proxy makes a tunnel to another host, or may not."""
    unreached = f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    talk = TalkingProxy({"GET a.test": HI, "GET b.test": unreached, "CONNECT b.test:80": BAD_GATEWAY})
    fetcher = site.fetcher(proxy=f"http://127.0.0.1:{await site.listen(talk)}")
    assert (await fetcher.get("http://b.test/")).status == status  # nothing has answered yet that could be asked
    await fetcher.get("http://a.test/")
    for tunnel in (HI, NO):
        talk.answers["CONNECT a.test:80"] = tunnel
        assert (await fetcher.get("http://b.test/")).status == status
    talk.answers["CONNECT a.test:80"] = BAD_GATEWAY
    with pytest.raises(ServiceAway, match="it answers 502 for hosts that it has reached before") as failure:
        await fetcher.get("http://b.test/")
    assert failure.value.end_s > 0
    talk.answers |= {"GET b.test": HI, "CONNECT a.test:80": HI}
    (proxy,) = fetcher.proxies.values()
    assert await fetcher.fault_of(proxy) == ""
    assert (await fetcher.get("http://b.test/")).status == 200


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


async def test_fetches_that_fail_together_behind_a_proxy_share_a_look_at_it(site: Web) -> None:
    """However many they are: a proxy in trouble is asked once, and once more by those that came during that look."""
    talk = TalkingProxy({"GET a.test": HI, "CONNECT a.test:80": BAD_GATEWAY})
    fetcher = site.fetcher(proxy=f"http://127.0.0.1:{await site.listen(talk)}")
    await fetcher.get("http://a.test/")
    failed = await asyncio.gather(*(fetcher.get(f"http://b{n}.test/") for n in range(20)), return_exceptions=True)
    assert {type(one) for one in failed} == {ServiceAway}
    assert talk.asked.count("CONNECT a.test:80") <= 3


class TalkingSocks:
    """A SOCKS5 proxy that connects to each host, or says why not by its reply; without one it closes the connection."""

    def __init__(self) -> None:
        self.replies: dict[str, int | None] = {}
        self.asked: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        length = (await reader.readexactly(5))[4]
        host = (await reader.readexactly(length + 2))[:-2].decode()
        self.asked.append(host)
        reply = self.replies.get(host, 0)
        if reply is not None:
            writer.write(bytes([5, reply, 0, 1]) + bytes(6))
        if reply == 0:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HI)
        writer.close()


@pytest.mark.parametrize("reply", [1, 3, 4, 5, 6, None])
@pytest.mark.parametrize("is_known_there", [True, False])
async def test_a_host_that_fails_behind_socks_is_told_from_a_proxy_that_reaches_nothing(
    site: Web, reply: int | None, is_known_there: bool
) -> None:
    """The proxy is away if it does not reach a host either that it has led to before."""
    talk = TalkingSocks()
    fetcher = site.fetcher(proxy=f"socks5://127.0.0.1:{await site.listen(talk)}")
    await fetcher.get("http://a.test/")
    talk.replies["b.test"] = reply
    if not is_known_there:
        talk.replies["a.test"] = reply
    failure = (ConnectFailed, ConnectionLost) if is_known_there else ServiceAway
    with pytest.raises(failure):
        await fetcher.get("http://b.test/")
    (proxy,) = fetcher.proxies.values()
    assert bool(await fetcher.fault_of(proxy)) is not is_known_there
    talk.replies.clear()
    assert await fetcher.fault_of(proxy) == ""
    assert (await fetcher.get("http://b.test/")).status == 200
