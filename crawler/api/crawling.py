"""A crawl in a Python program: `crawl` and `run`, and the classes behind them."""

from __future__ import annotations

import asyncio
import io
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from anabranch.crawler.api.keywords import Order, ProgramRequest, Seeds, refuse_other, seed_texts
from anabranch.crawler.api.pages import Page, PageBuffer
from anabranch.crawler.job.checking import check_names, filter_warning
from anabranch.crawler.job.choosing import join, named_seeds, permitted, refuse_changed
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import is_over
from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.job.seeds import Seed, read_seeds
from anabranch.crawler.job.seedtable import known_seeds
from anabranch.crawler.operate.answers import joined_results, next_arguments, skipped_facts, without_place
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded, exit_code
from anabranch.crawler.outcomes.errors import BadArgument, ExitCode, NoSeeds, UsageError
from anabranch.crawler.outcomes.status import FetchStatus, describe
from anabranch.crawler.report.logs import escape_traceback
from anabranch.crawler.report.summary import RunFacts, crawl_report
from anabranch.crawler.run.control import Answer
from anabranch.crawler.run.controller import CrawlController
from anabranch.crawler.run.crawl_verbs import ADD, PAUSE, RESUME, RETRY_SKIPPED, STATUS, STOP
from anabranch.crawler.run.membership import SoleMembership, Surroundings
from anabranch.crawler.run.stopped_verbs import create_job
from anabranch.crawler.run.verbs import RETRY, Arguments, Facts
from anabranch.crawler.run.workers import Archive, Delivery
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.times import steady_clock

log = structlog.get_logger(__name__)

T = TypeVar("T")

_NOT_RUNNING = "the crawl has ended, or has not begun"


#: Seeds without an answer that are named.
_MOST_UNANSWERED = 10


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CrawlResult:
    """The result of a crawl; `str` returns the summary that the command prints, `repr` a short line."""

    job: Path | None  #: the job's folder; None if nothing was kept
    ended: str  #: why it ended, in words
    exit_code: int  #: of the command: 0, 5 if no seed was answered, 6 if most URLs failed, 11 or 13 if it was stopped
    elapsed_s: float  #: of this run
    pages: int  #: answered URLs of this run
    failed: int  #: URLs that were not answered
    excluded: int  #: by robots.txt, scope or limits
    fetched_bytes: int  #: bytes of bodies, as sent
    queued: int  #: URLs still in the queue
    by_status: Mapping[int, int]  #: URLs by their status
    seeds: Sequence[SeedFact]  #: each seed and its outcome
    summary: str  #: as the command prints it

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={getattr(self, name)}" for name in ("pages", "failed", "excluded", "queued"))
        return f"<CrawlResult {numbers}: {self.ended}>"


class NoSeedAnswered(NoSeeds):
    """The crawl has ended, and no server answered a seed; `result` is that of the crawl."""

    def __init__(self, result: CrawlResult) -> None:
        lines = [f"{seed.url}: {_why_unanswered(seed)}" for seed in result.seeds[:_MOST_UNANSWERED]]
        more = len(result.seeds) - len(lines)
        super().__init__(f"no seed was answered: {'; '.join([*lines, *([f'and {more:,} more'] if more > 0 else [])])}")
        self.result = result


