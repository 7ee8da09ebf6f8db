"""The report of the SMM experiment: the published figures, the comparison of the methods, tables and panels. All pure.

The published figures are those of the text of patent CN102693315: microseconds for a whole pass over 75,012 URLs. Its table 3
is lost. `smm.py` has the measurements that this module compares and shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import expm1, log1p
from statistics import fmean, median
from typing import NamedTuple, TypeAlias, TypedDict, TypeVar

import numpy as np

from anabranch.crawler.lab.report import (
    LEAST_ROUNDS,
    NOT_RECOVERABLE,
    Cell,
    Curve,
    LabReport,
    Panel,
    Ratio,
    Table,
    ratio_of,
    shown,
)
from anabranch.dedup.bloom.formulas import false_positive_rates

URLS = 75_012
MEAN_URL_BYTES = 50.5


#: Table 1: the SMM, four runs: µs of pass 1 (query and insert) and pass 2 (query again). Run 1 found a fresh store; the source
#: does not state whether the others found it filled.
TABLE_1 = ((2_038_838, 170_205), (342_172, 165_876), (427_925, 169_508), (342_219, 165_811))
TABLE_1_MEAN = (787_788.5, 167_850.0)
#: The other reading: run 1 alone found a fresh store, so it alone has the time of query and insert.
TABLE_1_FIRST = TABLE_1[0]
#: Computed from the four runs.
TABLE_1_MEDIAN = (median(first for first, _ in TABLE_1), median(second for _, second in TABLE_1))

#: Table 2: buckets -> µs of the first query, of query and insert, and of the query after all are inserted.
TABLE_2 = {
    10: (34_742_593, 15_632_846, 34_547_932),
    100: (3_497_778, 1_116_397, 3_487_212),
    1_000: (484_152, 280_649, 482_715),
    10_000: (174_795, 252_472, 185_054),
}

#: Table 3: Bloom filters of so many bits with so many hashes; its times are lost.
BLOOM_BITS = (80_000, 8_000_000)
BLOOM_HASHES = (1, 4, 5, 6, 9, 10)


_KIB = 1 << 10
#: With less of a core than that the machine was shared, and with it its caches: ratios were then seen to move by two.
UNSHARED = 0.8
SHARED_MARGIN = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Two passes over the same URLs. Times are CPU time."""

    first_us: float  #: query all, insert the new ones
    second_us: float  #: query all again
    new: int  #: taken for new in pass 1
    forgotten: int  #: taken for new in pass 2; anything but 0 is a defect
    waited_us: float = 0.0  #: for the disk and for other programs, in both passes


@dataclass(frozen=True, slots=True, kw_only=True)
class SmmRun:
    """One opening of a store, with both ways of calling, each on a store of its own."""

    store: str  #: fresh or reopened
    singly: Passes
    batch: Passes
    open_us: float  #: opening, making the files included
    close_us: float  #: syncing to the disk and closing


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """A bitmap hash table of so many buckets."""

    buckets: int
    empty_us: float  #: query all, one URL a call, while nothing is inserted
    missing_us: float  #: query as many others, all missing, when all is inserted: whole chains are scanned
    singly: Passes
    batch: Passes
    false_hits: int  #: of the missing ones


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomRun:
    """A classic Bloom filter of m bits and k hashes."""

    bits: int
    hashes: int
    singly: Passes
    batch: Passes
    false_hits: int  #: probes taken for known


@dataclass(frozen=True, slots=True, kw_only=True)
class SmmMeasurements:
    """All measurements, one of each round for every method; the report computes means and ratios."""

    urls: int  #: in the input, repeats included
    distinct: int
    mean_url_bytes: float
    missing: int  #: URLs never inserted that the tables were asked for
    probes: int  #: URLs never inserted that the others were asked for
    reopening: tuple[SmmRun, ...]  #: the first on a fresh store, the others on the same, reopened
    fresh: tuple[SmmRun, ...]  #: each on a fresh store
    smm_false_hits: int
    smm_bits: int  #: that the store has
    smm_disk_bytes: int  #: blocks that the store takes
    tables: tuple[tuple[TableRun, ...], ...]  #: per number of buckets
    table_bytes: int  #: that the URLs of a table take in memory, without its buckets
    blooms: tuple[tuple[BloomRun, ...], ...]  #: per (bits, hashes)
    is_linear: bool = False  #: the SMM's signature


