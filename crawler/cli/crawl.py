"""`anabranch crawl`: from the command line to a run of the controller, and from any error to one line and an exit code."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

import structlog

from anabranch.crawler.cli.parameters import OnEnd
from anabranch.crawler.cli.terminal import consents, guarded, keep_streams, say
from anabranch.crawler.job.checking import check_names, order_warnings
from anabranch.crawler.job.choosing import (
    ChosenJob,
    CrawlRequest,
    ScopeEffect,
    SharedOrder,
    choose,
    join,
    named_seeds,
    permitted,
    refuse_changed,
    scope_effect,
)
from anabranch.crawler.job.folder import LOOKING_S, JobFolder, move_aside, move_back
from anabranch.crawler.job.frontier import is_over, open_job
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.seedtable import Seeds, known_seeds, opened_seeds
from anabranch.crawler.job.state import has_queue_in_memory, run_record
from anabranch.crawler.job.workerfolders import (
    await_orphans,
    await_orphans_of_free,
    is_old_division,
    refuse_worker,
    shared_file,
)
from anabranch.crawler.operate.moving import divide, divided_line, settle_arrival
from anabranch.crawler.order.loading import Caller
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import FORESEEABLE
from anabranch.crawler.outcomes.errors import ExitCode, OrderError, StoreLost, UsageError
from anabranch.crawler.processes.forkserver import ForkServer
from anabranch.crawler.processes.worker import live
from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.logs import closing_logs, configure_logs
from anabranch.crawler.report.progress import Display, DisplayConsole, show_progress
from anabranch.crawler.report.table import escaped_lines
from anabranch.crawler.run.control import has_crawl
from anabranch.crawler.run.controller import CrawlController
from anabranch.crawler.run.membership import Surroundings
from anabranch.crawler.run.signals import ignore_harmless
from anabranch.crawler.runtime import loop_factory, tune_interpreter
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.jobfolder import ORDER_FILE, STATE, STORE_FILE, has_store
from anabranch.frontier.times import counted

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlCommand(CrawlRequest):
    """The parsed command line."""

    yes: bool
    verbosity: int
    again: bool = False
    delete_old: bool = False
    creates: bool = False  #: the job is created, and crawled by another command
    on_end: OnEnd = field(default_factory=OnEnd)  #: where a notice of the end goes


def run_crawl(command: CrawlCommand) -> int:
    """Run it. A foreseeable error becomes one line on standard error and its exit code."""
    keep_streams()
    ignore_harmless()
    tune_interpreter()
    return guarded(lambda: _run(command), verbosity=command.verbosity, interrupted=ExitCode.FORCED)


def _run(command: CrawlCommand) -> int:
    if command.fresh and command.again:
        raise UsageError("--fresh starts over, --again crawls the same job again; leave one of them out")
    if command.delete_old and not (command.fresh and command.yes):
        raise UsageError(
            "--delete-old deletes the job with its archive and logs; leave it out: --fresh moves the job aside"
        )
    chosen = choose(command, _shared_order)
    refuse_worker(chosen.directory)
    settle_arrival(chosen.directory)
    if not command.fresh and is_old_division(chosen.directory):
        divided = divide(chosen.directory, caller=Caller(command.run_code, command.layers))
        say(f"anabranch: {chosen.directory}: {divided_line(divided)}")
        chosen = choose(command, _shared_order)
    order, logs = chosen.order, chosen.order.logs
    if command.creates:
        return _create(command, chosen)
    if not command.fresh:
        _check_shares(chosen)
    file = Path(logs.file) if logs.file else None
    # The processes of the crawl are forked from one that has nothing open yet.
    server_opened: AbstractContextManager[ForkServer | None] = (
        closing(ForkServer(live)) if _has_processes(order) else nullcontext()
    )
    with (
        server_opened as fork_server,
        closing_logs(configure_logs(command.verbosity, style=logs.format, file=file)),
        _noticed_end(command.on_end, chosen.directory),
    ):
        return _run_chosen(command, chosen, fork_server)


@contextmanager
def _noticed_end(on_end: OnEnd, directory: Path) -> Iterator[None]:
    """Deliver a notice if a run has ended in this block, well or not. Raises: UsageError for wrong targets."""
    if not on_end.is_given:
        yield
        return
    from anabranch.crawler.operate.finding import operated_folder  # noqa: PLC0415 - most crawls send no notice
    from anabranch.crawler.operate.notices import deliver_all, notice_of  # noqa: PLC0415

    targets = on_end.targets(os.environ)
    before = run_record(directory / STATE)
    try:
        yield
    finally:
        record = run_record(directory / STATE)
        if record is not None and record != before and record.ended_s is not None:
            try:
                facts = operated_folder(directory).status()
                notice = notice_of(str(directory.absolute()), record.began_s, facts, time.time())
                for line in deliver_all(notice, targets, time.time):
                    say(f"anabranch: {directory}: {line}")
            except FORESEEABLE as error:
                say(f"anabranch: {directory}: there is no notice of the end: {error}")


def _create(command: CrawlCommand, chosen: ChosenJob) -> int:
    """Create the job without a fetch."""
    from anabranch.crawler.run.stopped_verbs import create_job  # noqa: PLC0415 - a crawl does not need it

    if command.again:
        raise UsageError("--again crawls a job again, and this command creates one; leave it out")
    if command.fresh and chosen.order.frontier.is_in_database:
        raise UsageError(
            "--fresh moves a folder aside; name another database, or drop the tables of the job in this one"
        )
    chosen = permitted(chosen, run_code=command.run_code)
    check_names(chosen.order, chosen.layers)
    seeds = _seeds(chosen)
    with closing_logs(configure_logs(command.verbosity)), _made_way(command, chosen.directory):
        _warn_of(chosen.order)
        place = create_job(chosen, seeds)
    if command.verbosity >= 0:
        begins = "--store" if chosen.order.frontier.is_in_database and chosen.order.frontier.is_shared else "--job"
        _say(
            f"{place}: created with {counted(len(seeds), 'seed')}; `anabranch crawl {begins} {quote(place)}` crawls it"
        )
    return ExitCode.DONE


def _run_chosen(command: CrawlCommand, chosen: ChosenJob, fork_server: ForkServer | None) -> int:
    chosen = permitted(chosen, run_code=command.run_code)
    order = chosen.order
    check_names(order, chosen.layers)  # what does not exist must not leave a folder behind
    if command.again:
        _check_round(order)
    for edit in chosen.edits:
        say(f"anabranch: {edit}")
    seeds = _seeds(chosen)
    is_shared = order.frontier.is_shared
    added = _join(command, chosen, seeds) if chosen.has_seeds and not order.frontier.is_in_database else ()
    with (
        _made_way(command, chosen.directory),
        JobFolder.open(
            chosen.directory,
            delete_old=command.delete_old,
            again=command.again and not is_shared,
            even_unfinished=command.yes,
            store=order.frontier.store,
            patience_s=0.0 if has_crawl(chosen.directory / STATE) else LOOKING_S,
        ) as job,
    ):
        refuse_changed(chosen)
        if added and command.verbosity >= 0:
            _say(f"job {chosen.directory}: {counted(len(added), 'seed')} added")
        try:
            return _start(command, chosen, job, seeds, fork_server)
        except BaseException:
            job.undo_failed_start()
            raise


def _start(
    command: CrawlCommand, chosen: ChosenJob, job: JobFolder, seeds: Sequence[Seed], fork_server: ForkServer | None
) -> int:
    """Crawl: alone, as one of the workers of a job, or with processes of this machine that are its workers."""
    order = chosen.order
    if not order.frontier.is_shared and is_over(job.state, seeds):
        if command.verbosity >= 0:
            _say(f"job {job.directory} is finished, and its queue was in memory; use --again for another round")
        return ExitCode.DONE
    _warn_of(order)
    outside = _Terminal(order, command.verbosity)
    if not order.frontier.is_shared:
        with asyncio.Runner(loop_factory=loop_factory(order.crawl.loop)) as runner:
            return runner.run(CrawlController(order, job, seeds, outside).run())
    from anabranch.crawler.cluster.agreement import Wanted  # noqa: PLC0415 - most crawls have one worker

    wanted = Wanted(order, seeds, command.again, command.yes, changes=chosen.shared_changes)
    if fork_server is None:
        from anabranch.crawler.run.shared_worker import crawl_shared  # noqa: PLC0415 - see above

        with asyncio.Runner(loop_factory=loop_factory(order.crawl.loop)) as runner:
            return runner.run(crawl_shared(wanted, job, outside, time.time, order.frontier.store))
    from anabranch.crawler.processes.supervisor import supervise  # noqa: PLC0415 - see above

    await_orphans(job.directory)
    # What another scope would end was told before.
    wanted = wanted._replace(has_consent=command.yes or not command.again, changes=None, resumes=True)
    with asyncio.Runner() as runner:
        return runner.run(supervise(wanted, job, outside, fork_server))


def _has_processes(order: CrawlOrder) -> bool:
    """Processes of this machine crawl the job, maybe a single one now."""
    return order.frontier.is_shared and not order.frontier.is_in_database


def _check_shares(chosen: ChosenJob) -> None:
    """Raises: OrderError if the job was made for one process and several are to crawl it, or the reverse; StoreLost."""
    order, directory = chosen.order, chosen.directory
    if _has_processes(order) and (directory / ORDER_FILE).exists() and not has_store(directory / STATE):
        raise StoreLost(
            f"{directory / STATE}: {STORE_FILE} is missing or empty, and with it the queue; "
            "restore it from a copy, or start over with `anabranch crawl --fresh`, which moves the job aside"
        )
    # A start that was killed before its order was written is repeated as it was.
    has_begun = has_store(directory / STATE) and (directory / ORDER_FILE).exists()
    if has_begun and shared_file(directory) is None:
        if order.crawl.processes > 1 or _has_processes(order):
            raise OrderError(
                f"{directory}: the job was begun for one process; `anabranch divide {directory}` divides it among shares, "
                "which several processes can crawl"
            )
    elif order.crawl.processes > 1 and not order.frontier.is_shared:
        raise OrderError("[frontier] shares = 1 is for one process; leave it out, or [crawl] processes")


def _shared_order(address: str | Path, directory: Path) -> SharedOrder | None:
    """The job's order; while its database cannot be reached, this waits for it, as a worker at work does."""
    from anabranch.crawler.cluster.agreement import shared_order  # noqa: PLC0415 - most crawls have no database
    from anabranch.crawler.job.database import JobDatabase  # noqa: PLC0415

    is_away = False
    with JobDatabase(address) as database:
        while True:
            try:
                return shared_order(database, directory)
            except StoreUnavailable as error:
                if isinstance(address, Path) or not database.is_passing(error):
                    raise
                if not is_away:
                    say(f"anabranch: {database.place}: the server cannot be reached; waiting for it (Ctrl-C ends this)")
                is_away = True
                if not database.may_try_again(error):
                    raise