class Crawl:
    """One crawl: `async with` opens and ends it, `async for` yields its pages, and its methods control it.

    Without asyncio, `with` and `for` do the same, and the methods are blocking ones.
    """

    def __init__(
        self, request: ProgramRequest, *, failures: bool = False, buffer: int = 64, delivers: bool = True
    ) -> None:
        """`failures` and `buffer` are those of `crawl`. With `delivers` False the crawl hands over no pages."""
        refuse_other("failures", failures, bool, "True or False")
        refuse_other("buffer", buffer, int, "a whole number of pages")
        if buffer < 1:
            raise BadArgument(f"buffer= must be at least 1; not {buffer}")
        self._request = request
        self._program = _Program(buffer, failures=failures, delivers=delivers)
        self._task: asyncio.Task[CrawlResult] | None = None
        self._controller: CrawlController | None = None
        self._blocking: BlockingCrawl | None = None
        self._is_over = False  #: an iteration has reached the end, or the program has left the crawl
        self._is_reported = failures  #: the program knows which seeds were not answered

    async def __aenter__(self) -> Self:
        """Open the job and start fetching. Raises: as `crawl`; UsageError for a crawl that was opened before."""
        if self._task is not None:
            self._refuse_ended()
            raise UsageError("this crawl is open already; iterate over `crawl` of `with ... as crawl:`")
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise UsageError(
                "`async with anabranch.crawl` needs a running loop of asyncio; under trio, crawl in a thread "
                "(trio.to_thread.run_sync) by `with` and `for`; with anyio, choose the backend asyncio"
            ) from error
        log_by_logging()
        task = self._task = asyncio.create_task(self._run(), name="crawl")
        opened = asyncio.create_task(self._program.opened.wait())
        try:
            await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            opened.cancel()
        if task.done():
            task.result()  # raises if the crawl could not begin
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the crawl if it still runs. Pages that are not done are fetched again by the job's next crawl."""
        task = self._task
        assert task is not None
        self._is_over = True
        if not task.done() and self._controller is not None:
            self._controller.stop(WhyEnded.OPERATOR_NOW, at_once=True)
        await to_the_end(_waited(task))
        if kind is None:
            task.result()

    def __aiter__(self) -> AsyncIterator[Page]:
        """Each answered URL, once; see `Page`.

        After the last page a warning names each seed that was not answered, unless the program gets `failures`. Raises:
        NoSeedAnswered if none was; UsageError outside of `async with` and after the last page; the error of a failed crawl.
        """
        if self._task is None:
            raise UsageError("write `async with anabranch.crawl(...) as crawl: async for page in crawl:`")
        self._refuse_ended()
        return _Pages(self)

    def _refuse_ended(self) -> None:
        """Raises: UsageError if no more pages can come."""
        if self._is_over:
            raise UsageError("this crawl has ended; make another one with anabranch.crawl")

    def __enter__(self) -> BlockingCrawl:
        """Open the crawl for a program without asyncio, in a thread of its own."""
        self._blocking = BlockingCrawl(self)
        return self._blocking

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._blocking is not None
        self._blocking.close(kind, error, trace)

    def __iter__(self) -> Iterator[Page]:
        """The pages of a crawl that is opened and ended by the loop: `for page in anabranch.crawl(...):`."""
        with self as blocking:
            yield from blocking

    @property
    def result(self) -> CrawlResult:
        """The result of the crawl. Raises: UsageError while it runs; the error of a crawl that failed."""
        if self._task is None or not self._task.done():
            raise UsageError("the crawl still runs; its result is available once it has ended")
        return self._task.result()

    async def add(self, *seeds: str | Path, force: bool = False) -> list[Facts]:
        """Add seeds: URLs or files of URLs. Returns the url, verdict and reason of each.

        The verdict is new, known (the reason is its state), hidden (the filter takes it for seen, the store does not have it),
        refused, or later. `force` queues those that have ended and those that are hidden, too. Raises: UsageError for a text
        that is not a seed; then none is added.
        """
        found = await asyncio.to_thread(read_seeds, seed_texts(seeds), io.BytesIO())
        if found.bad:
            bad = found.bad[0]
            raise UsageError(f"{bad.source}: {bad.text!r}: {bad.reason}")
        listed = [{"url": seed.url, "source": seed.source} for seed in found.seeds]
        verdicts: list[Facts] = (await self._ask(ADD, {"seeds": listed, "force": force}))["seeds"]
        return verdicts

    async def retry(
        self, *statuses: int | str, host: str | None = None, since_s: float | None = None, trap: bool = False
    ) -> Facts:
        """Queue failures again, as `anabranch retry` does; returns what `retry --json` shows.

        Those of these statuses (-1, 503, "5xx"), of this host, that failed at this time (epoch seconds) or later; without any
        of these all. `trap`, alone: what was skipped because a parameter changes nothing. Raises: UsageError.
        """
        if trap:
            if statuses or host is not None or since_s is not None:
                raise UsageError("trap takes all that was skipped; leave statuses, host and since_s out")
            return {"running": True, "start": "", **skipped_facts(await self._ask(RETRY_SKIPPED, {}))}
        chosen = {"statuses": list(statuses) or None, "host": host, "since_s": since_s}
        arguments = {"is_crawl": True, **{name: value for name, value in chosen.items() if value is not None}}
        facts = await self._ask(RETRY, arguments)
        while (following := next_arguments(arguments, facts)) is not None:
            facts = joined_results(facts, await self._ask(RETRY, following))
        return {"running": True, "start": "", **without_place(facts)}

    async def pause(self) -> None:
        """Start no fetch until `resume`."""
        await self._ask(PAUSE, {})

    async def resume(self) -> None:
        """Continue, even past the limit that paused the crawl."""
        await self._ask(RESUME, {})

    async def stop(self, *, now: bool = False) -> None:
        """Start no more fetches. Pages under way still come, unless `now` is given."""
        await self._ask(STOP, {"now": now})

    async def status(self) -> Facts:
        """Return the facts of `anabranch status --json`."""
        return await self._ask(STATUS, {})

    async def why(self, url: str) -> Facts:
        """Return the facts of `anabranch why --json`: where a URL is, and when it can be fetched."""
        return await self._ask("why", {"url": url})

    async def take(self) -> Page | None:
        """The next page; None when the crawl has ended. Raises: the error of a crawl that failed."""
        assert self._task is not None
        page = None if self._program.buffer is None else await self._program.buffer.take()
        if page is None:
            self._is_over = True
            result = await asyncio.shield(self._task)
            if not self._is_reported:
                self._is_reported = True
                self._report_seeds(result)
        return page

    def _report_seeds(self, result: CrawlResult) -> None:
        """Warn of seeds that were tried without an answer. Raises: NoSeedAnswered if all were, as the command's exit code 5."""
        assert self._controller is not None
        unanswered = [seed for seed in result.seeds if seed.status < 0 or (not seed.status and seed.reason)]
        if exit_code(self._controller.ending, [seed.status for seed in result.seeds]) is ExitCode.NO_SEED_ANSWERED:
            raise NoSeedAnswered(result)
        for seed in unanswered[:_MOST_UNANSWERED]:
            log.warning("a seed was not answered", url=seed.url, reason=_why_unanswered(seed))
        if len(unanswered) > _MOST_UNANSWERED:
            log.warning(
                "more seeds were not answered; the result's `seeds` has all", more=len(unanswered) - _MOST_UNANSWERED
            )

    async def _ask(self, verb: str, arguments: Arguments) -> Facts:
        if self._program.answer is None:
            raise UsageError(_NOT_RUNNING)
        return await self._program.answer(verb, arguments)

    async def _run(self) -> CrawlResult:
        async with AsyncExitStack() as opened:
            scratch = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-")))
            chosen = permitted(self._request.chosen(scratch / "job"), run_code=self._request.run_code)
            order = chosen.order
            if order.frontier.is_shared:
                raise UsageError(
                    "a program crawls alone: leave crawl={'processes': …} out, or give frontier={'shares': 1}"
                )
            check_names(order, chosen.layers)
            if warning := filter_warning(order):
                log.warning(warning)
            seeds, reports = named_seeds(chosen, io.BytesIO())
            for report in reports:
                log.warning("this is no seed", text=report)
            if chosen.has_seeds:
                join(chosen, seeds, known_seeds(chosen.directory / "state"))
            with JobFolder.open(chosen.directory, again=self._request.again) as job:
                refuse_changed(chosen)
                try:
                    return await self._crawl(order, job, seeds)
                except BaseException:
                    job.undo_failed_start()
                    raise
                finally:
                    if self._program.buffer is not None:
                        self._program.buffer.close()

    async def _crawl(self, order: CrawlOrder, job: JobFolder, seeds: Sequence[Seed]) -> CrawlResult:
        if is_over(job.state, seeds):
            raise UsageError(
                f"{job.directory}: is finished, and its queue was in memory; give again=True for another round"
            )
        member = SoleMembership(order, job, listens=self._request.keeps)
        self._controller = CrawlController(order, job, seeds, self._program, member)
        facts = await self._controller.crawl()
        return _result(facts, job.directory if self._request.keeps else None)


