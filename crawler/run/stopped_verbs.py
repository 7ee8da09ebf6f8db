"""The operator's verbs for a job that is not running: create it, add seeds, reports, log lines of URLs that are removed.

A job of several workers is opened as a whole: the operator's command becomes its one worker for a moment.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import NamedTuple

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line, round_note
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.cluster.agreement import Applicant, Wanted, join
from anabranch.crawler.cluster.commands import OPERATOR
from anabranch.crawler.cluster.totals import all_totals, view_of
from anabranch.crawler.job.choosing import ChosenJob
from anabranch.crawler.job.database import JobDatabase, copy_rows, free_all_shares, has_workers, server_time
from anabranch.crawler.job.folder import LOOKING_S, JobFolder, order_to_resume, refuse_moved
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.inspection import scratch_copy
from anabranch.crawler.job.journal import LineFile, roll_back, warcs_of
from anabranch.crawler.job.seeding import (
    CandidateMaker,
    SeedFact,
    add_in_steps,
    added_in_steps,
    key_by,
    keys_of,
    known_keys,
    seed_outcomes,
)
from anabranch.crawler.job.seeds import Seed, SourceTags
from anabranch.crawler.job.seedtable import Seeds, opened_seeds
from anabranch.crawler.job.skipped import SkippedUrls, due_again
from anabranch.crawler.job.state import Round, current_round, round_of_run
from anabranch.crawler.job.workerfolders import await_orphans
from anabranch.crawler.order.frontier import MEMORY
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.endings import WhyEnded, biggest
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.report.logtail import reasons_logged
from anabranch.crawler.report.reports import LONGEST_SHOWN, QUEUES_SHOWN, JobFacts, report_kind
from anabranch.crawler.report.table import json_facts
from anabranch.crawler.run.control import PATIENCE_S
from anabranch.crawler.run.crawl_verbs import added_seeds, report_limit
from anabranch.crawler.run.job_rows import JobRows, WorkersSilent
from anabranch.crawler.run.verbs import Arguments, Facts, JobIsRunning
from anabranch.crawler.run.worker_lines import WorkerLine, workers
from anabranch.crawler.urls.canonicalization import Canonicalizer, KeyOf
from anabranch.frontier import Frontier, Operations, WorkerIdentity
from anabranch.frontier.errors import StoreInUse
from anabranch.frontier.jobfolder import STATE, STORE_FILE
from anabranch.frontier.parts import run
from anabranch.frontier.records import Head
from anabranch.frontier.stores.sql.sqlite import sealed
from anabranch.frontier.times import Clock, steady_clock

#: Between two looks whether all shares have come.
_LOOK_S = 0.05


def create_job(chosen: ChosenJob, seeds: Sequence[Seed]) -> str:
    """Create a job with its seeds queued and nothing fetched (blocks); its place. A job in a database gets no folder.

    Raises: UsageError if there is a job already, or its queue would end with this process; as a crawl does.
    """
    order, directory = chosen.order, chosen.directory
    place = order.frontier.store if order.frontier.is_in_database else str(directory)
    refuse_moved(directory)
    is_there = chosen.has_seeds or order_to_resume(directory) is not None
    if is_there and not _is_half_created(order):
        raise UsageError(
            f"{place}: there is a job already; `anabranch add` adds seeds, `anabranch crawl` goes on with it"
        )
    if order.frontier.store == MEMORY:
        raise UsageError("[frontier] store memory: such a queue ends with its process; leave the store out")
    if order.frontier.is_shared and order.frontier.is_in_database:
        with closing(JobDatabase(order.frontier.store)) as database:
            _begin_shared(database, order, seeds)
            return place
    with JobFolder.open(directory) as job:
        try:
            _begin_in_folder(job, order, seeds)
        except BaseException:
            job.undo_failed_start()
            raise
    return place


def _is_half_created(order: CrawlOrder) -> bool:
    """A command that created the job in this database was killed before it had queued a seed."""
    if not (order.frontier.is_shared and order.frontier.is_in_database):
        return False
    with closing(JobDatabase(order.frontier.store)) as database:
        return not database.do(has_workers)


def _begin_in_folder(job: JobFolder, order: CrawlOrder, seeds: Sequence[Seed]) -> None:
    file = job.state / STORE_FILE
    if order.frontier.is_shared:
        with sealed(file), closing(JobDatabase(file)) as database:
            _begin_shared(database, order, seeds)
        job.write_order(dump_order(order))  # last: a start that was killed before is repeated
        return
    with open_job(job.state, order) as frontier, opened_seeds(job.state) as recorded:
        job.write_order(dump_order(order))
        add_to_stopped(frontier, recorded, seeds, key_by(order, job.directory))


def _begin_shared(database: JobDatabase, order: CrawlOrder, seeds: Sequence[Seed]) -> None:
    join(database, Wanted(order, seeds), Applicant(OPERATOR, "", is_named=True))
    with held_whole(JobRows(database, order)) as whole:
        add_to_stopped(whole.frontier, whole.seeds, seeds, key_by(order, database.place))


def add_to_stopped(
    frontier: Frontier, recorded: Seeds, seeds: Sequence[Seed], key: KeyOf, *, force: bool = False
) -> Facts:
    """Add seeds to a job that is not running (blocks): record them first, then queue them. Raises: as both."""
    keys_of(seeds, key)  # a seed without a key must not be recorded
    recorded.add_all(seeds)
    candidates, known = run(add_in_steps(frontier, seeds, CandidateMaker(key, SourceTags(recorded)), force=force))
    verdicts = frontier.schedule(candidates)  # a Frontier that was opened just now is not busy
    frontier.flush()
    return added_seeds(seeds, run(added_in_steps(frontier, candidates, verdicts, known)))


def retry_skipped_of_stopped(states: Iterable[Path], frontier: Frontier, key: KeyOf) -> int:
    """Undo the rules of a job that is not running (blocks), and queue what they skipped again; how many URLs.

    `states` are the state folders of the job, or of its workers. After a kill the same call, or the next run, goes on with it.
    """
    queued = 0
    for state in states:
        with closing(SkippedUrls(state)) as kept:
            for rule in kept.rules():
                kept.undo(rule.template)
                for page in kept.pages(rule.template):
                    due, settled = due_again(page, frontier.operations.ended, key)
                    frontier.schedule(due)
                    frontier.flush()
                    kept.remove(settled)
                    queued += len(due)
    return queued


def report_of_stopped(
    directory: Path, frontier: Frontier, seeds: Iterable[Seed], find_key: Callable[[], KeyOf], given: Arguments
) -> Facts:
    """A report of a job that is not running and that the caller has locked (blocks). Raises: UsageError, StorageError.

    `find_key` finds the function that makes dedup's key of a URL, maybe in a user's module; only reports of seeds need it.
    """
    kind, limit = report_kind(given.get("name")), report_limit(given)
    state, now_s = directory / "state", frontier.now_s()
    # Opening the accounts counts what a crash took. They are closed at `now_s`: a report is no run of the crawl.
    Accounts(state, directory / "logs" / "crawl.log", lambda: now_s).close()
    with storage_errors(state), AccountsView(state) as view:
        fared = stopped_seed_outcomes(directory, list(seeds), find_key(), frontier) if "seeds" in kind.needs else []
        facts = facts_of_stopped(directory.name, frontier, fared, view, current_round(state))
        return json_facts(kind.make(facts), limit)


def facts_of_stopped(
    name: str, frontier: Frontier, seeds: Sequence[SeedFact], accounts: AccountsView, current: Round
) -> JobFacts:
    """The facts for the reports of a job that is not running (blocks)."""
    statistics = frontier.operations.statistics()
    left = statistics.pending + statistics.retired
    return JobFacts(
        name=name,
        status=f"Stopped: {left} URLs are queued" if left else "Finished: nothing is queued",
        now_s=frontier.now_s(),
        seeds=seeds,
        frontier=statistics,
        failures=biggest(frontier.operations.failures()),
        longest=frontier.operations.longest(LONGEST_SHOWN),
        queues=frontier.operations.queues(limit=QUEUES_SHOWN),
        accounts=accounts,
        round=current,
    )


def reasons_of(verdict: WhyEnded, seed_statuses: Sequence[int], operations: Operations) -> list[tuple[int, int]]:
    """If failures dominate, the most frequent statuses and how many have each (blocks): of failures, or of the seeds."""
    if verdict is WhyEnded.ACCESS_REFUSED:
        return biggest(Counter(seed_statuses))
    return biggest(operations.failures()) if verdict is WhyEnded.MOSTLY_FAILED else []


def stopped_seed_outcomes(directory: Path, seeds: Sequence[Seed], key: KeyOf, frontier: Frontier) -> list[SeedFact]:
    """The outcomes of a stopped job's seeds, from its Frontier and errors.jsonl (blocks)."""
    keys = known_keys([seed.url for seed in seeds], key)
    ended = frontier.operations.ended(list(keys.values()))
    return seed_outcomes(seeds, keys, ended, reasons_logged(directory))


