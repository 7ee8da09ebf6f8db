"""A job in a folder that one process crawls, or a host program: asked through its control socket, or opened."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import NoReturn

from anabranch.crawler.job.folder import end_wish, held_folder, refuse_embedded, wait_until_free, who_holds
from anabranch.crawler.job.inspection import open_embedded, opened, readable_job, refuse_unwritable
from anabranch.crawler.job.orderfile import begun_order, change_order, order_file
from anabranch.crawler.job.seeding import key_by
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.state import current_round
from anabranch.crawler.operate.contract import HOW_TO_START, Notify, OpenedJob, VerbAnswer, needs_several, retried_all
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import UsedLimits
from anabranch.crawler.outcomes.endings import is_dominated
from anabranch.crawler.outcomes.errors import CrawlerError, JobInUse, UsageError, storage_errors
from anabranch.crawler.report.jobstatus import (
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
from anabranch.crawler.run.explain import ABOUT_URLS, open_explainer, while_stopped, with_remedy
from anabranch.crawler.run.verbs import READING, WHATEVER_KEY, Arguments, Facts, answer
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.jobfolder import STATE, STORE_FILE, has_store
from anabranch.frontier.times import clock_words

#: A change of the order waits this long for its turn, and looks for it this often.
PATIENCE_S = 10.0
_LOOK_S = 0.02
_STEERED = {"pause": PAUSE, "resume": RESUME, "stop": STOP}
#: Verbs that change nothing.
_READING = frozenset({*READING, STATUS, METRICS, REPORT, "active"})
_BUSY = "the job is being opened, closed or changed; ask again in a moment"


@dataclass(frozen=True, slots=True)
class FolderJob:
    """A job that one process crawls. The methods are those of `OperatedJob`."""

    directory: Path
    #: Entered while the job is opened: of several threads of one process one opens it at a time.
    turn: AbstractContextManager[object] = field(default_factory=nullcontext, kw_only=True, compare=False)
    #: A crawl that does not answer in this time is silent.
    patience_s: float = field(default=ANSWER_S, kw_only=True, compare=False)
    #: Who asks, and for which code of the job's order that one vouches.
    caller: Caller = field(default=BY_VARIABLES, kw_only=True, compare=False)

    @property
    def logs(self) -> Path | None:
        """Its folder."""
        return self.directory

    def status(self) -> Facts:
        """From the crawl, or from the job as it was left; of a crawl that does not answer, what its files tell.

        Raises: JobInUse while it is being opened or closed.
        """
        try:
            facts = self.running_status()
        except ControlSilent as silent:
            return self._status_of_silent(str(silent))
        return self._status_as_left() if facts is None else facts

    def running_status(self) -> Facts | None:
        """From the crawl; None without one."""
        refuse_embedded(self.directory)
        return self._ask(STATUS, {})

    def steer(self, verb: str, arguments: Arguments) -> Facts:
        """Raises: UsageError if no crawl runs, or for a `worker`; JobInUse. `stop` ends the wish to run a killed job."""
        refuse_embedded(self.directory)
        if arguments.get("worker") is not None:
            raise UsageError(f"{self.directory}: this needs a job in a database")
        facts = self._ask(_STEERED[verb], arguments)
        if facts is None:
            self._refuse_if_held()
            with self.turn:
                is_ended = verb == "stop" and end_wish(self.directory)
            if is_ended:
                return self._status_as_left()
            raise UsageError(f"{self.directory}: no crawl of this job is running; there is nothing to {verb}")
        return facts

    def wait(self) -> None:
        """Wait until no process holds the job."""
        wait_until_free(self.directory)

    def add(self, seeds: Sequence[Seed], *, force: bool = False) -> tuple[bool, list[Facts]]:
        """To the crawl, or to the rows and the queue."""
        refuse_embedded(self.directory)
        listed = [{"url": seed.url, "source": seed.source} for seed in seeds]
        facts = self._ask(ADD, {"seeds": listed, "force": force})
        if facts is not None:
            return True, facts["seeds"]
        from anabranch.crawler.job.seedtable import opened_seeds  # noqa: PLC0415 - commands on a running crawl do not need it
        from anabranch.crawler.run.stopped_verbs import add_to_stopped  # noqa: PLC0415

        refuse_unwritable(self.directory)
        with (
            self.turn,
            opened(self.directory, self.caller) as (frontier, order),
            opened_seeds(self.directory / STATE) as recorded,
        ):
            key = key_by(order, self.directory)
            return False, add_to_stopped(frontier, recorded, seeds, key, force=force)["seeds"]

    def retry(self, arguments: Arguments) -> VerbAnswer:
        """By the crawl, or in the queue."""
        refuse_embedded(self.directory)
        found = retried_all(self.answer, {**arguments, "is_crawl": True})
        if found.is_running or not found.facts["queued"]:
            return found
        note = ""
        with suppress(CrawlerError, FrontierError):  # they are queued, whatever keeps the job from being read
            note = limits_note(self.order().limits, LIMIT_KEYS, self._used(), is_running=False)
        return found._replace(facts={**found.facts, "note": note})

    def retry_skipped(self) -> VerbAnswer:
        """By the crawl, or in the queue."""
        refuse_embedded(self.directory)
        facts = self._ask(RETRY_SKIPPED, {})
        if facts is not None:
            return VerbAnswer(facts, is_running=True)
        from anabranch.crawler.run.stopped_verbs import retry_skipped_of_stopped  # noqa: PLC0415 - commands on a running crawl do not need it

        refuse_unwritable(self.directory)
        with self.turn, opened(self.directory) as (frontier, order):
            key = Canonicalizer(order.urls.canonicalization).key
            queued = retry_skipped_of_stopped([self.directory / STATE], frontier, key)
            return VerbAnswer({"queued": queued}, is_running=False)

    def start_hint(self) -> str:
        """The command that resumes it."""
        return HOW_TO_START

    def change_order(self, settings: Sequence[str]) -> Facts:
        """In the crawl, or for the next one. Another process may change the job now, or begin to crawl it: this waits."""
        refuse_embedded(self.directory)
        refuse_unwritable(self.directory)
        latest_s = time.monotonic() + PATIENCE_S
        while True:
            facts = self._ask(SET, {"settings": list(settings)})
            if facts is not None:
                return facts
            try:
                with self.turn, held_folder(self.directory):
                    order, changes = change_order(self.directory, settings)
                break
            except JobInUse as error:
                if time.monotonic() > latest_s:
                    raise JobInUse(self.directory, error.pid, _BUSY) from error
                Event().wait(_LOOK_S)
        note = ""
        if any(change.key.startswith("limits.") for change in changes):
            with suppress(CrawlerError, FrontierError):  # it is changed, whatever keeps the job from being read
                note = limits_note(order.limits, {one.key for one in changes}, self._used(), is_running=False)
        return changed_facts(changes, note)

    def answer(self, verb: str, arguments: Arguments) -> VerbAnswer:
        """From the crawl, or from the job as it was left; a verb that changes something never works on a copy."""
        facts = self._ask(verb, arguments)
        if facts is not None:
            return VerbAnswer(with_remedy(facts, str(self.directory)), is_running=True)
        reads = verb in READING
        with self._place(reads=reads) as place, opened(place, self.caller, reads=reads) as (frontier, order):
            if verb not in ABOUT_URLS:
                return VerbAnswer(answer(frontier, verb, arguments), is_running=False)
            with open_explainer(place, order) as explainer:
                facts = explainer.explained(verb, answer(frontier, verb, explainer.with_key(verb, arguments)))
            ending = self._last_run().ending.partition(";")[0]
            return VerbAnswer(while_stopped(with_remedy(facts, str(self.directory)), ending), is_running=False)

    def report(self, arguments: Mapping[str, object]) -> Facts:
        """From the crawl, or from the job as it was left."""
        refuse_embedded(self.directory)
        facts = self._ask(REPORT, arguments)
        if facts is not None:
            return facts
        from anabranch.crawler.job.seedtable import opened_seeds  # noqa: PLC0415 - commands on a running crawl do not need it
        from anabranch.crawler.run.stopped_verbs import report_of_stopped  # noqa: PLC0415

        with (
            self.turn,
            readable_job(self.directory) as place,
            opened(place, self.caller, reads=True) as (frontier, order),
            opened_seeds(place / STATE) as seeds,
        ):
            rules = order.run_of(order.urls.canonicalization)
            return report_of_stopped(place, frontier, seeds, lambda: Canonicalizer(rules).key, arguments)

    def metrics(self) -> Facts | None:
        """From the crawl."""
        return self._ask(METRICS, {})

    def active(self, limit: int) -> Facts | None:
        """From the crawl; None without one."""
        return self._ask("active", {"limit": limit})

    def queues(self, limit: int) -> Facts | None:
        """From the crawl; None without one."""
        return self._ask("ls", {"limit": limit})

    def fetches(self, limit: int) -> Sequence[Facts]:
        """From the crawl."""
        rows: Sequence[Facts] = self.report({"name": "workers", "limit": limit})["rows"]
        return rows

    def workers(self) -> None:
        """One process crawls it."""

    def worker_metrics(self) -> None:
        """One process crawls it."""

    def drain(self, worker: str, patience_s: float = math.inf) -> NoReturn:
        """Refuse: the one process ends by `stop`."""
        del worker, patience_s
        raise needs_several(self.directory)

    def requeue(self, worker: str) -> NoReturn:
        """Refuse: the pages of the one process are in its folder."""
        del worker
        raise needs_several(self.directory)

    def listed(self) -> Facts | None:
        """Ask the crawl. Raises: CrawlerError while it is being opened or closed, or if its order is damaged."""
        if not who_holds(self.directory)[0]:
            order_file(self.directory)  # a damaged one is reported
            return None
        status = self.running_status()
        if status is None:
            raise CrawlerError("is being opened, closed or changed")
        return status

    @property
    def store(self) -> Path | None:
        """The file of its queue."""
        state = self.directory / STATE
        return state / STORE_FILE if has_store(state) else None

    def holder(self) -> tuple[bool, int | None]:
        """Whether a process holds the job, and its id if it is known."""
        return who_holds(self.directory)

    def order(self) -> CrawlOrder:
        """From its folder."""
        return begun_order(self.directory, self.caller)

    @contextmanager
    def held(self, verb: str, *, reads: bool) -> Iterator[OpenedJob]:
        """Raises: JobInUse, or what a running crawl says to the verb."""
        self._ask(verb, {})
        with self._place(reads=reads) as place, opened(place, self.caller, reads=reads) as (frontier, order):
            yield OpenedJob(frontier, order)

    @contextmanager
    def _place(self, *, reads: bool) -> Iterator[Path]:
        if not reads:
            refuse_unwritable(self.directory)
        with self.turn, readable_job(self.directory) if reads else nullcontext(self.directory) as place:
            yield place

    def _ask(self, verb: str, arguments: Arguments) -> Facts | None:
        """Raises: ControlSilent, with the process and its last progress."""
        try:
            return ask(self.directory / "state", verb, arguments, self.patience_s)
        except ControlSilent as error:
            words = silent_words(who_holds(self.directory)[1], self._last_run().progress, time.time())
            if verb not in _READING:
                done = "it may do what was asked when it goes on" if error.is_sent else "nothing was changed"
                words = f"{words}; {done}"
            raise ControlSilent(f"{self.directory}: {words}", is_sent=error.is_sent) from error

    def _status_of_silent(self, line: str) -> Facts:
        """From the store's file, without its lock; of a large one from the last progress line."""
        progress = self._last_run().progress
        from anabranch.frontier import live_counters  # noqa: PLC0415 - few commands need it

        counters = live_counters(self.directory / STATE / STORE_FILE)
        now = CrawlSnapshot(
            job=self.directory.resolve().name, last_trouble=last_logged(self.directory, time.time()), totals=None
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
        return status_facts(now, UNKNOWN, line, pid=who_holds(self.directory)[1])

    def _refuse_if_held(self) -> None:
        held, pid = who_holds(self.directory)
        if held:
            raise JobInUse(self.directory, pid, _BUSY)

    def _used(self) -> UsedLimits:
        """Return the amounts of the limits that earlier runs have used. Raises: CrawlerError, FrontierError."""
        from anabranch.crawler.accounts.database import AccountsView  # noqa: PLC0415 - other commands do not need it

        state, done = self.directory / STATE, self._status_as_left()["totals"]["done"]
        with storage_errors(state), AccountsView(state) as view:
            return UsedLimits(done, max(view.total().bytes - current_round(state).bytes_before, 0))

    def _last_run(self) -> LastRun:
        return last_run(self.directory / "logs" / PROGRESS_LOG_FILE)

    def _status_as_left(self) -> Facts:
        """From its files, or if these do not tell, from its Frontier, which is opened. Raises: JobInUse."""
        with self.turn:
            facts = status_as_left(self.directory, time.time())
            return self._status_of_opened() if facts is None else facts

    def _status_of_opened(self) -> Facts:
        from anabranch.crawler.accounts.database import AccountsView  # noqa: PLC0415 - other commands do not need it

        trouble, ending = last_logged(self.directory, time.time()), self._last_run().ending
        with readable_job(self.directory) as place, opened(place, self.caller, reads=True) as (frontier, _):
            totals = answer(frontier, "ls", {"limit": 0})["totals"]
            seen, failures = frontier.operations.statistics().seen, frontier.operations.failures()
            fetched, is_done = 0, frontier.is_done and not is_dominated(ending)
            with suppress(OSError), AccountsView(place / STATE) as view:  # a report names what is wrong with them
                fetched = view.total().bytes
            job = self.directory.resolve().name
            facts = stopped_facts(job, totals, trouble, seen, fetched_bytes=fetched, is_done=is_done, ending=ending)
            return with_failures_of(with_run(facts, self.directory), failures)


@dataclass(frozen=True, slots=True)
class EmbeddedFolderJob(FolderJob):
    """The job of a host program: its Frontier can be looked at, in a snapshot while the host holds it."""

    notify: Notify

    @property
    def logs(self) -> Path | None:
        """It has no log of ours."""
        return None

    def active(self, limit: int) -> None:
        """The host has no control socket."""

    def listed(self) -> NoReturn:
        """Refuse: the program that embeds it shows it."""
        raise CrawlerError("belongs to a program that embeds the Frontier")

    def retry(self, arguments: Arguments) -> VerbAnswer:
        """In the queue. Raises: JobInUse while the host holds it."""
        return retried_all(self.answer, arguments)

    def answer(self, verb: str, arguments: Arguments) -> VerbAnswer:
        """Raises: JobInUse if it would change what the host holds."""
        with self._open(reads=verb in READING) as (held, is_snapshot):
            facts = answer(held.frontier, verb, {**arguments, WHATEVER_KEY: True})
            if held.order.code.withheld and verb in ABOUT_URLS:
                facts = {**facts, "not_run": list(map(str, held.order.code.withheld))}
            return VerbAnswer(facts, is_running=is_snapshot)

    @contextmanager
    def held(self, verb: str, *, reads: bool) -> Iterator[OpenedJob]:
        """Raises: JobInUse if it would change what the host holds."""
        del verb
        with self._open(reads=reads) as (held, _):
            yield held

    @contextmanager
    def _open(self, *, reads: bool) -> Iterator[tuple[OpenedJob, bool]]:
        if not reads:
            refuse_unwritable(self.directory)
        with open_embedded(self.directory, reads=reads, caller=self.caller) as (frontier, order, snapshot):
            if snapshot is not None:
                holder = "another process" if snapshot.process is None else f"process {snapshot.process}"
                taken = clock_words(snapshot.taken_s, snapshot.taken_s)
                unknown = "" if snapshot.in_flight is not None else "; what is in flight is not known"
                state = f"{holder} runs it; this is a snapshot of what was durable at {taken}{unknown}"
                self.notify(f"anabranch: {self.directory}: {state}")
            yield OpenedJob(frontier, order), snapshot is not None