class _Program(Surroundings):
    """The program that opens a crawl: its log gets the lines, its iteration the pages."""

    def __init__(self, most: int, *, failures: bool, delivers: bool) -> None:
        self.opened = asyncio.Event()
        self.answer: Answer | None = None  #: while the crawl runs
        self.buffer: PageBuffer | None = None  #: once it runs, if the program gets pages
        self._most, self._failures, self._delivers = most, failures, delivers

    def notify(self, text: str) -> None:
        """Log it."""
        log.info(text.rstrip())

    def delivery(self, archive: Archive) -> Delivery | None:
        """Make the buffer that the program takes its pages from."""
        if self._delivers:
            self.buffer = PageBuffer(self._most, archive, steady_clock(), failures=self._failures)
        return self.buffer

    @asynccontextmanager
    async def answering(self, answer: Answer) -> AsyncIterator[None]:
        """While entered, the methods work."""
        self.answer = answer
        self.opened.set()
        try:
            yield
        finally:
            self.answer = None


class _Pages:
    """One iteration over a crawl: a page is done when the next one is asked for."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._last: Page | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Page:
        last, self._last = self._last, None
        if last is not None:
            last.ack()
        page = self._last = await self._crawl.take()
        if page is None:
            raise StopAsyncIteration
        return page


class BlockingCrawl:
    """A crawl for a program without asyncio. Its methods are those of `Crawl`, and wait for their answers."""

    def __init__(self, crawl: Crawl) -> None:
        """Open it, in a thread of its own. Raises: as `Crawl.__aenter__`."""
        self._crawl = crawl
        self._thread = _LoopThread()
        try:
            self._thread.call(crawl.__aenter__())
            self._pages = crawl.__aiter__()
        except BaseException:
            self._thread.close()
            raise

    def __iter__(self) -> Iterator[Page]:
        """Iterate over the pages, as `Crawl.__aiter__` does."""
        aiter(self._crawl)  # raises if it has ended
        while (page := self._thread.call(_next(self._pages))) is not None:
            yield page

    def add(self, *seeds: str | Path, force: bool = False) -> list[Facts]:
        """Add seeds, as `Crawl.add` does."""
        return self._thread.call(self._crawl.add(*seeds, force=force))

    def retry(
        self, *statuses: int | str, host: str | None = None, since_s: float | None = None, trap: bool = False
    ) -> Facts:
        """Queue failures again, as `Crawl.retry` does."""
        return self._thread.call(self._crawl.retry(*statuses, host=host, since_s=since_s, trap=trap))

    def pause(self) -> None:
        """Start no fetch until `resume`, as `Crawl.pause` does."""
        self._thread.call(self._crawl.pause())

    def resume(self) -> None:
        """Continue, as `Crawl.resume` does."""
        self._thread.call(self._crawl.resume())

    def stop(self, *, now: bool = False) -> None:
        """Start no more fetches, as `Crawl.stop` does."""
        self._thread.call(self._crawl.stop(now=now))

    def status(self) -> Facts:
        """Return the facts of `anabranch status --json`, as `Crawl.status` does."""
        return self._thread.call(self._crawl.status())

    def why(self, url: str) -> Facts:
        """Return the facts of `anabranch why --json`, as `Crawl.why` does."""
        return self._thread.call(self._crawl.why(url))

    @property
    def result(self) -> CrawlResult:
        """The result of the crawl; see `Crawl.result`."""
        return self._crawl.result

    def wait(self) -> CrawlResult:
        """Wait until a crawl that hands over no pages has ended. Raises: the error with which it failed."""
        self._thread.call(self._crawl.take())
        return self.result

    def close(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End it, as `Crawl.__aexit__`."""
        try:
            self._thread.call(self._crawl.__aexit__(kind, error, trace))
        finally:
            self._thread.close()


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="anabranch-crawl", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine (blocks). Raises: UsageError after `close`."""
        if self._loop.is_closed():
            work.close()
            raise UsageError(_NOT_RUNNING)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Stop the loop and wait for its threads."""
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def crawl(
    *seeds: Seeds,
    job: str | Path | None = None,
    again: bool = False,
    failures: bool = False,
    buffer: int = 64,
    order: Order | None = None,
    **keywords: Any,
) -> Crawl:
    """A crawl that yields its pages to the program.

        async with anabranch.crawl("https://example.org/", limit=500, scope="host") as crawl:
            async for page in crawl:
                print(page.url, page.title)

    `seeds` are URLs and files of URLs, each an argument, or in lists. `job` is the folder that keeps the crawl, `name` a name
    below `jobs/`; the next call resumes it. Without them nothing is kept. Every section of the crawl order is a keyword that
    takes a dict (`politeness={"min_delay": "1s"}`), and every flag of `anabranch crawl` is one that takes a value
    (`min_delay="1s"`); `order` is a whole one. The variables ANABRANCH_… count as for the command, below the keywords.

    Each answered URL comes once, including a 404 or a redirect; with `failures` also URLs without an answer. When
    `buffer` pages or 64 MiB of bodies wait for the loop, no new fetch begins; fetches under way still finish, so at most
    `workers` pages wait in all. `limit` counts pages that are done. `again` starts another round of a job. The functions of a
    job's order must be passed again when it is resumed; `run_code=True` runs those that only the job itself names.

    A wrong argument raises OrderError, here or when the crawl is opened. Opening it raises UsageError, NoSeeds, JobInUse or
    StorageError too, all of them CrawlerError, or FrontierError. The loop ends with NoSeedAnswered if no seed was answered.
    """
    request = ProgramRequest(
        seeds=seed_texts((*seeds, keywords.pop("seeds", ()))), job=job, again=again, order=order, keywords=keywords
    )
    return Crawl(request, failures=failures, buffer=buffer)


