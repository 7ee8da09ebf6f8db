"""The metrics of a crawl: a table of them, and their sums over the workers of a job. Pure.

    a run's counts -> numbers by metric -> control socket, or the job's rows -> `summed` -> `exposition`

The numbers of a job are plain JSON. Each metric's name maps to a number, to numbers by label, or to a word. Labels come from
small fixed sets, never from hosts or URLs, so a crawl of any size has the same number of series.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.status import FIRST_HTTP_STATUS, StatusClass, class_of

#: The numbers of a job or of one worker, by the name of the metric.
Numbers = Mapping[str, Any]

#: The phases.
PHASES = ("draining", "paused", "waiting", "running", "starting")
PHASE, BUILD, UP = "anabranch_phase", "anabranch_build_info", "anabranch_up"
#: What a job is, what is wanted of it, and why its last run ended and when: see `status --json`.
STATE, DESIRED = "anabranch_job_state", "anabranch_job_desired_state"
ENDED, ENDED_S = "anabranch_job_ended", "anabranch_job_ended_seconds"
#: Of the schedule of a job, and of notices of its ends; a console alone has them.
NEXT_RUN, MISSED_RUNS = "anabranch_job_next_run_seconds", "anabranch_job_missed_runs"
UNDELIVERED = "anabranch_job_undelivered_notices"
OF_CONSOLES = frozenset({NEXT_RUN, MISSED_RUNS, UNDELIVERED})
STATES = (*PHASES, "stopped", "finished", "killed", "failed", "unknown")
DESIRED_STATES = ("stopped", "finished", "run")
ENDINGS = (*(ending.name.lower() for ending in WhyEnded), "failed", "killed")
#: Metrics whose number is a word -> the words, each of which is a series. If workers of a job differ, their first word counts.
WORDS: Mapping[str, Sequence[str]] = {PHASE: PHASES, STATE: STATES, DESIRED: DESIRED_STATES, ENDED: ENDINGS}
#: The largest first digit of a status that HTTP defines.
_LAST_HTTP_CLASS = 5


class Metric(NamedTuple):
    """One metric. Its name tells its type: `_total` is a counter."""

    meaning: str
    label: str = ""  #: the label of its numbers; empty for a single number
    join: Callable[[float, float], float] = add  #: combines the numbers of two workers

    @property
    def is_histogram(self) -> bool:
        """Its numbers are counts by bucket, and the sum of the measured values."""
        return self.label == "le"


#: The metrics, in the order of the text.
METRICS: Mapping[str, Metric] = {
    UP: Metric(
        "1 if the crawl answers. 0 if it should run and does not, or is not there: then other numbers are missing."
    ),
    BUILD: Metric("Always 1; the label names the version.", "version"),
    PHASE: Metric("1 for the phase that the crawl is in, else 0.", "phase"),
    STATE: Metric("1 for what the job is: a phase, stopped, finished, killed, failed or unknown; else 0.", "state"),
    DESIRED: Metric("1 for what is wanted of the job: run, stopped or finished; else 0.", "state"),
    ENDED: Metric("1 for why its last run ended, else 0; all 0 while one runs. killed: without a word.", "why"),
    ENDED_S: Metric("When its last run ended, in epoch seconds; 0 while one runs.", join=max),
    NEXT_RUN: Metric(
        "When the job is due by its schedule, in epoch seconds; it has passed if the job is due now.", join=min
    ),
    MISSED_RUNS: Metric("Times of its schedule at which nothing was there to start the job, among its last 100 runs."),
    UNDELIVERED: Metric("Notices of its ends that were tried in vain, and wait or were given up."),
    "anabranch_processes": Metric("Processes that crawl."),
    "anabranch_workers": Metric("Largest number of fetches at once."),
    "anabranch_workers_active": Metric("Workers that hold a URL."),
    "anabranch_pages_total": Metric("URLs that were answered."),
    "anabranch_fetched_bytes_total": Metric("Bytes of bodies, as they were sent."),
    "anabranch_ended_urls_total": Metric(
        "URLs that have ended, by the class of their status: 1xx to 5xx, other (HTTP), failed, excluded.", "class"
    ),
    "anabranch_failed_urls_total": Metric("URLs given up."),
    "anabranch_excluded_urls_total": Metric("URLs that robots.txt, the scope or a limit excluded, and skipped ones."),
    "anabranch_skipped_urls_total": Metric("URLs skipped because one of their parameters changes nothing."),
    "anabranch_retries_total": Metric("Failed tries that are repeated later."),
    "anabranch_broken_tries_total": Metric("Tries in which a processor raised an error."),
    "anabranch_cdx_unanswered_total": Metric("Pages that were archived without the answer of a CDX server."),
    "anabranch_robots_fetched_total": Metric("robots.txt fetched."),
    "anabranch_fetches_total": Metric("Fetches of pages, failed ones included."),
    "anabranch_fetching_seconds_total": Metric("Total time of these fetches."),
    "anabranch_dns_lookups_total": Metric("Lookups sent to name servers."),
    "anabranch_dns_failures_total": Metric("Lookups without an address."),
    "anabranch_dns_cache_hits_total": Metric("Lookups answered from the cache."),
    "anabranch_queued_urls": Metric("URLs that are queued, waiting ones included."),
    "anabranch_waiting_urls": Metric("Queued URLs that wait for a retry."),
    "anabranch_queues": Metric("Work queues, by state.", "state"),
    "anabranch_gates": Metric("Gates in memory."),
    "anabranch_gates_open": Metric("Gates in memory with a free slot."),
    "anabranch_lease_seconds": Metric("Time that workers waited for a lease.", "le"),
    "anabranch_store_lag_rows": Metric("Rows given to the store that are not durable yet."),
    "anabranch_store_full": Metric("1 while the store is so far behind that no fetch starts.", join=max),
    "anabranch_store_waiting": Metric("1 while the store or the filter cannot write and tries again.", join=max),
    "anabranch_service_up": Metric(
        "0 for each service that many hosts share and that is away, such as the name servers, else 1.",
        "service",
        join=min,
    ),
    "anabranch_service_away_since_seconds": Metric(
        "When a service that is away was missed first, in epoch seconds; 0 if it is there.", "service", join=max
    ),
    "anabranch_filter_urls": Metric("URLs that the filter knows."),
    "anabranch_filter_questions_total": Metric("Questions to the filter."),
    "anabranch_filter_dropped_total": Metric(
        "URLs that the filter reported as known, without those answered from memory."
    ),
    "anabranch_known_links_total": Metric(
        "Links that were known, by who knew them: recent (the crawl), pending (rows not durable yet), filter, store.",
        "by",
    ),
    "anabranch_filter_false_drop_probability": Metric("Probability that a new URL is dropped.", join=max),
    "anabranch_filter_smm_fill_ratio": Metric("Share of the SMM's bits that are set.", join=max),
    "anabranch_filter_planned_ratio": Metric(
        "URLs known, as a share of those that the filter was planned for.", join=max
    ),
    "anabranch_filter_memory_bytes": Metric("Memory of the processes' own that the filter takes."),
    "anabranch_filter_mapped_bytes": Metric("Bytes of the filter's mapped files: at most so many are resident."),
    "anabranch_disk_free_bytes": Metric("Free space of the fullest disk that the job writes to.", join=min),
    "anabranch_event_loop_lag_seconds": Metric("Longest delay of the event loop in the last 15 seconds.", join=max),
    "anabranch_process_resident_memory_bytes": Metric("Resident memory of the job's processes."),
    "anabranch_process_anonymous_memory_bytes": Metric("Of that, memory of their own (RssAnon)."),
    "anabranch_process_mapped_memory_bytes": Metric("Of that, pages of mapped files; the kernel can take them back."),
    "anabranch_process_cpu_seconds_total": Metric("CPU time of the job's processes."),
}

#: Figures of a filter, by their names in `status --json`, and their metrics.
FILTER_METRICS: Mapping[str, str] = {
    "keys": "anabranch_filter_urls",
    "asked": "anabranch_filter_questions_total",
    "dropped": "anabranch_filter_dropped_total",
    "false_drop_probability": "anabranch_filter_false_drop_probability",
    "smm_fill": "anabranch_filter_smm_fill_ratio",
    "memory_bytes": "anabranch_filter_memory_bytes",
    "mapped_bytes": "anabranch_filter_mapped_bytes",
}
#: Who knew a link -> the figures that count it.
KNOWN_BY: Mapping[str, Sequence[str]] = {
    "recent": ("recent_known",),
    "pending": ("pending_known",),
    "filter": ("memory_known", "dropped"),
    "store": ("store_known",),
}


def ended_by_class(by_status: Mapping[int, int]) -> dict[str, int]:
    """The numbers of `anabranch_ended_urls_total`: ended URLs by class of their status."""
    counts = dict.fromkeys(
        (*(f"{digit}xx" for digit in range(1, _LAST_HTTP_CLASS + 1)), "other", "failed", "excluded"), 0
    )
    for status, number in by_status.items():
        counts[_class_name(status)] += number
    return counts


def _class_name(status: int) -> str:
    kind = class_of(status)
    if kind is not StatusClass.SUCCESS:
        return "failed" if kind is StatusClass.FAILED else "excluded"
    digit = status // FIRST_HTTP_STATUS
    return f"{digit}xx" if digit <= _LAST_HTTP_CLASS else "other"


def of_running(numbers: Numbers) -> dict[str, Any]:
    """The numbers of a crawl with those of its job, which follow from its phase. Pure."""
    wanted = "stopped" if numbers[PHASE] == "draining" else "run"
    return {**numbers, STATE: numbers[PHASE], DESIRED: wanted, ENDED: "", ENDED_S: 0}


def of_resting(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a job that nobody crawls, from its row in a list. Whether it is up matters only if it should run. Pure."""
    ended, wanted = row["ended"] or {"why": "", "time_s": 0}, row["desired_state"]
    up = 0 if wanted == "run" else None
    return {UP: up, STATE: row["state"], DESIRED: wanted, ENDED: ended["why"], ENDED_S: ended["time_s"]}


