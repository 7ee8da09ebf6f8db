"""Pauses of several causes, and ends: none undoes what another wants."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.run.run_state import Cause, Phase, RunState
from tests.crawler.builder import memory_frontier, settle

URL = "http://a.test/"


class Said(list):
    """The lines that the operator got."""


@asynccontextmanager
async def steered(*urls):
    """A course over a Frontier with URLs, and what it says."""
    async with memory_frontier(*urls) as frontier:
        said = Said()
        run_state = RunState(said.append)
        run_state.begin(frontier)
        yield run_state, frontier, said


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
    async with steered(URL) as (run_state, frontier, said):
        for _ in range(2):
            run_state.pause(Cause.OPERATOR)
        assert (run_state.phase, run_state.pause_reason) == (Phase.PAUSED, "paused by the operator")
        assert not await can_lease(frontier)
        assert said == ["paused by the operator; fetches under way may end"]


async def test_a_crawl_goes_on_when_the_last_cause_is_gone() -> None:
    """The disk has room again, but the operator has not said that he is ready."""
    async with steered(URL) as (run_state, frontier, said):
        run_state.pause(Cause.OPERATOR)
        run_state.pause(Cause.DISK, "paused: no room")
        assert run_state.pause_reason == "paused by the operator; paused: no room"
        run_state.resume(Cause.DISK)
        assert not await can_lease(frontier)
        run_state.resume(Cause.OPERATOR)
        assert await can_lease(frontier)
        assert run_state.phase is Phase.RUNNING
        assert said[-2:] == ["paused by the operator", "resumed"]


async def test_going_on_lifts_limits_but_gives_the_disk_no_room() -> None:
    """The operator's word ends his own pause and that of a limit, which holds no more."""
    async with steered(URL) as (run_state, frontier, _):
        lifted = []
        run_state.pause(Cause.OPERATOR)
        run_state.pause(Cause.PAGES, lift=lambda: lifted.append("pages"))
        run_state.pause(Cause.DISK, "paused: no room")
        run_state.resume_all()
        assert (run_state.pause_reason, lifted) == ("paused: no room", ["pages"])
        assert not await can_lease(frontier)


async def test_to_resume_what_is_not_paused_changes_nothing() -> None:
    """And says nothing."""
    async with steered(URL) as (run_state, frontier, said):
        run_state.resume(Cause.DISK)
        run_state.resume_all()
        assert await can_lease(frontier)
        assert said == []


async def test_what_is_wanted_before_there_is_a_frontier_holds_when_there_is_one() -> None:
    """A disk that is full from the start lets no fetch begin."""
    async with memory_frontier(URL) as frontier:
        run_state = RunState(lambda _: None)
        assert run_state.phase is Phase.STARTING
        run_state.pause(Cause.DISK)
        run_state.begin(frontier)
        assert not await can_lease(frontier)


@pytest.mark.parametrize("second", [WhyEnded.SIGNAL, WhyEnded.OPERATOR])
async def test_the_first_reason_to_end_counts(second) -> None:
    """The time is up, and then somebody presses Ctrl-C."""
    run_state = RunState(lambda _: None)
    run_state.stop(WhyEnded.TIME_LIMIT)
    run_state.stop(second)
    assert (run_state.ending, run_state.phase, run_state.hurried.is_set()) == (
        WhyEnded.TIME_LIMIT,
        Phase.DRAINING,
        False,
    )


async def test_to_end_at_once_counts_more_than_to_end() -> None:
    """It is what happens then: fetches are given up."""
    run_state = RunState(lambda _: None)
    run_state.stop(WhyEnded.OPERATOR)
    run_state.stop(WhyEnded.OPERATOR_NOW, at_once=True)
    run_state.stop(WhyEnded.SIGNAL, at_once=True)
    assert run_state.ending is WhyEnded.OPERATOR_NOW
    assert run_state.hurried.is_set()


async def test_a_crawl_that_waits_for_a_service_still_leases_what_does_not_need_it() -> None:
    """A pause is stronger, and an end names what caused it. Joining again, a worker waits for nothing yet."""
    async with steered(URL) as (run_state, frontier, _):
        run_state.wait("waits for name servers")
        assert (run_state.phase, run_state.in_words) == (Phase.WAITING, "waits for name servers")
        assert await can_lease(frontier)
        run_state.pause(Cause.OPERATOR)
        assert run_state.phase is Phase.PAUSED
        run_state.resume(Cause.OPERATOR)
        assert run_state.phase is Phase.WAITING
        run_state.begin(frontier)
        assert run_state.phase is Phase.RUNNING
        run_state.stop(WhyEnded.SERVICE_AWAY, detail="name servers (no answer)")
        said = "stopped: a service was away for too long: name servers (no answer); start the job again to resume"
        assert run_state.end_reason == said
        run_state.nothing_left(WhyEnded.FINISHED)
        assert run_state.end_reason == WhyEnded.FINISHED.value
