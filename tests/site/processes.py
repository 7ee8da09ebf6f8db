"""Which processes a process has started, and whether they are still there (Linux)."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


class Watched:
    """Processes, told apart from later ones of the same number. `alive` says which of them have not ended."""

    def __init__(self, descriptors: Mapping[int, int]) -> None:
        self._descriptors = descriptors

    def alive(self, wait_s: float = 0.0) -> list[int]:
        """Those that live; it waits so long for the last one to end."""
        living = dict(self._descriptors)
        while living and (ended := select.select([*living], [], [], wait_s)[0]):
            living = {descriptor: pid for descriptor, pid in living.items() if descriptor not in ended}
        return [*living.values()]


@contextmanager
def watched(*pids: int) -> Iterator[Watched]:
    """Watch these processes, which live or are not yet waited for."""
    with ExitStack() as stack:
        descriptors = {}
        for pid in pids:
            descriptors[os.pidfd_open(pid)] = pid
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        yield Watched(descriptors)


def started_by(pid: int, word: str = "") -> list[int]:
    """The children of a process, and theirs, in whose command line the word is. Cost: a look at all processes."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
    found, below = [], {pid}
    while below := {child for child, parent in parents.items() if parent in below}:
        found += sorted(below)
    return [child for child in found if word in _command_of(child)]


def _command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""
