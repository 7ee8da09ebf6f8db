"""How far a stream of lines is: one line on a terminal, which goes away at the end; nothing elsewhere."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.live import Live
from rich.text import Text

from anabranch.frontier.operating.timewords import duration_words

REFRESH_S = 0.5

#: Told of lines read, of them new ones, and bytes read, all so far.
Show: TypeAlias = Callable[[int, int, int], None]


@contextmanager
def live_totals(fd: int, *, quiet: bool) -> Iterator[Show]:
    """Show on standard error how far the reading of `fd` is, if that is a terminal and no lines come from or go to one."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal or os.isatty(fd) or os.isatty(1):
        yield lambda *_: None
        return
    about = os.fstat(fd)
    size_bytes = about.st_size if stat.S_ISREG(about.st_mode) else None
    began_s = shown_s = time.monotonic()

    def show(lines: int, new: int, read_bytes: int) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if now_s - shown_s >= REFRESH_S:
            shown_s = now_s
            part = min(read_bytes / size_bytes, 1.0) if size_bytes else None
            live.update(Text(progress_line(lines, new, now_s - began_s, part)), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield show


def progress_line(lines: int, new: int, elapsed_s: float, part: float | None) -> str:
    """One line: how long, how far, how fast, how many are new, and which part is done if the end is known. Pure."""
    rate = lines / max(elapsed_s, 1e-3)
    parts = [duration_words(elapsed_s), f"{lines:,} lines ({rate:,.0f}/s)", f"{new:,} new"]
    return " · ".join(parts if part is None else [*parts, f"{part:.0%}"])
