"""Limits end a run or pause it; a disk without room pauses it until there is room."""

import asyncio
from pathlib import Path

import pytest

from anabranch.crawler.order.sections import LimitsSection, UsedLimits
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run import limits
from anabranch.crawler.run.limits import DiskWatch, PageTickets, RunLimits, free_bytes_of
from anabranch.crawler.run.run_state import Cause, Phase, RunState
from tests.crawler.builder import memory_frontier, settle, timers_set, until

GB = 10**9


def quiet(_: str) -> None:
    """Nobody listens."""


def limits_of(run_state, *, done=0, before=0, **keys):
    """Limits by an order's keys, for a job with so many pages and bytes, and the counters that they look at."""
    statistics = CrawlStatistics(started_s=0.0)
    order = LimitsSection.model_validate(keys)
    return RunLimits(order, run_state, statistics, UsedLimits(done, before), lambda: None), statistics


async def settled(limits, pages):
    """Take and use up so many tickets."""
    for _ in range(pages):
        assert await limits.tickets.take()
        limits.settle(is_page=True)


async def test_a_visit_waits_until_its_worker_has_a_ticket() -> None:
    """One that brings no page gives its ticket to the next."""
    short: list[bool] = []
    tickets = PageTickets(lambda: short.append(True))
    tickets.limit()
    first, second = (asyncio.create_task(tickets.take()) for _ in range(2))
    await asyncio.sleep(0)
    assert (tickets.short, len(short)) == (2, 2)
    tickets.grant(1)
    assert await first
    assert not second.done()
    tickets.settle(is_page=False)
    tickets.serve()
    assert await second
    tickets.settle(is_page=True)
    tickets.grant(1)
    third = asyncio.create_task(tickets.take())
    await asyncio.sleep(0)
    assert not third.done()
    tickets.end()
    assert not await third


async def test_tickets_that_nothing_wants_are_given_back() -> None:
    """Not before a while without a want; those at visits stay."""
    tickets = PageTickets(lambda: None)
    tickets.limit()
    tickets.grant(5)
    assert await tickets.take()
    assert tickets.give_back() is None
    assert tickets.give_back() == 1
    assert tickets.give_back() is None


async def test_without_a_limit_all_pass() -> None:
    """After the operator has resumed a crawl that its limit had paused."""
    tickets = PageTickets(lambda: None)
    tickets.limit()
    waiting = asyncio.create_task(tickets.take())
    await asyncio.sleep(0)
    tickets.lift()
    assert await waiting
    assert await tickets.take()


async def test_a_visit_that_is_cancelled_keeps_no_ticket() -> None:
    """Neither while it waits, nor when it has just got one."""
    tickets = PageTickets(lambda: None)
    tickets.limit()
    waits, gets = (asyncio.create_task(tickets.take()) for _ in range(2))
    await settle()
    waits.cancel()
    await settle()
    assert tickets.short == 1
    tickets.grant(1)
    gets.cancel()
    await asyncio.wait([gets])
    assert await asyncio.wait_for(tickets.take(), 1)


async def test_pages_of_before_a_limit_have_had_their_tickets() -> None:
    """Done or under way."""
    tickets = PageTickets(lambda: None)
    for is_page in (True, False):
        assert await tickets.take()
        tickets.settle(is_page=is_page)
    assert await tickets.take()
    tickets.limit()
    assert tickets.granted == 2
    waiting = asyncio.create_task(tickets.take())
    await settle()
    assert not waiting.done()
    tickets.settle(is_page=False)
    tickets.serve()
    assert await waiting


async def test_the_last_page_ends_the_run() -> None:
    """Pages of earlier runs count."""
    run_state = RunState(quiet)
    limits, _ = limits_of(run_state, done=3, pages=5)
    await settled(limits, 1)
    assert not run_state.stopped.is_set()
    await settled(limits, 1)
    assert (run_state.stopped.is_set(), run_state.ending) == (True, WhyEnded.PAGE_LIMIT)


async def test_a_limit_that_is_reached_already_ends_the_run_before_it_begins() -> None:
    """A command that is run again after its limit was reached fetches nothing."""
    run_state = RunState(quiet)
    limits_of(run_state, done=7, pages=5)[0].check()
    assert run_state.ending is WhyEnded.PAGE_LIMIT


async def test_with_on_limit_pause_the_operator_goes_beyond_the_pages() -> None:
    """Visits that wait for a ticket give their leases back during the pause; after it there is no limit."""
    async with memory_frontier("http://a.test/") as frontier:
        run_state = RunState(quiet)
        run_state.begin(frontier)
        limits, _ = limits_of(run_state, pages=1, on_limit="pause")
        assert await limits.tickets.take()
        waiting = [asyncio.create_task(limits.tickets.take()) for _ in range(3)]
        await settle()
        limits.settle(is_page=True)
        assert (run_state.phase, run_state.pause_reason) == (Phase.PAUSED, "paused by limits.pages")
        assert await asyncio.gather(*waiting) == [False] * 3
        assert not await limits.tickets.take(), "it was leased in the last moment"
        run_state.resume_all()
        await settled(limits, 10)
        assert run_state.phase is Phase.RUNNING


