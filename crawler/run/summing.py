"""What shares say of themselves, as JSON holds it, and their sums: what the job says of itself. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from types import MappingProxyType
from typing import Any

from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.report.progress import CrawlSnapshot
from anabranch.crawler.report.progress_log import ProcessMemory, ProgressFacts
from anabranch.crawler.report.statistics import CrawlStatistics, Rates
from anabranch.crawler.report.summary import RunFacts
from anabranch.crawler.report.troubles import Trouble
from anabranch.crawler.run.merging import summed_totals, why_all_idle
from anabranch.frontier.inspect.statistics import FrontierStatistics
from anabranch.frontier.records import WaitsFor

_RUN_SUMS = ("pages", "failed", "excluded", "retries", "robots", "fetched_bytes", "broken", "active")
_FRONTIER_SUMS = (
    "pending", "waiting", "in_flight", "done", "failed", "disregarded", "retired", "gates", "gates_open", "parked",
    "leases_lost", "unsynced_rows",
)  # fmt: skip
_SNAPSHOT_SUMS = (
    "pages", "failed", "excluded", "retries", "fetched_bytes", "active", "workers", "pending", "waiting", "gates", "queues",
    "ready", "parked", "snoozed", "gates_open", "broken", "failing", "untried", "answered",
)  # fmt: skip
_PROGRESS_SUMS = ("discovered", "queued", "downloaded", "failed", "busy", "parked")
#: Figures of a filter that are not sums: the worst one counts.
_LARGEST = frozenset({
    "smm_fill", "smm_bits", "smm_files", "smm_files_used", "dsbf_height", "dsbf_mean_rate", "dsbf_worst_rate",
    "dsbf_planned_rate", "dsbf_rate_bound", "false_drop_probability", "planned_keys", "planned_false_drop_probability",
    "shared_false_drop_probability",
})  # fmt: skip
#: It holds of all shares together only if it holds of each.
_COMPACT = "smm_is_compact"


def run_facts(facts: RunFacts) -> dict[str, Any]:
    """How a share's run was."""
    run, frontier = facts.run, facts.frontier
    return {
        "run": {name: getattr(run, name) for name in _RUN_SUMS},
        "by_status": [*run.by_status.items()],
        "by_mime": [*run.by_mime.items()],
        "frontier": frontier_facts(frontier),
        "is_done": not frontier.pending and not frontier.in_flight,
        "seeds": [list(seed) for seed in facts.seeds],
    }


def frontier_facts(frontier: FrontierStatistics) -> dict[str, Any]:
    """A Frontier's statistics."""
    return {**frontier._asdict(), "queues": dict(frontier.queues), "seen": dict(frontier.seen)}


def frontier_of(facts: Mapping[str, Any]) -> FrontierStatistics:
    """And back."""
    return FrontierStatistics(**facts)


def summed_run(
    shares: Iterable[Mapping[str, Any]], started_s: float, died: Mapping[str, int] = MappingProxyType({})
) -> CrawlStatistics:
    """The runs of all shares as one, with what processes did that have died: of that no status is known."""
    total = CrawlStatistics(started_s=started_s)
    for name, count in died.items():
        setattr(total, name, count)
    for share in shares:
        for name in _RUN_SUMS:
            setattr(total, name, getattr(total, name) + share["run"][name])
        total.by_status.update(dict(share["by_status"]))
        total.by_mime.update(dict(share["by_mime"]))
    return total


def summed_frontier(shares: Sequence[FrontierStatistics]) -> FrontierStatistics:
    """All Frontiers as one. Queues of one name are counted in each share that has them."""
    sums = {name: sum(getattr(share, name) for share in shares) for name in _FRONTIER_SUMS}
    queues: Counter[str] = Counter()
    for share in shares:
        queues.update(share.queues)
    why = why_all_idle([share.why_idle for share in shares])
    return FrontierStatistics(
        **sums, queues=dict(queues), why_idle=why, seen=summed_filters([share.seen for share in shares])
    )


