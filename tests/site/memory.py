"""How much memory of its own a process and its children have: anonymous pages that are resident (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

#: Seconds between two looks.
LOOK_S = 0.05


def anonymous_bytes(pid: int) -> int:
    """RssAnon of the process alone; 0 if there is none."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that live."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def command_of(pid: int) -> bytes:
    """The command line of a process; empty if there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Peak:
    """The most that a process ever had, that its children had together, and that all had, seen by looking often."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.own_bytes = 0
        self.children_bytes = 0
        self.all_bytes = 0  #: of both at one time

    def look(self) -> None:
        """Take one sample."""
        own = anonymous_bytes(self._pid)
        # A process that is just being started still has its parent's memory, and its parent's command.
        command = command_of(self._pid)
        children = [child for child in children_of(self._pid) if command_of(child) != command]
        below = sum(map(anonymous_bytes, children))
        self.own_bytes = max(self.own_bytes, own)
        self.children_bytes = max(self.children_bytes, below)
        self.all_bytes = max(self.all_bytes, own + below)

    async def watch(self) -> None:
        """Sample until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
