"""Measures the CPU time of `import anabranch` against that of `import asyncio`, in fresh interpreters in turns."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterable

from anabranch.crawler.lab.report import in_turns
from scripts.benchmarks.rows import Row, Setting, rounds_row

_ROUNDS = 21
_TIMED = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"
_MODULES = ("asyncio", "anabranch")


def imported(setting: Setting) -> Iterable[Row]:
    """The medians of both, and of the rounds' ratios."""
    times: dict[str, list[float]] = {name: [] for name in _MODULES}
    for _, name in in_turns(_MODULES, 3 if setting.is_quick else _ROUNDS):
        times[name].append(_seconds(name))
    for name in _MODULES:
        yield Row(
            name=f"import/{name}", what=f"import {name}", measured=statistics.median(times[name]) * 1000, unit="ms"
        )
    ratios = [ours / theirs for theirs, ours in zip(*times.values(), strict=True)]
    yield rounds_row("import/ratio", "anabranch's / asyncio's, CPU time", ratios, "", target=2.0, is_bound=True)


def _seconds(module: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(module)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
