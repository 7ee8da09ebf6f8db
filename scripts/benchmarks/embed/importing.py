"""Measures the time of `import anabranch` against that of `import asyncio`, in fresh interpreters in turns."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterable

from scripts.benchmarks.rows import Row, Setting

_ROUNDS = 21
_TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
_MODULES = ("asyncio", "anabranch")


def imported(setting: Setting) -> Iterable[Row]:
    """The medians of both, and of the rounds' ratios."""
    rounds = [tuple(map(_seconds, _MODULES)) for _ in range(3 if setting.is_quick else _ROUNDS)]
    for name, times in zip(_MODULES, zip(*rounds, strict=True), strict=True):
        yield Row(name=f"import/{name}", what=f"import {name}", measured=statistics.median(times) * 1000, unit="ms")
    ratios = sorted(ours / theirs for theirs, ours in rounds)
    yield Row(
        name="import/ratio",
        what=f"anabranch's / asyncio's, {ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds",
        measured=statistics.median(ratios),
        unit="",
        target=2.0,
        is_bound=True,
    )


def _seconds(module: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(module)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