class Times(NamedTuple):
    """Microseconds per URL, on a fresh store or filter; None where nothing was measured."""

    first: float | None = None  #: pass 1, query and insert, one URL a call
    second: float | None = None  #: pass 2, query again
    batch_first: float | None = None
    batch_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method; its times are medians over its runs, since other work on the machine disturbs single ones."""

    family: str  #: SMM, bitmap table, or Bloom with its m
    member: str = ""  #: its name within the family, like `B=10`
    times: Times
    rounds: tuple[Times, ...] = ()  #: of each round; empty for published figures
    size_bytes: float = 0.0  #: on the disk for the SMM, in memory for the others
    dropped: int = 0  #: new URLs that pass 1 took for known
    dropped_expected: float = 0.0
    rate: float = 0.0  #: share of URLs never inserted that are taken for known
    rate_expected: float = 0.0

    @property
    def name(self) -> str:
        """The name at the head of the method's row."""
        return f"{self.family} {self.member}".rstrip()


#: One of a method's times, in microseconds.
Value: TypeAlias = Callable[[Times], float | None]
R = TypeVar("R", float, Ratio)


def methods_of(measured: SmmMeasurements) -> list[Method]:
    """The SMM first."""
    tables = [_table(runs, measured) for runs in measured.tables]
    return [_smm(measured), *tables, *(_bloom(runs, measured) for runs in measured.blooms)]


def published_methods(smm_us: tuple[float, float] = TABLE_1_MEAN) -> list[Method]:
    """The figures of tables 1 and 2; the SMM's are the means of all four runs, or those of one reading."""
    smm = Method(family="SMM", times=Times(smm_us[0] / URLS, smm_us[1] / URLS))
    tables = (
        Method(family="bitmap table", member=f"B={buckets:,}", times=Times(insert / URLS, query / URLS))
        for buckets, (_, insert, query) in TABLE_2.items()
    )
    return [smm, *tables]


def _smm(measured: SmmMeasurements) -> Method:
    n, bits = measured.distinct, measured.smm_bits
    rate = -expm1(n * log1p(-1 / bits))  # 1 - (1 - 1/b)^n
    return Method(
        family="SMM",
        **_timed(measured.fresh, measured.urls),
        size_bytes=measured.smm_disk_bytes,
        dropped=n - measured.fresh[0].singly.new,
        dropped_expected=n - bits * rate,
        rate=measured.smm_false_hits / max(1, measured.probes),
        rate_expected=rate,
    )


def _table(runs: Sequence[TableRun], measured: SmmMeasurements) -> Method:
    return Method(
        family="bitmap table",
        member=f"B={runs[0].buckets:,}",
        **_timed(runs, measured.urls),
        size_bytes=measured.table_bytes + 64 * runs[0].buckets,
        dropped=measured.distinct - runs[0].batch.new,
        rate=runs[0].false_hits / max(1, measured.missing),
    )


def _bloom(runs: Sequence[BloomRun], measured: SmmMeasurements) -> Method:
    bits, hashes = runs[0].bits, runs[0].hashes
    rates = false_positive_rates(bits, hashes, np.arange(measured.distinct + 1))
    return Method(
        family=f"Bloom m={bits:,}",
        member=f"k={hashes}",
        **_timed(runs, measured.urls),
        size_bytes=bits / 8,
        dropped=measured.distinct - runs[0].batch.new,
        dropped_expected=float(rates[:-1].sum()),
        rate=runs[0].false_hits / max(1, measured.probes),
        rate_expected=float(rates[-1]),
    )


class _Times(TypedDict):
    times: Times
    rounds: tuple[Times, ...]


def _timed(runs: Sequence[SmmRun] | Sequence[TableRun] | Sequence[BloomRun], urls: int) -> _Times:
    """The times of each round per URL, and their medians."""
    rounds = tuple(
        Times(
            first=run.singly.first_us / urls,
            second=run.singly.second_us / urls,
            batch_first=run.batch.first_us / urls,
            batch_second=run.batch.second_us / urls,
        )
        for run in runs
    )
    return {"times": Times(*map(median, zip(*rounds, strict=True))) if rounds else Times(), "rounds": rounds}