def _warn_of(order: CrawlOrder) -> None:
    for warning in order_warnings(order):
        log.warning(warning)


def _join(command: CrawlCommand, chosen: ChosenJob, seeds: Sequence[Seed]) -> Sequence[Seed]:
    """The seeds that the job gets. Asks before a scope ends queued URLs. Raises: UsageError without consent, as `join`."""
    joined = join(chosen, seeds, _known_seeds(chosen))
    if not joined.narrows or command.again or command.yes or has_queue_in_memory(chosen.directory / "state"):
        return joined.added  # another round has another queue, and one in memory is gone
    found = _judged(chosen, joined.added)
    if not found.ended:
        return joined.added
    loss = f"{found.ended:,} of {counted(found.queued, 'queued URL')}"
    is_asked = sys.stdin is not None and sys.stdin.isatty()
    if not (is_asked and consents(f"the scope ends {loss}; continue? [y/N] ")):
        raise UsageError(
            f"{chosen.directory}: the scope would end {loss} (-5000, -5001); nothing was changed; "
            "add --yes to accept this, or name another job with --name OTHER"
        )
    return joined.added


def _judged(chosen: ChosenJob, added: Sequence[Seed]) -> ScopeEffect:
    """Return the effect that the scope would have on the job's queue, which is opened for this. Raises: as a crawl does."""
    file = shared_file(chosen.directory)
    if file is not None:
        from anabranch.crawler.job.database import JobDatabase  # noqa: PLC0415 - most crawls have one process
        from anabranch.crawler.run.job_rows import JobRows  # noqa: PLC0415
        from anabranch.crawler.run.stopped_verbs import opened_whole  # noqa: PLC0415

        with closing(JobDatabase(file)) as database, opened_whole(JobRows(database, chosen.order)) as whole:
            return scope_effect(whole.frontier, chosen.order, [seed.url for seed in (*whole.seeds, *added)])
    with (
        JobFolder.open(chosen.directory) as job,
        opened_seeds(job.state) as recorded,
        open_job(job.state, chosen.order) as frontier,
    ):
        found = scope_effect(frontier, chosen.order, [seed.url for seed in (*recorded, *added)])
        job.left_as_found(had_work=not frontier.is_done, is_done=frontier.is_done)
    return found


