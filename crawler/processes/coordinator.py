"""The parent's run of a job in several processes: start the shares, route what they send, hold the limits, end, report.

seeds' book → shares start … all quiet, a limit or a signal → shares end → logs gathered → reports
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.orderfile import order_file
from anabranch.crawler.job.seeding import keys_of
from anabranch.crawler.job.seeds import SEED_BOOK, Seed, SeedBook, require_seeds
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.endings import ASKED_FOR, WhyEnded, exit_code
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, storage_errors
from anabranch.crawler.processes.channel import Message
from anabranch.crawler.processes.ending import Ending
from anabranch.crawler.processes.folders import shares_of
from anabranch.crawler.processes.limits import JobLimits
from anabranch.crawler.processes.nursery import Nursery
from anabranch.crawler.processes.orders import share_order
from anabranch.crawler.processes.postoffice import DELIVER, PARCEL, QUIET, READY
from anabranch.crawler.processes.seedbook import NOTED, SEED, seed_facts, seeds_of
from anabranch.crawler.processes.share import REOPEN, SNAPSHOT
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.processes.status import JobStatus
from anabranch.crawler.processes.telling import JobTelling
from anabranch.crawler.processes.verbs import JobVerbs
from anabranch.crawler.processes.watch import QuietWatch
from anabranch.crawler.report.progress_log import PROGRESS_LOG_FILE, ProgressLog
from anabranch.crawler.report.reports import SEEDS_REPORT, seeds_shown
from anabranch.crawler.report.summary import crawl_report, opening_line
from anabranch.crawler.run.controller import RunHooks
from anabranch.crawler.run.signals import handle_signals
from anabranch.crawler.run.verbs import Arguments, Facts
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.composition import has_store
from anabranch.frontier.times import steady_clock


class Coordinator:
    """Runs one crawl of one job in several processes, once."""

    def __init__(
        self, order: CrawlOrder, job: JobFolder, seeds: Sequence[Seed], outside: RunHooks, nursery: Nursery
    ) -> None:
        self._order = order
        self._job = job
        self._seeds = seeds
        self._outside = outside
        self._key = Canonicalizer(order.urls.canonicalization).key
        self._clock = steady_clock()
        self._shares = Shares(order.crawl.processes, order.crawl.loop, nursery, self._start, self._handle)
        self._limits = JobLimits(order.limits, order.crawl.processes, self._shares, outside.notify)
        self._watch = QuietWatch(self._shares)
        self._status = JobStatus(self._shares, self._limits, job.directory.name, self._clock)
        self._writing = asyncio.Lock()  # seeds go into the book, and to the shares, one after the other
        self._is_signalled = False
        self._is_opened = False

    async def run(self) -> ExitCode:
        """Crawl until nothing is left, a limit is reached or a signal comes; then report. Raises: CrawlerError."""
        with ExitStack() as opened:
            opened.enter_context(
                handle_signals(self._signalled, self._status.log, self._reopen_logs, is_last=self._outside.is_last)
            )
            self._book = opened.enter_context(SeedBook(self._job.state / SEED_BOOK))
            if any(has_store(share / "state") for share in shares_of(self._job.directory)):
                require_seeds(self._book, self._job.state / SEED_BOOK)
            self._ending = Ending(self._order, self._job, self._clock)
            self._ending.check()
            self._telling = self._opened_telling()
            await self._take_seeds()
            await asyncio.to_thread(self._ending.gather)  # what a killed run left
            await self._crawl()
            if self._shares.failure is not None:
                raise self._shares.failure
            report, seeds = self._ending.report, list(self._book)
            facts = await asyncio.to_thread(report, self._shares, seeds, self._why(), self._status.died)
            self._telling.end(facts.ended)
        self._outside.notify(crawl_report(facts) + seeds_shown(facts.seeds, self._job.reports / SEEDS_REPORT))
        if self._ending.unreported is not None:
            raise self._ending.unreported
        return exit_code(self._ending.why, [seed.status for seed in facts.seeds])

    def _opened_telling(self) -> JobTelling:
        log = ProgressLog(self._job.crawl_log.parent / PROGRESS_LOG_FILE, self._clock)
        return JobTelling(self._shares, self._status, log, self._order.report.statistics_interval_s, self._clock)

    async def _crawl(self) -> None:
        self._verbs = JobVerbs(self._shares, self._limits, self._status, self._watch, self._add)
        async with self._outside.control(self._job.state, self._answer), asyncio.TaskGroup() as group:
            beside = [
                group.create_task(self._outside.show(self._status.snapshot)),
                group.create_task(self._telling.write(), name="progress-statistics"),
            ]
            with self._limits.clock():
                await self._shares.run()
            for task in beside:
                task.cancel()

    async def _answer(self, verb: str, given: Arguments) -> Facts:
        try:
            return await self._verbs.answer(verb, given)
        finally:
            self._telling.look()

    async def _take_seeds(self) -> None:
        keys_of(self._seeds, self._key)
        if order_file(self._job.directory) is None:  # a book of seeds is worth nothing without its order
            self._job.write_order(dump_order(self._order))
        await asyncio.to_thread(self._book.add_all, self._seeds)

    def _start(self, share: int) -> Mapping[str, Any]:
        """What a process is told when it begins."""
        limits = self._order.limits
        return {
            "shares": self._shares.count,
            "directory": str(self._job.directory / "shares" / str(share)),
            "warc": str(self._job.warc),
            "order": share_order(self._order, share),
            "limits": {"pages": limits.pages > 0, "bytes": limits.fetched_bytes > 0},
            "seeds": seed_facts(list(self._book)),  # at once, for a thread may be adding some
            "verbosity": 0,
        }

    # What shares say

    async def _handle(self, share: int, message: Message) -> Mapping[str, Any] | None:
        try:
            return await self._do(share, message)
        except CrawlerError as error:  # such as a full disk: the crawl ends, and can be gone on with
            self._shares.fail(error)
            return {"error": str(error)}

    async def _do(self, share: int, message: Message) -> Mapping[str, Any] | None:
        kind, facts = message.kind, message.facts
        if kind == DELIVER:
            return await self._deliver(facts["to"], message.body)
        if kind == SEED:
            await self._add_to_book(seeds_of(facts["seeds"]))
            return {}
        if kind == QUIET:
            self._watch.quiet(share)
        elif kind == SNAPSHOT:
            self._status.take(share, facts)
            self._telling.look()
        elif kind == READY:
            self._ready(share, facts)
        else:
            return await self._limits.handle(share, message)
        return None

    async def _deliver(self, to: int, content: bytes) -> Mapping[str, Any]:
        """Bring a parcel to its share; it is taken when it is durable there."""
        self._watch.stir(to)
        reply = await self._shares.ask(to, PARCEL, content)
        return {"is_taken": reply is not None and reply["is_taken"]}

    def _ready(self, share: int, facts: Mapping[str, Any]) -> None:
        self._shares.is_ready(share)
        self._job.begin()
        self._limits.begin(share, facts)
        self._status.begin(share, facts)
        if len(self._shares.ready) == self._shares.count and not self._is_opened:
            self._is_opened = True
            with storage_errors(self._job.directory):
                self._job.write_order(dump_order(self._order))
            counts = self._status.counts
            counts = counts._replace(pending=counts.pending or (0 if self._job.existed else len(self._book)))
            self._outside.notify(opening_line(self._job, counts, self._order.limits.pages))

    # Seeds

    async def _add_to_book(self, seeds: Sequence[Seed]) -> None:
        """Write down what is new; when this returns every share knows it. In one order for all: a seed has a number.

        Also if the share that found them dies meanwhile: what is in the book all have to know.
        """
        await to_the_end(self._write_down(seeds))

    async def _write_down(self, seeds: Sequence[Seed]) -> None:
        async with self._writing:
            new = await asyncio.to_thread(self._book.add_all, seeds)
            if new:
                await self._shares.tell_all(NOTED, seeds=seed_facts(new))

    async def _add(self, seeds: Sequence[Seed]) -> None:
        """Seeds of the operator's; their owners schedule them then."""
        keys_of(seeds, self._key)
        await self._add_to_book(seeds)

    # The end

    def _why(self) -> WhyEnded:
        why = self._shares.ending or WhyEnded.SIGNAL
        is_done = len(self._shares.ended) == self._shares.count and all(
            share["is_done"] and share["is_clear"] for share in self._shares.ended.values()
        )
        if not is_done:
            return why
        return why if why in ASKED_FOR else WhyEnded.FINISHED

    def _reopen_logs(self) -> None:
        self._shares.post(REOPEN)

    def _signalled(self) -> None:
        if self._is_signalled:
            self._outside.force_exit()
        self._is_signalled = True
        self._shares.stop(WhyEnded.SIGNAL)
        self._outside.notify("draining: fetches under way may end; a second signal leaves at once")