#: The times that are compared: in words, and which.
VALUES: tuple[tuple[str, Value], ...] = (
    ("Repeated query, one URL a call", lambda times: times.second),
    ("Repeated query in one batch", lambda times: times.batch_second),
    ("Query and insert into a fresh store, one URL a call", lambda times: times.first),
    ("Query and insert into a fresh store in one batch", lambda times: times.batch_first),
)


def closing_of(measured: SmmMeasurements) -> tuple[str, ...]:
    """Return sentences on where the SMM wins and loses, in this run and in the published figures."""
    methods, published = methods_of(measured), published_methods()
    share = core_share(measured)
    margin = 1.0 if share >= UNSHARED else SHARED_MARGIN
    lines = (
        *(compared(what, methods, value, margin) for what, value in VALUES),
        "" if margin == 1 else _shared(share),
        "" if len(measured.fresh) >= LEAST_ROUNDS else _few_rounds(len(measured.fresh)),
        beside("Published repeated query", published, lambda times: times.second),
        beside(
            "Published query and insert, if every run had a fresh store (mean of four)",
            published,
            lambda times: times.first,
        ),
        beside(
            "Published query and insert, if only run 1 had one",
            published_methods(TABLE_1_FIRST),
            lambda times: times.first,
        ),
        errors_compared(methods),
        _LINEAR if measured.is_linear else "",
        sizes_compared(methods, measured.distinct),
        _forgotten(measured),
    )
    return tuple(line for line in lines if line)


def _shared(share: float) -> str:
    return (
        f"The machine was shared: the passes had {share:.0%} of a core, and only a part of the caches, which slows methods "
        f"that read much memory more than others. So no verdict is within a factor of {SHARED_MARGIN:g}; a quiet machine "
        "decides those."
    )


def core_share(measured: SmmMeasurements) -> float:
    """The part of a core that passes had which wait for nothing but other programs: those of the Bloom filters in one batch."""
    passes = [run.batch for runs in measured.blooms for run in runs]
    used = sum(each.first_us + each.second_us for each in passes)
    return used / (used + sum(each.waited_us for each in passes)) if used else 1.0


def _few_rounds(rounds: int) -> str:
    number, least = f"{rounds} round{'s' * (rounds != 1)}", LEAST_ROUNDS
    return f"No verdict from {number}: ratios have an interval from {least} on (--runs {least})."


#: By published figures, one of each, so that they have no interval.
_OF_PUBLISHED: Sequence[tuple[str, Callable[[float], bool]]] = (
    ("less than {0} ({1} as fast)", lambda ratio: ratio > 1),
    ("more than {0} (takes {1} as long)", lambda ratio: ratio <= 1),
)
#: By the ratio of the false-positive rates, by formula.
_OF_RATES: Sequence[tuple[str, Callable[[float], bool]]] = (
    ("wins against {0}", lambda ratio: ratio > 1),
    ("loses to {0}", lambda ratio: 0 < ratio <= 1),
    ("loses to {0}, which makes none", lambda ratio: ratio == 0),
)
#: By the ratio of their memory to the SMM's disk space.
_OF_SIZES: Sequence[tuple[str, Callable[[float], bool]]] = (
    ("less than the memory of {0}", lambda ratio: ratio > 1),
    ("more than the memory of {0}", lambda ratio: ratio <= 1),
)


def ratios(methods: Sequence[Method], value: Value) -> list[tuple[Method, Ratio]]:
    """The times of the others over those of the SMM in the same rounds; those without such a time are left out."""
    found = []
    smm = [value(times) for times in methods[0].rounds]
    for other in methods[1:]:
        pairs = [(theirs, ours) for ours, times in zip(smm, other.rounds, strict=False) if (theirs := value(times))]
        if pairs and all(ours for _, ours in pairs):
            found.append((other, ratio_of([theirs for theirs, _ in pairs], [ours or 0.0 for _, ours in pairs])))
    return found


