"""The status of a job: a moment of its crawl, the facts and lines of `anabranch status`; of a stopped job, from its files.

This imports neither the Frontier nor a library that takes long, so that commands about stopped jobs are fast.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import O_RDONLY
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from anabranch.crawler.job.state import ACCOUNTS, FAILED, WORKERS, RunRecord, is_settled, kept_order, run_record
from anabranch.crawler.outcomes.endings import WhyEnded, biggest, is_dominated, is_over
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.report.logtail import ERRORS, PROGRESS_LOG_FILE, ProgressLine, Trouble, last_logged, last_run
from anabranch.crawler.report.table import escaped
from anabranch.dedup.files.durable import descriptor
from anabranch.dedup.files.locks import try_lock
from anabranch.frontier import Counters, QueueState, closed_rows, kept_totals
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.jobfolder import LOCK_FILE, ORDER_FILE, STATE, STORE_FILE, has_store, is_current
from anabranch.frontier.records import WaitsFor
from anabranch.frontier.times import counted, duration_words

#: Facts by name; they are JSON values.
Facts = Mapping[str, Any]

#: The phase of a job that no process crawls; and of one whose process does not answer, or that cannot be read: see its `line`.
STOPPED, UNKNOWN = "stopped", "unknown"
#: What a job that no process crawls is, beside `STOPPED`. A killed one, and one that failed, should run.
FINISHED, KILLED = "finished", "killed"
#: What is wanted of a job; see `cluster.commands.DesiredState`.
_RUN, _DRAINING = "run", "draining"
#: Files to which only a crawl writes, again and again: their times are its signs of life.
_SIGNS_OF_LIFE = ("logs/crawl.log", ERRORS, f"logs/{PROGRESS_LOG_FILE}")
_KILLED_WORDS = "its process ended without a word: it was killed, or the machine failed"
#: Fields of a snapshot that are not shown by their names.
_INTERNAL = frozenset({"failing", "untried", "answered", "free_bytes", "page_limit", "busiest"})


class CrawlSnapshot(NamedTuple):
    """One moment of a crawl. The defaults are those of a job that is not running. The names are keys of `status --json`."""

    elapsed_s: float = 0.0  #: since this run began
    pages: int = 0  #: answered in this run
    failed: int = 0
    excluded: int = 0
    retries: int = 0
    fetched_bytes: int = 0
    active: int = 0  #: workers that hold a URL
    workers: int = 0
    on_slow_hosts: int = 0  #: of the active workers, those at hosts that are new or slow
    pending: int = 0  #: URLs queued, waiting ones included
    waiting: int = 0  #: of these, waiting for a retry
    gates: int = 0
    queues: int = 0  #: work queues that the job has had so far
    wakes_in_s: float | None = None  #: until a gate opens or a retry comes due
    waits_for: WaitsFor = WaitsFor.NOTHING
    job: str = ""
    ready: int = 0  #: queues that may be served, parked ones included
    parked: int = 0  #: of these, queues with all gates closed
    snoozed: int = 0  #: queues in which all URLs wait for a retry
    gates_open: int = 0
    broken: int = 0  #: tries in which a processor raised an error
    free_bytes: int | None = None  #: of the disk the job is on
    trouble: str = ""  #: what the store or the journal waits for; empty if they can write
    paused: str = ""  #: who paused the crawl and why; empty if it is not paused
    awaits: str = ""  #: what the crawl waits for, and since when; empty if it waits for nothing
    services: tuple[Mapping[str, Any], ...] = ()  #: that are away, as `Services.facts` shows them
    names_waiting: int = 0  #: names without an answer, if only their URLs are left
    failing: int = 0  #: queued URLs for which the last try in this run failed; 0 once a page was answered
    untried: int = 0  #: other URLs that are queued or leased
    answered: int = 0  #: pages that were answered, earlier runs included
    last_trouble: Trouble | None = None  #: of a host that has not answered since
    shared_left: int | None = None  #: links left to other crawls that use the same filter
    shared_twice: int | None = None  #: URLs that another one of them took, too
    filter: Mapping[str, float | str] | None = None  #: the filter's figures; None before the first look at it
    totals: Mapping[str, Any] | None = None  #: as `run.verbs.totals_facts` makes it; None before the queue was opened
    skipped: int = 0  #: of those excluded, URLs of which a parameter changes nothing
    cdx_unanswered: int = 0  #: pages that were archived without the answer of a CDX server
    page_limit: int = 0  #: pages at which the crawl ends; 0: no limit
    busiest: tuple[tuple[str, str], ...] = ()  #: hosts with most fetches under way, and what each waits for
    #: Resident memory of all processes, by `anonymous` (RssAnon) and `mapped` (files); None of a job that is not running.
    memory_bytes: Mapping[str, int] | None = None

    @property
    def is_unanswered(self) -> bool:
        """Every queued URL was tried in this run, and the job has no answered page."""
        return bool(self.failing) and not self.untried and not self.answered


def status_facts(
    now: CrawlSnapshot,
    phase: str,
    line: str,
    *,
    pid: int | None = None,
    processes: Mapping[str, int] = MappingProxyType({}),
    is_finished: bool = False,
) -> Facts:
    """The facts of `status --json`, by operate/facts.schema.json, for every job, running or not. Pure."""
    facts = {name: value for name, value in now._asdict().items() if name not in _INTERNAL}
    return {
        "phase": phase,
        "is_finished": is_finished,
        "pid": pid,
        "processes": dict(processes),
        **facts,
        "waits_for": now.waits_for.name or WaitsFor.NOTHING.name,
        "free_disk_bytes": now.free_bytes,
        "services": [dict(service) for service in now.services],
        "last_trouble": None if now.last_trouble is None else now.last_trouble._asdict(),
        "no_seed_answered": now.is_unanswered,
        "failures": [],
        "state": FINISHED if is_finished else phase,
        "desired_state": FINISHED if is_finished else STOPPED if phase in {STOPPED, _DRAINING} else _RUN,
        "ended": None,
        "line": line,
    }


def stopped_facts(
    job: str,
    totals: Facts,
    trouble: Trouble | None,
    seen: Mapping[str, float | str],
    *,
    fetched_bytes: int,
    is_done: bool,
    ending: str = "",
) -> Facts:
    """Return the facts of `status --json` for a job that no process crawls, with the counts of all its runs. Pure.

    `ending` is why the last run ended. One that says that nothing was left is ignored if URLs are queued now.
    """
    queues: Mapping[str, int] = totals["queues"]
    # A kill may have come before the seeds were queued.
    is_begun = any(totals[name] for name in ("pending", "retired", "done", "failed", "disregarded"))
    is_finished = is_done and is_begun and not totals["retired"]
    now = CrawlSnapshot(
        job=job,
        pages=totals["done"],
        failed=totals["failed"],
        excluded=totals["disregarded"],
        fetched_bytes=fetched_bytes,
        answered=totals["done"],
        pending=totals["pending"],
        waiting=totals["waiting"],
        queues=sum(queues.values()),
        ready=queues.get(QueueState.READY.value, 0),
        snoozed=queues.get(QueueState.SNOOZED.value, 0),
        gates_open=totals["gates_open"],
        last_trouble=trouble,
        filter=seen,
        totals=totals,
    )
    if is_over(ending) and totals["pending"]:
        ending = ""  # URLs were queued since
    line = WhyEnded.FINISHED.value if is_finished else ending or "not running; `anabranch crawl` resumes it"
    return status_facts(now, STOPPED, line, is_finished=is_finished)


#: A job with more failures does not list their reasons while it runs: each is looked at for each status.
MOST_LOOKED_AT = 100_000


def with_run(facts: Facts, directory: Path, *, is_wanted: bool = True) -> Facts:
    """The facts of a job that no process crawls, with what is wanted, what is, and why its last run ended, by its record.

    `is_wanted`: nobody has asked its workers to end. Raises: OSError.
    """
    record = run_record(directory / STATE)
    if record is None:  # never crawled, or by an earlier version
        return facts
    ended = _ended(record, directory)
    state, wanted = FINISHED, FINISHED
    if not facts["is_finished"]:
        dies = ended["why"] in {KILLED, FAILED} and is_wanted and record.is_wanted
        state, wanted = (ended["why"], _RUN) if dies else (STOPPED, STOPPED)
    lines = {KILLED: "killed; `anabranch crawl` resumes it", FAILED: f"failed: {record.words}"}
    return {**facts, "state": state, "desired_state": wanted, "ended": ended, "line": lines.get(state, facts["line"])}


def _ended(record: RunRecord, directory: Path) -> Facts:
    """Why and when a run ended that goes on no more. One that has no end was killed."""
    if record.ended_s is None:
        return {"why": KILLED, "words": _KILLED_WORDS, "time_s": _last_sign_s(directory, record.began_s)}
    return {"why": record.why, "words": record.words, "time_s": record.ended_s}


def _last_sign_s(directory: Path, began_s: float) -> float:
    """When the last run of a job wrote something last, in epoch seconds."""
    times = [began_s]
    for file in _SIGNS_OF_LIFE:
        with suppress(OSError):
            times.append((directory / file).stat().st_mtime)
    return max(times)


def with_failures_of(facts: Facts, failures: Mapping[int, int]) -> Facts:
    """The status of a job, with the most frequent reasons of its failures, by status. Pure."""
    listed = [{"status": status, "words": describe(status), "count": count} for status, count in biggest(failures)]
    return {**facts, "failures": listed}


def totals_of_counters(counters: Counters, links: int = 0) -> Facts:
    """The totals of `ls`, from a store's counts; `links` are on their way between workers. Pure."""
    return {
        "pending": counters.queued - counters.retired + links,
        "waiting": counters.waiting,
        "in_flight": 0,
        "done": counters.done,
        "failed": counters.failed,
        "disregarded": counters.disregarded,
        "retired": counters.retired,
        "gates_open": 0,
        # Which of them are empty no row says.
        "queues": {state.value: counters.queues if state is QueueState.INACTIVE else 0 for state in QueueState},
        "why_idle": "",
    }