@contextmanager
def removal_log(
    directory: Path, now_s: Callable[[], float], *, extra_info: bool
) -> Iterator[Callable[[Sequence[Head]], None]]:
    """Logs URLs that the operator removes from the queue of a job that is not running and that the caller has locked.

    The yielded function writes their lines to crawl.log and counts them in the job's totals, durably, both or none. Cost: 70 µs
    a line. Raises: StorageError, AccountsDamaged, RoundDamaged.
    """
    crawl_log = directory / "logs" / "crawl.log"
    with storage_errors(crawl_log):
        notes = (round_note(round_of_run(directory / "state")),)

    with closing(Accounts(directory / "state", crawl_log, now_s)) as accounts, ExitStack() as opened:
        roll_back(directory, accounts.files)
        log = opened.enter_context(closing(LineFile(crawl_log, "crawl_log")))
        # WARC files that a killed run left; None: it was of a version that recorded no files.
        left = None if accounts.files is None else warcs_of(accounts.files)
        if left is not None:
            with storage_errors(crawl_log):
                accounts.begin({**left, **log.marks()})

        def write(heads: Sequence[Head]) -> None:
            entries = []
            for head in heads:
                line = CrawlLogEntry(
                    logged_s=now_s(),
                    status=FetchStatus.DELETED,
                    url=head.row.url,
                    worker=0,
                    hops=head.row.hops,
                    via=head.via,
                    annotations=notes,
                    extra={} if extra_info else None,
                )
                entries.append(JournalEntry(crawl_log=crawl_log_line(line)))
            with storage_errors(crawl_log):
                try:
                    log.append(entries)
                    accounts.append(entries, None if left is None else {**left, **log.marks()})
                except BaseException:
                    accounts.take_back()  # first: while it counts the log keeps it
                    log.take_back()
                    raise
            log.keep()
            accounts.keep()

        yield write
        if left is not None:
            accounts.settle(left)


