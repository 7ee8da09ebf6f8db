"""The rows of a job of several workers, for an operator on any machine: its status, what is wanted, and what workers answer.

Status and totals are rows, so nobody has to answer. What concerns a host or a queue is asked of the worker that has its share;
lists of queues are asked of all. If no worker is at work, the operator's command becomes one for a moment and holds all shares.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from sqlalchemy import Connection

from anabranch.crawler.cluster.agreement import LOCAL, RunBegin, run_begin, set_order
from anabranch.crawler.cluster.commands import (
    OPERATOR,
    DesiredState,
    Wish,
    absent_workers,
    ask,
    desired_state,
    drained_workers,
    is_to_end,
    put_desired_state,
    put_drained,
    put_wish,
    refuse_moved,
    take_answer,
    withdraw,
)
from anabranch.crawler.cluster.outputs import has_outputs, requeue_lost
from anabranch.crawler.cluster.tickets import used
from anabranch.crawler.job.database import (
    JobDatabase,
    execute,
    fact,
    fetch,
    has_job,
    has_workers,
    lock_job,
    server_time,
)
from anabranch.crawler.job.folder import end_wish, who_holds
from anabranch.crawler.job.orderfile import keep_changes
from anabranch.crawler.job.seeding import known_keys
from anabranch.crawler.job.seedtable import Seeds
from anabranch.crawler.order.changes import Change, changed_order, key_of_setting
from anabranch.crawler.order.loading import BY_VARIABLES, Caller, order_of
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import UsedLimits
from anabranch.crawler.order.sources import kept_layer
from anabranch.crawler.outcomes.endings import REFUSALS, WhyEnded, is_dominated, mostly_failed
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, JobMoving, UsageError
from anabranch.crawler.report.jobstatus import (
    KILLED,
    MOST_LOOKED_AT,
    STOPPED,
    UNKNOWN,
    CrawlSnapshot,
    status_facts,
    stopped_facts,
    totals_of_counters,
    with_failures_of,
    with_run,
)
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE, last_logged, last_run
from anabranch.crawler.report.metrics import Numbers, summed
from anabranch.crawler.report.progress import progress_line
from anabranch.crawler.run.control import PATIENCE_S, SILENT_S, facts_of
from anabranch.crawler.run.crawl_verbs import (
    LIMIT_KEYS,
    REPORT,
    RETRY_SKIPPED,
    changed_facts,
    limits_note,
    report_limit,
)
from anabranch.crawler.run.explain import ABOUT_URLS
from anabranch.crawler.run.summing import joined_rows, merged_active, merged_listing, summed_snapshot
from anabranch.crawler.run.verbs import READING, Arguments, Facts, gate_key, text_argument
from anabranch.crawler.run.worker_lines import (
    WorkerLine,
    drained_facts,
    silences,
    worker_facts,
    worker_numbers,
    workers,
)
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.crawler.urls.parsing import seed_url
from anabranch.frontier import Counters, JobCounts, end_late_workers, epochs_of
from anabranch.frontier.records import QueueKey
from anabranch.frontier.stores.sql.reading import failures, job_counts, look_up_ended
from anabranch.frontier.times import counted, duration_words

#: Between two looks for an answer.
_LOOK_S = 0.05
#: Seeds of one question.
_SEEDS_AT_ONCE = 500
#: A share that nobody holds at this moment will be held soon.
_UNHELD_S = 20.0
#: Between two looks whether a worker that drains has left.
_DRAIN_S = 0.2
#: When a command has waited for workers for this long, it prints a line.
_SLOW_S = 2.0
#: A display waits this long for the workers' answers.
_SOON_S = 5.0
#: Verbs about a queue, by their argument.
_ABOUT_QUEUES: Mapping[str, str] = {
    "pause": "queue", "resume": "queue", "retire": "queue", "set-budget": "queue", "show": "subject",
}  # fmt: skip
#: The state of a job in a database that a wish means.
_STATES = {Wish.RESUME: DesiredState.RUN, Wish.STOP: DesiredState.STOPPED, Wish.STOP_NOW: DesiredState.STOPPED}
#: Reports whose rows come from each worker.
_OF_EACH = frozenset({"workers", "filter"})


class NoWorkers(CrawlerError):
    """No worker of the job is at work."""

    exit_code = ExitCode.USAGE


class WorkersSilent(CrawlerError):
    """Workers of the job do not answer."""

    exit_code = ExitCode.STORE_OR_JOB_IN_USE


@dataclass
class JobRows:
    """The rows of a job in its database. All methods block. Raises: UsageError without a job there; StoreUnavailable."""

    database: JobDatabase
    known: CrawlOrder | None = None  #: the order of a crawl that runs the job now; else the rows have it
    caller: Caller = BY_VARIABLES  #: who asks, and for which code of the job's order the caller vouches

    def __post_init__(self) -> None:
        with self.database.transaction() as connection:
            if not has_job(connection) or fact(connection, "order") is None:
                raise UsageError(f"{self.database.place}: there is no job of several workers")
            with suppress(JobMoving):  # it can be looked at meanwhile
                refuse_moved(self.database.place, connection)

    @cached_property
    def order(self) -> CrawlOrder:
        """The job's order. Code that only the job names is withheld, unless the caller runs it."""
        if self.known is not None:
            return self.known
        with self.database.transaction() as connection:
            text = fact(connection, "order") or ""
        return self.caller.order_of(kept_layer(tomllib.loads(text), self.database.place), with_variables=False)

    @property
    def name(self) -> str:
        """The job's name: of its order, or of its database."""
        return self.order.job.name or self.database.name

    @property
    def place(self) -> str:
        """Its folder, or the URL of its database."""
        return self.database.place if self.folder is None else str(self.folder)

    @property
    def folder(self) -> Path | None:
        """The folder of a job of processes of this machine; a crawl of the job holds its lock. None for a job in a database."""
        address = self.database.address
        return address.parent.parent if isinstance(address, Path) else None

    def at_work(self) -> list[WorkerLine]:
        """The workers whose leases last, without a command that holds the job for a moment: it answers nothing."""
        lines = [] if self._is_free else self.database.do(workers)
        return [line for line in lines if line.lease_s > 0 and line.name != OPERATOR]

    @property
    def _is_free(self) -> bool:
        """All processes have gone, maybe without giving up their leases."""
        return self.folder is not None and not who_holds(self.folder)[0]

    # What all are to do

    def steer(self, verb: str, arguments: Arguments, notify: Callable[[str], None]) -> Facts:
        """Have all workers pause, resume or stop; the job's status then. `resume` with a `worker`: that one may come back.

        If no worker is at work, a stop says that a job of this machine need not run.
        Raises: NoWorkers, WorkersSilent, UsageError.
        """
        worker = arguments.get("worker")
        if worker is not None:
            self._let_back(str(worker))
            notify(f"worker {worker} may come back; start it")
            return self.status()
        wanted = Wish.STOP_NOW if verb == "stop" and arguments.get("now") else Wish(verb)
        was_at_rest = self._is_at_rest
        try:
            facts = self.want(wanted, notify)
        except NoWorkers:
            if wanted not in {Wish.STOP, Wish.STOP_NOW} or self.folder is None or not end_wish(self.folder):
                raise
            return self.status()
        # The status of a stopped job says it.
        if verb == "resume" and was_at_rest and (facts["phase"] != STOPPED or facts["is_finished"]):
            notify(self.rest_words())
        return facts

    def want(self, wanted: Wish, notify: Callable[[str], None]) -> Facts:
        """Have all workers do it; returns when they have begun to, with the job's status. Raises: NoWorkers, WorkersSilent.

        A job in a database is stopped or resumed without workers, too: those that start later obey it. `notify` gets a line
        if a worker keeps it waiting. If all hang, the processes of one machine are asked for nothing; what is wanted of a
        database's is recorded all the same. If some hang, the others do it.
        """
        for _ in _patience():
            if self.at_work() or self.folder is None or self._is_free or self.silent():
                break  # else its processes are being started
        if self.at_work() and (self.folder is not None or wanted not in _STATES):
            self._refuse_silent()
        number = self.database.do(partial(self._wish, wanted, is_crawled=bool(self.at_work())))
        if number is None:
            if silent := self.silent():
                raise WorkersSilent(f"{self.place}: {silences(silent)}; nothing was changed")
            raise NoWorkers(f"{self.place}: no worker of this job is at work; there is nothing to {wanted.value}")
        self._await_obeyed(wanted, number, notify)
        return self.status()

    def _wish(self, wanted: Wish, connection: Connection, *, is_crawled: bool) -> int | None:
        """Record the wish and the state that it means. Returns its number, or None, with nothing recorded, if nobody obeys."""
        lock_job(connection)
        state = _STATES.get(wanted) if self.folder is None else None
        is_finished = desired_state(connection) is DesiredState.FINISHED
        if not is_crawled and (state is None or (is_finished and state is DesiredState.STOPPED)):
            return None
        if state is not None:
            put_desired_state(connection, state)
        return put_wish(connection, wanted)

    def want_run(self) -> bool:
        """Let a job in a database that is stopped or finished run again, since URLs were queued. Whether it was at rest."""
        was_at_rest = self._is_at_rest
        if self.folder is None:
            self.database.do(partial(put_desired_state, state=DesiredState.RUN))
        return was_at_rest

    @property
    def _is_at_rest(self) -> bool:
        return self.folder is None and self.desired() is not DesiredState.RUN

    def rest_words(self) -> str:
        """That the workers of a job that was at rest need to be started."""
        return f"workers that were told to end do not come back by themselves; {self.start_hint()}"

    def _let_back(self, name: str) -> None:
        """Let a drained worker come back when it is started. Raises: UsageError if it is not drained."""
        if self.folder is not None:
            raise UsageError(
                f"{self.place}: its processes come back with the next run; only workers of a database stay away"
            )

        def note(connection: Connection) -> None:
            lock_job(connection)
            drained = drained_workers(connection)
            if name not in drained:
                raise UsageError(f"{name!r}: this worker is not drained; drained: {', '.join(drained) or 'none'}")
            put_drained(connection, name, is_drained=False)

        self.database.do(note)

    def desired(self) -> DesiredState:
        """Whether it is to be crawled."""
        return self.database.do(desired_state)

    def start_hint(self) -> str:
        """A line that says what to start so that a job in a database is crawled: its absent workers, by name and machine."""
        which = self.database.do(absent_workers) or "a worker"
        return f"start {which}: the command of each, or `anabranch crawl --store {self.place}`"

    def _await_obeyed(self, wanted: Wish, number: int, notify: Callable[[str], None]) -> None:
        """Wait until all workers have followed the wish of this number. Raises: WorkersSilent."""
        began_s, is_notified = monotonic(), False
        for _ in _patience():
            left = [line for line in self.at_work() if line.obeyed < number]
            if not left:
                return
            if monotonic() - began_s > SILENT_S and all(line.is_silent for line in left):
                raise WorkersSilent(
                    f"{self.place}: {silences(left)}; {wanted.value} is recorded, and done if it goes on"
                )
            if not is_notified and monotonic() - began_s > _SLOW_S:
                is_notified = True
                waits = [
                    f"{line.name}, whose lease ends in {duration_words(line.lease_s)} if it is gone" for line in left
                ]
                notify(f"waiting for {'; '.join(waits)}")
        names = ", ".join(line.name for line in left)
        raise WorkersSilent(f"{self.place}: {names} do not answer; their leases end if they are gone")

    def silent(self) -> list[WorkerLine]:
        """The workers that do not answer, also those whose leases have ended."""
        return [] if self._is_free else [line for line in self.database.do(workers) if line.is_silent]

    def _refuse_silent(self) -> None:
        """Raises: WorkersSilent if all workers have been silent for `SILENT_S`, before they are asked for anything."""
        for _ in _patience(SILENT_S):
            at_work = self.at_work()
            if not at_work or not all(line.is_silent for line in at_work):
                return
        raise WorkersSilent(f"{self.place}: {silences(at_work)}; nothing was changed")

    def drain(self, name: str, notify: Callable[[str], None], patience_s: float) -> None:
        """Have one worker end in order, and wait until it has; `notify` gets a line when it begins to.

        A worker of a database stays away until it is let back.
        Raises: UsageError if no worker of that name is at work; WorkersSilent if it takes longer, and it drains all the same.
        """
        at_work = [line.name for line in self.at_work()]
        if name not in at_work:
            raise UsageError(f"no running worker is named {name!r}; running: {', '.join(at_work) or 'none'}")

        def note(connection: Connection) -> None:
            execute(connection, "UPDATE job_worker SET drains = 1 WHERE name = :name AND drains = 0", name=name)
            if self.folder is None:  # processes of one machine come back with the next run
                put_drained(connection, name, is_drained=True)

        notify(f"draining worker {name}: it returns its shares and ends when its fetches have ended")
        latest_s = monotonic() + patience_s
        while name in at_work:  # the row is set again each time, because the worker may be joining just now
            self.database.do(note)
            Event().wait(_DRAIN_S)
            at_work = [line.name for line in self.at_work()]
            if monotonic() > latest_s:
                raise WorkersSilent(f"{name}: is still draining; ask again")

    def change_order(self, settings: Sequence[str]) -> Facts:
        """Change the job's order; what differs. Workers at work follow in a moment. Raises: as `changed_order`."""
        refused = [setting for setting in settings if key_of_setting(setting) in LOCAL]
        if refused:
            raise UsageError(
                f"{refused[0]!r}: belongs to one machine; give it to `anabranch crawl` of the worker there"
            )

        def change(connection: Connection) -> tuple[CrawlOrder, list[Change], UsedLimits]:
            lock_job(connection)
            kept = order_of([kept_layer(tomllib.loads(fact(connection, "order") or ""), self.database.place)])
            order, changes = changed_order(kept, settings)
            if changes:
                if self.folder is not None:  # first: the next run begins by the folder's
                    keep_changes(self.folder, order, changes)
                set_order(connection, order, settings, changes)
            return order, changes, used(connection)

        order, changes, now = self.database.do(change)
        return changed_facts(
            changes, limits_note(order.limits, {one.key for one in changes}, now, is_running=bool(self.at_work()))
        )

    def limits_reached(self, *, is_running: bool) -> str:
        """A line if a limit of the job is reached; else empty."""
        now = self.database.do(used)
        return limits_note(self.order.limits, LIMIT_KEYS, now, is_running=is_running)

    def requeue(self, name: str, notify: Callable[[str], None]) -> int:
        """Queue again what was lost with a worker; how many pages. Raises: UsageError if it is at work, or never was."""
        if not self.database.do(partial(has_outputs, worker=name)):
            notify(f"no file of {name} was copied elsewhere ([write] upload), so all its pages count as lost")
        self.database.do(end_late_workers)
        known = self.database.do(partial(epochs_of, name=name))
        if not known:
            raise UsageError(f"{name!r}: no worker of this name has ever joined")
        if any(lives for _, lives in known):
            raise UsageError(f"{name!r}: this worker is still running and keeps what it fetched; drain it first")
        from anabranch.crawler.job.frontier import frontier_order  # noqa: PLC0415 - slow to import, and status and pause do not need it
        from anabranch.frontier import precedence_of, share_rule_of  # noqa: PLC0415

        asked = frontier_order(self.order)
        return requeue_lost(self.database, name, share_rule_of(asked), precedence_of(asked))

    # How it is doing

    def status(self) -> Facts:
        """Return the facts of `status --json`, as for any job, from rows: the workers' statuses summed."""
        is_free = self._is_free
        look = self.look()
        now = self.snapshot(look)
        if is_free or (not look.at_work and self.folder is None):
            facts = self._status_as_left(look, now)
            lines = [facts["line"], silences([] if is_free else look.silent)]  # silent ones hang, or were killed
            return {**facts, "line": "; ".join(filter(None, lines))}
        processes = {line.name: line.status["pid"] for line in look.at_work if line.status is not None}
        facts = status_facts(now, _phase(now, look), _line(now, look), processes=processes)
        if 0 < look.counts.counters.failed <= MOST_LOOKED_AT:
            facts = with_failures_of(facts, self.database.do(failures_of_job))
        if self.folder is None:
            return {**facts, "desired_state": self.desired().value}
        return {**facts, "pid": who_holds(self.folder)[1]}

    def _rest_words(self) -> str:
        """Why no worker of a job in a database is at work, and what to do."""
        if self.desired() is DesiredState.STOPPED:
            return f"not running: stopped, its workers stay away until `anabranch resume {self.place}`"
        return f"not running; {self.start_hint()}"

    def _status_as_left(self, look: JobLook, now: CrawlSnapshot) -> Facts:
        """The status of a job that nobody crawls."""
        trouble = None if self.folder is None else last_logged(self.folder, look.now_s)
        assert now.totals is not None
        counters, is_done = look.counts.counters, look.counts.is_done
        ending = ""
        if is_done and self._are_all_refused():
            ending = WhyEnded.ACCESS_REFUSED.value
        elif is_done and mostly_failed(counters.done, counters.failed):
            ending = WhyEnded.MOSTLY_FAILED.value
        elif self.folder is None:
            ending = self._rest_words()
        elif not is_done:
            ending = last_run(self.folder / "logs" / PROGRESS_LOG_FILE).ending
        facts = stopped_facts(
            self.name,
            now.totals,
            trouble,
            {},
            fetched_bytes=look.used.fetched_bytes,
            is_done=is_done and not is_dominated(ending),
            ending=ending,
        )
        if self.folder is not None:
            facts = with_run(facts, self.folder, is_wanted=not self.database.do(is_to_end))
        else:
            facts = _with_workers(facts, look, self.desired())
        return with_failures_of(facts, self.database.do(failures_of_job))

    def _are_all_refused(self) -> bool:
        """Whether every seed was answered with 401, 403 or 407. Costs two seeks for each until one was not."""
        if not self.database.do(has_workers):
            return False  # it was created, and has no queue yet
        seeds = [seed.url for seed in Seeds(self.database) if seed.via is None]
        key = Canonicalizer(self.order.run_of(self.order.urls.canonicalization)).key
        keys = [*{*known_keys(seeds, key).values()}]
        for start in range(0, len(keys), _SEEDS_AT_ONCE):
            asked = keys[start : start + _SEEDS_AT_ONCE]
            records = self.database.do(partial(look_up_ended, keys=asked))
            if len(records) < len(asked) or any(record.status not in REFUSALS for record in records.values()):
                return False
        return bool(keys)

    def listed_workers(self) -> list[Facts]:
        """Those that have not left, and those that were drained, as `workers --json` shows them."""
        listed = self.database.do(workers) if self.folder is None else self.at_work()
        left = {*self.database.do(drained_workers)} - {line.name for line in listed}
        return [*map(worker_facts, listed), *map(drained_facts, sorted(left))]

    def worker_metrics(self) -> dict[tuple[str, int], Numbers]:
        """The metrics of each worker at work, by its machine and process."""
        return worker_numbers(self.at_work())

    def metrics(self) -> Facts | None:
        """The metrics of the workers at work, summed; None without one."""
        at_work = self.at_work()
        return summed(worker_numbers(at_work).values()) if at_work else None

    def look(self) -> JobLook:
        """The job's rows at one moment."""
        return self.database.do(_read_status)

    def snapshot(self, look: JobLook) -> CrawlSnapshot:
        """The last statuses of the workers at work as one, with the job's own counts of this run."""
        totals = totals_of_counters(look.counts.counters, look.counts.links)
        statuses = [{**line.status, "name": line.name} for line in look.at_work if line.status is not None]
        done, begin = look.counts.counters, look.begin
        elapsed_s = look.now_s - begin.since_s if look.at_work else 0.0
        now = summed_snapshot(statuses, self.name, elapsed_s) if statuses else CrawlSnapshot(job=self.name)
        return now._replace(
            # By rows, so that they count what workers did that are gone.
            pages=done.done - begin.done, failed=done.failed + done.retried - begin.failed,
            excluded=done.disregarded - begin.disregarded, fetched_bytes=look.used.fetched_bytes - begin.fetched_bytes,
            pending=totals["pending"], waiting=totals["waiting"], queues=look.counts.counters.queues,
            untried=max(totals["pending"] + totals["retired"] - now.failing, 0),
            answered=look.used.pages, totals={**(now.totals or totals), **totals},
        )  # fmt: skip

    # What workers answer

    def answer(self, verb: str, given: Arguments) -> Facts:
        """Ask the workers whom a verb concerns. Raises: NoWorkers; WorkersSilent; ControlRefused with what one said."""
        at_work = [line.epoch for line in self.at_work()]
        if not at_work:
            raise NoWorkers(f"{self.place}: no worker of this job is at work")
        if verb == "ls":
            return merged_listing([facts_of(reply) for reply in self._ask(at_work, verb, given)], given)
        if verb == RETRY_SKIPPED:
            return {"queued": sum(facts_of(reply)["queued"] for reply in self._ask(at_work, verb, given))}
        if verb == REPORT and given.get("name") in _OF_EACH:
            return joined_rows([facts_of(reply) for reply in self._ask(at_work, verb, given)], report_limit(given))
        share = self._share_of(verb, given)
        (reply,) = self._ask([at_work[0] if share is None else self._holder(share)], verb, given)
        return facts_of(reply)

    def answers_soon(self, verb: str, given: Arguments) -> tuple[list[Facts], list[str]]:
        """Ask all workers for a verb that changes nothing; return their answers, and the names of those silent for seconds.

        Both lists are empty if no worker is at work.
        """
        at_work = {line.epoch: line.name for line in self.at_work()}
        replies, silent = self._replies_within(_SOON_S, [*at_work], verb, given) if at_work else ({}, set[int]())
        return [facts_of(reply) for reply in replies.values()], sorted(at_work[epoch] for epoch in silent)

    def active(self, limit: int) -> Facts | None:
        """Sum the answers of all workers to `active`; `silent` are those that do not answer soon. None without a worker."""
        found, silent = self.answers_soon("active", {"limit": limit})
        if not found and not silent:
            return None
        return {**merged_active(found, self.database.do(server_time)), "silent": silent}

    def _share_of(self, verb: str, given: Arguments) -> int | None:
        """The share that a verb is about; None: any worker can answer. Raises: UsageError."""
        from anabranch.crawler.job.frontier import frontier_order  # noqa: PLC0415 - slow to import, and status and pause do not need it
        from anabranch.frontier import assignment_of, share_rule_of  # noqa: PLC0415

        # A group function decides which share a host is in; other policies decide nothing here.
        has_no_rule = any(one.section == "politeness" for one in self.order.code.of_frontier)
        if has_no_rule and verb in READING:
            return None
        asked = frontier_order(self.order, is_view=not has_no_rule)
        rule = share_rule_of(asked)
        if verb in {"block", "unblock"}:
            return rule.of_gate(gate_key(text_argument(given, "host")))
        subject = given.get(ABOUT_URLS.get(verb, ""))
        if isinstance(subject, str) and (verb == "why" or "://" in subject):
            url = seed_url(subject)
            return None if url is None else rule.of_url(url)
        queue = given.get(_ABOUT_QUEUES.get(verb, ""))
        if not isinstance(queue, str):
            return None
        share = assignment_of(asked).share_of_queue(QueueKey(queue))
        return share if 0 <= share < rule.shares else None

    def _holder(self, share: int) -> int:
        """The worker that holds a share, which may be on its way to one. Raises: WorkersSilent."""
        for _ in _patience(_UNHELD_S):
            with self.database.transaction() as connection:
                found = fetch(connection, "SELECT epoch FROM share WHERE id = :share AND leaving = 0", share=share)
            if found and found[0][0] is not None:
                return int(found[0][0])
        raise WorkersSilent(f"{self.place}: no worker has taken share {share}; ask again")

    def _ask(self, epochs: Sequence[int], verb: str, given: Arguments) -> list[Mapping[str, Any]]:
        """The replies of these workers; one that has left meanwhile gives none, if others do.

        Raises: WorkersSilent; NoWorkers if all of them have left.
        """
        replies, silent = self._replies_within(PATIENCE_S, epochs, verb, given)
        if not replies and not self.at_work():  # it was killed, and its lease has ended meanwhile
            raise NoWorkers(f"{self.place}: no worker of this job is running")
        if silent or not replies:
            lines = [line for line in self.at_work() if line.epoch in silent]
            if hung := [line for line in lines if line.is_silent]:
                raise WorkersSilent(f"{self.place}: {silences(hung)}")
            names = ", ".join(line.name for line in lines) or "the worker that was asked"
            raise WorkersSilent(f"{self.place}: no answer from {names}; ask again")
        return list(replies.values())

    def _replies_within(
        self, patience_s: float, epochs: Sequence[int], verb: str, given: Arguments
    ) -> tuple[dict[int, Mapping[str, Any]], set[int]]:
        """The replies that come in this time, by the epoch of the worker, and who is at work and has given none."""
        numbers = self.database.do(partial(ask, epochs=epochs, verb=verb, arguments=dict(given)))
        replies: dict[int, Mapping[str, Any]] = {}
        silent: set[int] = set()
        try:
            began_s = monotonic()
            for _ in _patience(patience_s):
                replies |= self._replies({epoch: numbers[epoch] for epoch in numbers.keys() - replies.keys()})
                silent = numbers.keys() - replies.keys() - self._gone(numbers.keys() - replies.keys())
                if not silent or (monotonic() - began_s > SILENT_S and self._all_silent(silent)):
                    break
        finally:  # what was not answered must not be done later
            for epoch in numbers.keys() - replies.keys():
                self.database.do(partial(withdraw, number=numbers[epoch]))
        return replies, silent

    def _replies(self, numbers: Mapping[int, int]) -> dict[int, Mapping[str, Any]]:
        """Those that have come, of commands by the epoch of their worker."""
        replies = {epoch: self.database.do(partial(take_answer, number=number)) for epoch, number in numbers.items()}
        return {epoch: reply for epoch, reply in replies.items() if reply is not None}

    def _all_silent(self, epochs: set[int]) -> bool:
        return all(line.is_silent for line in self.at_work() if line.epoch in epochs)

    def _gone(self, epochs: set[int]) -> set[int]:
        return epochs - {line.epoch for line in self.at_work()} if epochs else set()


