"""A comparison of policies as tables, panels and words. Pure; the same for real crawls and simulated ones.

The means of all policies are over the same interval: from the start to the end of the shortest run, in which each of them had
work. Policies are ranked by their mean of active workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from anabranch.crawler.lab.policies.comparison import POLITE, Comparison, Setting, bound, ranked
from anabranch.crawler.lab.policies.series import HostSeen, Means, RunResult, compared_s, mean_queues, rates
from anabranch.crawler.lab.policies.words import closing, most_at_once, shortest_gap_s
from anabranch.crawler.lab.report import Cell, Curve, Panel, Report, Table

#: Hosts of each policy that the ledger's table has.
HOSTS_SHOWN = 3

_HOST_COLUMNS = (
    *("policy", "host", "requests", "most at once", "shortest gap (ms)", "starts/s"),
    *("Crawl-delay (ms)", "start to start (ms)"),
)
_KB = 1000
_MS = 1000


def report_of(name: str, comparisons: Sequence[Comparison], *, data: Mapping[str, object] | None = None) -> Report:
    """Everything that there is to show of the comparisons, one for each web."""
    return Report(
        name=name,
        tables=tuple(chain.from_iterable(map(_tables, comparisons))),
        panels=panels(comparisons),
        closing=tuple(chain.from_iterable(map(closing, comparisons))),
        beside=tuple(
            table(each) for each in comparisons for table in (every_run_table, every_host_table, series_table)
        ),
        data=data,
    )


def panels(comparisons: Sequence[Comparison]) -> tuple[Panel, ...]:
    """The three of the paper (figures 4, 5, 6) for each web; those of two webs stand beside each other."""
    return tuple(_panel(comparison, *panel) for panel in _PANELS for comparison in comparisons)


def _tables(comparison: Comparison) -> Iterator[Table]:
    yield _workers_table(comparison)
    yield _queues_table(comparison)
    if any(run.hosts for run in comparison.runs):
        yield _hosts_table(comparison)


def _workers_table(comparison: Comparison) -> Table:
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
            "possible: as many fetches as queues, slots and workers allow if nobody had to rest (a worker counts until its "
            "page is written, when its queue may have gone on)."
        ),
    )


def _workers_row(setting: Setting, run: RunResult, its: Means) -> tuple[Cell, ...]:
    drained, kept = "yes" if run.is_drained else "no", f"{run.runs} of {run.runs + run.dropped}"
    pace = (its.urls_per_s, its.bytes_per_s / _KB, run.duration_s)
    return run.policy, its.active, its.peak, bound(setting, run).fetches, *pace, drained, kept


def how_polite(comparison: Comparison) -> str:
    """The set-up in a few words."""
    setting = comparison.setting
    return f"{setting.politeness}, k = {setting.connections}" if setting.politeness == POLITE else setting.politeness


def _queues_table(comparison: Comparison) -> Table:
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


def _hosts_table(comparison: Comparison) -> Table:
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


def every_host_table(comparison: Comparison) -> Table:
    """All hosts of every run."""
    return Table(
        title=f"{comparison.setting.web}, {how_polite(comparison)}: every host, as the server saw it",
        columns=_HOST_COLUMNS,
        rows=tuple(_host_row(run.policy, host) for run in comparison.runs for host in run.hosts),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS


def every_run_table(comparison: Comparison) -> Table:
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


def series_table(comparison: Comparison) -> Table:
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


_Points: TypeAlias = tuple[tuple[float, float], ...]


def _panel(comparison: Comparison, title: str, unit: str, points: Callable[[RunResult], _Points]) -> Panel:
    live = [_curve(run.policy, points(run)) for run in comparison.runs]
    dashed = [_curve(f"{run.policy}, simulated", points(run), is_dashed=True) for run in comparison.simulated]
    return Panel(
        title=f"{title}: {comparison.setting.web}, {how_polite(comparison)}",
        x_label="time (s)",
        y_label=unit,
        curves=(*live, *dashed),
        is_course=True,
    )


def _curve(label: str, points: _Points, *, is_dashed: bool = False) -> Curve:
    return Curve(label=label, x=tuple(x for x, _ in points), y=tuple(y for _, y in points), is_dashed=is_dashed)


def _active_points(run: RunResult) -> _Points:
    return tuple((rate.at_s, rate.active) for rate in rates(run))


def _urls_points(run: RunResult) -> _Points:
    return tuple((rate.at_s, rate.urls_per_s) for rate in rates(run))


def _bytes_points(run: RunResult) -> _Points:
    return tuple((rate.at_s, rate.bytes_per_s / _KB) for rate in rates(run))


#: The panels: title, unit, points.
_PANELS: tuple[tuple[str, str, Callable[[RunResult], _Points]], ...] = (
    ("URLs a second", "URLs/s", _urls_points),
    ("Active workers", "workers that hold a URL", _active_points),
    ("KB a second", "KB/s", _bytes_points),
)