def create(*seeds: Seeds, job: str | Path | None = None, order: Order | None = None, **keywords: Any) -> Path:
    """Create a job without a fetch (blocks): its seeds are queued, and `crawl`, `run` or the command crawls it.

    The arguments are those of `crawl`, and `job` or `name` is needed. Returns the job's folder.

    Raises: UsageError if there is a job already; as `crawl`.
    """
    texts = seed_texts((*seeds, keywords.pop("seeds", ())))
    request = ProgramRequest(seeds=texts, job=job, again=False, order=order, keywords=keywords)
    if not request.keeps:
        raise UsageError("name the job that is to be created: job= or name=")
    chosen = permitted(request.chosen(Path()), run_code=request.run_code)
    check_names(chosen.order, chosen.layers)
    found, reports = named_seeds(chosen, io.BytesIO())
    for report in reports:
        log.warning("this is no seed", text=report)
    create_job(chosen, found)
    return chosen.directory


def run(
    *seeds: Seeds,
    job: str | Path | None = None,
    again: bool = False,
    order: Order | None = None,
    **keywords: Any,
) -> CrawlResult:
    """Crawl to the end (blocks), even inside a running event loop. The arguments are those of `crawl`. Raises: as `crawl`."""
    request = ProgramRequest(
        seeds=seed_texts((*seeds, keywords.pop("seeds", ()))), job=job, again=again, order=order, keywords=keywords
    )
    with Crawl(request, delivers=False) as blocking:
        return blocking.wait()