def summed_filters(shares: Iterable[Mapping[str, float | str] | None]) -> dict[str, float | str]:
    """The figures of all shares' filters as those of one: counts are added, of rates and of sizes of one store the largest."""
    seen: dict[str, float | str] = {}
    for share in filter(None, shares):
        for name, figure in share.items():
            before = seen.get(name)
            if isinstance(figure, str) or not isinstance(before, int | float):
                seen.setdefault(name, figure)
            else:
                joined = max if name in _LARGEST else min if name == _COMPACT else add
                seen[name] = joined(before, figure)
    return seen


def summed_seeds(shares: Mapping[int, Mapping[str, Any]], owner_of: Mapping[str, int]) -> list[SeedFact]:
    """How each seed fared, as its owner says, in the order of the book."""
    said = {share: {seed[0]: seed for seed in facts["seeds"]} for share, facts in shares.items()}
    return [
        SeedFact(*said[owner][url]) if url in said.get(owner, {}) else SeedFact(url, 0, "", None)
        for url, owner in owner_of.items()
    ]


def snapshot_facts(now: CrawlSnapshot) -> dict[str, Any]:
    """A snapshot."""
    trouble = None if now.last_trouble is None else now.last_trouble._asdict()
    return {**now._asdict(), "waits_for": now.waits_for.value, "last_trouble": trouble}


def summed_snapshot(shares: Sequence[Mapping[str, Any]], job: str, elapsed_s: float) -> CrawlSnapshot:
    """All shares at one moment, each as it was when it last said so."""
    sums: dict[str, Any] = {name: sum(share[name] for share in shares) for name in _SNAPSHOT_SUMS}
    wakes = [share["wakes_in_s"] for share in shares if share["wakes_in_s"] is not None]
    free = [share["free_bytes"] for share in shares if share["free_bytes"] is not None]
    troubles = [Trouble(**share["last_trouble"]) for share in shares if share["last_trouble"] is not None]
    waits = WaitsFor(0)
    for share in shares:
        waits |= WaitsFor(share["waits_for"])
    return CrawlSnapshot(
        **sums,
        elapsed_s=elapsed_s,
        wakes_in_s=min(wakes, default=None),
        waits_for=waits,
        job=job,
        free_bytes=min(free, default=None),
        trouble=_first(shares, "trouble"),
        paused=_first(shares, "paused"),
        shared_left=_sum_of_known(shares, "shared_left"),
        shared_twice=_sum_of_known(shares, "shared_twice"),
        filter=_filter_of(shares),
        totals=summed_totals([share["totals"] for share in shares]) if shares else None,
        last_trouble=min(troubles, key=lambda trouble: trouble.ago_s, default=None),
    )


def _filter_of(shares: Sequence[Mapping[str, Any]]) -> dict[str, float | str] | None:
    """The figures of all filters; None before the first look at one."""
    return summed_filters(share["filter"] for share in shares) or None


def progress_facts(now: ProgressFacts) -> dict[str, Any]:
    """A moment of a share; the time and the rates are the job's own."""
    return {
        **{name: getattr(now, name) for name in (*_PROGRESS_SUMS, "longest")},
        "queues": dict(now.queues),
        "memory": list(now.memory),
    }


def summed_progress(
    shares: Iterable[Mapping[str, Any]], now_s: float, rates: Rates, own: ProcessMemory
) -> ProgressFacts:
    """All shares at one moment, with the memory of the process that is none. A part of a queue counts as a queue."""
    sums: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    memory, longest = own, 0
    for share in shares:
        sums.update({name: share[name] for name in _PROGRESS_SUMS})
        queues.update(share["queues"])
        memory = ProcessMemory(*(has + more for has, more in zip(memory, share["memory"], strict=True)))
        longest = max(longest, share["longest"])
    counts = {name: sums[name] for name in _PROGRESS_SUMS}
    return ProgressFacts(**counts, now_s=now_s, rates=rates, queues=queues, longest=longest, memory=memory)


def _sum_of_known(shares: Sequence[Mapping[str, Any]], name: str) -> int | None:
    known = [share[name] for share in shares if share[name] is not None]
    return sum(known) if known else None


def _first(shares: Sequence[Mapping[str, Any]], name: str) -> str:
    return next((share[name] for share in shares if share[name]), "")
