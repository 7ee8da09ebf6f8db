"""The worker pool over a real Frontier: the chain, tickets, errors, and what survives a cancellation."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from anabranch.crawler.job.journal import Journal, LineFile
from anabranch.crawler.order.sections import LimitsSection, UsedLimits
from anabranch.crawler.outcomes.errors import DiskFull, JournalFailed
from anabranch.crawler.outcomes.failures import Unfetchable
from anabranch.crawler.processors.disposition import Disposition
from anabranch.crawler.processors.recorder import Recorder
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.run.limits import RunLimits
from anabranch.crawler.run.run_state import RunState
from anabranch.crawler.run.workers import WorkerPool
from anabranch.crawler.visit import ChainDecision, Step
from anabranch.frontier.errors import FrontierError, StoreUnavailable
from anabranch.frontier.records import OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness
from tests.crawler.builder import HeldJournal, clock, memory_frontier, response, settle
from tests.patience import HANG_S

#: What Python says where memory or threads are short.
NO_THREAD = RuntimeError("can't start new thread")
URLS = tuple(f"http://a.test/{number}" for number in range(4))


class Crawl:
    """A Frontier with URLs, a journal, and a pool with one processor."""

    def __init__(self, frontier, journal, process=None, pages=0, *, done=0, chain=None, board=None) -> None:
        self.frontier = frontier
        self.journal = journal
        self.statistics = CrawlStatistics(started_s=clock())
        dispose = Disposition(frontier, Recorder(journal, clock), self.statistics, clock)
        self.run_state = RunState(lambda _: None)
        limits = LimitsSection(pages=pages)
        self.limits = RunLimits(limits, self.run_state, self.statistics, UsedLimits(done, 0), lambda: None)
        self.pool = WorkerPool(
            frontier, chain or [("process", process)], dispose, self.statistics, self.limits, board or WorkerBoard()
        )

    async def run(self, workers=1):
        """Let so many workers work to their end."""
        self.limits.check()
        tasks = [asyncio.create_task(self.pool.work(number)) for number in range(1, workers + 1)]
        while any(not task.done() for task in tasks):
            await asyncio.sleep(0)
            if self.run_state.stopped.is_set():
                self.frontier.stop_leasing()
                self.limits.tickets.end()
        await asyncio.gather(*tasks)


def files(folder):
    """The two logs."""
    return LineFile(folder / "crawl.log", "crawl_log"), LineFile(folder / "pages.jsonl", "pages")


@pytest.fixture
async def journal(tmp_path):
    journal = Journal(*files(tmp_path))
    yield journal
    await journal.close()


@pytest.fixture
async def held(tmp_path):
    journal = HeldJournal(*files(tmp_path))
    yield journal
    await journal.close()


def log_of(tmp_path):
    """URL -> status and annotations in crawl.log."""
    lines = [line.split() for line in (tmp_path / "crawl.log").read_text().splitlines()]
    return {fields[3]: (int(fields[1]), fields[11]) for fields in lines}


async def answered(visit):
    await asyncio.sleep(0)
    visit.response = response()
    return Step.PROCEED


# One bad page


async def test_a_processor_that_raises_ends_its_page_with_minus_5_and_the_worker_goes_on(tmp_path, journal) -> None:
    """One bad page costs one page; its line names the class of the error, and an event has the URL."""

    async def process(visit):
        if visit.lease.url == URLS[0]:
            raise KeyError("odd")
        return await answered(visit)

    async with memory_frontier(*URLS) as frontier:
        with structlog.testing.capture_logs() as events:
            await Crawl(frontier, journal, process).run()
        assert frontier.core.is_done
    assert log_of(tmp_path) == {URLS[0]: (-5, "err=KeyError,round:1"), **dict.fromkeys(URLS[1:], (200, "round:1"))}
    assert [(event["event"], event["url"], event["log_level"]) for event in events] == [
        ("processor failed", URLS[0], "error")
    ]


async def test_a_failed_fetch_ends_its_page_with_its_status(tmp_path, journal) -> None:
    """A fault of a site becomes a status of the URL and no event in the log."""

    async def process(visit):
        raise Unfetchable("no host")

    async with memory_frontier(*URLS[:2]) as frontier:
        with structlog.testing.capture_logs() as events:
            await Crawl(frontier, journal, process).run()
    assert log_of(tmp_path) == dict.fromkeys(URLS[:2], (-7, "round:1"))
    assert events == []


@pytest.mark.parametrize(
    "error", [DiskFull("full"), FrontierError("odd"), StoreUnavailable("gone"), MemoryError(), NO_THREAD]
)
async def test_a_fault_of_disk_or_store_ends_the_worker(tmp_path, journal, error) -> None:
    """It is nobody's page: it goes up as it is, and the URL stays in the Frontier without a line."""

    async def process(visit):
        raise error

    async with memory_frontier(*URLS) as frontier:
        crawl = Crawl(frontier, journal, process)
        with pytest.raises(type(error)):
            await crawl.run()
        assert frontier.core.operations.statistics().done == 0
        assert crawl.statistics.active == 0
    assert log_of(tmp_path) == {}


