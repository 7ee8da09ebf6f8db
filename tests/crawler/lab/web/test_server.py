"""None"""

from __future__ import annotations

import asyncio

import pytest

from anabranch.crawler.lab.web.ledger import HostEntry, PolitenessRule
from anabranch.crawler.lab.web.model import WebHost, body_of
from anabranch.crawler.lab.web.server import MAX_HEAD_BYTES, BadRequest, Server, parsed
from tests.crawler.lab.web.asking import HandWeb, client_of, page, served


def entry_of(server: Server, host: str = "a.test") -> HostEntry:
    return next(entry for entry in server.accounts.ledger().hosts if entry.host == host)


async def test_a_connection_serves_one_request_after_the_other() -> None:
    """Kept alive; the body is the page's, of just its size."""
    web = HandWeb(one=page(3_000), two=page(70_000, 0.0, 0.003))
    async with served(web) as (server, port), client_of(port) as client:
        for name, size in (("one", 3_000), ("two", 70_000), ("one", 3_000)):
            reply = await client.get(f"/{name}")
            expected = web.page(f"http://a.test/{name}")
            assert expected is not None
            assert (reply.status, len(reply.body)) == (200, size)
            assert reply.body == body_of(expected, f"http://a.test/{name}")
            assert reply.fields["Content-Type"] == "text/html"
        entry = entry_of(server)
        assert (entry.requests, entry.most_at_once, entry.size_bytes, entry.gone) == (3, 1, 76_000, 0)


async def test_requests_sent_at_once_are_answered_in_their_order() -> None:
    """One is in service at a time, whatever the later one would take."""
    async with served(HandWeb(slow=page(100, 0.05), quick=page(200))) as (server, port), client_of(port) as client:
        client.send("/slow")
        client.send("/quick")
        assert [len((await client.reply()).body) for _ in range(2)] == [100, 200]
        assert entry_of(server).most_at_once == 1


async def test_a_head_that_comes_in_pieces_is_one_request() -> None:
    """Whatever the network makes of it."""
    async with served(HandWeb(one=page(100))) as (_, port), client_of(port) as client:
        for piece in (b"GET /one HT", b"TP/1.1\r\nHo", b"st: a.test\r", b"\n\r", b"\n"):
            client.writer.write(piece)
            await asyncio.sleep(0)
        assert (await client.reply()).status == 200


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://a.test/one", "127.0.0.1"),
        ("HTTP://A.Test:80/one", "x"),
        ("http://a.test/one", "b.test"),
        ("/one", "A.TEST"),
        ("/one", "a.test:8080"),
    ],
)
async def test_the_host_is_named_by_the_target_or_by_its_field(target: str, host: str) -> None:
    """A target in absolute form wins, as from a client that takes us for its proxy; case and port mean nothing."""
    async with served(HandWeb(one=page(100))) as (server, port), client_of(port) as client:
        assert (await client.get(target, fields=f"host: {host}\r\n")).status == 200
        assert entry_of(server).requests == 1


@pytest.mark.parametrize(
    ("target", "host"), [("http://[::1]:8080/one", "x"), ("/one", "[::1]:8080"), ("/one", "[::1]"), ("/one", "[::1]:1")]
)
async def test_a_host_may_be_an_ipv6_address(target: str, host: str) -> None:
    """In brackets, whose colons part no port."""
    web = HandWeb(one=page(100))
    web.sites = (WebHost("[::1]", 1, 0.0, 1e9, None),)
    web.pages = {"http://[::1]:8080/one": page(100), "http://[::1]/one": page(100)}
    async with served(web) as (server, port), client_of(port) as client:
        assert (await client.get(target, fields=f"host: {host}\r\n")).status == 200
        assert entry_of(server, "[::1]").requests == 1


async def test_an_absolute_target_without_a_path_is_the_root() -> None:
    """A proxy's client may write it so."""
    async with served(HandWeb(**{"": page(100)})) as (_, port), client_of(port) as client:
        assert (await client.get("http://a.test")).status == 200


