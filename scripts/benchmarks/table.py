"""Judged rows as a table of plain text, or as JSON."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from scripts.benchmarks.calibration import REFERENCE_ROUNDS
from scripts.benchmarks.rows import RATES, Judged

_HEAD = ("row", "what", "measured", "95 %", "scaled", "target", "ratio", "verdict")
_LEFT = (0, 1, 7)  # columns of words; the others are of numbers
_BYTES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a subject."""

    subject: str
    is_quick: bool
    took_s: float
    rows: tuple[Judged, ...]

    @property
    def falls_short(self) -> bool:
        """Whether a row missed its target or could not be measured."""
        return any(row.verdict in ("falls short", "not run") for row in self.rows)


def text_of(run: Run) -> str:
    """The table, with the machine above it and the notes below."""
    cells = [_HEAD, *map(_cells, run.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    lines = [_line(row, widths) for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"  {row.row.name}: {row.row.note}" for row in run.rows if row.row.note]
    return "\n".join([*_preface(run), "", *lines, *(["", "notes"] if notes else []), *notes])


def json_of(run: Run) -> str:
    """The run as JSON, for programs: the `machine`, and `rows` with all columns, unrounded."""
    rows = [
        asdict(row.row)
        | {
            "scaled": row.scaled,
            "ratio": row.ratio,
            "verdict": row.verdict,
            "calibration_rounds_per_s": row.calibration,
        }
        for row in run.rows
    ]
    whole = {
        "subject": run.subject,
        "quick": run.is_quick,
        "took_s": run.took_s,
        "machine": _machine(),
        "calibration": {"reference_rounds_per_s": REFERENCE_ROUNDS, "fastest_rounds_per_s": run.rows[0].fastest},
        "rows": rows,
    }
    return json.dumps(whole, indent=2)


def amount(value: float | None, unit: str) -> str:
    """A readable number: rates and numbers of four digits as integers, sizes in MiB, the rest with 3 digits."""
    if value is None:
        return ""
    if unit == "bytes":
        name, size = next(((name, size) for name, size in _BYTES.items() if abs(value) >= size), ("bytes", 1))
        return f"{value / size:,.1f} {name}"
    if unit in RATES or abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f} {unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


def _preface(run: Run) -> Iterator[str]:
    rounds, fastest, machine = [row.calibration for row in run.rows], run.rows[0].fastest, _machine()
    yield (
        f"bench {run.subject}: {run.took_s:.0f} s on {machine['cores']} cores of {machine['cpu']}, "
        f"Python {machine['python']}, numpy {machine['numpy']}, load {machine['load']} at the end"
    )
    yield (
        f"calibration loop: {fastest:.1f} rounds/s at best, {min(rounds):.1f} to {max(rounds):.1f} during the rows; "
        f"scaled = measured x {REFERENCE_ROUNDS:.0f} / {fastest:.1f}"
    )
    if run.is_quick:
        yield "quick: a twentieth of the keys, so the verdicts are hints"


def _machine() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.platform(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def _cpu() -> str:
    """The processor's name, if the system reports it."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def _cells(judged: Judged) -> tuple[str, ...]:
    row, ratio = judged.row, judged.ratio
    bound = "" if row.target is None else ("<= " if row.is_bound else ">= ") + amount(row.target, row.unit)
    scaled = amount(judged.scaled, row.unit) if row.unit in RATES else ""
    shown = "" if ratio is None else f"{ratio:.2f}"
    between = "" if row.interval is None else " to ".join(amount(end, row.unit).split(" ")[0] for end in row.interval)
    return row.name, row.what, amount(row.measured, row.unit), between, scaled, bound, shown, judged.verdict


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    placed = (
        cell.ljust(width) if column in _LEFT else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(placed).rstrip()