@pytest.mark.parametrize(("before", "ends"), [(0, False), (400, True)])
async def test_bytes_are_looked_at_when_a_page_has_ended(before, ends) -> None:
    """Those of earlier runs count."""
    run_state = RunState(quiet)
    limits, statistics = limits_of(run_state, before=before, bytes=1000)
    assert await limits.tickets.take()
    statistics.fetched_bytes += 600
    limits.settle(is_page=True)
    assert run_state.stopped.is_set() is ends
    if ends:
        assert run_state.ending is WhyEnded.SIZE_LIMIT


def test_a_limit_of_bytes_that_earlier_runs_reached_ends_the_run_before_it_begins() -> None:
    """A command that is run again after its limit was reached fetches nothing; without a limit, earlier bytes do not matter."""
    run_state = RunState(quiet)
    limits_of(run_state, before=10**12)[0].check()
    limits_of(run_state, before=1000, bytes=1001)[0].check()
    assert not run_state.stopped.is_set()
    limits_of(run_state, before=1000, bytes=1000)[0].check()
    assert run_state.ending is WhyEnded.SIZE_LIMIT


async def test_bytes_that_paused_the_run_are_lifted_by_the_operator() -> None:
    """Else the next page would pause it again."""
    async with memory_frontier("http://a.test/") as frontier:
        run_state = RunState(quiet)
        run_state.begin(frontier)
        limits, statistics = limits_of(run_state, bytes=1, on_limit="pause")
        statistics.fetched_bytes = 2
        limits.check()
        assert run_state.pause_reason == "paused by limits.bytes"
        run_state.resume_all()
        limits.check()
        assert run_state.phase is Phase.RUNNING
        assert await limits.tickets.take()


@pytest.mark.parametrize(("cause", "key"), [(Cause.BYTES, "bytes"), (Cause.TIME, "time")])
async def test_pages_are_fetched_after_any_limit_that_is_raised(cause, key) -> None:
    """And after one that the operator has lifted."""
    run_state = RunState(quiet)
    limits, statistics = limits_of(run_state, on_limit="pause", pages=9, **{key: 10})
    for lift in (run_state.resume_all, lambda: limits.change(LimitsSection(pages=9))):
        limits.reached(cause)
        assert run_state.pause_reason
        lift()
        assert not run_state.pause_reason
        assert await asyncio.wait_for(limits.tickets.take(), 1)
    assert statistics.fetched_bytes == 0


async def test_a_worker_that_joins_again_knows_what_the_operator_has_lifted() -> None:
    """Its limits are made anew."""
    run_state = RunState(quiet)
    limits, _ = limits_of(run_state, pages=1, on_limit="pause")
    await settled(limits, 1)
    run_state.resume_all()
    again, _ = limits_of(run_state, done=1, pages=1, on_limit="pause")
    again.check()
    assert not run_state.pause_reason
    assert await again.tickets.take()


async def test_nothing_begins_beyond_a_limit_of_bytes() -> None:
    """The ticket of the visit that reaches it is not handed on."""
    run_state = RunState(quiet)
    limits, statistics = limits_of(run_state, pages=1, bytes=100, on_limit="pause")
    assert await limits.tickets.take()
    waiting = asyncio.create_task(limits.tickets.take())
    await settle()
    statistics.fetched_bytes = 100
    limits.settle(is_page=False)
    assert not await waiting


@pytest.mark.parametrize(("on_limit", "phase"), [("end", Phase.DRAINING), ("pause", Phase.PAUSED)])
async def test_the_time_is_up_once(on_limit, phase) -> None:
    """Then the run ends or pauses."""
    async with memory_frontier("http://a.test/") as frontier:
        run_state = RunState(quiet)
        run_state.begin(frontier)
        with limits_of(run_state, time="1ms", on_limit=on_limit)[0].clock():
            await until(lambda: run_state.phase is phase)


async def test_a_run_that_ends_before_its_time_leaves_no_timer() -> None:
    """Nothing rings afterwards."""
    run_state = RunState(quiet)
    with timers_set() as timers, limits_of(run_state, time="1h")[0].clock():
        assert [timer.cancelled() for timer in timers] == [False]
    assert [timer.cancelled() for timer in timers] == [True]


# The disk


