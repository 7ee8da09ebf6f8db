"""The tables and panels of the SMM experiment, out of what was measured. All pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import TypeAlias

from anabranch.crawler.lab.filters.smm_comparison import Method, closing_of, methods_of
from anabranch.crawler.lab.filters.smm_passes import Measured, SmmRun, TableRun
from anabranch.crawler.lab.filters.smm_published import TABLE_1, TABLE_1_MEAN, TABLE_1_MEDIAN, TABLE_2, URLS
from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, Curve, Panel, Report, Table

Average: TypeAlias = Callable[[Sequence[float]], float]

_KIB = 1 << 10
_MACHINES = (
    "The published program is C on a machine of 2012, this one Python on yours: times of the two do not compare, the "
    "ratios between methods do."
)

_COLUMNS_1 = (
    "run",
    "store",
    "pass 1 (query + insert): published",
    "one URL at a time",
    "in one batch",
    "pass 2 (query again): published",
    "one URL at a time again",
    "in one batch again",
)
_COLUMNS_2 = (
    "buckets",
    "runs",
    "first query: published",
    "of the empty table",
    "of the full table, all missing",
    "query + insert: published",
    "measured",
    "query after all inserted: published",
    "measured again",
)
_COLUMNS_3 = (
    "m, bits",
    "k",
    "published",
    "query + insert: one URL at a time",
    "in one batch",
    "query again: one URL at a time",
    "in one batch again",
)
_COLUMNS_ALL = (
    "method",
    "KiB",
    "pass 1, one at a time",
    "pass 2, one at a time",
    "pass 1, batch",
    "pass 2, batch",
    "new URLs dropped",
    "expected to drop",
    "false hits",
    "by formula",
)


def report_of(measured: Measured) -> Report:
    """Tables 1 to 3, then all methods side by side."""
    methods = methods_of(measured)
    tables = (
        _smm_table(measured, measured.reopening, "runs 2 and later on the reopened store"),
        _smm_table(measured, measured.fresh, "every run on a fresh store"),
        _hash_tables(measured),
        _blooms(measured),
        _all_methods(measured, methods),
    )
    panels = (_times_panel(measured, methods), _rates_panel(methods))
    return Report(name="smm", tables=tables, panels=panels, closing=closing_of(measured))


def _smm_table(measured: Measured, runs: Sequence[SmmRun], case: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for number, run in enumerate(runs, 1):
        published = TABLE_1[number - 1] if number <= len(TABLE_1) else (None, None)
        rows.append((str(number), run.store, published[0], *_times(run)[:2], published[1], *_times(run)[2:]))
    averages = (("mean", TABLE_1_MEAN, _over(runs, fmean)), ("median", TABLE_1_MEDIAN, _over(runs, median)))
    rows += [(name, None, first, *ours[:2], second, *ours[2:]) for name, (first, second), ours in averages]
    for name, (first, second), ours in averages:
        per_url = [us / measured.urls for us in ours]
        rows.append((f"{name}/URL", None, first / URLS, *per_url[:2], second / URLS, *per_url[2:]))
    open_ms, close_ms = (fmean(us) / 1000 for us in zip(*((run.open_us, run.close_us) for run in runs), strict=True))
    return Table(
        title=f"Table 1, SMM, {case}: microseconds for {measured.urls:,} URLs",
        columns=_COLUMNS_1,
        rows=tuple(rows),
        note=(
            f"{measured.distinct:,} URLs are distinct, {measured.mean_url_bytes:.1f} bytes on average; published: "
            f"{URLS:,} of 50.5 bytes, four runs, which of them on a fresh store is not said. The store is open to other "
            f"processes, as published: an inserting call takes a lock. Not counted: opening the store ({open_ms:.0f} ms on "
            f"average) and writing it to the disk at the end ({close_ms:.0f} ms). {_MACHINES}"
        ),
    )


def _times(run: SmmRun) -> tuple[float, ...]:
    """Pass 1, one URL at a time and in one batch; then pass 2."""
    return run.singly.first_us, run.batch.first_us, run.singly.second_us, run.batch.second_us


def _over(runs: Sequence[SmmRun], average: Average) -> list[float]:
    return [average(times) for times in zip(*map(_times, runs), strict=True)]


def _hash_tables(measured: Measured) -> Table:
    rows = [_hash_table_row(runs) for runs in measured.tables]
    left_out = [f"{buckets:,}" for buckets in TABLE_2 if buckets not in {row[0] for row in rows}]
    return Table(
        title=f"Table 2, bitmap hash table: microseconds for {measured.urls:,} URLs",
        columns=_COLUMNS_2,
        rows=tuple(rows),
        note=(
            f"What the published first query met is not said. It took as long as the last one, so the table was not empty; "
            f"beside it stand both cases: an empty table, and {measured.missing:,} other URLs in the full one. The table works "
            f"URL by URL inside one call; a method that takes long is run once. Times are medians of the runs."
            + (f" Left out by --quick: {', '.join(left_out)} buckets." if left_out else "")
        ),
    )


def _hash_table_row(runs: Sequence[TableRun]) -> tuple[Cell, ...]:
    published = TABLE_2[runs[0].buckets]
    times = [(run.empty_us, run.missing_us, run.passes.first_us, run.passes.second_us) for run in runs]
    empty, missing, first, second = map(median, zip(*times, strict=True))
    first_query, insert, query = published
    return runs[0].buckets, len(runs), first_query, empty, missing, insert, first, query, second


def _blooms(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for runs in measured.blooms:
        singly = (runs[0].singly.first_us, runs[0].singly.second_us) if runs[0].singly else (None, None)
        first, second = (median(us) for us in zip(*((r.batch.first_us, r.batch.second_us) for r in runs), strict=True))
        rows.append((runs[0].bits, runs[0].hashes, NOT_RECOVERABLE, singly[0], first, singly[1], second))
    is_quick = all(row[3] is None for row in rows)
    return Table(
        title=f"Table 3, Bloom filter: microseconds for {measured.urls:,} URLs",
        columns=_COLUMNS_3,
        rows=tuple(rows),
        note=(
            "Of the published table only m, k and the hashes are left: words of CRC32 (1), MD5 (4) and SHA1 (5). This filter "
            "is made for batches: one URL at a time it pays for arrays of one, so compare it with the SMM in one batch."
            + (" Left out by --quick: one URL at a time." if is_quick else "")
        ),
    )


def _all_methods(measured: Measured, methods: Sequence[Method]) -> Table:
    return Table(
        title="All methods: microseconds per URL, and URLs taken for known by mistake",
        columns=_COLUMNS_ALL,
        rows=tuple(
            (
                method.name,
                method.size_bytes / _KIB,
                *method.times,
                method.dropped,
                method.dropped_expected,
                method.rate,
                method.rate_expected,
            )
            for method in methods
        ),
        note=(
            f"Times: medians of the runs. KiB: on the disk for the SMM, in memory for the others. Dropped: new URLs that "
            f"pass 1 took for known. False hits: share of {measured.probes:,} URLs never inserted ({measured.missing:,} for "
            f"the tables) that are taken for known after pass 1; the published figures have none. Formulas: "
            f"1 - (1 - 1/bits)^n for the SMM, (1 - e^(-kn/m))^k for Bloom; the table is exact."
        ),
    )


def _times_panel(measured: Measured, methods: Sequence[Method]) -> Panel:
    bars = _smm_bars("fresh", measured.fresh, measured.urls)
    if reopened := measured.reopening[1:]:
        bars += _smm_bars("reopened", reopened, measured.urls)
    for method in methods[1:]:
        times = method.times
        is_batch = times.batch_first is not None
        name = f"{method.name}, one batch" if is_batch else method.name
        bars.append((name, *(times[2:] if is_batch else times[:2])))
    names, first, second = zip(*bars, strict=True)
    return Panel(
        title=f"Time per URL, {measured.urls:,} URLs",
        x_label="",
        y_label="microseconds per URL",
        curves=(_bars("pass 1: query and insert", first), _bars("pass 2: query again", second)),
        is_log_y=True,
        is_bars=True,
        names=names,
    )


def _smm_bars(store: str, runs: Sequence[SmmRun], urls: int) -> list[tuple[str, float | None, float | None]]:
    singly_first, batch_first, singly_second, batch_second = (us / urls for us in _over(runs, median))
    return [
        (f"SMM, {store} store", singly_first, singly_second),
        (f"SMM, {store} store, one batch", batch_first, batch_second),
    ]


def _rates_panel(methods: Sequence[Method]) -> Panel:
    return Panel(
        title="False positives",
        x_label="",
        y_label="share of URLs never inserted that are taken for known",
        curves=(
            _bars("measured", [method.rate for method in methods]),
            _bars("formula", [method.rate_expected or None for method in methods], is_dashed=True),
        ),
        is_log_y=True,
        is_bars=True,
        names=tuple(method.name for method in methods),
    )


def _bars(label: str, values: Sequence[float | None], *, is_dashed: bool = False) -> Curve:
    """A bar per value, none where there is no value."""
    present = [(float(place), value) for place, value in enumerate(values) if value is not None]
    x, y = zip(*present, strict=True) if present else ((), ())
    return Curve(label=label, x=x, y=y, is_dashed=is_dashed)
