"""Facts and answers of several workers as those of their job. Pure.

In an answer about queues each worker has the totals of the job and sees the rows of all queues; what is in memory only the
holder of a share has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import Any

from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.logtail import Trouble
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.report.summary import RunFacts
from anabranch.crawler.run.verbs import Arguments, Facts, whole_argument
from anabranch.frontier import RESTS_IN, QueueState
from anabranch.frontier.records import WaitsFor

_RUN_SUMS = (
    "pages", "failed", "excluded", "skipped", "retries", "robots", "fetched_bytes", "broken", "active", "cdx_unanswered",
)  # fmt: skip
_SNAPSHOT_SUMS = (
    "pages", "failed", "excluded", "skipped", "retries", "fetched_bytes", "active", "workers", "on_slow_hosts", "pending",
    "waiting", "gates", "queues", "ready", "parked", "snoozed", "gates_open", "broken", "failing", "untried", "answered",
    "cdx_unanswered",
)  # fmt: skip
#: Figures of a filter that are not sums: the worst one counts.
_LARGEST = frozenset({
    "smm_fill", "smm_bits", "smm_files", "smm_files_used", "dsbf_height", "dsbf_mean_rate", "dsbf_worst_rate",
    "dsbf_planned_rate", "dsbf_rate_bound", "false_drop_probability", "planned_keys", "planned_false_drop_probability",
    "shared_false_drop_probability", "smm_is_linear",
})  # fmt: skip
#: It holds of all workers together only if it holds of each.
_COMPACT = "smm_is_compact"
#: No count is missing from the latest of these times on; their texts have one form.
_SINCE = "counted_since"
#: States of queues that only the worker has seen that holds them.
_ACTIVE = frozenset(state.value for state in (QueueState.LOADING, QueueState.READY, QueueState.IN_FLIGHT))

#: A queue in the memory of several workers is in the strongest of its states.
_STRONGEST_FIRST = [state.value for state in RESTS_IN.values()]


def run_facts(facts: RunFacts) -> dict[str, Any]:
    """How a worker's run was."""
    run, frontier = facts.run, facts.frontier
    return {
        "run": {name: getattr(run, name) for name in _RUN_SUMS},
        "by_status": [*run.by_status.items()],
        "by_mime": [*run.by_mime.items()],
        "sitemap_faults": [*run.sitemap_faults.items()],
        "frontier": {"leases_lost": frontier.leases_lost, "seen": dict(frontier.seen)},
    }


def summed_run(workers: Iterable[Mapping[str, Any]], started_s: float, counted: Mapping[str, int]) -> CrawlStatistics:
    """The runs of all workers as one. `counted` is what the job's rows say, with what processes did that have died."""
    total = CrawlStatistics(started_s=started_s)
    for worker in workers:
        for name in _RUN_SUMS:
            setattr(total, name, getattr(total, name) + worker["run"][name])
        total.by_status.update(dict(worker["by_status"]))
        total.by_mime.update(dict(worker["by_mime"]))
        total.sitemap_faults.update(dict(worker.get("sitemap_faults", ())))  # earlier versions have none
    for name, count in counted.items():
        setattr(total, name, count)
    return total


def summed_filters(workers: Iterable[Mapping[str, float | str] | None]) -> dict[str, float | str]:
    """The figures of all workers' filters as those of one: counts are added, of rates and of sizes of one store the largest."""
    seen: dict[str, float | str] = {}
    for worker in filter(None, workers):
        for name, figure in worker.items():
            before = seen.get(name)
            if name == _SINCE:
                seen[name] = max(str(before or figure), str(figure))
            elif isinstance(figure, str) or not isinstance(before, int | float):
                seen.setdefault(name, figure)
            else:
                joined = max if name in _LARGEST else min if name == _COMPACT else add
                seen[name] = joined(before, figure)
    return seen


def snapshot_facts(now: CrawlSnapshot) -> dict[str, Any]:
    """A snapshot."""
    trouble = None if now.last_trouble is None else now.last_trouble._asdict()
    return {**now._asdict(), "waits_for": now.waits_for.value, "last_trouble": trouble}


def summed_snapshot(workers: Sequence[Mapping[str, Any]], job: str, elapsed_s: float) -> CrawlSnapshot:
    """All workers at one moment, each as it was when it last said so; there is one at least."""
    sums: dict[str, Any] = {name: sum(worker[name] for worker in workers) for name in _SNAPSHOT_SUMS}
    wakes = [worker["wakes_in_s"] for worker in workers if worker["wakes_in_s"] is not None]
    free = [worker["free_bytes"] for worker in workers if worker["free_bytes"] is not None]
    troubles = [Trouble(**worker["last_trouble"]) for worker in workers if worker["last_trouble"] is not None]
    waits = WaitsFor(0)
    for worker in workers:
        waits |= WaitsFor(worker["waits_for"])
    return CrawlSnapshot(
        **sums,
        elapsed_s=elapsed_s,
        wakes_in_s=min(wakes, default=None),
        waits_for=waits,
        job=job,
        free_bytes=min(free, default=None),
        trouble=_first(workers, "trouble"),
        paused=_first(workers, "paused"),
        awaits=_awaits(workers),
        services=tuple(_services_of(workers)),
        names_waiting=sum(worker["names_waiting"] for worker in workers),
        shared_left=_sum_of_known(workers, "shared_left"),
        shared_twice=_sum_of_known(workers, "shared_twice"),
        filter=_filter_of(workers),
        totals=_totals_of(workers),
        memory_bytes=_memory_of(workers),
        last_trouble=min(troubles, key=lambda trouble: trouble.ago_s, default=None),
    )