def _why_unanswered(seed: SeedFact) -> str:
    """The status of a seed in words, and what to do about it if its address is private. Pure."""
    if not seed.status:
        return f"its tries have failed so far ({seed.reason})"
    private = "; a private address needs allow_private=True" if seed.status == FetchStatus.BLOCKED else ""
    return f"{describe(seed.status)}{seed.reason and f' ({seed.reason})'}{private}"


async def _waited(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task})


async def _next(pages: AsyncIterator[Page]) -> Page | None:
    try:
        return await anext(pages)
    except StopAsyncIteration:
        return None


def _result(facts: RunFacts, job: Path | None) -> CrawlResult:
    run_, frontier = facts.run, facts.frontier
    return CrawlResult(
        job=job,
        ended=facts.ended,
        exit_code=facts.code,
        elapsed_s=facts.elapsed_s,
        pages=run_.pages,
        failed=run_.failed,
        excluded=run_.excluded,
        fetched_bytes=run_.fetched_bytes,
        queued=frontier.pending + frontier.in_flight,
        by_status=dict(run_.by_status),
        seeds=tuple(facts.seeds),
        summary=crawl_report(facts),
    )


_key_values = structlog.processors.KeyValueRenderer(key_order=["event"])


def _logged(logger: Any, method: str, event: structlog.typing.EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments for `logging`: the values as Python writes them, and the traceback, which `logging` would not escape."""
    exception = event.pop("exception", None)
    line = str(_key_values(logger, method, event))
    return (line if exception is None else f"{line}\n{exception}",), {"exc_info": None}


def log_by_logging() -> None:
    """Send events to `logging` by the names of their modules. Does nothing if structlog is configured already."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, escape_traceback, _logged],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
