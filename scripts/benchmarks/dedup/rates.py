"""Measured false-positive rates of the DSBF, compared with the bound: at 1, 3 and 10 times the planned keys, and during splits.

The bound is f: it holds for the fullest leaf, so it holds for a random key. A measured rate may exceed 1.05 f by three
standard deviations of the sample. The planned keys do not split; three and ten times as many make the tree grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.dedup import Dsbf, DsbfParameters
from scripts.benchmarks.dedup.keys import batches, urls
from scripts.benchmarks.rows import Row, Setting

_PLANNED = 200_000
_LEAF_BITS = 1 << 19
_MULTIPLES = (1, 3, 10)
#: Rate -> probes at each multiple: enough for some 500 hits.
_PROBES = {1e-2: 100_000, 1e-3: 500_000, 1e-4: 4_000_000}
#: Numbers of probes begin here: none of them is ever marked.
_FIRST_PROBE = 10**9
_BATCH = 200
_MOMENTS = 50


@dataclass(slots=True, kw_only=True)
class Sample:
    """Counts of probes and of false positives."""

    probes: int = 0
    hits: int = 0
    highest_formula: float = 0.0  #: the highest mean rate that the filter stated when it was asked

    def ask(self, dsbf: Dsbf, count: int) -> None:
        """Add probes."""
        self.highest_formula = max(self.highest_formula, dsbf.rates()[0])
        for start in range(0, count, 50_000):
            first = _FIRST_PROBE + self.probes
            asked = urls(range(first, first + min(50_000, count - start)))
            self.hits += len(asked) - int(dsbf.unseen(asked).sum())
            self.probes += len(asked)

    @property
    def rate(self) -> float:
        """The share of false positives."""
        return self.hits / self.probes

    def row(self, name: str, what: str, bound: float, note: str) -> Row:
        """The rate, with the target 1.05 x bound + 3 sigma."""
        sigma = math.sqrt(bound * (1 - bound) / max(1, self.probes))
        probed = f"{self.hits:,} of {self.probes:,} probes, 3 sigma {3 * sigma:.2g}; {note}"
        return Row(
            name=name,
            what=what,
            measured=self.rate if self.probes else None,
            unit="",
            target=1.05 * bound + 3 * sigma,
            is_bound=True,
            note=probed,
        )


def measured(setting: Setting) -> Iterator[Row]:
    """Four rows for each of the rates."""
    for bound, probes in _PROBES.items():
        yield from _grown(setting, bound, setting.count(probes), setting.count(_PLANNED))


def _grown(setting: Setting, bound: float, probes: int, planned: int) -> Iterator[Row]:
    leaf_bits = _LEAF_BITS // 16 if setting.is_quick else _LEAF_BITS
    shape = DsbfParameters(expected=planned, false_positive=bound, leaf_bits=leaf_bits)
    amid = Sample()
    with Dsbf.open(setting.folder / f"dsbf-{bound:g}", shape) as dsbf:
        marked = 0
        for multiple in _MULTIPLES:
            setting.say(f"f = {bound:g}, {multiple} x {planned:,} keys")
            _fill(dsbf, range(marked, multiple * planned), amid, probes // _MOMENTS)
            marked = multiple * planned
            sample, now = Sample(), dsbf.statistics()
            sample.ask(dsbf, probes)
            yield sample.row(
                f"rate-{bound:g}-{multiple}n",
                f"f = {bound:g}, {multiple} x {planned:,} keys",
                bound,
                f"{now.leaves} leaves, {now.splits} splits, by formula {now.mean_rate:.3g} (worst leaf {now.worst_rate:.3g})",
            )
    note = f"asked after each {_BATCH} keys amid splits; by formula at most {amid.highest_formula:.3g}"
    yield amid.row(f"rate-{bound:g}-amid", f"f = {bound:g}, while leaves split", bound, note)


def _fill(dsbf: Dsbf, numbers: range, amid: Sample, probes: int) -> None:
    """Mark the keys of these numbers; after each batch that leaves a split under way, ask a few probes."""
    for batch in batches(urls(numbers), _BATCH):
        dsbf.mark(batch)
        if dsbf.statistics().splitting:
            amid.ask(dsbf, probes)
