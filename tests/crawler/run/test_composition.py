"""The parts of a run: what was opened is closed, whenever the opening is broken off."""

import asyncio
import os
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.journal import open_journal
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.run import composition
from anabranch.crawler.run.composition import RunContext, open_parts
from anabranch.crawler.run.membership import SoleMembership, Surroundings
from anabranch.crawler.run.run_state import RunState
from tests.crawler.builder import clock, settle, until


def open_below(folder):
    """The files in the folder that this process has open."""
    links = Path("/proc/self/fd").iterdir()
    return sorted(str(path) for link in links if (path := Path(os.path.realpath(link))).is_relative_to(folder))


def run_of(job):
    order = CrawlOrder.model_validate({"write": {"warc": True, "links": True}})
    statistics = CrawlStatistics(started_s=clock())
    return RunContext(
        order=order,
        job=job,
        clock=clock,
        statistics=statistics,
        board=WorkerBoard(),
        run_state=RunState(lambda _: None),
        member=SoleMembership(order, job),
        outside=Surroundings(),
    )


async def test_files_that_open_while_the_run_is_cancelled_are_closed(tmp_path, monkeypatch) -> None:
    """A thread cannot be stopped: what it opens is seen through, and closed with the rest."""
    has_begun, may_open = threading.Event(), threading.Event()

    def open_slowly(*arguments, **more):
        has_begun.set()
        may_open.wait()
        return open_journal(*arguments, **more)

    monkeypatch.setattr(composition, "open_journal", open_slowly)
    with JobFolder.open(tmp_path / "job") as job:
        before = open_below(tmp_path)
        async with AsyncExitStack() as opened:
            opening = asyncio.create_task(open_parts(run_of(job), opened))
            await until(has_begun.is_set)
            opening.cancel()
            await settle()
            went_on = opening.done()
            may_open.set()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert not went_on
            assert any(thread.name == "journal" for thread in threading.enumerate())
        assert open_below(tmp_path) == before
        assert all(thread.name != "journal" for thread in threading.enumerate())