def _awaits(workers: Sequence[Mapping[str, Any]]) -> str:
    """Return what the first waiting worker waits for, with its name; empty if none waits."""
    for worker in workers:
        if worker["awaits"]:
            return f"worker {worker['name']} {worker['awaits']}" if worker.get("name") else str(worker["awaits"])
    return ""


def _services_of(workers: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The services that are away, of each worker that waits for one."""
    for worker in workers:
        yield from ({**service, "worker": worker.get("name", "")} for service in worker["services"])


def _totals_of(workers: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the totals of the job; None before any worker has opened it."""
    totals = [worker["totals"] for worker in workers if worker["totals"] is not None]
    return merged_totals(totals) if totals else None


def _filter_of(workers: Sequence[Mapping[str, Any]]) -> dict[str, float | str] | None:
    """The figures of all filters; None before the first look at one."""
    return summed_filters(worker["filter"] for worker in workers) or None


def _memory_of(workers: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """The memory of all workers; None if none says."""
    each = [worker["memory_bytes"] for worker in workers if worker["memory_bytes"] is not None]
    return {kind: sum(one[kind] for one in each) for kind in each[0]} if each else None


def _sum_of_known(workers: Sequence[Mapping[str, Any]], name: str) -> int | None:
    known = [worker[name] for worker in workers if worker[name] is not None]
    return sum(known) if known else None


def _first(workers: Sequence[Mapping[str, Any]], name: str) -> str:
    return next((worker[name] for worker in workers if worker[name]), "")


def merged_listing(workers_said: Sequence[Facts], given: Arguments) -> Facts:
    """The queues as the worker sees each that holds it; the others see its rows alone. Pure."""
    queues: dict[str, Facts] = {}
    for said in workers_said:
        for queue in said["queues"]:
            known = queues.get(queue["queue"])
            if known is None or queue["state"] in _ACTIVE:
                queues[queue["queue"]] = queue
    longest = sorted(queues.values(), key=lambda queue: (-queue["urls"], queue["queue"]))
    return {
        "now_s": max(said["now_s"] for said in workers_said),
        "queues": longest[: whole_argument(given, "limit", least=0)],
        "totals": merged_totals([said["totals"] for said in workers_said]),
    }


def merged_active(workers_said: Sequence[Facts], now_s: float) -> Facts:
    """The queues and gates in the memory of any worker. The parts of a queue may be with several. Pure."""
    queues: dict[str, tuple[str, int]] = {}
    gates: dict[str, tuple[float | None, int]] = {}
    for said in workers_said:
        for key, state, out in said["queues"]:
            known, known_out = queues.get(key, (state, 0))
            queues[key] = (min(state, known, key=_STRONGEST_FIRST.index), known_out + out)
        for key, opens_in_s, out in said["gates"]:
            gates[key] = (opens_in_s, gates.get(key, (None, 0))[1] + out)
    return {
        "now_s": now_s,
        "queues": [[key, *facts] for key, facts in queues.items()],
        "gates": [[key, *facts] for key, facts in gates.items()],
    }


def merged_totals(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All have the job's totals; what is in memory is added."""
    totals = dict(each[0])
    active = {state: sum(one["queues"].get(state, 0) for one in each) for state in _ACTIVE}
    own = sum(number for state, number in totals["queues"].items() if state in _ACTIVE)
    inactive = totals["queues"].get(QueueState.INACTIVE.value, 0) + own - sum(active.values())
    totals["queues"] = {**totals["queues"], **active, QueueState.INACTIVE.value: max(inactive, 0)}
    for name in ("in_flight", "gates_open"):
        totals[name] = sum(one[name] for one in each)
    reasons = [one["why_idle"] for one in each]
    totals["why_idle"] = "" if "" in reasons else "; ".join(sorted({*reasons}))
    return totals


def joined_rows(workers_said: Sequence[Facts], limit: int) -> Facts:
    """The rows of each worker, one after another; of facts by name those of the first."""
    first = workers_said[0]
    if "rows" not in first:
        return first
    rows = [row for said in workers_said for row in said["rows"]]
    return {**first, "rows": rows[:limit], "more": len(rows) > limit or any(said["more"] for said in workers_said)}