def compared(what: str, methods: Sequence[Method], value: Value, margin: float = 1.0) -> str:
    """One line: the first method's time, and which of the others it beats or loses to. Empty without others, or intervals.

    A verdict takes an interval that is beyond the margin.
    """
    ours, rivals = value(methods[0].times), ratios(methods, value)
    if not ours or not any(ratio.interval for _, ratio in rivals):
        return ""
    #: {0} names the rivals, {1} is the range of the factors.
    verdicts: Sequence[tuple[str, Callable[[Ratio], bool]]] = (
        ("wins against {0} ({1} as fast)", lambda ratio: ratio.is_above(margin)),
        ("no difference shown to {0}", lambda ratio: not (ratio.is_above(margin) or ratio.is_below(1 / margin))),
        ("loses to {0} (takes {1} as long)", lambda ratio: ratio.is_below(1 / margin)),
    )
    words = _judged(rivals, verdicts, methods, lambda ratio: ratio.median)
    return f"{what}: {'; '.join([f'SMM {shown(ours)} µs per URL', *words])}."


def beside(what: str, methods: Sequence[Method], value: Value) -> str:
    """One line: the first method's published time, and those of the others."""
    ours = value(methods[0].times) or 0.0
    rivals = [(other, theirs / ours) for other in methods[1:] if (theirs := value(other.times))]
    verdicts = _judged(rivals, _OF_PUBLISHED, methods, float)
    return f"{what}, one figure each: {'; '.join([f'SMM {shown(ours)} µs per URL', *verdicts])}."


def errors_compared(methods: Sequence[Method]) -> str:
    """One line on false positives, ranked by the formulas, which have no sampling error."""
    smm = methods[0]
    rivals = [(other, other.rate_expected / smm.rate_expected) for other in methods[1:]]
    ours = f"SMM {shown(smm.rate)} measured, {shown(smm.rate_expected)} by the formula"
    return f"False positives: {'; '.join([ours, *_judged(rivals, _OF_RATES, methods, float)])}."


def sizes_compared(methods: Sequence[Method], distinct: int) -> str:
    """One line on space: the SMM on the disk, the others in memory."""
    smm = methods[0]
    rivals = [(other, other.size_bytes / smm.size_bytes) for other in methods[1:]]
    ours = f"SMM {shown(smm.size_bytes / _KIB)} KiB on the disk for {distinct:,} URLs, and keeps them when it ends"
    return f"Space: {'; '.join([ours, *_judged(rivals, _OF_SIZES, methods, float)])}."


_LINEAR = (
    "The signature is linear: two sites whose names collide do so in every common path, so an SMM alone loses whole sites. "
    "The rate above is the mean over unrelated URLs."
)


def _judged(
    rivals: Sequence[tuple[Method, R]],
    verdicts: Sequence[tuple[str, Callable[[R], bool]]],
    methods: Sequence[Method],
    figure: Callable[[R], float],
) -> Iterator[str]:
    """The verdicts on the rivals, each with its ratio to the SMM; verdicts without rivals are left out."""
    for words, is_meant in verdicts:
        if chosen := [(other, figure(ratio)) for other, ratio in rivals if is_meant(ratio)]:
            yield words.format(named((other for other, _ in chosen), methods), _span([ratio for _, ratio in chosen]))


def _span(ratios: Sequence[float]) -> str:
    """How many times faster, or slower, from the least to the most."""
    factors = sorted(max(ratio, 1 / ratio) if ratio else 0.0 for ratio in ratios)
    low, high = (f"{factor:.2g}" if factor < 10 else f"{factor:.0f}" for factor in (factors[0], factors[-1]))
    return f"{low} times" if low == high else f"{low} to {high} times"


def named(methods: Iterable[Method], among: Sequence[Method]) -> str:
    """Methods by families, as in `bitmap table with B=10, 100 and every Bloom m=80,000`."""
    groups = []
    for family, of_family in groupby(methods, key=lambda method: method.family):
        members = [method.member for method in of_family]
        if len(members) > 1 and len(members) == sum(method.family == family for method in among):
            groups.append(f"every {family}")
        else:
            key = members[0].partition("=")[0]
            groups.append(f"{family} with {key}={', '.join(member.rpartition('=')[2] for member in members)}")
    return " and ".join(groups)


def _forgotten(measured: SmmMeasurements) -> str:
    lost = sum(passes.forgotten for passes in _all_passes(measured))
    lost += sum(run.singly.new + run.batch.new for run in measured.reopening if run.store == "reopened")
    return "No method forgot a URL, reopened stores included." if not lost else f"DEFECT: {lost:,} URLs were forgotten."