class Disk:
    """A disk whose free bytes the test sets."""

    def __init__(self, free: int) -> None:
        self.free = free

    def __call__(self, _: Path) -> int:
        if self.free < 0:
            raise OSError("the file server is away")
        return self.free


async def test_a_disk_with_too_little_room_pauses_the_crawl_until_there_is_clearly_more() -> None:
    """At 1 GB it pauses below 1 GB and goes on from 1.1 GB: it shall not come and go with each page."""
    async with memory_frontier("http://a.test/") as frontier:
        run_state, disk = RunState(quiet), Disk(GB)
        run_state.begin(frontier)
        watch = DiskWatch([Path("jobs/a")], GB, run_state, disk)
        paused = []
        for free in (GB, GB - 1, GB, 1_099_999_999, 1_100_000_000, GB, GB - 1):
            disk.free = free
            await watch.poll()
            paused.append(run_state.phase is Phase.PAUSED)
        assert paused == [False, True, True, True, False, False, True]
        assert watch.free_bytes == GB - 1
        assert run_state.pause_reason == "paused: 953.7 MiB are free at jobs/a, min_free_disk is 953.7 MiB"


async def test_the_fullest_of_several_disks_counts() -> None:
    """Records may lie elsewhere than the job."""
    run_state = RunState(quiet)
    room = {Path("a"): 5 * GB, Path("b"): 1}
    watch = DiskWatch(list(room), GB, run_state, room.__getitem__)
    await watch.poll()
    assert "at b" in run_state.pause_reason


async def test_a_disk_that_tells_nothing_changes_nothing(capsys) -> None:
    """A warning says so; what cannot be written is heard of anyway."""
    run_state, disk = RunState(quiet), Disk(0)
    watch = DiskWatch([Path("a")], GB, run_state, disk)
    await watch.poll()
    disk.free = -1
    await watch.poll()
    assert run_state.pause_reason
    captured = capsys.readouterr()
    assert "the file server is away" in captured.out + captured.err


async def test_without_a_least_room_nobody_looks() -> None:
    """0 is no limit; one that is set later counts from the next poll on."""
    run_state = RunState(quiet)
    watch = DiskWatch([Path("a")], 0, run_state, Disk(1))
    await watch.poll()
    assert watch.free_bytes is None
    watch.change(GB)
    await watch.poll()
    assert (watch.free_bytes, bool(run_state.pause_reason)) == (1, True)
    watch.change(0)
    assert not run_state.pause_reason


async def test_a_limit_that_was_lifted_stays_so_when_another_is_changed() -> None:
    """The operator has gone on beyond it."""
    run_state = RunState(quiet)
    limits, _ = limits_of(run_state, pages=1, on_limit="pause")
    await settled(limits, 1)
    run_state.resume_all()
    limits.change(LimitsSection.model_validate({"pages": 1, "bytes": 10**9, "on_limit": "pause"}))
    assert not run_state.pause_reason
    await settled(limits, 1)
    limits.change(LimitsSection.model_validate({"pages": 2, "on_limit": "pause"}))
    assert run_state.pause_reason == Cause.PAGES.value


async def test_limits_that_are_changed_count_all_of_the_run() -> None:
    """A higher one resumes what the lower one had paused; one that is below what was fetched is reached at once."""
    run_state = RunState(quiet)
    limits, statistics = limits_of(run_state, done=5, before=100, pages=6, on_limit="pause")
    await settled(limits, 1)
    assert run_state.pause_reason == Cause.PAGES.value
    statistics.fetched_bytes = 600
    limits.change(LimitsSection.model_validate({"pages": 8, "bytes": 1000, "on_limit": "pause"}))
    assert not run_state.pause_reason
    limits.change(LimitsSection.model_validate({"pages": 8, "bytes": 700, "on_limit": "pause"}))
    assert run_state.pause_reason == Cause.BYTES.value
    limits.change(LimitsSection.model_validate({"pages": 6, "on_limit": "pause"}))
    assert run_state.pause_reason == Cause.PAGES.value


async def test_the_watch_looks_again_and_again(monkeypatch) -> None:
    """No event tells of room that others took."""
    monkeypatch.setattr(limits, "POLL_S", 0.001)
    run_state, disk = RunState(quiet), Disk(2 * GB)
    watching = asyncio.create_task(DiskWatch([Path("a")], GB, run_state, disk).watch())
    for free, paused in ((1, True), (2 * GB, False)):
        disk.free = free
        await until(lambda paused=paused: bool(run_state.pause_reason) is paused)
    watching.cancel()


def test_free_is_what_a_user_may_write(tmp_path) -> None:
    """Free space is that of users without privileges, as `df` shows it; a missing folder raises an error."""
    assert free_bytes_of(tmp_path) > 0
    with pytest.raises(FileNotFoundError):
        free_bytes_of(tmp_path / "none")