async def test_head_is_answered_without_a_body() -> None:
    """With the fields of a GET; the connection goes on."""
    async with served(HandWeb(one=page(5_000))) as (server, port), client_of(port) as client:
        head = await client.get("/one", method="HEAD")
        assert head.fields["Content-Length"] == "5000"
        assert len((await client.get("/one")).body) == 5_000
        assert entry_of(server).size_bytes == 5_000


async def test_what_is_unknown_is_told_so() -> None:
    """An unknown page is a 404 in the host's books; an unknown host is a 421, and no book is opened for it."""
    async with served(HandWeb(one=page())) as (server, port), client_of(port) as client:
        assert (await client.get("/two")).status == 404
        for number in range(3):
            assert (await client.get("/one", fields=f"Host: h{number}.test\r\n")).status == 421
        ledger = server.accounts.ledger()
        assert [entry.host for entry in ledger.hosts] == ["a.test"]
        assert ledger.strangers == 3


async def test_robots_allows_all_and_asks_one_host_for_a_delay() -> None:
    """It is a request like any other in the books."""
    async with served(HandWeb()) as (server, port), client_of(port) as client:
        plain = await client.get("/robots.txt")
        delayed = await client.get("/robots.txt", fields="Host: b.test\r\n")
        assert plain.body == b"User-agent: *\nDisallow:\n"
        assert delayed.body == b"User-agent: *\nDisallow:\nCrawl-delay: 1.5\n"
        assert entry_of(server, "b.test").requests == 1


async def test_redirects_and_failures_are_sent_as_they_are() -> None:
    """A redirect has its target in Location; 204 has no body and no length."""
    web = HandWeb(
        moved=page(400, 0.0, 0.0, "http://b.test/", status=301), gone=page(400, status=500), none=page(0, status=204)
    )
    async with served(web) as (_, port), client_of(port) as client:
        moved = await client.get("/moved")
        assert (moved.status, moved.fields["Location"]) == (301, "http://b.test/")
        assert (await client.get("/gone")).status == 500
        client.send("/none")
        status, fields = await client.head()
        assert (status, "Content-Length" in fields) == (204, False)
        assert (await client.get("/gone")).status == 500


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ("Host: a.test\r\nConnection: close\r\n", "1.1"),
        ("Host: a.test\r\n", "1.0"),
        ("Host: a.test\r\nContent-Length: 3\r\n", "1.1"),
    ],
)
async def test_the_last_request_closes_the_connection(fields: str, version: str) -> None:
    """Asked for, by an old client, or because a body follows that nobody reads."""
    async with served(HandWeb(one=page())) as (_, port), client_of(port) as client:
        reply = await client.get("/one", fields=fields, version=version)
        assert (reply.status, reply.fields["Connection"]) == (200, "close")
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"this is no HTTP\r\n\r\n", 400),
        (b"GET /one HTTP/1.1\r\n\r\n", 400),
        (b"GET ftp://a.test/one HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
        (b"CONNECT a.test:443 HTTP/1.1\r\n\r\n", 405),
        (b"POST /one HTTP/1.1\r\nHost: a.test\r\n\r\n", 405),
        (b"GET /" + b"x" * MAX_HEAD_BYTES, 431),
    ],
)
async def test_what_is_no_request_is_refused(sent: bytes, status: int) -> None:
    """With its status, and the connection ends; no book has it."""
    async with served(HandWeb(one=page())) as (server, port), client_of(port) as client:
        client.writer.write(sent)
        assert (await client.reply()).status == status
        assert await client.is_closed()
        assert server.accounts.ledger().requests == 0