async def test_a_line_that_cannot_be_written_ends_the_worker_before_the_url_is_finished(tmp_path, journal) -> None:
    """A page without its durable line is not done."""
    await journal.close()
    async with memory_frontier(*URLS) as frontier:
        with pytest.raises(JournalFailed):
            await Crawl(frontier, journal, answered).run()
        assert frontier.core.operations.statistics().done == 0


async def test_a_worker_that_holds_a_url_is_active(journal) -> None:
    """From the lease to the end of the disposition, and not while it waits."""
    seen = []

    async def process(visit):
        seen.append(crawl.statistics.active)
        return await answered(visit)

    async with memory_frontier(*URLS) as frontier:
        crawl = Crawl(frontier, journal, process)
        assert crawl.statistics.active == 0
        await crawl.run()
        assert (seen, crawl.statistics.active) == ([1, 1, 1, 1], 0)


# Cancellation, one test per await


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_worker_cancelled_while_it_waits_for_a_ticket_holds_nothing(journal) -> None:
    """No lease is out, and no ticket appears from nowhere."""
    async with memory_frontier(*URLS) as frontier:
        crawl = Crawl(frontier, journal, answered, pages=1)
        tickets = crawl.limits.tickets
        assert await tickets.take()
        task = asyncio.create_task(crawl.pool.work(1))
        await settle()
        assert (frontier.core.in_flight, tickets.short) == (1, 1)
        await cancelled(task)
        assert frontier.core.in_flight == 0
        other = asyncio.create_task(tickets.take())
        await settle()
        assert not other.done(), "the only ticket is still taken"
        await cancelled(other)


async def test_a_worker_cancelled_while_it_waits_for_a_lease_holds_nothing(journal) -> None:
    """Its ticket would come after the lease."""
    async with memory_frontier(URLS[0]) as frontier:
        crawl = Crawl(frontier, journal, answered, pages=1)
        kept = await frontier.lease()  # so that there is hope, and nothing to be had
        task = asyncio.create_task(crawl.pool.work(1))
        await settle()
        await cancelled(task)
        await asyncio.wait_for(crawl.limits.tickets.take(), 1)
        frontier.release(kept)


async def test_a_worker_cancelled_in_the_chain_gives_its_lease_and_its_ticket_back(tmp_path, journal) -> None:
    """The URL is first again, no attempt is counted, and it has no line."""
    fetching = asyncio.Event()

    async def process(visit):
        fetching.set()
        await asyncio.Event().wait()

    async with memory_frontier(URLS[0]) as frontier:
        crawl = Crawl(frontier, journal, process, pages=1)
        task = asyncio.create_task(crawl.pool.work(1))
        await fetching.wait()
        await cancelled(task)
        assert (frontier.core.pending, frontier.core.in_flight) == (1, 0)
        assert (await frontier.lease()).attempts == 0
        assert crawl.statistics.active == 0
        await asyncio.wait_for(crawl.limits.tickets.take(), 1)
    assert log_of(tmp_path) == {}


async def test_the_slot_of_a_cancelled_chain_rests_from_its_lease_on(journal) -> None:
    """A fetch may have been under way, so the host is not asked again at once."""
    fetching = asyncio.Event()
    leased = []

    async def process(visit):
        leased.append(visit.lease)
        fetching.set()
        await asyncio.Event().wait()

    patience = Politeness(delay_factor=0.0, min_delay_s=3600.0, max_delay_s=3600.0)
    async with memory_frontier(*URLS[:2], politeness=patience) as frontier:
        finished = []
        finish = frontier.finish
        frontier.finish = lambda lease, outcome: finished.append((lease, outcome)) or finish(lease, outcome)
        task = asyncio.create_task(Crawl(frontier, journal, process).pool.work(1))
        await fetching.wait()
        await cancelled(task)
        (lease, outcome) = finished[0]
        assert (lease, outcome.kind, outcome.start_s) == (leased[0], OutcomeKind.DEFERRED, leased[0].since_s)
        assert outcome.end_s >= outcome.start_s
        assert frontier.core.lease() is None, "the host rests"
        assert frontier.core.wake().at_s == outcome.end_s + 3600.0


@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_worker_cancelled_in_the_disposition_finishes_it_first(tmp_path, held, cancels) -> None:
    """The line is written and the URL is done, however often it is cancelled; only then the cancellation goes on."""
    async with memory_frontier(URLS[0]) as frontier:
        crawl = Crawl(frontier, held, answered)
        task = asyncio.create_task(crawl.pool.work(1))
        await held.is_asked.wait()
        for _ in range(cancels):
            task.cancel()
            await settle()
        assert not task.done()
        held.may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert frontier.core.operations.statistics().done == 1
        assert crawl.statistics.active == 0
    assert log_of(tmp_path) == {URLS[0]: (200, "round:1")}


# The limit of pages


