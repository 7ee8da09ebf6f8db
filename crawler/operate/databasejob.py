"""A job of several workers: in a database, where it answers on any machine, or in the file of a job of several processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from threading import Event
from typing import Any, Concatenate, ParamSpec, TypeVar

from anabranch.crawler.cluster.commands import DesiredState, Wish, drained_workers, refuse_moved
from anabranch.crawler.cluster.outputs import has_outputs
from anabranch.crawler.job.database import JobDatabase, copy_rows, free_all_shares, server_time
from anabranch.crawler.job.folder import end_wish, wait_until_free, who_holds
from anabranch.crawler.job.inspection import readable_job, refuse_unwritable, scratch_copy
from anabranch.crawler.job.seeding import key_by
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.operate.contract import HOW_TO_START, Notify, OpenedJob, VerbAnswer, retried_all
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.jobstatus import STOPPED
from anabranch.crawler.report.metrics import Numbers, summed
from anabranch.crawler.run.crawl_verbs import ADD, REPORT, RETRY_SKIPPED
from anabranch.crawler.run.explain import explainer_of, while_stopped, with_remedy
from anabranch.crawler.run.shared_job import (
    NoWorkers,
    SharedJob,
    WorkerLine,
    worker_numbers,
    workers,
)
from anabranch.crawler.run.stopped_verbs import (
    WholeJob,
    add_to_stopped,
    held_whole,
    opened_whole,
    refuse_at_work,
    report_of_whole,
    retry_skipped_of_stopped,
)
from anabranch.crawler.run.summing import merged_active
from anabranch.crawler.run.verbs import READING, Arguments, Facts, JobIsRunning, answer
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.jobfolder import STATE, STORE_FILE

P = ParamSpec("P")
T = TypeVar("T")

#: Verdicts of seeds that are queued by it.
_QUEUED = frozenset({"new", "later"})
_ENDED = "workers that were told to end do not come back by themselves"
#: Between two looks whether a worker has left.
_LOOK_S = 0.2


def _again_if_a_worker_begins(
    method: Callable[Concatenate[DatabaseJob, P], T],
) -> Callable[Concatenate[DatabaseJob, P], T]:
    """Call the method again if a worker begins after the method has found none, and before it holds the job."""

    @wraps(method)
    def asked(job: DatabaseJob, /, *given: P.args, **named: P.kwargs) -> T:
        with suppress(JobIsRunning):
            return method(job, *given, **named)
        return method(job, *given, **named)

    return asked


@dataclass(frozen=True, slots=True)
class DatabaseJob:
    """A job of several workers. The methods are those of `OperatedJob`, and what only such a job has."""

    address: str | Path  #: the URL of its database, or its file
    notify: Notify
    caller: Caller = BY_VARIABLES  #: who asks, and for which code of the job's order that one vouches

    @property
    def logs(self) -> Path | None:
        """Each worker has its own."""
        return None

    def status(self) -> Facts:
        """From rows: the workers' statuses summed."""
        with self._shared(reads=True) as job:
            return job.status()

    def running_status(self) -> Facts | None:
        """Return the status if a worker is at work, else None."""
        facts = self.status()
        return None if facts["phase"] == STOPPED else facts

    def steer(self, verb: str, arguments: Arguments) -> Facts:
        """All workers do it, also those that start later. `resume` with a `worker`: that one may come back.

        Raises: NoWorkers, WorkersSilent, UsageError.
        """
        wanted = Wish.STOP_NOW if verb == "stop" and arguments.get("now") else Wish(verb)
        worker = arguments.get("worker")
        with self._shared(reads=False) as job:
            if worker is not None:
                job.let_back(str(worker))
                self.notify(f"worker {worker} may come back; start it")
                return job.status()
            was_at_rest = job.folder is None and job.desired() is not DesiredState.RUN
            facts = self._want(job, wanted)
            # The status of a stopped job says it.
            if verb == "resume" and was_at_rest and (facts["phase"] != STOPPED or facts["is_finished"]):
                self.notify(f"{_ENDED}; {job.start_hint()}")
            return facts

    def _want(self, job: SharedJob, wanted: Wish) -> Facts:
        """Have all workers do it. If there is none, a stop says that a job of this machine need not run. Raises: NoWorkers."""
        try:
            return job.want(wanted, self.notify)
        except NoWorkers:
            if wanted not in {Wish.STOP, Wish.STOP_NOW} or job.folder is None or not end_wish(job.folder):
                raise
        return job.status()

    def wait(self) -> Facts:
        """Wait until no worker is at work."""
        with self._shared(reads=True) as job:
            while job.at_work():
                Event().wait(_LOOK_S)
            if job.folder is not None:
                wait_until_free(job.folder)
            return job.status()

    @_again_if_a_worker_begins
    def add(self, seeds: Sequence[Seed], *, force: bool = False) -> tuple[bool, list[Facts]]:
        """To the workers, or to the rows. A job in a database runs again if any was queued."""
        listed = [{"url": seed.url, "source": seed.source} for seed in seeds]
        with self._shared(reads=False) as job:
            was_at_rest = job.folder is None and job.desired() is not DesiredState.RUN
            try:
                verdicts, is_running = job.answer(ADD, {"seeds": listed, "force": force})["seeds"], True
            except NoWorkers:
                with opened_whole(job) as (frontier, order, recorded):
                    key = key_by(order, job.place)
                    verdicts, is_running = add_to_stopped(frontier, recorded, seeds, key, force=force)["seeds"], False
            if any(verdict["verdict"] in _QUEUED for verdict in verdicts):
                job.want_run()
                if was_at_rest and is_running:
                    self.notify(f"{_ENDED}; {job.start_hint()}")
            return is_running, verdicts

    def retry(self, arguments: Arguments) -> VerbAnswer:
        """By one worker for all, or in the rows. A job in a database runs again if any was queued."""
        found = retried_all(self.answer, {**arguments, "is_crawl": True})
        if not found.facts["queued"]:
            return found
        with self._shared(reads=False) as job:
            job.want_run()
            return found._replace(facts={**found.facts, "note": job.limits_reached(is_running=found.is_running)})

    @_again_if_a_worker_begins
    def retry_skipped(self) -> VerbAnswer:
        """By the workers, each for what it has skipped; of processes of this machine, in their files if none is at work."""
        with self._shared(reads=False) as job:
            try:
                found = VerbAnswer(job.answer(RETRY_SKIPPED, {}), is_running=True)
            except NoWorkers:
                if job.folder is None:
                    raise UsageError(f"{job.place}: each worker knows what it has skipped; start them first") from None
                states = sorted(job.folder.glob(f"workers/*/{STATE}"))
                with opened_whole(job) as (frontier, order, _):
                    key = Canonicalizer(order.urls.canonicalization).key
                    return VerbAnswer({"queued": retry_skipped_of_stopped(states, frontier, key)}, is_running=False)
            if found.facts["queued"]:
                job.want_run()
            return found

    def start_hint(self) -> str:
        """Names the workers to start, from rows."""
        with self._shared(reads=True) as job:
            return f"no worker of this job is running; {job.start_hint()}" if job.folder is None else HOW_TO_START

    def change_order(self, settings: Sequence[str]) -> Facts:
        """In the rows, from which the workers take it."""
        with self._shared(reads=False) as job:
            return job.change_order(settings)

    @_again_if_a_worker_begins
    def answer(self, verb: str, arguments: Arguments) -> VerbAnswer:
        """By the workers whom the verb concerns, or on the whole job if none is at work."""
        with self._shared(reads=verb in READING) as job:
            try:
                return VerbAnswer(with_remedy(job.answer(verb, arguments), job.place, is_folder=False), is_running=True)
            except NoWorkers:
                with _whole(job, reads=verb in READING) as (frontier, order, seeds):
                    explainer = explainer_of(order, seeds, job.folder)
                    facts = explainer.explained(verb, answer(frontier, verb, explainer.with_key(verb, arguments)))
                    facts = with_remedy(facts, job.place, is_folder=False)
                    return VerbAnswer(while_stopped(facts, ""), is_running=False)

    def active(self, limit: int) -> Facts | None:
        """Sum the answers of all workers; `silent` are those that do not answer soon. None if no worker is at work."""
        with self._shared(reads=True) as job:
            found, silent = job.answers_soon("active", {"limit": limit})
            if not found and not silent:
                return None
            return {**merged_active(found, job.database.do(server_time)), "silent": silent}

    def queues(self, limit: int) -> None:
        """Its queue is in its `store`."""

    def fetches(self, limit: int) -> list[Facts]:
        """The rows of the report `workers` of all workers that answer soon."""
        with self._shared(reads=True) as job:
            found, _ = job.answers_soon(REPORT, {"name": "workers", "limit": limit})
            return [row for facts in found for row in facts["rows"]][:limit]

    @_again_if_a_worker_begins
    def report(self, arguments: Mapping[str, object]) -> Facts:
        """A report of the whole job."""
        with self._shared(reads=True) as job:
            try:
                return job.answer(REPORT, arguments)
            except NoWorkers:
                with _whole(job, reads=True) as whole:
                    return report_of_whole(whole, job, arguments)

    def metrics(self) -> Facts | None:
        """From rows: those of the workers, summed."""
        with self._shared(reads=True) as job:
            return summed(worker_numbers(job.look()).values()) if job.at_work() else None

    def worker_metrics(self) -> dict[tuple[str, int], Numbers]:
        """Return the metrics of each worker at work, by its machine and process."""
        with self._shared(reads=True) as job:
            return worker_numbers(job.look()) if job.at_work() else {}

    def order(self) -> CrawlOrder:
        """From rows."""
        with self._shared(reads=True) as job:
            return job.order

    @contextmanager
    def held(self, verb: str, *, reads: bool) -> Iterator[OpenedJob]:
        """The whole job. Raises: UsageError if workers are at work."""
        del verb
        with self._shared(reads=reads) as job, _whole(job, reads=reads) as (frontier, order, _):
            yield OpenedJob(frontier, order)

    def workers(self) -> list[Facts]:
        """Those that have not left, and those that were drained, as `workers --json` shows them."""
        with self._shared(reads=True) as job:
            listed = job.database.do(workers) if job.folder is None else job.at_work()
            left = {*job.database.do(drained_workers)} - {line.name for line in listed}
            return [*map(worker_facts, listed), *map(_drained_facts, sorted(left))]

    def drain(self, worker: str, patience_s: float = math.inf) -> None:
        """Tell the worker by a row."""
        with self._shared(reads=False) as job:
            job.drain(worker, self.notify, patience_s)

    def requeue(self, worker: str) -> int:
        """Change the rows."""
        with self._shared(reads=False) as job:
            if not job.database.do(partial(has_outputs, worker=worker)):
                self.notify(
                    f"no file of {worker} was copied elsewhere ([write] upload), so all its pages count as lost"
                )
            return job.requeue(worker)

    def listed(self) -> Facts:
        """Read the rows."""
        return self.status()

    @property
    def store(self) -> Path | str:
        """The URL of its database, or its file."""
        return self.address

    def holder(self) -> tuple[bool, None]:
        """A lock tells nothing about its workers."""
        return True, None

    @contextmanager
    def _shared(self, *, reads: bool) -> Iterator[SharedJob]:
        """The job's rows. If nobody crawls it, and it cannot be written or its disk is full, a copy of it is read."""
        address = self.address
        with ExitStack() as stack:
            if isinstance(address, Path):
                directory = address.parent.parent
                if not reads:
                    refuse_unwritable(directory)
                elif not who_holds(directory)[0]:
                    address = stack.enter_context(readable_job(directory)) / STATE / STORE_FILE
            database = stack.enter_context(closing(JobDatabase(address)))
            if not reads:
                database.do(partial(refuse_moved, database.place))
            yield SharedJob(database, caller=self.caller)


