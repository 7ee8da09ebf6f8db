"""Caps of bandwidth: no more is read than they allow, what waits for them does not grow slow, and nothing is lost."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from anabranch.crawler.fetch.bandwidth import Bandwidth, Bucket, GrantedBucket, Meter
from anabranch.crawler.fetch.capped import CappedConnection
from anabranch.crawler.fetch.connection_limits import ConnectionLimits
from anabranch.crawler.fetch.response import Cut
from tests.crawler.fetch.servers import Web

SIZE = 64 * 1024


def capped(rate: int = 0, host_rate: int = 0) -> ConnectionLimits:
    """Connections that read no more than that."""
    return ConnectionLimits(bandwidth=Bandwidth(rate, host_rate))


class Ledger:
    """The reads from sockets, by host: loop time and bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: list[tuple[float, int]] = []
        read = Meter.read

        def noting(meter: Meter, size: int) -> bool:
            self.reads.append((asyncio.get_running_loop().time(), size))
            return read(meter, size)

        monkeypatch.setattr(Meter, "read", noting)

    def most_in(self, seconds: float) -> int:
        """The most bytes in any window of so many seconds."""
        return max(
            sum(size for at_s, size in self.reads if start_s <= at_s < start_s + seconds) for start_s, _ in self.reads
        )


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    return Ledger(monkeypatch)


async def served(site: Web, size: int = SIZE, tls: ssl.SSLContext | None = None) -> int:
    """A server of bodies of this size, whose connections are kept; its port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
            await writer.drain()

    return await site.listen(talk, tls)


async def test_a_host_sends_no_more_than_its_cap(site: Web, ledger: Ledger) -> None:
    """In bytes as read from sockets, heads included; one portion may come at once."""
    rate = 512 * 1024
    fetcher = site.fetcher(connections=capped(0, rate))
    url = f"http://127.0.0.1:{await served(site)}/"
    start_s = asyncio.get_running_loop().time()
    for _ in range(8):
        response = await fetcher.get(url)
        assert (response.status, response.body.size) == (200, SIZE)
        response.body.close()
    passed_s = asyncio.get_running_loop().time() - start_s
    assert sum(size for _, size in ledger.reads) >= 8 * SIZE
    assert max(size for _, size in ledger.reads) <= rate // 50
    assert passed_s >= (8 * SIZE - rate // 50) / rate * 0.95
    assert ledger.most_in(0.5) <= rate * 0.5 + 2 * rate // 50 + rate * 0.05


async def test_the_cap_of_the_job_holds_for_all_hosts_together(site: Web, ledger: Ledger) -> None:
    """Ten fetches at once, of hosts with caps of their own above it."""
    rate = 1 << 20
    site.hosts.update({f"h{number}.test": f"127.0.0.1:{await served(site)}" for number in range(10)})
    fetcher = site.fetcher(connections=capped(rate, rate))
    start_s = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(fetcher.get(f"http://h{number}.test/") for number in range(10)))
    passed_s = asyncio.get_running_loop().time() - start_s
    assert [answer.body.size for answer in answers] == [SIZE] * 10
    assert passed_s >= 10 * SIZE / rate - 0.1


async def test_a_wait_for_the_cap_is_no_time_of_the_fetch(site: Web) -> None:
    """Neither a time limit nor the least rate of a body counts it, nor the times of the answer."""
    # The capped fetch takes 2 s, at half the least rate; what else a busy machine takes is far within the limits.
    limits = {"timeout_s": 1.5, "read_timeout_s": 1.0, "min_rate": 256 * 1024, "rate_window_s": 1.0}
    url = f"http://127.0.0.1:{await served(site, 4 * SIZE)}/"
    options = {**limits, "max_body_bytes": 1 << 20}
    free, slow = site.fetcher(**options), site.fetcher(connections=capped(0, 128 * 1024), **options)
    usual, response = await free.get(url), await slow.get(url)
    assert (response.body.size, response.cuts) == (4 * SIZE, ())
    assert response.end_s == usual.end_s  # by a clock that counts its readings
    assert response.start_s >= usual.start_s + 1.5


async def test_a_server_that_is_slow_under_a_cap_is_slow(site: Web) -> None:
    """Time limits go on where the cap holds nothing up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(9000))
        await reader.read()

    fetcher = site.fetcher(connections=capped(0, 128 * 1024), read_timeout_s=0.1)
    response = await fetcher.get(f"http://127.0.0.1:{await site.listen(talk)}/")
    assert (response.body.size, response.cuts) == (9000, (Cut.TIME,))


async def test_what_was_not_used_goes_back() -> None:
    """Small answers get the whole rate: of a portion that was taken for one the rest is given back."""
    bucket = Bucket(1)
    async with asyncio.timeout(5):  # a portion that is not given back is owed for an hour
        for _ in range(100):
            meter = Meter([bucket])
            await meter.admit()
            meter.read(0)
            meter.end()


async def test_a_fetch_that_is_cancelled_while_it_waits_takes_nothing() -> None:
    """The next one is served in its place."""
    bucket = Bucket(100_000)
    bucket.give_back(-5_000)
    first, second = Meter([bucket]), Meter([bucket])
    waiting = asyncio.create_task(first.admit())
    following = asyncio.create_task(second.admit())
    await asyncio.sleep(0)
    waiting.cancel()
    await following
    assert waiting.cancelled()
    assert bucket._tokens < 0


async def test_a_granted_bucket_has_no_clock() -> None:
    """What it wants is what is owed and waited for; a grant serves it."""
    bucket = GrantedBucket(1 << 20)
    meter, late = Meter([bucket]), Meter([bucket])
    await meter.admit()
    waiting = asyncio.create_task(late.admit())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert bucket.wanted() >= 2 * bucket.portion
    bucket.grant(bucket.portion)
    await waiting
    assert bucket.wanted() == bucket.portion


async def test_hosts_are_forgotten_when_their_bucket_is_paid_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a site of many names does not fill the memory, and no name loses what it owes."""
    monkeypatch.setattr("anabranch.crawler.fetch.bandwidth.MAX_HOSTS", 2)
    bandwidth = Bandwidth(0, 1000)
    debtor = bandwidth.meter("a.test")
    await debtor.admit()
    for number in range(10):
        bandwidth.meter(f"h{number}.test")
    assert "a.test" in bandwidth._hosts
    assert len(bandwidth._hosts) <= 3


async def test_without_a_cap_nothing_is_counted(site: Web) -> None:
    """Connections are the usual ones."""
    fetcher = site.fetcher(connections=capped())
    await fetcher.get(f"http://127.0.0.1:{await served(site, 10)}/")
    (connector,) = fetcher._connectors.values()
    assert not issubclass(connector.connection_class, CappedConnection)