class JobLook(NamedTuple):
    """The rows of a job at one moment."""

    now_s: float  #: by the server's clock
    at_work: list[WorkerLine]  #: workers whose leases last
    silent: list[WorkerLine]  #: workers that do not answer, also those whose leases have ended
    counts: JobCounts
    used: UsedLimits  #: since the job began
    begin: RunBegin  #: of the run, whoever is at work by now


def _with_workers(facts: Facts, look: JobLook, wanted: DesiredState) -> Facts:
    """The facts of a job in a database that nobody crawls. It was killed if it should run, and a worker has not left. Pure."""
    facts = {**facts, "desired_state": wanted.value}
    if wanted is not DesiredState.RUN or not look.silent or facts["is_finished"]:
        return facts
    last_s = look.now_s - min(line.silent_s for line in look.silent)
    return {**facts, "state": KILLED, "ended": {"why": KILLED, "words": silences(look.silent), "time_s": last_s}}


def failures_of_job(connection: Connection) -> Mapping[int, int]:
    """How many URLs of the job have failed, by status; none before its first worker."""
    return failures(connection) if has_workers(connection) else {}


def _read_status(connection: Connection) -> JobLook:
    now_s = server_time(connection)
    if not has_workers(connection):
        return JobLook(now_s, [], [], JobCounts(Counters(), 0), UsedLimits(0, 0), RunBegin())
    known = workers(connection)
    at_work, silent = [line for line in known if line.lease_s > 0], [line for line in known if line.is_silent]
    return JobLook(now_s, at_work, silent, job_counts(connection), used(connection), run_begin(connection))


def _phase(now: CrawlSnapshot, look: JobLook) -> str:
    """Return the phase of a job that workers crawl or have begun to; `UNKNOWN` if none of them answers."""
    if look.silent and all(worker.is_silent for worker in look.at_work):
        return UNKNOWN
    is_joined = any(worker.status is not None for worker in look.at_work)
    return "paused" if now.paused else "waiting" if now.awaits else "running" if is_joined else "starting"


def _line(now: CrawlSnapshot, look: JobLook) -> str:
    at_work = counted(len(look.at_work), "worker")
    return " · ".join(filter(None, [at_work, progress_line(now), silences(look.silent)]))


def _patience(seconds: float = PATIENCE_S) -> Iterator[None]:
    """Yield at once and then every `_LOOK_S`, for `seconds`."""
    latest_s, pause = monotonic() + seconds, Event()
    yield
    while monotonic() < latest_s:
        pause.wait(_LOOK_S)
        yield