def _all_passes(measured: SmmMeasurements) -> Iterator[Passes]:
    for smm in (*measured.reopening, *measured.fresh):
        yield from (smm.singly, smm.batch)
    for table in chain.from_iterable(measured.tables):
        yield from (table.singly, table.batch)
    for bloom in chain.from_iterable(measured.blooms):
        yield from (bloom.singly, bloom.batch)


Average: TypeAlias = Callable[[Sequence[float]], float]

_MACHINES = (
    "The published program is C on a machine of 2012, this one Python on yours: times of the two do not compare, the "
    "ratios between methods do."
)

_COLUMNS_1 = (
    "run",
    "store",
    "pass 1 (query + insert): published",
    "one URL a call",
    "in one batch",
    "pass 2 (query again): published",
    "one URL a call again",
    "in one batch again",
)
_COLUMNS_2 = (
    "buckets",
    "runs",
    "first query: published",
    "of the empty table",
    "of the full table, all missing",
    "query + insert: published",
    "one URL a call",
    "in one batch",
    "query after all inserted: published",
    "one URL a call again",
    "in one batch again",
)
_COLUMNS_3 = (
    "m, bits",
    "k",
    "published",
    "query + insert: one URL a call",
    "in one batch",
    "query again: one URL a call",
    "in one batch again",
)
_COLUMNS_ALL = (
    "method",
    "KiB",
    "pass 1, one a call",
    "pass 2, one a call",
    "pass 1, batch",
    "pass 2, batch",
    "new URLs dropped",
    "expected to drop",
    "false hits",
    "by formula",
)
_COLUMNS_RATIOS = (
    "method",
    "pass 2, one a call",
    "95 %",
    "pass 2, batch",
    "95 % (pass 2, batch)",
    "pass 1, one a call",
    "95 % (pass 1)",
    "pass 1, batch",
    "95 % (pass 1, batch)",
)


def report_of(measured: SmmMeasurements) -> LabReport:
    """Tables 1 to 3, then all methods side by side, and their ratios to the SMM."""
    methods = methods_of(measured)
    tables = (
        _smm_table(measured, measured.reopening, "runs 2 and later on the reopened store"),
        _smm_table(measured, measured.fresh, "every run on a fresh store"),
        _hash_tables(measured),
        _blooms(measured),
        _all_methods(measured, methods),
        _ratios_table(methods),
    )
    panels = (_times_panel(measured, methods), _rates_panel(methods))
    return LabReport(name="smm", tables=tables, panels=panels, closing=closing_of(measured))


