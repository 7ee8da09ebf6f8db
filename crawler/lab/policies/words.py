"""What a comparison says, one sentence a line: who won and why, what the ledger found, whether the server kept up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.crawler.lab.policies.comparison import (
    PAPER,
    POLITE,
    Comparison,
    Setting,
    bound,
    is_crawler_limit,
    is_server_limit,
    ranked,
)
from anabranch.crawler.lab.policies.series import HostSeen, Means, RunResult
from anabranch.crawler.lab.report import shown

#: Policies whose means are as near as this are told as equal: two runs of one policy differ by as much.
NEAR = 0.1


def closing(comparison: Comparison) -> tuple[str, ...]:
    """The sentences about one web."""
    setting, runs = comparison.setting, comparison.runs
    return (
        winner(setting, runs),
        *ledger_words(setting, runs),
        *server_words(setting, runs),
        *crawler_words(setting, runs),
        *dropped_words(setting, runs),
        f"{setting.web}: {setting.delays}",
        *([f"{setting.web}: {setting.machine}."] if setting.machine else []),
    )


def winner(setting: Setting, runs: Sequence[RunResult]) -> str:
    """Which policy kept most workers active, against whom, and why.

    Policies within `NEAR` of each other share the place. So do those that ended as many URLs, if the crawler was the limit or
    nothing bounds them differently: what they differ by is how long their workers waited for the processor.
    """
    (first, best), *rest = ranked(runs)
    if not rest:
        return (
            f"{setting.web}: {first.policy} kept {_active(best, setting)} active; there is nothing to compare it with."
        )
    near = [run.policy for run, its in rest if _is_near(setting, (first, best), (run, its))]
    last, least = rest[-1]
    if len(near) == len(rest):
        return (
            f"{setting.web}: no policy won: in active workers or in URLs a second all are within {NEAR:.0%} of {first.policy}, "
            f"which kept {_active(best, setting)} active; {_why(setting, first, last)}."
        )
    beside = f", and {', '.join(near)} beside it" if near else ""
    times = (
        f"{shown(best.active / least.active)} times the {shown(round(least.active, 1))} of"
        if least.active
        else "against 0 of"
    )
    return (
        f"{setting.web}: {first.policy} won{beside}: it kept {_active(best, setting)} active on average, "
        f"{times} {last.policy}; {_why(setting, first, last)}."
    )


def _is_near(setting: Setting, first: tuple[RunResult, Means], other: tuple[RunResult, Means]) -> bool:
    (run, best), (beside, its) = first, other
    if its.active >= (1 - NEAR) * best.active:
        return True
    is_bound_alike = bound(setting, beside).fetches >= (1 - NEAR) * bound(setting, run).fetches
    return (is_crawler_limit(setting, run) or is_bound_alike) and its.urls_per_s >= (1 - NEAR) * best.urls_per_s


def _active(its: Means, setting: Setting) -> str:
    return f"{shown(round(its.active, 1))} of {setting.workers:,} workers"


def _why(setting: Setting, first: RunResult, last: RunResult) -> str:
    """What bounds the first and the last."""
    most, least = bound(setting, first), bound(setting, last)
    if least.fetches >= (1 - NEAR) * most.fetches:
        return f"{most.words} allow {most.fetches:,} fetches at once at most under either policy"
    if setting.politeness == POLITE:
        return f"{most.words} allow {most.fetches:,} fetches at once; under {last.policy} {least.words} allow {least.fetches:,}"
    rests = " and rests by itself" if setting.politeness == PAPER else ""
    return (
        f"its URLs stood in {first.queue_lengths.queues:,} queues, those of {last.policy} in "
        f"{last.queue_lengths.queues:,}, and a queue is served by one worker at a time{rests}"
    )


def ledger_words(setting: Setting, runs: Sequence[RunResult]) -> Iterator[str]:
    """What the server saw of how its hosts were treated; under `polite` the verdict."""
    looked = [run for run in runs if run.hosts]
    if not looked:
        return
    if setting.politeness != POLITE:
        hits = ", ".join(f"{run.policy} {most_at_once(run):,}" for run in looked)
        yield f"{setting.web}: most requests at once on one host, as the server saw it: {hits}."
        return
    broken = [run for run in looked if not run.is_polite]
    yield from (f"{setting.web}: the server's ledger under {run.policy}: {run.verdict}." for run in broken)
    if not broken:
        yield _clean(setting, looked)


def _clean(setting: Setting, runs: Sequence[RunResult]) -> str:
    gaps = [gap_s for run in runs if (gap_s := shortest_gap_s(run.hosts)) is not None]
    gap = f", and no slot was taken again sooner than after {min(gaps) * 1000:.1f} ms" if gaps else ""
    return (
        f"{setting.web}: the server's ledger is clean under every policy: no start was too many at once or too early; "
        f"the most requests at once on one host were {max(map(most_at_once, runs)):,}{gap}."
    )


def most_at_once(run: RunResult) -> int:
    """On any host."""
    return max((host.most_at_once for host in run.hosts), default=0)


def shortest_gap_s(hosts: Sequence[HostSeen]) -> float | None:
    """On any host; None if no host was asked twice."""
    return min((host.shortest_gap_s for host in hosts if host.shortest_gap_s is not None), default=None)


def server_words(setting: Setting, runs: Sequence[RunResult]) -> Iterator[str]:
    """Whether the server had time to spare, so that what is measured is the crawler."""
    looked = [(run, run.server) for run in runs if run.server is not None]
    if not looked:
        return
    share = max(server.share for _, server in looked)
    lag_s = max(server.longest_lag_s for _, server in looked)
    facts = f"it used {share:.0%} of a core at most, and was {lag_s * 1000:,.0f} ms late at worst"
    slowed = [run.policy for run, _ in looked if is_server_limit(run)]
    if slowed:
        yield f"{setting.web}: the server may have slowed the crawler under {', '.join(slowed)}: {facts}."
    else:
        yield f"{setting.web}: the server had time to spare: {facts}."


def crawler_words(setting: Setting, runs: Sequence[RunResult]) -> Iterator[str]:
    """Under which policies the crawler itself was the limit: there, workers were active that waited for the processor alone."""
    busy = [(run, run.crawler) for run in runs if run.crawler is not None]
    limited = [
        f"{run.policy} ({its.share:.0%} of a core, {its.longest_lag_s * 1000:,.0f} ms late)"
        for run, its in busy
        if is_crawler_limit(setting, run)
    ]
    if limited:
        yield (
            f"{setting.web}: the crawler itself was the limit under {', '.join(limited)}: of the active workers there, some "
            "waited for the processor alone."
        )
    elif busy:
        share, lag_s = max(its.share for _, its in busy), max(its.longest_lag_s for _, its in busy)
        facts = f"it used {share:.0%} of a core at most, and was {lag_s * 1000:,.0f} ms late at worst"
        yield f"{setting.web}: the crawler was not the limit: {facts}."


def dropped_words(setting: Setting, runs: Sequence[RunResult]) -> Iterator[str]:
    """How many repeats were dropped, if there were any to drop."""
    repeats = max((run.runs + run.dropped for run in runs), default=1)
    if repeats > 1:
        dropped = [f"{run.dropped} of {run.policy}" for run in runs if run.dropped]
        yield (
            f"{setting.web}: means of {repeats} repeats; dropped as more than 3 median deviations off: "
            f"{', '.join(dropped) or 'none'}."
        )