def _known_seeds(chosen: ChosenJob) -> Collection[str]:
    """The URLs of the job's seeds. Raises: SeedsDamaged, StoreUnavailable."""
    file = shared_file(chosen.directory)
    if file is None:
        return known_seeds(chosen.directory / STATE)
    from anabranch.crawler.job.database import JobDatabase  # noqa: PLC0415 - most crawls have one process

    with JobDatabase(file) as database:
        return {seed.url for seed in Seeds(database)}


@contextmanager
def _made_way(command: CrawlCommand, directory: Path) -> Iterator[None]:
    """With --fresh the old job is out of the way; it comes back if the start of the new one fails. Raises: as `move_aside`."""
    moved = None
    if command.fresh:
        await_orphans_of_free(directory)  # they would write to what is moved or deleted
        if not command.delete_old:
            moved = move_aside(directory, time.time())
    if moved is not None and command.verbosity >= 0:
        _say(f"the old job is now {moved.place}")
        if moved.leaves:
            urls = map(urlsplit, moved.leaves)
            servers = ", ".join(url._replace(netloc=url.netloc.rpartition("@")[2]).geturl() for url in urls)
            _say(f"its shared filter stays as it is, and knows its URLs: {servers}")
    try:
        yield
    except BaseException:
        if moved is not None and move_back(moved.place, directory) and command.verbosity >= 0:
            _say(f"the old job is {directory} again")
        raise


