"""Runs merged into one, a part at a time, so that no call does it all and memory stays small."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anabranch.dedup.exact.sortedruns import RunWriter, SortedRun, ranked


class RunMerge:
    """The merge of some runs, which have no element in common and serve until it is done."""

    def __init__(self, sources: Sequence[SortedRun], path: Path, number: int) -> None:
        self.sources = tuple(sources)
        self._places = [0] * len(sources)
        #: Elements that are still to be moved.
        self.remaining = sum(run.count for run in sources)
        self._writer = RunWriter(path, number, self.remaining)

    def step(self, elements: int) -> int:
        """Move about so many elements, 1 or more; answers how many.

        Elements that share their high half move together, so only forged ones make a step longer than asked for.
        Raises: StoreFull (an OSError), with nothing moved; it may be repeated.
        """
        stops = self._stops(max(1, elements // len(self.sources)))
        stretches = zip(self.sources, self._places, stops, strict=True)
        parts = [run.part(start, stop) for run, start, stop in stretches if start < stop]
        highs, lows = (np.concatenate(halves) for halves in zip(*parts, strict=True))
        self._writer.append(*ranked(highs, lows))
        self._places = stops
        self.remaining -= len(highs)
        return len(highs)

    def finish(self) -> SortedRun:
        """The run of all elements, once none remains. Raises: StoreFull, OSError; it may be repeated."""
        return self._writer.finish()

    def abandon(self) -> None:
        """Remove what was written."""
        self._writer.abandon()

    def _stops(self, each: int) -> list[int]:
        """Where the next part ends in each run: no run gives more than `each`, and no high half is divided."""
        stretches = list(zip(self.sources, self._places, strict=True))
        bounds = [run.high(start + each - 1) for run, start in stretches if start + each < run.count]
        if not bounds:
            return [run.count for run in self.sources]
        return [run.place_above(min(bounds), start) for run, start in stretches]
