"""Limits end a run or pause it; a disk without room pauses it until there is room."""

import asyncio
from pathlib import Path

import pytest

from anabranch.crawler.operating import limits as limits_module
from anabranch.crawler.operating.course import Course, Phase
from anabranch.crawler.operating.limits import DiskWatch, Limits, free_of
from anabranch.crawler.orders.limits import LimitsSection
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.reporting.statistics import CrawlStatistics
from anabranch.frontier.models import OutcomeKind
from tests.crawler.builder import memory_frontier, settle, timers_set, until, visit

GB = 10**9


def quiet(_: str) -> None:
    """Nobody listens."""


def limits_of(course, **keys):
    """Limits by an order's keys, and the counters that they look at."""
    statistics = CrawlStatistics(started_s=0.0)
    order = LimitsSection.model_validate(keys)
    return Limits(order, course, statistics), statistics


async def settled(tickets, pages):
    """Take and use up so many tickets."""
    for _ in range(pages):
        await tickets.take()
        tickets.settle(is_page=True)


async def test_the_last_page_ends_the_run() -> None:
    """Pages of earlier runs count."""
    course = Course(quiet)
    limits, _ = limits_of(course, pages=5)
    tickets = limits.pages(done=3)
    await settled(tickets, 1)
    assert not course.stopped.is_set()
    await settled(tickets, 1)
    assert (course.stopped.is_set(), course.ending) == (True, WhyEnded.PAGE_LIMIT)


async def test_a_limit_that_is_reached_already_ends_the_run_before_it_begins() -> None:
    """The same command again fetches nothing."""
    course = Course(quiet)
    limits_of(course, pages=5)[0].pages(done=7)
    assert course.ending is WhyEnded.PAGE_LIMIT


async def test_with_on_limit_pause_the_operator_goes_beyond_the_pages() -> None:
    """Whoever waits for a ticket goes on, and no ticket is asked for any more."""
    async with memory_frontier("http://a.test/") as frontier:
        course = Course(quiet)
        course.steer(frontier)
        limits, _ = limits_of(course, pages=1, on_limit="pause")
        tickets = limits.pages(done=0)
        await settled(tickets, 1)
        assert (course.phase, course.words) == (Phase.PAUSED, "paused by --limit")
        waiting = [asyncio.create_task(tickets.take()) for _ in range(3)]
        await settle()
        assert not any(task.done() for task in waiting)
        course.go_on()
        await asyncio.gather(*waiting)
        await settled(tickets, 10)
        assert course.phase is Phase.RUNNING


@pytest.mark.parametrize(("before", "ends"), [(0, False), (400, True)])
async def test_bytes_are_looked_at_when_a_page_has_ended(before, ends) -> None:
    """Those of earlier runs count; without the limit the disposition is left as it is."""

    async def dispose(_):
        statistics.fetched_bytes += 600
        return OutcomeKind.DONE

    course = Course(quiet)
    limits, statistics = limits_of(course, bytes=1000)
    limits.count_earlier(before)
    assert await limits.counting(dispose)(visit()) is OutcomeKind.DONE
    assert course.stopped.is_set() is ends
    if ends:
        assert course.ending is WhyEnded.SIZE_LIMIT
    unlimited, _ = limits_of(course)
    assert unlimited.counting(dispose) is dispose


def test_a_limit_of_bytes_that_earlier_runs_reached_ends_the_run_before_it_begins() -> None:
    """The same command again fetches nothing; without a limit, what was fetched does not matter."""
    course = Course(quiet)
    limits_of(course)[0].count_earlier(10**12)
    limits_of(course, bytes=1001)[0].count_earlier(1000)
    assert not course.stopped.is_set()
    limits_of(course, bytes=1000)[0].count_earlier(1000)
    assert course.ending is WhyEnded.SIZE_LIMIT


async def test_bytes_that_paused_the_run_are_lifted_by_the_operator() -> None:
    """Else the next page would pause it again."""
    async with memory_frontier("http://a.test/") as frontier:
        course = Course(quiet)
        course.steer(frontier)
        limits, statistics = limits_of(course, bytes=1, on_limit="pause")
        statistics.fetched_bytes = 2
        limits.look()
        assert course.words == "paused by --size-limit"
        course.go_on()
        limits.look()
        assert course.phase is Phase.RUNNING


@pytest.mark.parametrize(("on_limit", "phase"), [("end", Phase.DRAINING), ("pause", Phase.PAUSED)])
async def test_the_time_is_up_once(on_limit, phase) -> None:
    """Then the run ends or pauses."""
    async with memory_frontier("http://a.test/") as frontier:
        course = Course(quiet)
        course.steer(frontier)
        with limits_of(course, time="1ms", on_limit=on_limit)[0].clock():
            await until(lambda: course.phase is phase)


async def test_a_run_that_ends_before_its_time_leaves_no_timer() -> None:
    """Nothing rings afterwards."""
    course = Course(quiet)
    with timers_set() as timers, limits_of(course, time="1h")[0].clock():
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
        course, disk = Course(quiet), Disk(GB)
        course.steer(frontier)
        watch = DiskWatch([Path("jobs/a")], GB, course, disk)
        paused = []
        for free in (GB, GB - 1, GB, 1_099_999_999, 1_100_000_000, GB, GB - 1):
            disk.free = free
            await watch.look()
            paused.append(course.phase is Phase.PAUSED)
        assert paused == [False, True, True, True, False, False, True]
        assert watch.free_bytes == GB - 1
        assert course.words == "paused: 953.7 MiB are free at jobs/a, min_free_disk is 953.7 MiB"


async def test_the_fullest_of_several_disks_counts() -> None:
    """Records may lie elsewhere than the job."""
    course = Course(quiet)
    room = {Path("a"): 5 * GB, Path("b"): 1}
    watch = DiskWatch(list(room), GB, course, room.__getitem__)
    await watch.look()
    assert "at b" in course.words


async def test_a_disk_that_tells_nothing_changes_nothing(capsys) -> None:
    """A warning says so; what cannot be written is heard of anyway."""
    course, disk = Course(quiet), Disk(0)
    watch = DiskWatch([Path("a")], GB, course, disk)
    await watch.look()
    disk.free = -1
    await watch.look()
    assert course.words
    captured = capsys.readouterr()
    assert "the file server is away" in captured.out + captured.err


async def test_without_a_least_room_nobody_looks() -> None:
    """0 is no limit: the watch ends at once."""
    watch = DiskWatch([Path("a")], 0, Course(quiet), Disk(-1))
    await watch.look()
    await asyncio.wait_for(watch.watch(), 10)
    assert watch.free_bytes is None


async def test_the_watch_looks_again_and_again(monkeypatch) -> None:
    """No event tells of room that others took."""
    monkeypatch.setattr(limits_module, "LOOK_S", 0.001)
    course, disk = Course(quiet), Disk(2 * GB)
    watching = asyncio.create_task(DiskWatch([Path("a")], GB, course, disk).watch())
    for free, paused in ((1, True), (2 * GB, False)):
        disk.free = free
        await until(lambda paused=paused: bool(course.words) is paused)
    watching.cancel()


def test_free_is_what_a_user_may_write(tmp_path) -> None:
    """As `df` says it; a folder that is not there is an error."""
    assert free_of(tmp_path) > 0
    with pytest.raises(FileNotFoundError):
        free_of(tmp_path / "none")
