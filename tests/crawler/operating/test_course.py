"""Pauses of several causes, and ends: none undoes what another wants."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from anabranch.crawler.operating.course import Cause, Course, Phase
from anabranch.crawler.outcomes.endings import WhyEnded
from tests.crawler.builder import memory_frontier, settle

URL = "http://a.test/"


class Said(list):
    """What the operator was told."""


@asynccontextmanager
async def steered(*urls):
    """A course over a Frontier with URLs, and what it says."""
    async with memory_frontier(*urls) as frontier:
        said = Said()
        course = Course(said.append)
        course.steer(frontier)
        yield course, frontier, said


async def can_lease(frontier) -> bool:
    """A lease comes at once."""
    waiting = asyncio.create_task(frontier.lease())
    await settle()
    if waiting.done():
        frontier.release(waiting.result())
        return True
    waiting.cancel()
    return False


async def test_a_pause_keeps_fetches_from_beginning_and_says_so_once() -> None:
    """However often it is asked for."""
    async with steered(URL) as (course, frontier, said):
        for _ in range(2):
            course.pause(Cause.OPERATOR)
        assert (course.phase, course.words) == (Phase.PAUSED, "paused by the operator")
        assert not await can_lease(frontier)
        assert said == ["paused by the operator; fetches under way may end"]


async def test_a_crawl_goes_on_when_the_last_cause_is_gone() -> None:
    """The disk has room again, but the operator has not said that he is ready."""
    async with steered(URL) as (course, frontier, said):
        course.pause(Cause.OPERATOR)
        course.pause(Cause.DISK, "paused: no room")
        assert course.words == "paused by the operator; paused: no room"
        course.resume(Cause.DISK)
        assert not await can_lease(frontier)
        course.resume(Cause.OPERATOR)
        assert await can_lease(frontier)
        assert course.phase is Phase.RUNNING
        assert said[-2:] == ["paused by the operator", "going on"]


async def test_going_on_lifts_limits_but_gives_the_disk_no_room() -> None:
    """The operator's word ends his own pause and that of a limit, which holds no more."""
    async with steered(URL) as (course, frontier, _):
        lifted = []
        course.pause(Cause.OPERATOR)
        course.pause(Cause.PAGES, lift=lambda: lifted.append("pages"))
        course.pause(Cause.DISK, "paused: no room")
        course.go_on()
        assert (course.words, lifted) == ("paused: no room", ["pages"])
        assert not await can_lease(frontier)


async def test_to_resume_what_is_not_paused_changes_nothing() -> None:
    """And says nothing."""
    async with steered(URL) as (course, frontier, said):
        course.resume(Cause.DISK)
        course.go_on()
        assert await can_lease(frontier)
        assert said == []


async def test_what_is_wanted_before_there_is_a_frontier_holds_when_there_is_one() -> None:
    """A disk that is full from the start lets no fetch begin."""
    async with memory_frontier(URL) as frontier:
        course = Course(lambda _: None)
        assert course.phase is Phase.STARTING
        course.pause(Cause.DISK)
        course.steer(frontier)
        assert not await can_lease(frontier)


@pytest.mark.parametrize("second", [WhyEnded.SIGNAL, WhyEnded.OPERATOR])
async def test_the_first_reason_to_end_counts(second) -> None:
    """The time is up, and then somebody presses Ctrl-C."""
    course = Course(lambda _: None)
    course.stop(WhyEnded.TIME_LIMIT)
    course.stop(second)
    assert (course.ending, course.phase, course.hurried.is_set()) == (WhyEnded.TIME_LIMIT, Phase.DRAINING, False)


async def test_to_end_at_once_counts_more_than_to_end() -> None:
    """It is what happens then: fetches are given up."""
    course = Course(lambda _: None)
    course.stop(WhyEnded.OPERATOR)
    course.stop(WhyEnded.OPERATOR_NOW, at_once=True)
    course.stop(WhyEnded.SIGNAL, at_once=True)
    assert course.ending is WhyEnded.OPERATOR_NOW
    assert course.hurried.is_set()