def silent_words(pid: int | None, progress: ProgressLine | None, now_s: float) -> str:
    """That a process does not answer, and what its last progress line says. Pure."""
    process = "its process" if pid is None else f"process {pid}"
    if progress is None:
        return f"{process} does not answer; it has written no progress line"
    counts = f"{counted(progress.downloaded, 'page')}, {progress.queued:,} queued, {progress.failed:,} failed"
    age = duration_words(max(now_s - progress.time_s, 0.0))
    return f"{process} does not answer; its last progress line, {age} old: {counts}"


# A stopped job


def status_as_left(directory: Path, now_s: float) -> Facts | None:
    """The status of a job whose queue is a file in its folder, with the totals of the last transaction.

    None if a process holds the job, or only an opening of the job can tell: its queue is elsewhere, several workers share it,
    an older version or a host program wrote it, its order was edited, or a part is damaged, missing or half done.
    """
    with suppress(OSError, ValueError), undisturbed(directory) as is_free:
        if not (is_free and is_plain(directory)):
            return None
        state, ending = directory / STATE, last_run(directory / "logs" / PROGRESS_LOG_FILE).ending
        kept = kept_totals(state / STORE_FILE)
        if kept is None:
            return None
        facts = stopped_facts(
            directory.resolve().name,
            totals_of_counters(kept.counters),
            last_logged(directory, now_s),
            {},
            fetched_bytes=_fetched_bytes(state),
            is_done=kept.counters.queued <= kept.counters.retired and not is_dominated(ending),
            ending=ending,
        )
        return with_failures_of(with_run(facts, directory), kept.failures)
    return None