def is_counter(name: str) -> bool:
    """Whether the metric only grows while its process runs."""
    return name.endswith("_total") or METRICS[name].is_histogram


def summed(workers: Iterable[Numbers]) -> dict[str, Any]:
    """The numbers of all workers added up. Names that are not in the table are left out."""
    total: dict[str, Any] = {}
    for numbers in workers:
        for name in METRICS.keys() & numbers.keys():
            total[name] = _joined(name, total[name], numbers[name]) if name in total else numbers[name]
    return total


def _joined(name: str, one: Any, other: Any) -> Any:
    if name in WORDS:
        return one if one == other else min(one, other, key=WORDS[name].index)
    if isinstance(one, str):
        return one
    join = METRICS[name].join
    if isinstance(one, Mapping):
        return {label: join(one.get(label, 0), other.get(label, 0)) for label in {**one, **other}}
    return join(one, other)


class ProcessSums:
    """Sums over the processes of one run. Counters never fall: the last ones of a dead process stay in the sum."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, Numbers] = {}  #: the last counters of each process

    def summed(self, processes: Mapping[Any, Numbers]) -> dict[str, Any]:
        """The sums now. `processes` has the numbers of each live process, by a key that identifies it."""
        for process, numbers in processes.items():
            self._seen[process] = {name: numbers[name] for name in METRICS.keys() & numbers.keys() if is_counter(name)}
        dead = [counters for process, counters in self._seen.items() if process not in processes]
        return summed([*processes.values(), *dead])
