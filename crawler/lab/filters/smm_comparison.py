"""Who wins the SMM experiment: one `Method` per row, out of what was measured or published, and the closing words. All pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import expm1, log1p
from statistics import median
from typing import NamedTuple, TypeAlias

import numpy as np

from anabranch.crawler.lab.filters.smm_passes import BloomRun, Measured, Passes, TableRun
from anabranch.crawler.lab.filters.smm_published import TABLE_1_MEAN, TABLE_2, URLS
from anabranch.crawler.lab.report import shown
from anabranch.dedup.dsbf.bloom import false_positive_rates

_KIB = 1 << 10
#: Times closer than by this factor count as even: two runs of one method differ by as much.
EVEN_WITHIN = 1.1


class Times(NamedTuple):
    """Microseconds per URL, on a fresh store or filter; None where nothing was measured."""

    first: float | None = None  #: pass 1, query and insert, one URL at a time
    second: float | None = None  #: pass 2, query again
    batch_first: float | None = None
    batch_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method; its times are medians over its runs, since other work on the machine disturbs single ones."""

    family: str  #: SMM, bitmap table, or Bloom with its m
    member: str = ""  #: what tells it from others of the family, like `B=10`
    times: Times
    size_bytes: float = 0.0  #: on the disk for the SMM, in memory for the others
    dropped: int = 0  #: new URLs that pass 1 took for known
    dropped_expected: float = 0.0
    rate: float = 0.0  #: share of URLs never inserted that are taken for known
    rate_expected: float = 0.0

    @property
    def name(self) -> str:
        """As a row is headed."""
        return f"{self.family} {self.member}".rstrip()


#: A time of a method, in microseconds.
Value: TypeAlias = Callable[[Method], float | None]
#: Words, and whether they are meant for a rival of that ratio to the SMM.
Verdicts: TypeAlias = Sequence[tuple[str, Callable[[float], bool]]]


def methods_of(measured: Measured) -> list[Method]:
    """The SMM first."""
    tables = [_table(runs, measured) for runs in measured.tables]
    return [_smm(measured), *tables, *(_bloom(runs, measured) for runs in measured.blooms)]


def published_methods() -> list[Method]:
    """What tables 1 and 2 say; the SMM's first pass is the mean of all four runs."""
    smm = Method(family="SMM", times=Times(TABLE_1_MEAN.first_us / URLS, TABLE_1_MEAN.second_us / URLS))
    tables = (
        Method(family="bitmap table", member=f"B={buckets:,}", times=Times(insert / URLS, query / URLS))
        for buckets, (_, insert, query) in TABLE_2.items()
    )
    return [smm, *tables]


def _smm(measured: Measured) -> Method:
    n, bits = measured.distinct, measured.smm_bits
    rate = -expm1(n * log1p(-1 / bits))  # 1 - (1 - 1/b)^n
    return Method(
        family="SMM",
        times=_times([run.singly for run in measured.fresh], [run.batch for run in measured.fresh], measured.urls),
        size_bytes=measured.smm_disk_bytes,
        dropped=n - measured.fresh[0].singly.new,
        dropped_expected=n - bits * rate,
        rate=measured.smm_false_hits / max(1, measured.probes),
        rate_expected=rate,
    )


def _table(runs: Sequence[TableRun], measured: Measured) -> Method:
    return Method(
        family="bitmap table",
        member=f"B={runs[0].buckets:,}",
        times=_times([run.passes for run in runs], [], measured.urls),
        size_bytes=measured.table_bytes + 64 * runs[0].buckets,
        dropped=measured.distinct - runs[0].passes.new,
        rate=runs[0].false_hits / max(1, measured.missing),
    )


def _bloom(runs: Sequence[BloomRun], measured: Measured) -> Method:
    bits, hashes = runs[0].bits, runs[0].hashes
    rates = false_positive_rates(bits, hashes, np.arange(measured.distinct + 1))
    singly = [run.singly for run in runs if run.singly]
    return Method(
        family=f"Bloom m={bits:,}",
        member=f"k={hashes}",
        times=_times(singly, [run.batch for run in runs], measured.urls),
        size_bytes=bits / 8,
        dropped=measured.distinct - runs[0].batch.new,
        dropped_expected=float(rates[:-1].sum()),
        rate=runs[0].false_hits / max(1, measured.probes),
        rate_expected=float(rates[-1]),
    )


def _times(singly: Sequence[Passes], batch: Sequence[Passes], urls: int) -> Times:
    """Medians over the runs."""
    return Times(
        first=_median([run.first_us for run in singly], urls),
        second=_median([run.second_us for run in singly], urls),
        batch_first=_median([run.first_us for run in batch], urls),
        batch_second=_median([run.second_us for run in batch], urls),
    )