def _smm_table(measured: SmmMeasurements, runs: Sequence[SmmRun], case: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for number, run in enumerate(runs, 1):
        published = TABLE_1[number - 1] if number <= len(TABLE_1) else (None, None)
        rows.append((str(number), run.store, published[0], *_times(run)[:2], published[1], *_times(run)[2:]))
    averages = (("mean", TABLE_1_MEAN, _over(runs, fmean)), ("median", TABLE_1_MEDIAN, _over(runs, median)))
    rows += [(name, None, first, *ours[:2], second, *ours[2:]) for name, (first, second), ours in averages]
    for name, (first, second), ours in averages:
        per_url = [us / measured.urls for us in ours]
        rows.append((f"{name}/URL", None, first / URLS, *per_url[:2], second / URLS, *per_url[2:]))
    waits = [run.singly.waited_us + run.batch.waited_us for run in runs]
    open_ms, close_ms = (fmean(us) / 1000 for us in zip(*((run.open_us, run.close_us) for run in runs), strict=True))
    return Table(
        title=f"Table 1, SMM, {case}: microseconds for {measured.urls:,} URLs",
        columns=_COLUMNS_1,
        rows=tuple(rows),
        note=(
            f"{measured.distinct:,} URLs are distinct, {measured.mean_url_bytes:.1f} bytes on average; published: "
            f"{URLS:,} of 50.5 bytes, four runs, it is unknown which of them on a fresh store. The store is open to other "
            f"processes, as published: an inserting call takes a lock. CPU time of the thread. Not counted: opening the store "
            f"({open_ms:.0f} ms on average), waiting for the disk and for other programs in both passes, one URL a call and in "
            f"one batch ({fmean(waits) / 1000:.0f} ms), and writing the store to the disk at the end ({close_ms:.0f} ms). "
            f"{_MACHINES}"
        ),
    )


def _times(run: SmmRun) -> tuple[float, ...]:
    """Pass 1, one URL a call and in one batch; then pass 2."""
    return run.singly.first_us, run.batch.first_us, run.singly.second_us, run.batch.second_us


def _over(runs: Sequence[SmmRun], average: Average) -> list[float]:
    return [average(times) for times in zip(*map(_times, runs), strict=True)]


def _hash_tables(measured: SmmMeasurements) -> Table:
    rows = [_hash_table_row(runs) for runs in measured.tables]
    left_out = [f"{buckets:,}" for buckets in TABLE_2 if buckets not in {row[0] for row in rows}]
    return Table(
        title=f"Table 2, bitmap hash table: microseconds for {measured.urls:,} URLs",
        columns=_COLUMNS_2,
        rows=tuple(rows),
        note=(
            f"The published first query took as long as the last one, so its table was not empty; both cases are measured: an "
            f"empty table, and {measured.missing:,} others in the full one, one URL a call. Of 10,000 URLs or more each round "
            f"times a ninth in tables of 10 and 100 buckets, each round another ninth. CPU time, medians of the runs."
            + (f" Left out by --quick: {', '.join(left_out)} buckets." if left_out else "")
        ),
    )


def _hash_table_row(runs: Sequence[TableRun]) -> tuple[Cell, ...]:
    published = TABLE_2[runs[0].buckets]
    times = [
        (
            run.empty_us,
            run.missing_us,
            run.singly.first_us,
            run.batch.first_us,
            run.singly.second_us,
            run.batch.second_us,
        )
        for run in runs
    ]
    empty, missing, *passes = map(median, zip(*times, strict=True))
    first_query, insert, query = published
    return runs[0].buckets, len(runs), first_query, empty, missing, insert, *passes[:2], query, *passes[2:]


def _blooms(measured: SmmMeasurements) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for runs in measured.blooms:
        times = [(run.singly.first_us, run.batch.first_us, run.singly.second_us, run.batch.second_us) for run in runs]
        rows.append((runs[0].bits, runs[0].hashes, NOT_RECOVERABLE, *map(median, zip(*times, strict=True))))
    return Table(
        title=f"Table 3, Bloom filter: microseconds for {measured.urls:,} URLs",
        columns=_COLUMNS_3,
        rows=tuple(rows),
        note=(
            "Of the published table only m, k and the hashes are left: words of CRC32 (1), MD5 (4) and SHA1 (5). CPU time, "
            "medians of the runs; one URL a call by a ninth of the URLs, each run another ninth."
        ),
    )


def _all_methods(measured: SmmMeasurements, methods: Sequence[Method]) -> Table:
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


def _ratios_table(methods: Sequence[Method]) -> Table:
    """The time of each method over the SMM's, with its interval."""
    found = [dict[str, Ratio]((other.name, ratio) for other, ratio in ratios(methods, value)) for _, value in VALUES]
    return Table(
        title=f"All methods: their CPU time over that of the SMM in the same round, {len(methods[0].rounds)} rounds",
        columns=_COLUMNS_RATIOS,
        rows=tuple(
            (other.name, *chain.from_iterable(_ratio_cells(each.get(other.name)) for each in found))
            for other in methods[1:]
        ),
        note=(
            "Above 1 the SMM is faster. Medians of the ratios, and their 95 % intervals (bootstrap); an interval that holds 1 "
            "shows no difference. The methods took turns, each round in the reverse order of the one before; inserts go into "
            "fresh stores."
        ),
    )


def _ratio_cells(ratio: Ratio | None) -> tuple[Cell, Cell]:
    if ratio is None:
        return None, None
    return ratio.median, "" if ratio.interval is None else f"{ratio.interval[0]:.3g} to {ratio.interval[1]:.3g}"


def _times_panel(measured: SmmMeasurements, methods: Sequence[Method]) -> Panel:
    bars = _smm_bars("fresh", measured.fresh, measured.urls)
    if reopened := measured.reopening[1:]:
        bars += _smm_bars("reopened", reopened, measured.urls)
    for method in methods[1:]:
        bars += [(method.name, *method.times[:2]), (f"{method.name}, one batch", *method.times[2:])]
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