@pytest.mark.parametrize("transfer_s", [0.0, 0.4])
async def test_a_page_of_longer_latency_is_answered_later(transfer_s: float) -> None:
    """In the order of their latencies, not of the requests; however long the transfer is."""
    web = HandWeb(slow=page(100, 0.3, transfer_s), middle=page(200, 0.15, transfer_s), quick=page(300, 0.0, transfer_s))
    order: list[str] = []

    async def ask(name: str) -> None:
        async with client_of(port) as client:
            client.send(f"/{name}")
            await client.head()
            order.append(name)

    async with served(web) as (server, port):
        await asyncio.gather(*map(ask, ("slow", "middle", "quick")))
        assert order == ["quick", "middle", "slow"]
        assert entry_of(server).most_at_once == 3


async def test_a_request_is_in_service_until_its_last_byte() -> None:
    """The first bytes come after the latency, the last ones after the transfer; then the slot is free."""
    async with served(HandWeb(big=page(50_000, 0.01, 0.2))) as (server, port), client_of(port) as client:
        client.send("/big")
        await client.head()
        assert server.accounts.of("a.test").in_service == 1
        await client.reader.readexactly(50_000)
        assert server.accounts.of("a.test").in_service == 0


async def test_a_client_that_goes_away_leaves_no_request_in_service() -> None:
    """The books say that it has gone, and nothing is sent."""
    async with served(HandWeb(slow=page(100, 0.4), other=page(100, 0.4))) as (server, port):
        async with client_of(port) as client, client_of(port) as stayer:
            client.send("/slow")
            stayer.send("/other")
            while server.accounts.of("a.test").in_service < 2:
                await asyncio.sleep(0)
            client.writer.transport.abort()
            await stayer.reply()
        entry = entry_of(server)
        assert (entry.requests, entry.gone, entry.size_bytes) == (2, 1, 100)
        assert server.accounts.of("a.test").in_service == 0


async def test_new_books_do_not_know_what_was_before() -> None:
    """A request that was in service then ends in the old ones."""
    async with served(HandWeb(slow=page(100, 0.1))) as (server, port), client_of(port) as client:
        client.send("/slow")
        while not server.accounts.of("a.test").in_service:
            await asyncio.sleep(0)
        server.begin(PolitenessRule(slots=2))
        assert server.accounts.ledger().hosts == ()
        await client.reply()
        assert server.accounts.ledger().hosts == ()
        await client.get("/slow")
        assert entry_of(server).requests == 1


async def test_the_longest_lag_is_noted() -> None:
    """The ledger shows the longest time for which a busy loop kept the server from sending."""
    async with served(HandWeb(one=page(100, 0.001))) as (server, port), client_of(port) as client:
        client.send("/one")
        while not server.accounts.of("a.test").in_service:
            await asyncio.sleep(0)
        began_s = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began_s + 0.05:
            pass
        await client.reply()
        assert server.accounts.ledger().longest_lag_s > 0.04


async def test_a_flood_behind_a_request_is_not_read() -> None:
    """While a request is in service the server takes in little more than a head."""
    async with served(HandWeb(slow=page(100, 0.4))) as (_, port), client_of(port) as client:
        client.send("/slow")
        client.writer.write(b"x" * 30_000_000)
        reply, drained = asyncio.create_task(client.reply()), asyncio.create_task(client.writer.drain())
        first, _ = await asyncio.wait({reply, drained}, return_when=asyncio.FIRST_COMPLETED)
        assert first == {reply}
        drained.cancel()
        client.writer.transport.abort()
        await asyncio.wait({drained})


async def test_what_was_held_back_is_read_when_the_request_has_ended() -> None:
    """Far more requests at once than are taken in while one is in service; all are answered."""
    async with served(HandWeb(slow=page(100, 0.2), quick=page(10))) as (server, port), client_of(port) as client:
        client.send("/slow")
        for _ in range(400):
            client.send("/quick", fields=f"Host: a.test\r\nCookie: {'x' * 8000}\r\n")
        assert [len((await client.reply()).body) for _ in range(401)] == [100, *[10] * 400]
        assert entry_of(server).most_at_once == 1


def test_an_empty_head_is_no_request() -> None:
    """Nothing but the end of a line."""
    with pytest.raises(BadRequest):
        parsed(b"\r\n")