def _median(runs_us: Sequence[float], urls: int) -> float | None:
    """Per URL; None without runs."""
    return median(runs_us) / urls if runs_us else None


def closing_of(measured: Measured) -> tuple[str, ...]:
    """What the SMM wins and what it loses in this run, and what the published figures say."""
    methods, published = methods_of(measured), published_methods()
    singly = methods[: 1 + len(measured.tables)]  # a Bloom filter made for batches is no rival one URL at a time
    lines = (
        compared("Repeated query, one URL at a time", singly, lambda method: method.times.second),
        compared("Repeated query in one batch", methods, lambda method: method.times.batch_second),
        compared("Query and insert into a fresh store, one URL at a time", singly, lambda method: method.times.first),
        compared("Query and insert into a fresh store in one batch", methods, lambda method: method.times.batch_first),
        compared("Published repeated query", published, lambda method: method.times.second),
        compared("Published query and insert, mean of four runs", published, lambda method: method.times.first),
        errors_compared(methods),
        sizes_compared(methods, measured.distinct),
        _forgotten(measured),
    )
    return tuple(line for line in lines if line)


#: What is said of rivals whose time is so many times the SMM's: {0} names them, {1} is the span of the factors.
_OF_TIMES: Verdicts = (
    ("wins against {0} ({1} as fast)", lambda ratio: ratio > EVEN_WITHIN),
    ("about even with {0}", lambda ratio: 1 / EVEN_WITHIN <= ratio <= EVEN_WITHIN),
    ("loses to {0} (takes {1} as long)", lambda ratio: ratio < 1 / EVEN_WITHIN),
)
#: Of rivals whose false-positive rate by the formula is so many times the SMM's.
_OF_RATES: Verdicts = (
    ("wins against {0}", lambda ratio: ratio > 1),
    ("loses to {0}", lambda ratio: 0 < ratio <= 1),
    ("loses to {0}, which makes none", lambda ratio: ratio == 0),
)
#: Of rivals whose memory is so many times the SMM's disk.
_OF_SIZES: Verdicts = (
    ("less than the memory of {0}", lambda ratio: ratio > 1),
    ("more than the memory of {0}", lambda ratio: ratio <= 1),
)


def compared(what: str, methods: Sequence[Method], value: Value) -> str:
    """One line: the first method's time, and which of the others it beats, equals or loses to; empty without others."""
    ours = value(methods[0])
    rivals = [(other, theirs / ours) for other in methods[1:] if ours and (theirs := value(other))]
    if not rivals or not ours:
        return ""
    return f"{what}: {'; '.join([f'SMM {shown(ours)} µs per URL', *_judged(rivals, _OF_TIMES, methods)])}."


def errors_compared(methods: Sequence[Method]) -> str:
    """One line on false positives, ranked by the formulas, which have no sampling error."""
    smm = methods[0]
    rivals = [(other, other.rate_expected / smm.rate_expected) for other in methods[1:]]
    ours = f"SMM {shown(smm.rate)} measured, {shown(smm.rate_expected)} by the formula"
    return f"False positives: {'; '.join([ours, *_judged(rivals, _OF_RATES, methods)])}."


def sizes_compared(methods: Sequence[Method], distinct: int) -> str:
    """One line on what the methods take: the SMM on the disk, the others in memory."""
    smm = methods[0]
    rivals = [(other, other.size_bytes / smm.size_bytes) for other in methods[1:]]
    ours = f"SMM {shown(smm.size_bytes / _KIB)} KiB on the disk for {distinct:,} URLs, and keeps them when it ends"
    return f"Space: {'; '.join([ours, *_judged(rivals, _OF_SIZES, methods)])}."


def _judged(rivals: Sequence[tuple[Method, float]], verdicts: Verdicts, methods: Sequence[Method]) -> Iterator[str]:
    """What is said of the rivals, each beside its ratio to the SMM; nothing where nobody is meant."""
    for words, is_meant in verdicts:
        if chosen := [(other, ratio) for other, ratio in rivals if is_meant(ratio)]:
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


def _forgotten(measured: Measured) -> str:
    lost = sum(passes.forgotten for passes in _all_passes(measured))
    lost += sum(run.singly.new + run.batch.new for run in measured.reopening if run.store == "reopened")
    return "No method forgot a URL, reopened stores included." if not lost else f"DEFECT: {lost:,} URLs were forgotten."


def _all_passes(measured: Measured) -> Iterator[Passes]:
    for smm in (*measured.reopening, *measured.fresh):
        yield from (smm.singly, smm.batch)
    yield from (table.passes for runs in measured.tables for table in runs)
    for bloom in chain.from_iterable(measured.blooms):
        yield bloom.batch
        yield from [bloom.singly] if bloom.singly else []