# A job of several workers


class WholeJob(NamedTuple):
    """A job of several workers, held and open."""

    frontier: Frontier
    order: CrawlOrder
    seeds: Seeds


def refuse_at_work(job: JobRows) -> None:
    """Raises: JobIsRunning if workers crawl the job."""
    _refuse_others(job, job.at_work())


def _refuse_others(job: JobRows, at_work: Sequence[WorkerLine]) -> None:
    if others := [line for line in at_work if line.name != OPERATOR]:
        names = ", ".join(line.name for line in others)
        words = "worker {} crawls" if len(others) == 1 else "workers {} crawl"
        raise JobIsRunning(f"{job.place}: {words.format(names)} it; stop that crawl first (`anabranch stop`)")


@contextmanager
def opened_whole(job: JobRows) -> Iterator[WholeJob]:
    """Become the job's one worker and hold all its shares (blocks). Raises: JobIsRunning if others work; as a crawl does.

    If a worker on another machine has died, this waits until its lease has ended. A job that is done is finished then.
    """
    refuse_at_work(job)
    if job.folder is None:
        with held_whole(job) as whole:
            yield whole
        return
    assert isinstance(job.database.address, Path)
    job.database.disconnect()
    with JobFolder.open(job.folder, patience_s=LOOKING_S) as folder:
        await_orphans(job.folder)
        with sealed(job.database.address), ExitStack() as connected:
            connected.callback(job.database.disconnect)
            job.database.do(free_all_shares)
            with held_whole(job) as whole:
                had_work = not whole.frontier.is_done
                try:
                    yield whole
                finally:  # also of what the caller refuses
                    folder.left_as_found(had_work=had_work, is_done=whole.frontier.is_done)