def _check_round(order: CrawlOrder) -> None:
    """Raises: UsageError for what counts, or knows, the URLs of earlier rounds: the next one would end at its seeds."""
    if order.dedup.leaves:
        raise UsageError("--again: the filter of [dedup] leaves has the job's own URLs; add -s dedup.leaves=")
    keys = [f"{what}_per_{whose}" for whose in ("host", "group") for what in ("pages", "bytes", "time")]
    given = order.limits.model_dump(by_alias=True)
    none = " ".join(f"-s limits.{key}=0" for key in keys if given[key] not in {0, "0B", "0s"})
    if none:
        raise UsageError(f"--again: limits per host or group count the whole job, earlier rounds too; add {none}")


def _seeds(chosen: ChosenJob) -> tuple[Seed, ...]:
    """The seeds of the sources, each URL once. Reports and skips other lines. Raises: UsageError, NoSeeds."""
    seeds, reports = named_seeds(chosen, io.BytesIO() if sys.stdin is None else sys.stdin.buffer)
    for report in reports:
        say(f"anabranch: {report}; skipped")
    return seeds


class _Terminal(Surroundings):
    """The command that crawls: it says how the crawl begins and ends, and shows its progress."""

    is_last = True

    def __init__(self, order: CrawlOrder, verbosity: int) -> None:
        self._console = DisplayConsole(stderr=True)
        self._is_quiet = verbosity < 0
        self._report = order.report

    def notify(self, text: str) -> None:
        """Print it."""
        if not self._is_quiet:
            _say(text)

    async def show(self, take: Callable[[], CrawlSnapshot]) -> None:
        """Show the progress as the order says."""
        display = Display.NONE if self._is_quiet else Display(self._report.progress)
        await show_progress(take, self._console, display, self._report.interval_s)

    def force_exit(self) -> None:
        """End the process: the journal and the store are sound at any moment."""
        with suppress(OSError):
            self._console.show_cursor()
        os._exit(ExitCode.FORCED)


def _say(text: str) -> None:
    """Print lines on standard output, escaped. Errors do not end the crawl."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    shown = escaped_lines(text.rstrip("\n")).encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(shown, flush=True)  # noqa: T201 - the command's own output
    except OSError as error:
        # The reader has gone (`| head -1`), or it is a file on a full disk: the job has its reports all the same. What is
        # flushed at the end of the process must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            log.warning("standard output cannot be written; see the job's reports", reason=error.strerror)
