"""Watches a crawl from outside: what its processes use, read from /proc while they run. Linux alone.

A crawl counts from the first request to the last, as the server saw them, so starting the interpreter and tidying up do not
count, and no contestant is changed for the measurement. Its use is sampled every 10 ms and interpolated between samples; the
kernel reports CPU time in steps of 10 ms, too.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_NOTE_S = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")
_LAST_BYTES = 2_000


class CrawlFailed(Exception):
    """A contestant did not do its task; the message has its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The use of the processes of a crawl at a moment."""

    at_s: float  #: epoch seconds
    cpu_s: float
    own_bytes: int  #: RssAnon, of all together


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The use of a whole crawl."""

    notes: Sequence[Note]
    peak_bytes: int  #: VmHWM, of all processes together
    took_s: float  #: from the process's start to its end

    def cpu_between_s(self, first_s: float, last_s: float) -> float:
        """Processor seconds between two instants."""
        return self._cpu_at(last_s) - self._cpu_at(first_s)

    @property
    def cpu_s(self) -> float:
        """Processor seconds of the whole run."""
        return self.notes[-1].cpu_s if self.notes else 0.0

    def own_peak_bytes(self) -> int:
        """The maximum of RssAnon."""
        return max((note.own_bytes for note in self.notes), default=0)

    def own_bytes_at(self, at_s: float) -> int:
        """RssAnon at this time."""
        return self.notes[self._before(at_s)].own_bytes if self.notes else 0

    def _cpu_at(self, at_s: float) -> float:
        notes = self.notes
        if not notes or at_s >= notes[-1].at_s:
            return notes[-1].cpu_s if notes else 0.0
        after = bisect_right(notes, at_s, key=lambda note: note.at_s)
        if not after:
            return 0.0
        one, other = notes[after - 1], notes[after]
        return one.cpu_s + (other.cpu_s - one.cpu_s) * (at_s - one.at_s) / (other.at_s - one.at_s)

    def _before(self, at_s: float) -> int:
        return max(bisect_left(self.notes, at_s, key=lambda note: note.at_s) - 1, 0)


def observe(command: Sequence[str], cores: Set[int], environment: dict[str, str], limit_s: float = 7200.0) -> Use:
    """Run a command on these cores alone, and watch it and its children (blocks). Raises: CrawlFailed."""
    with tempfile.TemporaryFile() as said, _started(command, cores, environment, said.fileno()) as process:
        began, notes, peak = time.monotonic(), list[Note](), 0
        while not _ends_within(process, _NOTE_S):
            living = family(process.pid)
            notes += filter(None, [noted(living, notes[-1].cpu_s if notes else 0.0)])
            peak = max(peak, sum(_status_bytes(one, "VmHWM") for one in living))
            if time.monotonic() - began > limit_s:
                raise CrawlFailed(f"it did not end in {limit_s:.0f} s")
        took_s = time.monotonic() - began
        if process.wait():
            said.seek(max(said.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
            raise CrawlFailed(f"exit status {process.returncode}: {_last_line(said.read().decode(errors='replace'))}")
    return Use(notes=notes, peak_bytes=peak, took_s=took_s)


@contextmanager
def _started(
    command: Sequence[str], cores: Set[int], environment: dict[str, str], output: int
) -> Iterator[subprocess.Popen[bytes]]:
    """The process, which starts on its cores and ends with the block."""
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # a child has its parent's from its first instruction on
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ | environment
        )
    finally:
        os.sched_setaffinity(0, ours)
    with process:
        try:
            yield process
        finally:
            process.terminate()


def _ends_within(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    descriptor = os.pidfd_open(process.pid)
    try:
        return bool(select.select([descriptor], [], [], limit_s)[0])
    finally:
        os.close(descriptor)


def family(pid: int) -> list[int]:
    """A process and its living descendants."""
    found, due = [pid], [pid]
    while due:
        for children in Path(f"/proc/{due.pop()}/task").glob("*/children"):
            more = [int(child) for child in _read(children).split()]
            found += more
            due += more
    return found


def noted(pids: Sequence[int], used_s: float) -> Note | None:
    """The use of these processes now, at least what they had used before; None if they have just ended.

    Times of children that ended and were waited for are their parent's.
    What was used never falls: a child that ends between the reading of its parent and its own is in neither.
    """
    used_s_of = [used for pid in pids if (used := cpu_s_of(pid)) is not None]
    own = sum(_status_bytes(pid, "RssAnon") for pid in pids)
    return Note(at_s=time.time(), cpu_s=max(used_s, sum(used_s_of)), own_bytes=own) if used_s_of else None


def cpu_s_of(pid: int) -> float | None:
    """CPU time of a process; None if it has ended."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS if len(fields) > 15 and fields[0] not in "ZX" else None


def cpu_s_of_family(pid: int) -> float:
    """CPU time of a process and its descendants."""
    return sum(cpu_s_of(one) or 0.0 for one in family(pid))


def _status_bytes(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", _read(Path(f"/proc/{pid}/status")), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _read(path: Path) -> str:
    """Nothing if the process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _last_line(said: str) -> str:
    """The last line with words, without the boxes that tools draw around their errors."""
    lines = [line.strip(" │╭╰─╮╯") for line in said.splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")