@contextmanager
def _whole(job: SharedJob, *, reads: bool) -> Iterator[WholeJob]:
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
        with held_whole(SharedJob(database, job.order), is_view=True) as whole:
            yield whole


def worker_facts(line: WorkerLine) -> Facts:
    """A worker as `workers --json` shows it. Pure."""
    status = line.status or {}
    return {
        "name": line.name,
        "state": _worker_state(line),
        "shares": line.shares,
        "pages": status.get("pages", 0),
        "pages_per_s": _rate(status),
        "active": status.get("active", 0),
        "last_beat_s": line.silent_s,
        "lease_s": line.lease_s,
        "machine": status.get("machine", ""),
        "pid": status.get("pid"),
    }


def _drained_facts(name: str) -> Facts:
    """A worker that was drained and has left, as `workers --json` shows it. Pure."""
    counts: Facts = dict.fromkeys(("shares", "pages", "active"), 0)
    times: Facts = dict.fromkeys(("pages_per_s", "last_beat_s", "lease_s"), 0.0)
    return {"name": name, "state": "drained", **counts, **times, "machine": "", "pid": None}


def _worker_state(line: WorkerLine) -> str:
    if line.lease_s <= 0:
        return "late"
    if line.is_silent:
        return "silent"
    if line.drains:
        return "draining"
    if line.status is None:
        return "joining"
    return "paused" if line.status.get("paused") else "waiting" if line.status.get("awaits") else "running"


def _rate(status: Mapping[str, Any]) -> float:
    elapsed_s = float(status.get("elapsed_s", 0.0))
    return float(status.get("pages", 0)) / elapsed_s if elapsed_s > 0 else 0.0
