"""`anabranch crawl`: from the command line to a run of the controller, and from any error to one line and an exit code."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from anabranch.crawler.cli.console import consents, keep_streams
from anabranch.crawler.job.checking import check_names
from anabranch.crawler.job.choosing import ChosenJob, CrawlRequest, ScopeEffect, SeedSources, choose, join, scope_effect
from anabranch.crawler.job.folder import JobFolder, MovedAside, move_aside, move_back
from anabranch.crawler.job.frontier import is_over, open_job
from anabranch.crawler.job.seeds import SEED_BOOK, Seed, SeedBook, none_left, read_seeds
from anabranch.crawler.job.state import has_queue_in_memory
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code
from anabranch.crawler.outcomes.errors import ExitCode, NoSeeds, UsageError, deciding
from anabranch.crawler.processes.coordinator import Coordinator
from anabranch.crawler.processes.folders import await_orphans, refuse_share, settle_processes, shares_of
from anabranch.crawler.processes.nursery import Nursery
from anabranch.crawler.processes.orders import refuse_another_round
from anabranch.crawler.processes.reopening import opened_shares
from anabranch.crawler.processes.share import live
from anabranch.crawler.report.logs import closing_logs, configure_logs
from anabranch.crawler.report.progress import CrawlSnapshot, Display, DisplayConsole, Progress
from anabranch.crawler.report.table import escaped
from anabranch.crawler.run.controller import CrawlController, RunHooks
from anabranch.crawler.run.signals import ignore_harmless
from anabranch.crawler.runtime import loop_factory, tune_interpreter
from anabranch.frontier.times import counted

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlCommand(CrawlRequest):
    """The parsed command line."""

    yes: bool
    verbosity: int
    again: bool = False
    delete_old: bool = False


def run_crawl(command: CrawlCommand) -> int:
    """Run it. A foreseeable error becomes one line on standard error and its exit code."""
    keep_streams()
    ignore_harmless()
    configure_logs(command.verbosity)
    tune_interpreter()
    try:
        with deciding():
            return _run(command)
    except FORESEEABLE as error:
        return _fail(error, failure_code(error))
    except KeyboardInterrupt:
        return ExitCode.FORCED


def _run(command: CrawlCommand) -> int:
    if command.fresh and command.again:
        raise UsageError("--fresh starts over, --again goes on with the job; leave one of them out")
    if command.delete_old and not (command.fresh and command.yes):
        raise UsageError(
            "--delete-old deletes the job with its archive and logs; leave it out: --fresh moves the job aside"
        )
    chosen = choose(command)
    refuse_share(chosen.directory)
    logs = chosen.order.logs
    file = Path(logs.file) if logs.file else None
    with (
        _nursery(chosen.order) as nursery,  # before anything is open
        closing_logs(configure_logs(command.verbosity, style=logs.format, file=file)),
    ):
        return _run_chosen(command, chosen, nursery)


@contextmanager
def _nursery(order: CrawlOrder) -> Iterator[Nursery | None]:
    """Where the processes of the crawl come from; None if this one is all."""
    if order.crawl.processes == 1:
        yield None
        return
    with closing(Nursery(live)) as nursery:
        yield nursery


def _run_chosen(command: CrawlCommand, chosen: ChosenJob, nursery: Nursery | None) -> int:
    order = chosen.order
    check_names(order, chosen.layers)  # what does not exist must not leave a folder behind
    if command.again:
        refuse_another_round(order)
        _check_round(order)
    for edit in chosen.edits:
        print(f"anabranch: {edit}", file=sys.stderr)  # noqa: T201 - the command's own output
    seeds = _seeds(chosen)
    added = _join(command, chosen, seeds) if chosen.has_seeds else ()
    with (
        _made_way(command, chosen.directory),
        JobFolder.open(
            chosen.directory, delete_old=command.delete_old, again=command.again, even_unfinished=command.yes
        ) as job,
    ):
        if added and command.verbosity >= 0:
            _say(f"job {chosen.directory}: {counted(len(added), 'seed')} added")
        try:
            return _run_job(command, order, job, seeds, nursery)
        except BaseException:
            job.undo_failed_start()
            raise


def _run_job(
    command: CrawlCommand, order: CrawlOrder, job: JobFolder, seeds: Sequence[Seed], nursery: Nursery | None
) -> int:
    if is_over(job.state, seeds):
        if command.verbosity >= 0:
            _say(f"job {job.directory} is finished, and its queue was in memory; use --again for another round")
        return ExitCode.DONE
    settle_processes(job.directory, order.crawl.processes)
    if not order.agent.contact:
        log.warning("no contact is configured, site owners cannot reach you; use --contact URL")
    made = loop_factory(order.crawl.loop)
    # The parent of several processes only passes on what they send; it is their loops that the order speaks of.
    with asyncio.Runner(loop_factory=made if nursery is None else None) as runner:
        outside = _outside(order, command.verbosity)
        if nursery is None:
            return runner.run(_crawl(order, job, seeds, outside))
        return runner.run(_coordinate(order, job, seeds, outside, nursery))


def _join(command: CrawlCommand, chosen: ChosenJob, seeds: Sequence[Seed]) -> Sequence[Seed]:
    """The seeds that the job gets. Asks before a scope ends queued URLs.

    Raises: UsageError if it is another crawl's job, or nobody said that the URLs are to end; as a crawl does.
    """
    joined = join(chosen, seeds)
    if not joined.narrows or command.again or command.yes or has_queue_in_memory(chosen.directory / "state"):
        return joined.added  # another round has another queue, and one in memory is gone
    found = _judged(chosen, joined.added)
    if not found.ended:
        return joined.added
    loss = f"{found.ended:,} of {counted(found.queued, 'queued URL')}"
    is_asked = sys.stdin is not None and sys.stdin.isatty()
    if not (is_asked and consents(f"the scope ends {loss}; go on? [y/N] ")):
        raise UsageError(
            f"{chosen.directory}: the scope would end {loss} (-5000, -5001); nothing was changed; "
            "add --yes to have it so, or name another job with --name OTHER"
        )
    return joined.added


def _judged(chosen: ChosenJob, added: Sequence[Seed]) -> ScopeEffect:
    """What the scope would do to the job's queue, which is opened and closed for it. Raises: as a crawl does."""
    await_orphans(chosen.directory)
    with JobFolder.open(chosen.directory) as job, ExitStack() as opened, SeedBook(job.state / SEED_BOOK) as book:
        if shares_of(job.directory):
            frontiers = opened.enter_context(opened_shares(job.directory))
        else:
            frontiers = [opened.enter_context(open_job(job.state, chosen.order))]
        found = scope_effect(frontiers, chosen.order, [seed.url for seed in (*book, *added)])
        if all(frontier.is_done for frontier in frontiers):
            job.mark_finished()
    return found


