"""One of several workers: what it does with the job's rows while it crawls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.cluster.agreement import Applicant, Wanted, join
from anabranch.crawler.cluster.commands import ask, take_answer, withdraw
from anabranch.crawler.fetch.bandwidth import Bandwidth
from anabranch.crawler.job.database import JobDatabase, fetch
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.sections import LimitsSection, UsedLimits
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run import shared_run
from anabranch.crawler.run.crawl_verbs import METRICS
from anabranch.crawler.run.limits import RunLimits
from anabranch.crawler.run.run_state import RunState
from anabranch.crawler.run.shared_run import SharedRun
from anabranch.frontier.errors import SharesLost
from anabranch.frontier.policies.hosts import unknown_address
from anabranch.frontier.times import steady_clock


class Worker:
    """A worker that looks at the rows; it answers a verb when the test says so."""

    def __init__(self, database: JobDatabase, epoch: int) -> None:
        self.database = database
        self.epoch = epoch
        self.begun: list[str] = []
        self.may_answer = asyncio.Event()
        self.lost: Exception | None = None
        self.watching: asyncio.Task[None] | None = None

    async def answer(self, verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
        del given
        if self.lost is not None:
            raise self.lost
        if verb != METRICS:
            self.begun.append(verb)
            await self.may_answer.wait()
        return {"verb": verb}

    def snapshot(self) -> CrawlSnapshot:
        return CrawlSnapshot(job="x")

    def last_line(self) -> None:
        return None

    async def do(self, step: Callable[[Connection], Any]) -> Any:
        return await asyncio.to_thread(self.database.do, step)

    async def ask(self, verb: str) -> int:
        """Ask for a verb; the number of the command."""
        return (await self.do(partial(ask, epochs=[self.epoch], verb=verb, arguments={})))[self.epoch]

    async def until(self, is_so: Callable[[], Any]) -> None:
        while not is_so():
            self.check()
            await asyncio.sleep(0)

    def check(self) -> None:
        """Fail if the worker looks no more."""
        assert self.watching is not None
        if self.watching.done():
            self.watching.result()

    async def answered(self, number: int) -> Any:
        while (reply := await self.do(partial(take_answer, number=number))) is None:
            self.check()
        return reply

    async def status_s(self) -> float:
        """When it has last written how it is doing."""
        ((written_s,),) = await self.do(partial(fetch, statement="SELECT status_s FROM job_worker"))
        return float(written_s)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SharedRun, Worker, CrawlStatistics]]:
    """The run of one worker of a job, opened, and the worker, which answers for it."""
    for name in ("LOOK_S", "STATUS_S"):
        monkeypatch.setattr(shared_run, name, 0.0)
    order = load_order(None, {}, ["frontier.shares=4"])
    with JobFolder.open(tmp_path / "job") as job, JobDatabase(job.state / "frontier.db") as database:
        who = Applicant("a", "token", is_named=False)
        joined = join(database, Wanted(order, [Seed(url="http://a.test/", source="x")]), who)
        run = SharedRun(database, order, job, joined, who)
        frontier = run.open_frontier(steady_clock(), unknown_address, lambda: None)
        statistics = CrawlStatistics(started_s=0.0)
        limits = RunLimits(LimitsSection(), RunState(lambda _: None), statistics, UsedLimits(0, 0), lambda: None)
        bandwidth = Bandwidth(None, None, is_shared=True)
        with frontier, closing(Accounts(job.state, job.crawl_log, lambda: 1.0)) as accounts:
            parts = {"accounts": accounts, "limits": limits, "bandwidth": bandwidth}
            run.opened(SimpleNamespace(seeding=None, frontier=None, journal=None, **parts))
            ((epoch,),) = database.do(partial(fetch, statement="SELECT epoch FROM job_worker"))
            yield run, Worker(database, epoch), statistics


@pytest.fixture
async def worker(run: tuple[SharedRun, Worker, CrawlStatistics]) -> AsyncIterator[Worker]:
    """A worker that looks at the rows; the test fails if its look does."""
    shared, worker, statistics = run
    async with shared.control(worker.answer, worker, statistics):
        worker.watching = asyncio.create_task(shared.watch())
        yield worker
        worker.may_answer.set()
        worker.watching.cancel()
        with suppress(asyncio.CancelledError):
            await worker.watching


async def test_a_worker_that_answers_a_long_question_tells_that_it_is_at_work(worker: Worker) -> None:
    """Its status goes on, so that nobody takes it for one that hangs; the answer comes when it is there."""
    number = await worker.ask("report")
    await worker.until(lambda: worker.begun)
    before_s = await worker.status_s()
    while await worker.status_s() <= before_s:
        worker.check()
    worker.may_answer.set()
    assert await worker.answered(number) == {"facts": {"verb": "report"}}


async def test_questions_are_answered_one_at_a_time_and_not_after_they_were_withdrawn(worker: Worker) -> None:
    """Whoever asked has given up: nothing is done for it later."""
    numbers = [await worker.ask(verb) for verb in ("a", "b", "c")]
    await worker.until(lambda: worker.begun)
    await worker.do(partial(withdraw, number=numbers[1]))
    assert worker.begun == ["a"]
    worker.may_answer.set()
    assert await worker.answered(numbers[2]) == {"facts": {"verb": "c"}}
    assert await worker.answered(numbers[0]) == {"facts": {"verb": "a"}}
    assert worker.begun == ["a", "c"]


async def test_what_ends_a_run_is_not_hidden_by_what_it_does_last(
    run: tuple[SharedRun, Worker, CrawlStatistics],
) -> None:
    """A worker that lost its shares joins again: it must learn that, though its last status cannot be made either."""
    shared, worker, statistics = run

    async def end() -> None:
        async with shared.control(worker.answer, worker, statistics):
            worker.lost = StorageError("what follows of it")
            raise SharesLost("the first")

    with pytest.raises(SharesLost, match="the first"):
        await end()


async def test_a_worker_that_lost_its_shares_says_so_at_its_next_look(
    run: tuple[SharedRun, Worker, CrawlStatistics],
) -> None:
    """The status that it writes asks the Frontier, which has lost them."""
    shared, worker, statistics = run
    worker.lost = SharesLost("taken over")

    async def look() -> None:
        async with shared.control(worker.answer, worker, statistics):
            await shared.watch()

    with pytest.raises(SharesLost, match="taken over"):
        await look()
