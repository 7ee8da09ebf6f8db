"""A comparison of policies as tables, panels and closing sentences. Pure; the same for real and simulated crawls.

All means cover the same interval: from the start to the end of the shortest run, in which every policy had work. Policies are
ranked by mean active workers. The sentences name the winner and the reason, the server's ledger, and whether server and crawler
were the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from anabranch.crawler.lab.policies.series import (
    PAPER,
    POLITE,
    HostSeen,
    Means,
    PolicyComparison,
    Rate,
    RunResult,
    Setting,
    bound,
    compared_s,
    is_crawler_limit,
    is_server_limit,
    mean_queues,
    ranked,
    rates,
)
from anabranch.crawler.lab.report import LEAST_ROUNDS, Cell, Curve, LabReport, Panel, Ratio, Table, shown

#: Hosts of each policy that the ledger's table has.
HOSTS_SHOWN = 3

_HOST_COLUMNS = (
    *("policy", "host", "requests", "most at once", "shortest gap (ms)", "starts/s"),
    *("Crawl-delay (ms)", "start to start (ms)"),
)
_KB = 1000
_MS = 1000


def report_of(
    name: str, comparisons: Sequence[PolicyComparison], *, data: Mapping[str, object] | None = None
) -> LabReport:
    """The report of comparisons, one for each web."""
    return LabReport(
        name=name,
        tables=tuple(chain.from_iterable(map(_tables, comparisons))),
        panels=panels(comparisons),
        closing=tuple(chain.from_iterable(map(closing, comparisons))),
        csv_tables=tuple(
            table(each) for each in comparisons for table in (every_run_table, every_host_table, series_table)
        ),
        data=data,
    )


def panels(comparisons: Sequence[PolicyComparison]) -> tuple[Panel, ...]:
    """The three of the paper (figures 4, 5, 6) for each web; those of two webs are next to each other."""
    return tuple(_panel(comparison, *panel) for panel in _PANELS for comparison in comparisons)


def _tables(comparison: PolicyComparison) -> Iterator[Table]:
    yield _workers_table(comparison)
    yield from _ratios_tables(comparison)
    yield _queues_table(comparison)
    if any(run.hosts for run in comparison.runs):
        yield _hosts_table(comparison)


def _workers_table(comparison: PolicyComparison) -> Table:
    setting, until_s = comparison.setting, compared_s(comparison.runs)
    return Table(
        title=f"{setting.web} ({setting.size}), {setting.workers:,} workers, {how_polite(comparison)}",
        columns=(
            "policy",
            "active workers, mean",
            "peak",
            "possible",
            "URLs/s",
            "KB/s",
            "duration (s)",
            "drained",
            "runs kept",
        ),
        rows=tuple(_workers_row(setting, run, its) for run, its in ranked(comparison.runs)),
        note=(
            f"Means and peaks over the first {until_s:.1f} s, in which every policy had work. An active worker holds a URL; "
            "possible: as many fetches as queues, slots and workers allow without rests (a worker counts until its "
            "page is written, when its queue may have continued)."
        ),
    )


def _workers_row(setting: Setting, run: RunResult, its: Means) -> tuple[Cell, ...]:
    drained, kept = "yes" if run.is_drained else "no", f"{run.runs} of {run.runs + run.dropped}"
    pace = (its.urls_per_s, its.bytes_per_s / _KB, run.duration_s)
    return run.policy, its.active, its.peak, bound(setting, run).fetches, *pace, drained, kept


def _ratios_tables(comparison: PolicyComparison) -> Iterator[Table]:
    """How the first policy compares with each other one by repeats; no table without intervals."""
    (first, _), *rest = ranked(comparison.runs)
    rows: list[tuple[Cell, ...]] = [
        (run.policy, ratio.median, f"{ratio.interval[0]:.3g} to {ratio.interval[1]:.3g}", len(ratio.figures))
        for run, _ in rest
        if (ratio := ratio_of_repeats(first, run)) is not None and ratio.interval is not None
    ]
    if rows:
        yield Table(
            title=f"{comparison.setting.web}: active workers of {first.policy} over those of the others, by repeats",
            columns=("policy", "ratio", "95 %", "repeats"),
            rows=tuple(rows),
            note="Medians of the ratios, and their 95 % intervals (bootstrap); an interval that holds 1 shows no difference.",
        )


def how_polite(comparison: PolicyComparison) -> str:
    """The set-up in a few words."""
    setting = comparison.setting
    return f"{setting.politeness}, k = {setting.connections}" if setting.politeness == POLITE else setting.politeness


def _queues_table(comparison: PolicyComparison) -> Table:
    until_s = compared_s(comparison.runs)
    rows = []
    for run, _ in ranked(comparison.runs):
        lengths, queues = run.queue_lengths, mean_queues(run, until_s)
        filled = (lengths.urls, lengths.queues, lengths.longest, lengths.max_over_mean)
        rows.append((run.policy, *filled, queues.ready, queues.parked, queues.snoozed))
    return Table(
        title=f"{comparison.setting.web}: how its URLs stood in queues",
        columns=("policy", "URLs", "queues", "longest", "longest / mean", "ready", "of them parked", "snoozed"),
        rows=tuple(rows),
        note=(
            "URLs: all that were found; a queue's length is how many of them came to it. Ready, parked (ready, but every gate "
            f"is closed) and snoozed queues: means over the first {until_s:.1f} s."
        ),
    )


def _hosts_table(comparison: PolicyComparison) -> Table:
    return Table(
        title=f"{comparison.setting.web}: its largest hosts, as the server saw them",
        columns=_HOST_COLUMNS,
        rows=tuple(chain.from_iterable(_host_rows(run) for run, _ in ranked(comparison.runs))),
        note=(
            "Most at once: requests that were being answered at the same moment. Gap: from the end of an answer to the next "
            "start in its place. The first row of a policy has all requests and the worst of all its hosts, the last the host "
            "with a Crawl-delay and the shortest time between the starts of two of its pages. Of several runs: mean requests, "
            "worst of the rest."
        ),
    )


def _host_rows(run: RunResult) -> Iterator[tuple[Cell, ...]]:
    """The worst of all hosts, then the largest."""
    if not run.hosts:
        return
    starts = max((host.starts_per_s for host in run.hosts if host.starts_per_s is not None), default=None)
    requests = sum(host.requests for host in run.hosts)
    all_of_them = requests, most_at_once(run), _ms(shortest_gap_s(run.hosts)), starts, None, None
    yield run.policy, f"all {len(run.hosts)}", *all_of_them
    delayed = (host for host in run.hosts[HOSTS_SHOWN:] if host.crawl_delay_s is not None)
    for host in (*run.hosts[:HOSTS_SHOWN], *delayed):
        yield _host_row(run.policy, host)


def _host_row(policy: str, host: HostSeen) -> tuple[Cell, ...]:
    delays = _ms(host.crawl_delay_s), _ms(host.shortest_start_gap_s) if host.crawl_delay_s is not None else None
    return policy, host.host, host.requests, host.most_at_once, _ms(host.shortest_gap_s), host.starts_per_s, *delays


def every_host_table(comparison: PolicyComparison) -> Table:
    """All hosts of every run."""
    return Table(
        title=f"{comparison.setting.web}, {how_polite(comparison)}: every host, as the server saw it",
        columns=_HOST_COLUMNS,
        rows=tuple(_host_row(run.policy, host) for run in comparison.runs for host in run.hosts),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS


def every_run_table(comparison: PolicyComparison) -> Table:
    """Every repeat of every policy, also those that were dropped."""
    return Table(
        title=f"{comparison.setting.web}, {how_polite(comparison)}: every run, over the time of the policy's shortest",
        columns=("policy", "repeat", "active workers, mean", "URLs/s", "duration (s)", "kept"),
        rows=tuple(
            (run.policy, number, each.active, each.urls_per_s, each.duration_s, "yes" if each.is_kept else "no")
            for run in comparison.runs
            for number, each in enumerate(run.repeats, 1)
        ),
    )


def series_table(comparison: PolicyComparison) -> Table:
    """Every sample of every run."""
    rows: list[tuple[Cell, ...]] = []
    for kind, runs in (("live", comparison.runs), ("simulated", comparison.simulated)):
        for run in runs:
            speeds = {rate.at_s: rate for rate in rates(run)}
            for sample in run.samples:
                speed = speeds.get(sample.at_s)
                pace = (None,) * 3 if speed is None else (speed.active, speed.urls_per_s, speed.bytes_per_s / _KB)
                rows.append((run.policy, kind, sample.at_s, *pace, *sample[2:]))
    return Table(
        title=f"{comparison.setting.web}, {how_polite(comparison)}: each second",
        columns=(
            *("policy", "run", "second", "active workers", "URLs/s", "KB/s"),
            *("most active", "ready queues", "parked queues", "snoozed queues", "URLs so far", "bytes so far"),
        ),
        rows=tuple(rows),
    )


def _panel(comparison: PolicyComparison, title: str, unit: str, value: Callable[[Rate], float]) -> Panel:
    live = [_curve(run.policy, run, value) for run in comparison.runs]
    dashed = [_curve(f"{run.policy}, simulated", run, value, is_dashed=True) for run in comparison.simulated]
    return Panel(
        title=f"{title}: {comparison.setting.web}, {how_polite(comparison)}",
        x_label="time (s)",
        y_label=unit,
        curves=(*live, *dashed),
        is_course=True,
    )


def _curve(label: str, run: RunResult, value: Callable[[Rate], float], *, is_dashed: bool = False) -> Curve:
    found = rates(run)
    return Curve(label=label, x=tuple(r.at_s for r in found), y=tuple(map(value, found)), is_dashed=is_dashed)


#: The panels: title, unit, value.
_PANELS: tuple[tuple[str, str, Callable[[Rate], float]], ...] = (
    ("URLs a second", "URLs/s", lambda rate: rate.urls_per_s),
    ("Active workers", "workers that hold a URL", lambda rate: rate.active),
    ("KB a second", "KB/s", lambda rate: rate.bytes_per_s / _KB),
)


#: Policies with means this close count as equal: two runs of one policy differ by as much.
NEAR = 0.1


def closing(comparison: PolicyComparison) -> tuple[str, ...]:
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
    """Which policy kept most workers active, against whom, and why; that it won, if the repeats show it.

    Policies within `NEAR` of each other share the place. So do those with as many URLs a second, if the crawler was the limit
    or both have the same bound: then they differ only in how long their workers waited for the processor.
    """
    (first, best), *rest = ranked(runs)
    if not rest:
        return (
            f"{setting.web}: {first.policy} kept {_active(best, setting)} active; there is nothing to compare it with."
        )
    near = [run.policy for run, its in rest if _is_near(setting, (first, best), (run, its))]
    if len(near) == len(rest):
        return (
            f"{setting.web}: no policy won: in active workers or in URLs a second all are within {NEAR:.0%} of {first.policy}, "
            f"which kept {_active(best, setting)} active; {_why(setting, first, rest[-1][0])}."
        )
    shared = f", together with {', '.join(near)}" if near else ""
    return _first_words(setting, (first, best), shared, [each for each in rest if each[0].policy not in near])


def _first_words(
    setting: Setting, first: tuple[RunResult, Means], shared: str, others: Sequence[tuple[RunResult, Means]]
) -> str:
    """That the first policy won, or why that is not shown."""
    (run, best), (last, least) = first, others[-1]
    ratios = [ratio_of_repeats(run, other) for other, _ in others]
    kept, theirs = _active(best, setting), f"{shown(round(least.active, 1))} of {last.policy}"
    if (factor := ratios[-1]) is not None and all(ratio is not None and ratio.is_above() for ratio in ratios):
        return (
            f"{setting.web}: {run.policy} won{shared}: it kept {kept} active on average, {factor} times the {theirs}; "
            f"{_why(setting, run, last)}."
        )
    times = f"{shown(best.active / least.active)} times the" if least.active else "against"
    return (
        f"{setting.web}: most workers were active under {run.policy}{shared}: {kept} on average, {times} {theirs}. "
        f"{_undecided(ratios)} Bounds: {_why(setting, run, last)}."
    )


def ratio_of_repeats(first: RunResult, other: RunResult) -> Ratio | None:
    """The active workers of two policies in the same repeats and time, those that count for both; None without any."""
    figures = tuple(
        one.compared_active / its.compared_active
        for one, its in zip(first.repeats, other.repeats, strict=False)
        if one.is_kept and its.is_kept and one.compared_active is not None and its.compared_active
    )
    return Ratio(figures=figures) if figures else None


def _undecided(ratios: Iterable[Ratio | None]) -> str:
    """Why that is no verdict."""
    fewest = min((0 if ratio is None else len(ratio.figures) for ratio in ratios), default=0)
    if fewest >= LEAST_ROUNDS:
        return "The repeats do not agree, so that no winner is shown."
    return f"No verdict: that takes {LEAST_ROUNDS} repeats that count for both (--repeat {LEAST_ROUNDS} or a few more)."


def _is_near(setting: Setting, first: tuple[RunResult, Means], other: tuple[RunResult, Means]) -> bool:
    (run, best), (near, its) = first, other
    if its.active >= (1 - NEAR) * best.active:
        return True
    is_bound_alike = bound(setting, near).fetches >= (1 - NEAR) * bound(setting, run).fetches
    return (is_crawler_limit(setting, run) or is_bound_alike) and its.urls_per_s >= (1 - NEAR) * best.urls_per_s


def _active(its: Means, setting: Setting) -> str:
    return f"{shown(round(its.active, 1))} of {setting.workers:,} workers"


def _why(setting: Setting, first: RunResult, last: RunResult) -> str:
    """The bounds of the first and the last."""
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
    """The load on the hosts as the server saw it; under `polite` the verdict."""
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
    """Whether the server had idle time, so that the crawler is measured."""
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
    """Under which policies the crawler itself was the limit: some active workers only waited for the processor."""
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