@pytest.mark.parametrize("workers", [1, 7, 40])
async def test_the_limit_is_exact_however_many_workers_there_are(journal, workers) -> None:
    """Ten pages are ten pages; all workers end."""
    async with memory_frontier(*(f"http://a.test/{number}" for number in range(60))) as frontier:
        crawl = Crawl(frontier, journal, answered, pages=10)
        await crawl.run(workers)
        assert frontier.core.operations.statistics().done == 10
        assert frontier.core.pending == 50


def deferred(visit):
    visit.decision, visit.response = ChainDecision.DEFERRED, response()


def unruled(visit):
    visit.decision, visit.response = ChainDecision.NO_RULES, response(503, Retry_After="0")


def released(visit):
    visit.decision = ChainDecision.RELEASED


def retried(visit):
    visit.response = response(429, Retry_After="0")


def broken(visit):
    raise KeyError("odd")


def excluded(visit):
    visit.decision = ChainDecision.EXCLUDED


ENDS = [(deferred, 4), (unruled, 4), (released, 4), (retried, 4), (broken, 3), (excluded, 3)]


@pytest.mark.parametrize(("end", "pages"), ENDS)
async def test_a_visit_that_brings_no_page_gives_its_ticket_back(journal, end, pages) -> None:
    """A limit of as many pages as there are is reached though the first visit brings none."""
    ended = []

    async def process(visit):
        if not ended:
            ended.append(visit)
            end(visit)
            return Step.STOP
        return await answered(visit)

    async with memory_frontier(*URLS) as frontier:
        with structlog.testing.capture_logs():
            await asyncio.wait_for(Crawl(frontier, journal, process, pages=pages).run(2), HANG_S)
        assert frontier.core.operations.statistics().done == pages


async def test_a_worker_that_only_gives_leases_back_lets_others_run(journal) -> None:
    """A lease that is given back is served again at once, so nothing else would have a turn of the loop."""
    begun = []

    async def process(visit):
        begun.append(visit)
        if len(begun) > 100:
            frontier.stop_leasing()
        released(visit)
        return Step.STOP

    async with memory_frontier(*URLS) as frontier:
        run = asyncio.create_task(Crawl(frontier, journal, process).run())
        while not begun:
            await asyncio.sleep(0)
        frontier.stop_leasing()
        await asyncio.wait_for(run, HANG_S)
        assert len(begun) < 10


async def test_workers_beyond_the_tickets_end_when_nothing_is_left(journal) -> None:
    """The one that learns it gives its ticket to the next, until all know."""
    async with memory_frontier(*URLS) as frontier:
        await asyncio.wait_for(Crawl(frontier, journal, answered, pages=5).run(20), HANG_S)
        assert frontier.core.is_done


async def test_a_limit_that_is_reached_already_lets_nothing_through(tmp_path, journal) -> None:
    """Leases are given back as they were."""
    async with memory_frontier(*URLS) as frontier:
        await Crawl(frontier, journal, answered, pages=1, done=1).run(3)
        assert (frontier.core.pending, frontier.core.operations.statistics().done) == (4, 0)
    assert log_of(tmp_path) == {}


# The chain


def processors(*steps):
    """Processors that answer these steps (or raise), and the list in which they note their numbers."""
    ran = []

    def processor(number, step):
        async def process(visit):
            ran.append((number, visit))
            if isinstance(step, Exception):
                raise step
            return step

        return process

    return [(str(number), processor(number, step)) for number, step in enumerate(steps)], ran


async def run_one(journal, chain, board=None):
    """Have one worker visit one URL with this chain."""
    async with memory_frontier("http://a.test/") as frontier:
        await Crawl(frontier, journal, chain=chain, board=board).run()


async def test_every_processor_gets_the_visit_in_order(journal) -> None:
    """While all processors return PROCEED, each gets the same visit and none is left out."""
    chain, ran = processors(Step.PROCEED, Step.PROCEED, Step.PROCEED)
    await run_one(journal, chain)
    assert [number for number, _ in ran] == [0, 1, 2]
    assert ran[0][1] is ran[1][1] is ran[2][1]


async def test_nothing_runs_after_a_stop(journal) -> None:
    """The processor that says stop is the last."""
    chain, ran = processors(Step.PROCEED, Step.STOP, Step.PROCEED)
    await run_one(journal, chain)
    assert [number for number, _ in ran] == [0, 1]


async def test_an_error_of_a_processor_ends_the_chain(journal) -> None:
    """It is kept as it is, for the disposition."""
    chain, ran = processors(KeyError("odd"), Step.PROCEED)
    await run_one(journal, chain)
    ((number, one),) = ran
    assert (number, repr(one.broken)) == (0, "KeyError('odd')")


async def test_the_board_shows_which_processor_a_worker_is_in(journal) -> None:
    """By its name, a user's too."""
    board = WorkerBoard()

    async def look_twice(_):
        assert [fact.step for fact in board.facts()] == ["ours:look"]
        assert list(board.times) == []
        return Step.PROCEED

    await run_one(journal, [("ours:look", look_twice)], board)
    assert list(board.times) == ["ours:look", "disposition"]