@contextmanager
def undisturbed(directory: Path) -> Iterator[bool]:
    """Whether no process holds the job. If so, none can take it in this block; others can look at it, too. Raises: OSError."""
    with descriptor(directory / STATE / LOCK_FILE, O_RDONLY) as lock:
        yield try_lock(lock, shared=True)


def is_plain(directory: Path) -> bool:
    """Whether one process crawls the job, in this format, with the order of its last run. Raises: OSError, ValueError."""
    state = directory / STATE
    if not (is_current(directory) and is_settled(state) and has_store(state)):
        return False
    order = kept_order(state)
    if order is None or (directory / ORDER_FILE).read_text("utf-8") != order:
        return False
    frontier = tomllib.loads(order).get("frontier", {})
    is_of_worker = directory.resolve().parent.name == WORKERS
    return not (frontier.get("store") or frontier.get("shares", 1) > 1 or is_of_worker)


def _fetched_bytes(state: Path) -> int:
    """The bytes that all runs have fetched; 0 if the accounts are missing or damaged, which a report says."""
    with suppress(StoreUnavailable):
        if (state / ACCOUNTS).is_file():
            return sum(row[0] for row in closed_rows(state / ACCOUNTS, "SELECT bytes FROM total"))
    return 0


# Lines


def stopped_lines(facts: Facts) -> Iterator[str]:
    """How a job was left, its totals, and its last trouble. Pure."""
    yield str(facts["line"])
    yield ended_line(facts["totals"])
    if facts["last_trouble"] is not None and not facts["is_finished"]:
        yield trouble_line(facts["last_trouble"])


def ended_line(totals: Facts) -> str:
    """How many URLs have ended and how, and what is left, for people. Pure."""
    left = {"wait for a retry": totals["waiting"], "under way": totals["in_flight"], "retired": totals["retired"]}
    more = ", ".join(f"{number:,} {words}" for words, number in left.items() if number)
    ended = {"failed": totals["failed"], "excluded": totals["disregarded"]}
    words = [counted(totals["done"], "page"), *(f"{number:,} {word}" for word, number in ended.items() if number)]
    return f"{', '.join(words)}; {counted(totals['pending'], 'URL')} queued" + (f" ({more})" if more else "")


def totals_line(totals: Facts) -> str:
    """How many URLs and queues there are in each state. Pure."""
    queues = " ".join(f"{number:,} {state}" for state, number in totals["queues"].items() if number)
    return (
        f"{counted(totals['pending'], 'URL')} queued ({totals['waiting']:,} wait for a retry), "
        f"{totals['in_flight']:,} in flight, "
        f"{totals['retired']:,} in retired queues; {totals['done']:,} done, {totals['failed']:,} failed, "
        f"{totals['disregarded']:,} disregarded; queues: {queues or 'none'}"
    )


def trouble_line(facts: Facts) -> str:
    """Why the last try failed, at a host or of all. Pure."""
    trouble = Trouble(**facts)
    return f"last trouble, {duration_words(trouble.ago_s)} ago: {escaped(trouble.describe())}"
