"""The result of a benchmark, and its verdict. Data only."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.lab.report import LEAST_ROUNDS, interval
from scripts.benchmarks.calibration import REFERENCE_ROUNDS

#: The units that are rates; they are scaled by the calibration loop, all others are shown as measured.
RATES = ("URLs/s", "pages/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure. Without a target it is shown for comparison; without `measured` it could not be measured."""

    name: str  #: of the row, beginning with the group's name
    what: str  #: what was done
    measured: float | None
    unit: str  #: of `measured` and `target`: "URLs/s", "ms", "bytes", "s", "" …
    target: float | None = None
    is_bound: bool = False  #: the target is the most that is allowed, not the least
    interval: tuple[float, float] | None = None  #: that holds the true figure with 95 %; None: unknown
    note: str = ""  #: an explanation for the reader


def rounds_row(
    name: str,
    what: str,
    figures: Sequence[float],
    unit: str,
    *,
    target: float | None = None,
    is_bound: bool = False,
    note: str = "",
) -> Row:
    """The row of a figure that was measured in alternated rounds, such as a ratio: its median, with its 95 % interval.

    Of fewer than `LEAST_ROUNDS` rounds the interval is unknown, and with a target the verdict is a hint.
    """
    between = interval(figures) if len(figures) >= LEAST_ROUNDS else None
    spread = f"{min(figures):,.4g} to {max(figures):,.4g} in {len(figures)} round{'s' * (len(figures) != 1)}"
    known = "" if between else f"an interval takes {LEAST_ROUNDS}"
    return Row(
        name=name,
        what=what,
        measured=statistics.median(figures),
        unit=unit,
        target=target,
        is_bound=is_bound,
        interval=between,
        note="; ".join(filter(None, (spread, known, note))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row with the calibration loop's speed."""

    row: Row
    calibration: float  #: rounds per second, the mean of those before and after the row was measured
    fastest: float  #: rounds per second, the best of the run: the speed of the undisturbed machine

    @property
    def scaled(self) -> float | None:
        """The figure for the reference machine. A disturbance lowers it, because `fastest` was measured without it."""
        if self.row.measured is None or self.row.unit not in RATES:
            return self.row.measured
        return self.row.measured * REFERENCE_ROUNDS / self.fastest

    @property
    def ratio(self) -> float | None:
        """How many times better than its target: 1 and more is met. None without a target or if either is 0."""
        if not self.scaled or not self.row.target:
            return None
        return self.row.target / self.scaled if self.row.is_bound else self.scaled / self.row.target

    @property
    def verdict(self) -> str:
        """`met`, `falls short`, `undecided`, `not run`, or nothing where there is no target.

        A row with an interval is undecided if its target is within that: more rounds decide.
        """
        row, scaled = self.row, self.scaled
        if scaled is None or row.measured is None:
            return "not run"
        if row.target is None:
            return ""
        ends = [end * scaled / row.measured for end in row.interval] if row.interval and row.measured else [scaled]
        met = {figure <= row.target if row.is_bound else figure >= row.target for figure in ends}
        return "undecided" if len(met) > 1 else "met" if met == {True} else "falls short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Options of subjects that crawl."""

    rounds: int = 5
    pages: int = 3_000  #: of the site
    loop: str = "asyncio"  #: the event loop of everyone: asyncio or uvloop
    peers: Path | None = None  #: where the peers' environments are; None: in the user's cache
    picture: Path | None = None  #: where the curve of a long crawl is drawn
    resume: Path | None = None  #: a file with the finished crawls of an earlier run, which are not run again


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The environment of a group."""

    folder: Path  #: empty, on a real disk; removed afterwards
    is_quick: bool  #: a small version
    say: Callable[[str], None]  #: reports progress to the user
    wishes: Wishes = Wishes()

    @property
    def rounds(self) -> int:
        """Rounds of crawls; one in the small version."""
        return 1 if self.is_quick else self.wishes.rounds

    @property
    def pages(self) -> int:
        """Pages of the site; at least two, because one has no rate."""
        return max(self.count(self.wishes.pages), 2)

    def count(self, full: int) -> int:
        """That many keys, or a twentieth of them in the small version."""
        return full // 20 if self.is_quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows that are measured together; the smallest part of a subject that `--only` selects."""

    name: str
    what: str
    run: Callable[[Setting], Iterable[Row]]
