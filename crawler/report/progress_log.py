"""`progress-statistics.log`: a line every 20 s in Heritrix's columns, and a line at each change of the crawl's state.

Format: Heritrix 3, `StatisticsTracker.progressStatisticsLegend` and `getProgressStatisticsLine`. mem-use is this process's
anonymous resident memory (RssAnon), heap-size all its resident memory. Congestion is always a number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import structlog

from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.report.logtail import ENDED
from anabranch.crawler.report.statistics import Rates
from anabranch.dedup.files.durable import append_to

log = structlog.get_logger(__name__)

#: Seconds between two lines.
INTERVAL_S = 20.0

LEGEND = (
    "           timestamp  discovered      queued   downloaded       doc/s(avg)  KB/s(avg)   dl-failures   busy-thread"
    "   mem-use-KB  heap-size-KB   congestion   max-depth   avg-depth"
)
_HEAD = f"{LEGEND}\n".encode()
#: The end of each column behind the time, counted from the begin of the line.
COLUMN_ENDS = (32, 44, 57, 74, 85, 99, 113, 126, 140, 153, 165, 177)

_PROC_STATUS = Path("/proc/self/status")


class CrawlEvent(Enum):
    """A change of the crawl as a whole; the values are Heritrix's words."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    WAITING = "WAITING"
    EMPTY = "EMPTY"
    ENDING = "ENDING"
    ENDED = ENDED
    CHECKPOINT = "CHECKPOINT"


class ProcessMemory(NamedTuple):
    """The memory of this process, in KiB."""

    anonymous: int
    resident: int

    def in_bytes(self) -> dict[str, int]:
        """By `anonymous`: its own, and `mapped`: pages of files, libraries included, which the kernel can take back."""
        return {"anonymous": self.anonymous * 1024, "mapped": (self.resident - self.anonymous) * 1024}


class ProgressFacts(NamedTuple):
    """One moment of a crawl, for a line."""

    now_s: float  #: epoch seconds
    discovered: int  #: URLs that were ever enqueued
    queued: int
    downloaded: int  #: URLs that were answered
    failed: int
    rates: Rates
    busy: int  #: workers that hold a URL
    queues: Mapping[str, int]  #: by state, as in `FrontierStatistics`
    parked: int  #: ready queues with all gates closed, which Heritrix calls snoozed
    longest: int  #: URLs of the longest queue
    memory: ProcessMemory


def progress_statistics_line(facts: ProgressFacts) -> str:
    """The line without its newline. Pure."""
    rates = facts.rates
    held = sum(facts.queues.get(state, 0) for state in ("ready", "in-flight", "loading", "snoozed", "inactive"))
    cells = (
        facts.discovered,
        facts.queued,
        facts.downloaded,
        f"{rates.pages_now:.2f}({rates.pages_mean:.2f})",
        f"{rates.bytes_now / 1024:.0f}({rates.bytes_mean / 1024:.0f})",
        facts.failed,
        facts.busy,
        facts.memory.anonymous,
        facts.memory.resident,
        f"{congestion(facts.queues, facts.parked):.2f}",
        facts.longest,
        round(facts.queued / held) if held else 0,
    )
    line = _time(facts.now_s)
    for end, cell in zip(COLUMN_ENDS, map(str, cells), strict=True):
        # The cell ends at its column, behind at least one space (Heritrix: `PaddingStringBuffer.raAppend`).
        line += cell.rjust(end - len(line)) if len(line) + len(cell) < end else f" {cell}"
    return line


def event_line(now_s: float, event: CrawlEvent, words: str) -> str:
    """`2026-11-20T11:22:33Z CRAWL RUNNING - words`, without its newline. Pure."""
    return f"{_time(now_s)} CRAWL {event.value} - {' '.join(words.split())}"


def congestion(queues: Mapping[str, int], parked: int) -> float:
    """(in process + ready + snoozed + inactive) / (in process + snoozed). Heritrix: `WorkQueueFrontier.congestionRatio`."""
    ready, in_process = queues.get("ready", 0), queues.get("in-flight", 0)
    snoozed = queues.get("snoozed", 0) + min(parked, ready)
    runnable = ready - min(parked, ready) + queues.get("loading", 0) + queues.get("inactive", 0)
    return (in_process + runnable + snoozed) / max(in_process + snoozed, 1)


def memory_of_process(status: Path = _PROC_STATUS) -> ProcessMemory:
    """The memory of this process; zeros on a system without /proc."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ProcessMemory(0, 0)
    fields = dict(line.partition(":")[::2] for line in lines)
    return ProcessMemory(*(int(fields.get(name, "0").split()[0]) for name in ("RssAnon", "VmRSS")))


class ProgressLog:
    """Appends lines, without a sync, to the file that has the name at the time; an empty file gets the legend first.

    A line that cannot be written is logged as a warning, and the crawl goes on. Raises: StorageError on opening.
    """

    def __init__(self, path: Path, now_s: Callable[[], float]) -> None:
        self._path = path
        self._now_s = now_s
        with storage_errors(path):
            append_to(path, b"")

    def write_event(self, event: CrawlEvent, words: str) -> None:
        """Write the line of an event."""
        self._write(event_line(self._now_s(), event, words))

    async def run(self, take: Callable[[], Awaitable[ProgressFacts]], interval_s: float = INTERVAL_S) -> None:
        """Write a line each `interval_s` until cancelled. The caller writes the last one."""
        while True:
            await asyncio.sleep(interval_s)
            self.write_statistics(await take())

    def write_statistics(self, facts: ProgressFacts) -> None:
        """Write a line of statistics."""
        self._write(progress_statistics_line(facts))

    def _write(self, line: str) -> None:
        try:
            append_to(self._path, line.encode("utf-8", "backslashreplace") + b"\n", _HEAD)
        except OSError as error:
            log.warning("progress-statistics.log cannot be written", file=str(self._path), reason=error.strerror)


class DeepestQueue:
    """The length of the longest queue, asked for again so seldom that the answers take at most 2 % of the time."""

    SHARE = 0.02

    def __init__(self, ask: Callable[[], Awaitable[int]], timer: Callable[[], float]) -> None:
        self._ask = ask
        self._timer = timer
        self._length = 0
        self._not_before = -float("inf")

    async def length(self) -> int:
        """URLs of the longest queue at the last time that it was asked for."""
        begun = self._timer()
        if begun >= self._not_before:
            self._length = await self._ask()
            ended = self._timer()
            self._not_before = ended + (ended - begun) / self.SHARE
        return self._length


def _time(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
