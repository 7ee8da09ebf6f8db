"""Crawlee's request manager over a Frontier: what crawlers tell and ask of hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("crawlee")

from crawlee.request_loaders import ThrottlingRequestManager

from anabranch.frontier.hosts.crawlee.manager import FrontierRequestManager

A, B, OTHER = "http://a.test/a", "http://a.test/b", "http://b.test/"
STALL = timedelta(seconds=10)


class Clock:
    """A clock that a test sets; it goes for all Frontiers that are opened meanwhile."""

    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("anabranch.frontier.composition.steady_clock", lambda: clock)
    return clock


@pytest.fixture
async def manager(clock: Clock) -> AsyncIterator[FrontierRequestManager]:
    async with await FrontierRequestManager.open(
        None, max_domain_stall=STALL, min_delay=0, max_connections=2, backoff_base=1, backoff_cap=1, backoff_jitter=0
    ) as opened:
        yield opened


async def handle_next(manager: FrontierRequestManager) -> None:
    request = await manager.fetch_next_request()
    assert request is not None
    await manager.mark_request_as_handled(request)


async def test_crawlers_tell_it_of_hosts(manager: FrontierRequestManager) -> None:
    """They tell only what is an instance of Crawlee's own."""
    assert isinstance(manager, ThrottlingRequestManager)


async def test_any_host_is_throttled_for_as_long_as_it_asks(manager: FrontierRequestManager, clock: Clock) -> None:
    """No host has to be named; the others go on."""
    await manager.add_requests([A, B, OTHER])
    first = await manager.fetch_next_request()
    assert first is not None
    assert not manager.is_throttled(A)
    assert manager.record_domain_delay(first.url, retry_after=timedelta(seconds=5))
    assert manager.is_throttled(first.url)
    await manager.reclaim_request(first)
    hosts = {request.url.split("/")[2] for request in [await manager.fetch_next_request()] if request}
    assert hosts == {"a.test", "b.test"} - {first.url.split("/")[2]}
    while (request := await manager.fetch_next_request()) is not None:
        await manager.mark_request_as_handled(request)
    clock.now_s += 4.9
    assert await manager.fetch_next_request() is None
    clock.now_s += 0.2
    assert not manager.is_throttled(first.url)
    assert await manager.fetch_next_request() is not None


async def test_a_host_without_a_request_out_is_blocked_at_once(manager: FrontierRequestManager, clock: Clock) -> None:
    """A handler may tell of a 429 that it met itself."""
    await manager.add_request(A)
    assert manager.record_domain_delay(B, retry_after=timedelta(seconds=3))
    assert await manager.fetch_next_request() is None
    clock.now_s += 3.1
    assert await manager.fetch_next_request() is not None


async def test_what_has_no_host_cannot_be_throttled(manager: FrontierRequestManager) -> None:
    """Crawlee's own manager ignores a domain that it does not know in the same way."""
    assert not manager.record_domain_delay("nonsense")
    assert not manager.is_throttled("nonsense")
    manager.set_crawl_delay("nonsense", 1)


async def test_the_first_crawl_delay_of_a_host_counts(manager: FrontierRequestManager, clock: Clock) -> None:
    """Starts are so far apart; a later reading of robots.txt does not change it."""
    await manager.add_requests([A, B])
    manager.set_crawl_delay(A, 2)
    manager.set_crawl_delay(B, 0)
    await handle_next(manager)
    clock.now_s += 1.9
    assert await manager.fetch_next_request() is None
    clock.now_s += 0.2
    assert await manager.fetch_next_request() is not None


async def test_a_name_has_one_gate_however_it_is_written(manager: FrontierRequestManager) -> None:
    """International names are compared as they go over the wire."""
    await manager.add_request("http://bücher.test/")
    manager.record_domain_delay("http://xn--bcher-kva.test/", retry_after=timedelta(seconds=3))
    assert manager.is_throttled("http://BÜCHER.test/")
    assert await manager.fetch_next_request() is None


async def test_a_crawl_is_stalled_when_nothing_but_429_comes(manager: FrontierRequestManager, clock: Clock) -> None:
    """Longer than `max_domain_stall`, with nothing that may be fetched; a request that is handled ends it."""
    await manager.add_requests([A, B])
    for _ in range(6):  # at 0, 2, … 10 s
        request = await manager.fetch_next_request()
        assert request is not None
        manager.record_domain_delay(request.url, retry_after=timedelta(seconds=2))
        await manager.reclaim_request(request)
        assert await manager.get_stall_reason() is None
        clock.now_s += 2
    assert await manager.get_stall_reason() is None  # the gate is open again
    request = await manager.fetch_next_request()
    assert request is not None
    manager.record_domain_delay(request.url, retry_after=timedelta(seconds=2))
    await manager.reclaim_request(request)
    reason = await manager.get_stall_reason()
    assert reason is not None
    assert "a.test" in reason
    clock.now_s += 60
    request = await manager.fetch_next_request()
    assert request is not None
    await manager.mark_request_as_handled(request)
    assert await manager.get_stall_reason() is None


async def test_a_crawl_is_not_stalled_while_a_request_is_being_handled(
    manager: FrontierRequestManager, clock: Clock
) -> None:
    """One handler takes longer than `max_domain_stall`, and meanwhile another host answers 429 alone."""
    await manager.add_requests([A, OTHER])
    requests = {request.url: request for _ in "ab" if (request := await manager.fetch_next_request()) is not None}
    for _ in range(7):
        manager.record_domain_delay(A, retry_after=timedelta(seconds=2))
        await manager.reclaim_request(requests[A])
        assert await manager.get_stall_reason() is None
        clock.now_s += 2
        again = await manager.fetch_next_request()
        assert again is not None
        requests[A] = again
    manager.record_domain_delay(A, retry_after=timedelta(seconds=2))
    await manager.reclaim_request(requests[A])
    assert await manager.get_stall_reason() is None
    await manager.reclaim_request(requests[OTHER])
    assert await manager.fetch_next_request() is not None


async def test_success_forgives_nothing_by_itself(manager: FrontierRequestManager) -> None:
    """A cooldown is not cut short."""
    await manager.add_request(A)
    manager.record_domain_delay(A, retry_after=timedelta(seconds=3))
    manager.record_success(A)
    assert manager.is_throttled(A)


async def test_a_purge_forgets_cooldowns_and_keeps_crawl_delays(manager: FrontierRequestManager, clock: Clock) -> None:
    """Crawlee's own manager does the same."""
    manager.set_crawl_delay(A, 2)
    manager.record_domain_delay(A, retry_after=timedelta(seconds=100))
    await manager.purge()
    assert not manager.is_throttled(A)
    await manager.add_requests([A, B])
    await handle_next(manager)
    assert await manager.fetch_next_request() is None
    clock.now_s += 2.1
    assert await manager.fetch_next_request() is not None


async def test_only_a_queue_with_a_folder_has_a_name(tmp_path: Path) -> None:
    """A crawler purges queues without a name when it is run a second time."""
    async with (
        await FrontierRequestManager.open(tmp_path / "job") as kept,
        await FrontierRequestManager.open() as other,
    ):
        assert (kept.inner.name, other.inner.name) == ("frontier", None)


async def test_a_drop_does_not_purge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is removed need not be emptied and opened again."""
    manager = await FrontierRequestManager.open(tmp_path / "job")
    monkeypatch.setattr(type(manager.queue), "purge", None)
    await manager.drop()
    assert not (tmp_path / "job").exists()