@contextmanager
def _made_way(command: CrawlCommand, directory: Path) -> Iterator[None]:
    """With --fresh the old job is out of the way; it comes back if the start of the new one fails. Raises: as `move_aside`."""
    moved = None
    if command.fresh:
        await_orphans(directory)  # they would write to what is moved or deleted
        if not command.delete_old:
            moved = move_aside(directory, time.time())
    if moved is not None and command.verbosity >= 0:
        _say_moved(moved)
    try:
        yield
    except BaseException:
        if moved is not None and move_back(moved.place, directory) and command.verbosity >= 0:
            _say(f"the old job is {directory} again")
        raise


def _say_moved(moved: MovedAside) -> None:
    _say(f"the old job is now {moved.place}")
    if moved.leaves:
        servers = ", ".join(
            urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl() for url in moved.leaves
        )
        _say(f"its shared filter stays as it is, and knows its URLs: {servers}")


def _check_round(order: CrawlOrder) -> None:
    """Raises: UsageError for what counts, or knows, the URLs of earlier rounds: the next one would end at its seeds."""
    limits = order.limits
    if order.dedup.leaves:
        raise UsageError("--again: the filter of [dedup] leaves has the job's own URLs; add -s dedup.leaves=")
    per_host = {
        "pages_per_host": limits.pages_per_host,
        "bytes_per_host": limits.bytes_per_host,
        "time_per_host": limits.time_per_host_s,
    }
    none = " ".join(f"-s limits.{key}=0" for key, value in per_host.items() if value)
    if none:
        raise UsageError(f"--again: limits per host count the whole job, earlier rounds too; add {none}")


def _seeds(chosen: ChosenJob) -> tuple[Seed, ...]:
    """The seeds among the sources; what is none is reported and skipped. Raises: UsageError, NoSeeds."""
    if not chosen.named:
        if chosen.has_seeds:
            return ()
        raise UsageError("there is no seed; name a URL, a file of URLs, or - for standard input")
    seeds, reports = _read(chosen.named)
    if not seeds:
        raise NoSeeds(none_left(reports))
    for report in reports:
        print(f"anabranch: {report}; skipped", file=sys.stderr)  # noqa: T201 - the command's own output
    return seeds


def _read(named: Sequence[SeedSources]) -> tuple[tuple[Seed, ...], list[str]]:
    """The seeds, each URL once, where it was named first; and what is said of those that are none."""
    seeds: dict[str, Seed] = {}
    reports: list[str] = []
    for sources, place, told in named:
        found = read_seeds(sources, io.BytesIO() if sys.stdin is None else sys.stdin.buffer, place)
        for seed in found.seeds:
            seeds.setdefault(seed.url, seed)
        reports += [f"{told if bad.source == place else bad.source}: {bad.text!r}: {bad.reason}" for bad in found.bad]
    return tuple(seeds.values()), reports


async def _crawl(order: CrawlOrder, job: JobFolder, seeds: Sequence[Seed], outside: RunHooks) -> int:
    return await CrawlController(order, job, seeds, outside).run()


async def _coordinate(
    order: CrawlOrder, job: JobFolder, seeds: Sequence[Seed], outside: RunHooks, nursery: Nursery
) -> int:
    return await Coordinator(order, job, seeds, outside, nursery).run()


def _outside(order: CrawlOrder, verbosity: int) -> RunHooks:
    console = DisplayConsole(stderr=True)
    display = Display.NONE if verbosity < 0 else Display(order.report.progress)

    async def show(take: Callable[[], CrawlSnapshot]) -> None:
        await Progress(take, console, display, order.report.interval_s).show()

    def force_exit() -> None:
        with suppress(OSError):
            console.show_cursor()
        os._exit(ExitCode.FORCED)  # the journal and the store are sound at any moment

    return RunHooks(notify=_say if verbosity >= 0 else _keep_quiet, show=show, force_exit=force_exit, is_last=True)


def _say(text: str) -> None:
    """Lines on standard output, whatever it can write; nobody need read them."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    shown = text.rstrip("\n").encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(shown, flush=True)  # noqa: T201 - the command's own output
    except OSError as error:
        # The reader has gone (`| head -1`), or it is a file on a full disk: the job has its reports all the same. What is
        # flushed at the end of the process must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            log.warning("standard output cannot be written; see the job's reports", reason=error.strerror)


def _keep_quiet(text: str) -> None:
    """With -q only what went wrong is said."""


def _fail(error: Exception, code: ExitCode) -> int:
    print(f"anabranch: {escaped(str(error))}", file=sys.stderr)  # noqa: T201 - the command's own output
    return code
