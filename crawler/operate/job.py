"""A job as an operator sees it, whoever crawls it: one process, several workers, or a host program.

A request goes to who crawls the job: through the control socket of the one process, or as rows of the workers (`JobRows`). If
nobody does, the job is opened, and the request is carried out on it as it was left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, TypeVar

from anabranch.crawler.job.folder import end_wish, held_folder, refuse_embedded, wait_until_free, who_holds
from anabranch.crawler.job.inspection import Snapshot, open_embedded, opened, readable_job, refuse_unwritable
from anabranch.crawler.job.orderfile import begun_order, change_order, order_file
from anabranch.crawler.job.seeding import key_by
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.state import current_round
from anabranch.crawler.operate.answers import (
    HOW_TO_START,
    Notify,
    OpenedJob,
    VerbAnswer,
    needs_several,
    retried_all,
    skipped_facts,
)
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import LimitsSection, UsedLimits
from anabranch.crawler.outcomes.endings import is_dominated
from anabranch.crawler.outcomes.errors import CrawlerError, JobInUse, UsageError, storage_errors
from anabranch.crawler.report.jobstatus import (
    STOPPED,
    UNKNOWN,
    CrawlSnapshot,
    silent_words,
    status_as_left,
    status_facts,
    stopped_facts,
    totals_of_counters,
    with_failures_of,
    with_run,
)
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE, LastRun, last_logged, last_run
from anabranch.crawler.report.metrics import Numbers
from anabranch.crawler.run.control import PATIENCE_S as ANSWER_S
from anabranch.crawler.run.control import ControlSilent, ask
from anabranch.crawler.run.crawl_verbs import (
    ADD,
    LIMIT_KEYS,
    METRICS,
    PAUSE,
    REPORT,
    RESUME,
    RETRY_SKIPPED,
    SET,
    STATUS,
    STOP,
    changed_facts,
    limits_note,
)
from anabranch.crawler.run.explain import (
    ABOUT_URLS,
    UrlExplainer,
    explainer_of,
    open_explainer,
    while_stopped,
    with_remedy,
)
from anabranch.crawler.run.verbs import READING, WHATEVER_KEY, Arguments, Facts, JobIsRunning, answer
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier import Frontier
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.jobfolder import STATE, STORE_FILE, has_store
from anabranch.frontier.times import clock_words

if TYPE_CHECKING:
    from anabranch.crawler.job.seedtable import Seeds
    from anabranch.crawler.run.job_rows import JobRows

P = ParamSpec("P")
T = TypeVar("T")

#: A change of the order waits this long for its turn, and looks for it this often.
PATIENCE_S = 10.0
_LOOK_S = 0.02
#: Between two looks whether a worker has left.
_LEAVE_S = 0.2
_STEERED = {"pause": PAUSE, "resume": RESUME, "stop": STOP}
#: Verbs that change nothing.
_READING = frozenset({*READING, STATUS, METRICS, REPORT, "active"})
#: Verdicts of seeds that are queued by it.
_QUEUED = frozenset({"new", "later"})
_BUSY = "the job is being opened, closed or changed; ask again in a moment"


class _Opened(NamedTuple):
    """A job that nobody crawls, open."""

    frontier: Frontier
    order: CrawlOrder
    folder: Path | None  #: where its files are, maybe a copy; None: it has none here
    rows: JobRows | None  #: of a job of several workers
    kept: Seeds | None  #: its seeds, if they are open already
    is_running: bool  #: it is a snapshot of what a host program runs

    @contextmanager
    def seeds(self) -> Iterator[Seeds]:
        """Yield its seeds. Raises: SeedsDamaged."""
        from anabranch.crawler.job.seedtable import opened_seeds  # noqa: PLC0415 - commands on a running crawl do not need it

        if self.kept is not None:
            yield self.kept
            return
        assert self.folder is not None
        with opened_seeds(self.folder / STATE) as seeds:
            yield seeds

    @contextmanager
    def explainer(self) -> Iterator[UrlExplainer]:
        """Yield what explains its URLs. Raises: OrderError, SeedsDamaged, StorageError."""
        if self.kept is not None:
            yield explainer_of(self.order, self.kept, self.folder)
            return
        assert self.folder is not None
        with open_explainer(self.folder, self.order) as explainer:
            yield explainer

    @property
    def states(self) -> list[Path]:
        """The state folders of those that crawl it on this machine."""
        assert self.folder is not None
        return [self.folder / STATE] if self.rows is None else sorted(self.folder.glob(f"workers/*/{STATE}"))


def _again_if_a_worker_begins(method: Callable[Concatenate[Job, P], T]) -> Callable[Concatenate[Job, P], T]:
    """Call the method again if a worker begins after the method has found none, and before it holds the job."""

    @wraps(method)
    def asked(job: Job, /, *given: P.args, **named: P.kwargs) -> T:
        with suppress(JobIsRunning):
            return method(job, *given, **named)
        return method(job, *given, **named)

    return asked


@dataclass(frozen=True, slots=True)
class Job:
    """A job. All methods block. Raises: CrawlerError, FrontierError, each a line for the operator."""

    directory: Path | None  #: None: it is in a database, and the folders of its workers are elsewhere
    #: What its workers share: the URL of a database, or a file of its folder; None: one process has the job for itself.
    database: str | Path | None = None
    is_embedded: bool = (
        False  #: a host program has it: its Frontier can be looked at, in a snapshot while the host holds it
    )
    #: Called with lines about what keeps the operator waiting.
    notify: Notify = field(default=lambda _: None, kw_only=True, compare=False)
    #: Entered while the job is opened: of several threads of one process one opens it at a time.
    turn: AbstractContextManager[object] = field(default_factory=nullcontext, kw_only=True, compare=False)
    #: A process that crawls the job and does not answer in this time is silent.
    patience_s: float = field(default=ANSWER_S, kw_only=True, compare=False)
    #: Who asks, and for which code of the job's order that one vouches.
    caller: Caller = field(default=BY_VARIABLES, kw_only=True, compare=False)

    @property
    def logs(self) -> Path | None:
        """The folder of a job that has one crawl.log; None for others."""
        return None if self.is_embedded or self.database is not None else self.directory

    # The crawl as a whole

    def status(self) -> Facts:
        """Return the facts of the job's status, in the form of facts.schema.json.

        They are those of the crawl, or of the job as it was left; of a crawl that does not answer, what its files tell.
        Raises: JobInUse while it is being opened or closed.
        """
        if self.database is not None:
            with self._rows(reads=True) as rows:
                return rows.status()
        try:
            facts = self.running_status()
        except ControlSilent as silent:
            return self._status_of_silent(str(silent))
        return self._status_as_left() if facts is None else facts

    def running_status(self) -> Facts | None:
        """Return the facts of `status` of a running crawl; None if nobody crawls the job."""
        self._refuse_embedded()
        if self.database is None:
            return self._asked(STATUS, {})
        facts = self.status()
        return None if facts["phase"] == STOPPED else facts

    def steer(self, verb: str, arguments: Arguments) -> Facts:
        """`pause`, `resume` or `stop` the crawl; its status then. `stop` ends the wish to run a killed job.

        All workers do it, also those that start later. `resume` with a `worker`: that one may come back.
        Raises: UsageError if no crawl runs, or for a `worker` of another job; JobInUse; NoWorkers, WorkersSilent.
        """
        self._refuse_embedded()
        if self.database is not None:
            with self._rows(reads=False) as rows:
                return rows.steer(verb, arguments, self.notify)
        if arguments.get("worker") is not None:
            raise UsageError(f"{self.directory}: this needs a job in a database")
        facts = self._asked(_STEERED[verb], arguments)
        if facts is not None:
            return facts
        self._refuse_if_held()
        with self.turn:
            is_ended = verb == "stop" and end_wish(self._folder)
        if is_ended:
            return self._status_as_left()
        raise UsageError(f"{self.directory}: no crawl of this job is running; there is nothing to {verb}")

    def wait(self) -> Facts | None:
        """Wait until nobody crawls the job; its status then, if it is known at no cost."""
        if self.database is None:
            wait_until_free(self._folder)
            return None
        with self._rows(reads=True) as rows:
            while rows.at_work():
                Event().wait(_LEAVE_S)
            if rows.folder is not None:
                wait_until_free(rows.folder)
            return rows.status()

    def change_order(self, settings: Sequence[str]) -> Facts:
        """Change the job's order by settings `section.key=value`: the `changes`, each with key, was, now and a line, and a
        `note` of what follows at once.

        It is changed in the crawl, or for the next one. If another process changes the job now, or begins to crawl it, this
        waits. Raises: UsageError for a key that cannot be changed, BadArgument for a wrong value.
        """
        self._refuse_embedded()
        if self.database is not None:
            with self._rows(reads=False) as rows:
                return rows.change_order(settings)
        refuse_unwritable(self._folder)
        latest_s = time.monotonic() + PATIENCE_S
        while True:
            facts = self._asked(SET, {"settings": list(settings)})
            if facts is not None:
                return facts
            try:
                with self.turn, held_folder(self._folder):
                    order, changes = change_order(self._folder, settings)
                break
            except JobInUse as error:
                if time.monotonic() > latest_s:
                    raise JobInUse(self._folder, error.pid, _BUSY) from error
                Event().wait(_LOOK_S)
        return changed_facts(changes, self._limits_note(order.limits, {one.key for one in changes}))

    def start_hint(self) -> str:
        """Return a line that tells what to start if nobody crawls the job."""
        if not isinstance(self.database, str):
            return HOW_TO_START
        with self._rows(reads=True) as rows:
            return f"no worker of this job is running; {rows.start_hint()}"

    # URLs

    @_again_if_a_worker_begins
    def add(self, seeds: Sequence[Seed], *, force: bool = False) -> tuple[bool, list[Facts]]:
        """Add seeds: whether a crawl runs, and the url, verdict and reason of each. A job in a database runs again then.

        `force`: also those that have ended, or that the filter takes for seen.
        """
        self._refuse_embedded()
        listed = [{"url": seed.url, "source": seed.source} for seed in seeds]
        facts = self._asked(ADD, {"seeds": listed, "force": force})
        is_running = facts is not None
        if facts is None:
            from anabranch.crawler.run.stopped_verbs import add_to_stopped  # noqa: PLC0415 - commands on a running crawl do not need it

            with self._opened(reads=False) as left, left.seeds() as recorded:
                key = key_by(left.order, self._place)
                facts = add_to_stopped(left.frontier, recorded, seeds, key, force=force)
        verdicts: list[Facts] = facts["seeds"]
        if any(verdict["verdict"] in _QUEUED for verdict in verdicts):
            self._run_again(is_running=is_running)
        return is_running, verdicts

    def retry(self, arguments: Arguments) -> VerbAnswer:
        """Queue failures again, as the arguments of `run.verbs.retry` say; the sums, and a `note` of reached limits.

        One worker does it for all, or it is done in the queue. A job in a database runs again if any was queued.
        """
        if self.is_embedded:
            return retried_all(self.answer, arguments)
        found = retried_all(self.answer, {**arguments, "is_crawl": True})
        if not found.facts["queued"]:
            return found
        if self.database is not None:
            with self._rows(reads=False) as rows:
                rows.want_run()
                note = rows.limits_reached(is_running=found.is_running)
        elif found.is_running:
            return found  # with the crawl's own note
        else:
            note = ""
            with suppress(CrawlerError, FrontierError):  # they are queued, whatever keeps the job from being read
                note = self._limits_note(self.order().limits, LIMIT_KEYS)
        return found._replace(facts={**found.facts, "note": note})

    @_again_if_a_worker_begins
    def retry_skipped(self) -> VerbAnswer:
        """Undo the rules by which URLs were skipped, and queue these again: `queued`, how many.

        Each worker does it for what it has skipped; if none is at work it is done in their files.
        """
        self._refuse_embedded()
        facts = self._asked(RETRY_SKIPPED, {})
        if facts is None:
            from anabranch.crawler.run.stopped_verbs import retry_skipped_of_stopped  # noqa: PLC0415 - commands on a running crawl do not need it

            if self.directory is None:
                raise UsageError(f"{self._place}: each worker knows what it has skipped; start them first")
            with self._opened(reads=False) as left:
                key = Canonicalizer(left.order.urls.canonicalization).key
                queued = retry_skipped_of_stopped(left.states, left.frontier, key)
                return VerbAnswer({"queued": queued}, is_running=False)
        if facts["queued"]:
            self._run_again(is_running=True, notifies=False)
        return VerbAnswer(facts, is_running=True)

    @_again_if_a_worker_begins
    def answer(self, verb: str, arguments: Arguments) -> VerbAnswer:
        """A verb of `run.verbs`, by whom it concerns of those that crawl the job, or on the job as it was left.

        A verb that changes something never works on a copy. Raises: JobInUse if it would change what a host program holds.
        """
        facts = self._asked(verb, arguments)
        if facts is not None:
            return VerbAnswer(self._with_remedy(facts), is_running=True)
        with self._opened(reads=verb in READING) as left:
            if self.is_embedded:
                facts = answer(left.frontier, verb, {**arguments, WHATEVER_KEY: True})
                if left.order.code.withheld and verb in ABOUT_URLS:
                    facts = {**facts, "not_run": list(map(str, left.order.code.withheld))}
                return VerbAnswer(facts, is_running=left.is_running)
            if verb not in ABOUT_URLS:
                return VerbAnswer(answer(left.frontier, verb, arguments), is_running=False)
            with left.explainer() as explainer:
                facts = explainer.explained(verb, answer(left.frontier, verb, explainer.with_key(verb, arguments)))
            ending = "" if self.directory is None else self._last_run().ending.partition(";")[0]
            return VerbAnswer(while_stopped(self._with_remedy(facts), ending), is_running=False)

    # Lists and numbers

    @_again_if_a_worker_begins
    def report(self, arguments: Mapping[str, object]) -> Facts:
        """A report of the whole job. Arguments: name, limit."""
        self._refuse_embedded()
        facts = self._asked(REPORT, arguments)
        if facts is not None:
            return facts
        from anabranch.crawler.run.stopped_verbs import WholeJob, report_of_stopped, report_of_whole  # noqa: PLC0415 - see above

        with self._opened(reads=True) as left, left.seeds() as seeds:
            if left.rows is not None:
                return report_of_whole(WholeJob(left.frontier, left.order, seeds), left.rows, arguments)
            assert left.folder is not None
            rules = left.order.run_of(left.order.urls.canonicalization)
            return report_of_stopped(left.folder, left.frontier, seeds, lambda: Canonicalizer(rules).key, arguments)

    def metrics(self) -> Facts | None:
        """The numbers of `report.metrics`, those of several workers summed; None if nobody crawls the job."""
        if self.database is None:
            return self._asked(METRICS, {})
        with self._rows(reads=True) as rows:
            return rows.metrics()

    def worker_metrics(self) -> Mapping[tuple[str, int], Numbers] | None:
        """The metrics of each worker at work, by its machine and process; None for a job that one process crawls."""
        if self.database is None:
            return None
        with self._rows(reads=True) as rows:
            return rows.worker_metrics()

    def active(self, limit: int) -> Facts | None:
        """The verb `active` of the crawl, and which workers are `silent`; None without a crawl that can be asked."""
        if self.database is None:
            return self._asked("active", {"limit": limit})
        with self._rows(reads=True) as rows:
            return rows.active(limit)

    def queues(self, limit: int) -> Facts | None:
        """The verb `ls` of a running crawl whose queue has no `store`; None without a crawl that can be asked."""
        return self._asked("ls", {"limit": limit}) if self.database is None else None

    def fetches(self, limit: int) -> Sequence[Facts]:
        """The rows of the report `workers`; those of workers that answer soon."""
        if self.database is None:
            rows_of: Sequence[Facts] = self.report({"name": "workers", "limit": limit})["rows"]
            return rows_of
        with self._rows(reads=True) as rows:
            found, _ = rows.answers_soon(REPORT, {"name": "workers", "limit": limit})
            return [row for facts in found for row in facts["rows"]][:limit]

    def listed(self) -> Facts | None:
        """Return the status for a list of jobs; None if nobody crawls the job: then its files tell the same for less.

        Raises: CrawlerError with a line for the list, as while the job is being opened or closed.
        """
        if self.is_embedded:
            raise CrawlerError("belongs to a program that embeds the Frontier")
        if self.database is not None:
            return self.status()
        if not who_holds(self._folder)[0]:
            order_file(self._folder)  # a damaged one is reported
            return None
        status = self.running_status()
        if status is None:
            raise CrawlerError("is being opened, closed or changed")
        return status

    # Workers

    def workers(self) -> Sequence[Facts] | None:
        """Those that have not left, and those that were drained, as `workers --json` shows them.

        None for a job that one process crawls.
        """
        if self.database is None:
            return None
        with self._rows(reads=True) as rows:
            return rows.listed_workers()

    def drain(self, worker: str, patience_s: float = math.inf) -> None:
        """Have a worker end in order, and wait until it has.

        Raises: UsageError for an unknown worker, and for a job that one process crawls; WorkersSilent.
        """
        self._refuse_sole()
        with self._rows(reads=False) as rows:
            rows.drain(worker, self.notify, patience_s)

    def requeue(self, worker: str) -> int:
        """Queue a worker's lost pages again; how many. Raises: UsageError, also for a job that one process crawls."""
        self._refuse_sole()
        with self._rows(reads=False) as rows:
            return rows.requeue(worker, self.notify)

    # What it is

    @property
    def store(self) -> Path | str | None:
        """The file or the URL of its queue; None if the queue is in memory or not made yet."""
        if self.database is not None:
            return self.database
        state = self._folder / STATE
        return state / STORE_FILE if has_store(state) else None

    def holder(self) -> tuple[bool, int | None]:
        """Whether a process may have the job open, and its id if that is known. Cost: a look at a lock."""
        return who_holds(self._folder) if self.database is None else (True, None)  # a lock tells nothing about workers

    def order(self) -> CrawlOrder:
        """The job's current order. Raises: UsageError if it has none yet; OrderError."""
        if self.database is None:
            return begun_order(self._folder, self.caller)
        with self._rows(reads=True) as rows:
            return rows.order

    @contextmanager
    def held(self, verb: str, *, reads: bool) -> Iterator[OpenedJob]:
        """The job for `verb` alone. Raises: what a running crawl says to that; JobIsRunning if workers crawl it, JobInUse."""
        if self.database is None:
            self._asked(verb, {})
        with self._opened(reads=reads) as left:
            yield OpenedJob(left.frontier, left.order)

    # Who crawls it, or the job itself

    @property
    def _folder(self) -> Path:
        assert self.directory is not None
        return self.directory

    @property
    def _place(self) -> str:
        return str(self.directory or self.database)

    def _with_remedy(self, facts: Facts) -> Facts:
        return with_remedy(facts, self._place, is_folder=self.database is None)

    def _refuse_embedded(self) -> None:
        if self.is_embedded:
            refuse_embedded(self._folder)

    def _refuse_sole(self) -> None:
        if self.database is None:
            raise needs_several(self.directory)

    @contextmanager
    def _rows(self, *, reads: bool) -> Iterator[JobRows]:
        """The rows of its workers. If nobody crawls it, and it cannot be written or its disk is full, a copy of it is read."""
        from anabranch.crawler.cluster.commands import refuse_moved  # noqa: PLC0415 - most jobs have one worker
        from anabranch.crawler.job.database import JobDatabase  # noqa: PLC0415
        from anabranch.crawler.run.job_rows import JobRows  # noqa: PLC0415

        address = self.database
        assert address is not None
        with ExitStack() as stack:
            if isinstance(address, Path):
                if not reads:
                    refuse_unwritable(self._folder)
                elif not who_holds(self._folder)[0]:
                    address = stack.enter_context(readable_job(self._folder)) / STATE / STORE_FILE
            database = stack.enter_context(closing(JobDatabase(address)))
            if not reads:
                database.do(partial(refuse_moved, database.place))
            yield JobRows(database, caller=self.caller)

    def _asked(self, verb: str, arguments: Arguments) -> Facts | None:
        """The answer of those that crawl the job; None if nobody does. Raises: ControlSilent, WorkersSilent; as the verb."""
        if self.database is None:
            return self._asked_through_socket(verb, arguments)
        if self.directory is not None and not who_holds(self.directory)[0]:
            return None  # all processes have gone
        from anabranch.crawler.run.job_rows import NoWorkers  # noqa: PLC0415 - most jobs have one worker

        with self._rows(reads=verb in _READING) as rows, suppress(NoWorkers):
            return rows.answer(verb, arguments)
        return None

    def _asked_through_socket(self, verb: str, arguments: Arguments) -> Facts | None:
        """Raises: ControlSilent, with the process and its last progress."""
        try:
            return ask(self._folder / STATE, verb, arguments, self.patience_s)
        except ControlSilent as error:
            words = silent_words(who_holds(self._folder)[1], self._last_run().progress, time.time())
            if verb not in _READING:
                done = "it may do what was asked when it goes on" if error.is_sent else "nothing was changed"
                words = f"{words}; {done}"
            raise ControlSilent(f"{self.directory}: {words}", is_sent=error.is_sent) from error

    @contextmanager
    def _opened(self, *, reads: bool) -> Iterator[_Opened]:
        """The job as it was left, to be changed, or to be read, also if it cannot be written. Raises: as a crawl does."""
        if self.database is not None:
            from anabranch.crawler.run.stopped_verbs import whole_for  # noqa: PLC0415 - most jobs have one worker

            with self._rows(reads=reads) as rows, whole_for(rows, reads=reads) as (frontier, order, seeds):
                yield _Opened(frontier, order, rows.folder, rows, seeds, is_running=False)
            return
        if not reads:
            refuse_unwritable(self._folder)
        if self.is_embedded:
            with open_embedded(self._folder, reads=reads, caller=self.caller) as (frontier, order, snapshot):
                if snapshot is not None:
                    self.notify(f"anabranch: {self.directory}: {_snapshot_words(snapshot)}")
                yield _Opened(frontier, order, None, None, None, is_running=snapshot is not None)
            return
        with (
            self.turn,
            readable_job(self._folder) if reads else nullcontext(self._folder) as place,
            opened(place, self.caller, reads=reads) as (frontier, order),
        ):
            yield _Opened(frontier, order, place, None, None, is_running=False)

    def _run_again(self, *, is_running: bool, notifies: bool = True) -> None:
        """A job in a database runs again, since URLs were queued. Workers that were told to end need to be started."""
        if self.database is None:
            return
        with self._rows(reads=False) as rows:
            was_at_rest = rows.want_run()
            if was_at_rest and is_running and notifies:
                self.notify(rows.rest_words())

    def _limits_note(self, limits: LimitsSection, keys: Collection[str]) -> str:
        """A line if a limit of the job, which nobody crawls, is reached among these keys; else empty."""
        with suppress(
            CrawlerError, FrontierError
        ):  # what was asked for is done, whatever keeps the job from being read
            if any(key.startswith("limits.") for key in keys):
                return limits_note(limits, keys, self._used(), is_running=False)
        return ""

    def _status_of_silent(self, line: str) -> Facts:
        """From the store's file, without its lock; of a large one from the last progress line."""
        progress = self._last_run().progress
        from anabranch.frontier import live_counters  # noqa: PLC0415 - few commands need it

        counters = live_counters(self._folder / STATE / STORE_FILE)
        now = CrawlSnapshot(
            job=self._folder.resolve().name, last_trouble=last_logged(self._folder, time.time()), totals=None
        )
        if counters is not None:
            now = now._replace(
                pages=counters.done,
                failed=counters.failed,
                excluded=counters.disregarded,
                pending=counters.queued - counters.retired,
                waiting=counters.waiting,
                queues=counters.queues,
                answered=counters.done,
                totals=totals_of_counters(counters),
            )
        elif progress is not None:
            now = now._replace(pages=progress.downloaded, failed=progress.failed, pending=progress.queued)
        return status_facts(now, UNKNOWN, line, pid=who_holds(self._folder)[1])

    def _refuse_if_held(self) -> None:
        held, pid = who_holds(self._folder)
        if held:
            raise JobInUse(self._folder, pid, _BUSY)

    def _used(self) -> UsedLimits:
        """Return the amounts of the limits that earlier runs have used. Raises: CrawlerError, FrontierError."""
        from anabranch.crawler.accounts.database import AccountsView  # noqa: PLC0415 - other commands do not need it

        state, done = self._folder / STATE, self._status_as_left()["totals"]["done"]
        with storage_errors(state), AccountsView(state) as view:
            return UsedLimits(done, max(view.total().bytes - current_round(state).bytes_before, 0))

    def _last_run(self) -> LastRun:
        return last_run(self._folder / "logs" / PROGRESS_LOG_FILE)

    def _status_as_left(self) -> Facts:
        """From its files, or if these do not tell, from its Frontier, which is opened. Raises: JobInUse."""
        with self.turn:
            facts = status_as_left(self._folder, time.time())
            return self._status_of_opened() if facts is None else facts

    def _status_of_opened(self) -> Facts:
        from anabranch.crawler.accounts.database import AccountsView  # noqa: PLC0415 - other commands do not need it

        trouble, ending = last_logged(self._folder, time.time()), self._last_run().ending
        with readable_job(self._folder) as place, opened(place, self.caller, reads=True) as (frontier, _):
            totals = answer(frontier, "ls", {"limit": 0})["totals"]
            seen, failures = frontier.operations.statistics().seen, frontier.operations.failures()
            fetched, is_done = 0, frontier.is_done and not is_dominated(ending)
            with suppress(OSError), AccountsView(place / STATE) as view:  # a report names what is wrong with them
                fetched = view.total().bytes
            job = self._folder.resolve().name
            facts = stopped_facts(job, totals, trouble, seen, fetched_bytes=fetched, is_done=is_done, ending=ending)
            return with_failures_of(with_run(facts, self._folder), failures)


def _snapshot_words(snapshot: Snapshot) -> str:
    """That a host program runs the job, and from when the state is. Pure."""
    holder = "another process" if snapshot.process is None else f"process {snapshot.process}"
    taken = clock_words(snapshot.taken_s, snapshot.taken_s)
    unknown = "" if snapshot.in_flight is not None else "; what is in flight is not known"
    return f"{holder} runs it; this is a snapshot of what was durable at {taken}{unknown}"


def retried_facts(job: Job, arguments: Arguments) -> Facts:
    """Queue failures of a job again. Returns whether it runs, the counts, and what is to be started.

    With the argument `trap`, which excludes all others, URLs that were skipped because a parameter changes nothing are queued.
    """
    if arguments.get("trap"):
        facts, is_running = job.retry_skipped()
        facts = skipped_facts(facts)
    else:
        facts, is_running = job.retry(arguments)
    start = job.start_hint() if facts["queued"] and not is_running else ""
    return {"running": is_running, "start": start, **facts}