@contextmanager
def whole_for(job: JobRows, *, reads: bool) -> Iterator[WholeJob]:
    """The job, held and open; or, to read a job that names policies which must not run, a temporary copy of its rows.

    Raises: as `opened_whole`; StorageError.
    """
    if not (reads and job.order.code.of_frontier):
        with opened_whole(job) as whole:
            yield whole
        return
    refuse_at_work(job)

    def make(copy: Path) -> None:
        (copy / STATE).mkdir(parents=True)
        copy_rows(job.database, copy / STATE / STORE_FILE)

    with (
        scratch_copy(job.place, make) as copy,
        closing(JobDatabase(copy / STATE / STORE_FILE)) as database,
    ):
        database.do(free_all_shares)
        with held_whole(JobRows(database, job.order), is_view=True) as whole:
            yield whole


@contextmanager
def held_whole(job: JobRows, *, is_view: bool = False) -> Iterator[WholeJob]:
    """Hold all shares of a job, as `opened_whole` does, for a caller that knows that no other worker is at work.

    `is_view`: the job is a copy that is only read, opened by `view_shares`.
    """
    from anabranch.crawler.job.frontier import open_share_holder, view_shares  # noqa: PLC0415 - slow to import, and status and pause do not need it

    identity = WorkerIdentity(name=OPERATOR, token=f"{os.getpid()} {secrets.token_hex(4)}")
    changed = Event()
    now_s = job.database.do(server_time)
    clock: Clock = steady_clock(epoch=lambda: now_s)
    with tempfile.TemporaryDirectory(prefix="anabranch-") as folder:
        target, state = job.database.address, Path(folder)
        if is_view and isinstance(target, Path):
            opened = partial(view_shares, state, job.order, identity, target, clock, changed.set)
        else:
            opened = partial(open_share_holder, state, job.order, identity, target, clock=clock, on_change=changed.set)
        with closing(_after_other_commands(opened, job)) as frontier:
            _await_all_shares(frontier, changed, job)
            yield WholeJob(frontier, job.order, Seeds(job.database))


def report_of_whole(whole: WholeJob, job: JobRows, given: Arguments) -> Facts:
    """A report of a job that nobody crawls, from its rows. Raises: UsageError."""
    kind, limit = report_kind(given.get("name")), report_limit(given)
    seeds = list(whole.seeds)
    key = Canonicalizer(whole.order.run_of(whole.order.urls.canonicalization)).key
    keys = known_keys([seed.url for seed in seeds], key)
    fared = seed_outcomes(seeds, keys, whole.frontier.operations.ended(list(keys.values())))
    with view_of(job.database.do(all_totals)) as view:
        return json_facts(kind.make(facts_of_stopped(job.name, whole.frontier, fared, view, Round())), limit)


def _after_other_commands(opened: Callable[[], Frontier], job: JobRows) -> Frontier:
    """Open it when no other command holds the job. Raises: WorkersSilent if one does for `PATIENCE_S`."""
    latest_s, was_held = monotonic() + PATIENCE_S, True
    while True:
        try:
            return opened()
        except StoreInUse as error:
            is_held = any(line.name == OPERATOR for line in job.database.do(workers))
            if not (is_held or was_held):  # else it has ended since
                raise
            was_held = is_held
            if monotonic() > latest_s:
                raise WorkersSilent(f"{job.database.place}: another command holds the job; ask again") from error
        Event().wait(_LOOK_S)


def _await_all_shares(frontier: Frontier, changed: Event, job: JobRows) -> None:
    """Raises: JobIsRunning when another worker begins; WorkersSilent if the shares are not given up."""
    latest_s = monotonic() + max(PATIENCE_S, 2 * job.order.frontier.worker_lease_s)
    assert frontier.hosting is not None
    while not frontier.hosting.holds_all:
        changed.wait(_LOOK_S)
        changed.clear()
        frontier.take_answers()
        _refuse_others(job, [line for line in job.database.do(workers) if line.lease_s > 0])
        if monotonic() > latest_s:
            raise WorkersSilent(f"{job.database.place}: its shares are not given up; ask again")
