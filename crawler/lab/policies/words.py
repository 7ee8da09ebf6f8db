"""What a comparison says, one sentence a line: who won and why, what the ledger found, whether the server kept up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crawler.lab.policies.comparison import OFF, PAPER, POLITE, Comparison, Setting, possible, ranked
from crawler.lab.policies.series import HostSeen, Means, RunResult
from crawler.lab.report import shown

#: Policies whose means are as near as this are told as equal: two runs of one policy differ by as much.
NEAR = 0.1
#: A server with less than this share of a core left, or later than this, may have slowed the crawler down.
MOST_BUSY = 0.8
LONGEST_LAG_S = 0.25


def closing(comparison: Comparison) -> tuple[str, ...]:
    """The sentences about one web."""
    setting, runs = comparison.setting, comparison.runs
    return (
        winner(setting, runs),
        *ledger_words(setting, runs),
        *server_words(setting, runs),
        *dropped_words(setting, runs),
        f"{setting.web}: {setting.delays}",
        *([f"{setting.web}: {setting.machine}."] if setting.machine else []),
    )


def winner(setting: Setting, runs: Sequence[RunResult]) -> str:
    """Which policy kept most workers active, against whom, and why. Policies within `NEAR` of each other share the place."""
    (first, best), *rest = ranked(runs)
    if not rest:
        return (
            f"{setting.web}: {first.policy} kept {_active(best, setting)} active; there is nothing to compare it with."
        )
    near = [run.policy for run, its in rest if its.active >= (1 - NEAR) * best.active]
    last, least = rest[-1]
    if len(near) == len(rest):
        return (
            f"{setting.web}: no policy won: all are within {NEAR:.0%} of {first.policy}, "
            f"which kept {_active(best, setting)} active; {_why(setting, first, last)}."
        )
    beside = f" ({', '.join(near)} within {NEAR:.0%} of it)" if near else ""
    times = (
        f"{shown(best.active / least.active)} times the {shown(round(least.active, 1))} of"
        if least.active
        else "against 0 of"
    )
    return (
        f"{setting.web}: {first.policy} won{beside}: it kept {_active(best, setting)} active on average, "
        f"{times} {last.policy}; {_why(setting, first, last)}."
    )


def _active(its: Means, setting: Setting) -> str:
    return f"{shown(round(its.active, 1))} of {setting.workers:,} workers"


def _why(setting: Setting, first: RunResult, last: RunResult) -> str:
    """The bound that holds for the first and for the last."""
    most, least = possible(setting, first), possible(setting, last)
    queues = f"its URLs stood in {first.queue_lengths.queues:,} queues, those of {last.policy} in {last.queue_lengths.queues:,}"
    if setting.politeness == PAPER:
        return f"{queues}, and a queue is served by one worker at a time and rests by itself"
    if setting.politeness == OFF:
        return f"{queues}, and a queue is served by one worker at a time"
    slots = "one slot" if setting.connections == 1 else f"{setting.connections} slots"
    gates = f"{setting.hosts:,} hosts with {slots} each" if setting.hosts else f"hosts have {slots} each"
    if most == least:
        return f"{gates} let {most:,} fetches through at most, however many queues there are"
    return f"{gates}: at most {most:,} fetches at once from its queues, {least:,} from those of {last.policy}"


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
        gaps = [gap_s for run in looked if (gap_s := shortest_gap_s(run.hosts)) is not None]
        gap = f", and no slot was taken again sooner than after {min(gaps) * 1000:.1f} ms" if gaps else ""
        yield (
            f"{setting.web}: the server's ledger is clean under every policy: no start was too many at once or too early; "
            f"a host had {max(map(most_at_once, looked)):,} requests at once at most{gap}."
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
    if share <= MOST_BUSY and lag_s <= LONGEST_LAG_S:
        yield f"{setting.web}: the server had time to spare: {facts}."
    else:
        slow = max(looked, key=lambda each: (each[1].share, each[1].longest_lag_s))[0].policy
        yield f"{setting.web}: the server may have slowed the crawler, most of all {slow}: {facts}."
    busy = [(run, run.crawler) for run in runs if run.crawler is not None]
    if busy:
        run, crawler = max(busy, key=lambda each: each[1].share)
        words = "the crawler itself was the limit there" if crawler.share > MOST_BUSY else "it was not the limit"
        yield f"{setting.web}: the crawler used {crawler.share:.0%} of a core at most ({run.policy}); {words}."


def dropped_words(setting: Setting, runs: Sequence[RunResult]) -> Iterator[str]:
    """How many repeats were dropped, if there were any to drop."""
    repeats = max((run.runs + run.dropped for run in runs), default=1)
    if repeats > 1:
        dropped = [f"{run.dropped} of {run.policy}" for run in runs if run.dropped]
        yield (
            f"{setting.web}: means of {repeats} repeats; dropped as more than 3 median deviations off: "
            f"{', '.join(dropped) or 'none'}."
        )
