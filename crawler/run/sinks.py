"""The operator's sinks: classes of `[job] sinks` that get the pages of a crawl in batches, for a search engine or a database.

    visit ends -> pages.jsonl, recorded -> batch -> Sink.write -> its place in state/sinks.json

The pages are read from `pages.jsonl`, as far as the journal has recorded them, so visits wait for no sink, and a crawl without
sinks does nothing of this. A batch counts when `write` has returned: then the place behind it is recorded. What a killed run
had not recorded comes again (at least once). A sink that raises gets its batch again, after 1 s, 2 s … 60 s, and the crawl
goes on. If a sink is too far behind, the crawl pauses until it has caught up (back pressure). Nothing of a sink ends the crawl.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import structlog

from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, storage_errors
from anabranch.crawler.outcomes.failures import ServiceAway
from anabranch.crawler.outcomes.userfunctions import UserFunction
from anabranch.crawler.run.run_state import Cause, RunState
from anabranch.dedup.files.durable import (
    FileMark,
    checked_json,
    checked_line,
    end_of_last_line,
    has_end,
    mark_of,
    replace_file,
)
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.policies.userfunctions import words_of

log = structlog.get_logger(__name__)

#: The most pages and bytes of a batch.
BATCH_PAGES: Final = 500
_BATCH_BYTES: Final = 4 << 20
#: Seconds between two looks for new pages.
LOOK_S: Final = 0.5
#: The first wait after a failure, and the longest.
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
#: How long a run that is asked to end waits for its sinks.
_ASKED_S: Final = 10.0
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".xz", ".zst"})


class PageSink(Protocol):
    """A class of `[job] sinks`. Each worker of a job has one of its own."""

    def __init__(self, folder: Path, /) -> None:
        """`folder` is the job's, or the worker's. An error here is tried again, as one of `write`."""

    async def write(self, pages: Sequence[Mapping[str, Any]], /) -> None:
        """Keep the pages, objects of pages.jsonl in their order; return when they are safe. An error: they come again.

        Raise `ServiceAway` if what keeps them is away. Pages may come a second time, also after an error.
        """


class Recorded(Protocol):
    """A part that knows how far the job's files count."""

    @property
    def files(self) -> Mapping[str, FileMark] | None:
        """The ends of the files behind the last group that counts."""


class SinkPlacesDamaged(CrawlerError):
    """It is unknown which pages the sinks have."""

    exit_code: ExitCode = ExitCode.BAD_ORDER


class SinkPlaces:
    """How far each sink has got in pages.jsonl, in one small file."""

    def __init__(self, file: Path) -> None:
        """Raises: StorageError, SinkPlacesDamaged."""
        self._file = file
        self._places: dict[str, FileMark] = {}
        with storage_errors(file):
            if file.exists():
                try:
                    self._places = {
                        str(name): FileMark(*mark) for name, mark in checked_json(file.read_bytes()).items()
                    }
                except (ValueError, TypeError, AttributeError, RecursionError) as error:
                    raise SinkPlacesDamaged(f"{file}: damaged; remove it: all pages go to the sinks again") from error

    def of(self, name: str) -> FileMark | None:
        """The place of a sink; None: at the beginning."""
        return self._places.get(name)

    def note(self, name: str, place: FileMark) -> None:
        """Record a place durably. Raises: OSError."""
        self._places[name] = place
        replace_file(self._file, checked_line(json.dumps(self._places).encode()))


class PageReader:
    """Reads the pages that count, from a place on, also in files that were moved away from their name. Calls block."""

    def __init__(self, path: Path, recorded: Recorded, place: FileMark | None) -> None:
        """Raises: OSError."""
        self._path = path
        self._recorded = recorded
        self._file: BinaryIO | None = None
        self._place = self._end = self._inode = 0
        found = path if place is None else self._file_with(place)
        if found is None:
            log.warning("pages that a sink has not got were moved away", path=str(path))
        elif found.exists():
            self._open(found, 0 if place is None else place.size)

    def batch(self) -> tuple[list[dict[str, Any]], FileMark] | None:
        """The next pages, and the place behind them; None: there are none. Raises: OSError."""
        while True:
            if self._file is None:
                if not self._path.exists():
                    return None
                self._open(self._path, 0)
            if self._place < self._look():
                return self._pages()
            following = None if self._is_current() else self._following()
            if following is None:
                return None
            self._open(following, 0)

    def kept(self, place: FileMark) -> None:
        """Go on behind a batch that counts."""
        self._place = place.size

    def behind(self) -> int:
        """Bytes that are not kept yet; of a file that was moved, as of the last look. Reads no file."""
        mark = self._mark()
        if mark is None:
            return 0
        if mark.inode == self._inode:
            return max(mark.size - self._place, 0)
        return max(self._end - self._place, 0) + mark.size

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _open(self, file: Path, place: int) -> None:
        self.close()
        self._file = file.open("rb")
        self._inode = os.fstat(self._file.fileno()).st_ino
        self._place = self._end = place

    def _pages(self) -> tuple[list[dict[str, Any]], FileMark]:
        assert self._file is not None
        file = self._file
        file.seek(self._place)
        pages: list[dict[str, Any]] = []
        place = self._place
        while place < self._end and len(pages) < BATCH_PAGES and place - self._place < _BATCH_BYTES:
            line = file.readline()
            if not line:
                break
            place += len(line)
            with suppress(ValueError, RecursionError):  # a line that somebody has changed
                pages.append(json.loads(line))
        return pages, mark_of(file.fileno(), place)

    def _mark(self) -> FileMark | None:
        """The end that counts of the file that is written now."""
        return (self._recorded.files or {}).get(self._path.name)

    def _is_current(self) -> bool:
        mark = self._mark()
        return mark is not None and mark.inode == self._inode

    def _look(self) -> int:
        """How far the open file counts: one that was moved away as a whole."""
        assert self._file is not None
        mark, size = self._mark(), os.fstat(self._file.fileno()).st_size
        if size < self._place:  # it was cut
            self._place = 0
        if mark is not None and mark.inode == self._inode:
            self._end = min(mark.size, size)
        else:
            self._end = end_of_last_line(self._file.fileno())
        return self._end

    def _files(self) -> list[Path]:
        """The file and those that were moved away from its name, the oldest first."""
        there = [file for file in self._path.parent.glob(f"{self._path.name}*") if file.suffix not in _COMPRESSED]
        return sorted(there, key=lambda file: (file == self._path, file.stat().st_mtime_ns))

    def _file_with(self, place: FileMark) -> Path | None:
        """The file that has the place; in a copy of the job it is another one of the same content."""
        files = sorted(self._files(), key=lambda file: file.stat().st_ino != place.inode)
        return next((file for file in files if has_end(file, place)), None)

    def _following(self) -> Path | None:
        """The file that was begun after the open one."""
        files = self._files()
        own = next((number for number, file in enumerate(files) if file.stat().st_ino == self._inode), None)
        if own is None:  # it was removed or compressed
            return self._path if self._path.exists() else None
        return files[own + 1] if own + 1 < len(files) else None


class SinkFeed:
    """Feeds one sink. Used on the event loop; files are read in threads."""

    def __init__(self, sink: UserFunction, job: Path, places: SinkPlaces, recorded: Recorded) -> None:
        self.name = sink.name
        self.trouble = ""  #: why the sink does not take its pages; empty if it does
        self._class = sink
        self._job = job
        self._places = places
        self._recorded = recorded
        self._sink: Any = None
        self._reader: PageReader | None = None
        self._failures = 0

    @property
    def behind_bytes(self) -> int:
        """Bytes of pages.jsonl that the sink has not taken."""
        return 0 if self._reader is None else self._reader.behind()

    async def step(self) -> float | None:
        """Feed one batch; returns the seconds until the next, None if there are no pages."""
        try:
            batch = await to_the_end(asyncio.to_thread(self._next))
            if batch is None:
                return None
            pages, place = batch
            error = await self._written(pages) if pages else None
            if error is None:
                await to_the_end(asyncio.to_thread(self._keep, place))
        except OSError as failure:
            error = failure
        if error is not None:
            return self._failed(error)
        if self.trouble:
            log.warning("the sink takes its pages again", sink=self.name)
        self.trouble, self._failures = "", 0
        return 0.0

    async def close(self) -> None:
        """Close the sink, if it wants that, and the file."""
        if self._reader is not None:
            self._reader.close()
        close = getattr(self._sink, "close", None)
        if close is not None:
            try:
                async with asyncio.timeout(_ASKED_S):
                    await close()
            except Exception as error:  # noqa: BLE001 - of the operator's class
                log.warning("a sink cannot be closed", sink=self.name, reason=words_of(error))

    def _next(self) -> tuple[list[dict[str, Any]], FileMark] | None:
        if self._reader is None:
            self._reader = PageReader(self._job / "pages.jsonl", self._recorded, self._places.of(self.name))
        return self._reader.batch()

    def _keep(self, place: FileMark) -> None:
        assert self._reader is not None
        self._places.note(self.name, place)
        self._reader.kept(place)

    async def _written(self, pages: Sequence[dict[str, Any]]) -> BaseException | None:
        """Why the sink did not take the pages; None: it did."""
        task = asyncio.current_task()
        requests = 0 if task is None else task.cancelling()
        try:
            if self._sink is None:
                self._sink = self._class.function(self._job)
            await self._sink.write(pages)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if task is not None and task.cancelling() > requests:
                raise
            return error
        return None

    def _failed(self, error: BaseException) -> float:
        reason = error.reason if isinstance(error, ServiceAway) else words_of(error)
        if not self.trouble:
            is_away = isinstance(error, ServiceAway | OSError)
            log.warning(
                "a sink does not take its pages; they wait",
                sink=self.name,
                reason=reason or "away",
                exc_info=None if is_away else error,
            )
        self.trouble = reason or "away"
        self._failures += 1
        return float(min(_FIRST_WAIT_S * 2 ** min(self._failures - 1, 6), _LONGEST_WAIT_S))


class Sinks:
    """The sinks of a run: fed while it crawls, and with the rest at its end."""

    def __init__(self, feeds: Sequence[SinkFeed], run_state: RunState, backlog_bytes: int) -> None:
        self.feeds = feeds
        self._run_state = run_state
        self._backlog_bytes = backlog_bytes

    async def watch(self) -> None:
        """Feed all sinks until cancelled, and pause the crawl while one is too far behind."""
        async with asyncio.TaskGroup() as group:
            for feed in self.feeds:
                group.create_task(_feed(feed, ends=False))
            group.create_task(self._press_back())

    async def finish(self) -> bool:
        """Feed what is left; whether the sinks have all. A run that is asked to end waits for 10 s."""
        if not self.feeds:
            return True
        feeding = asyncio.create_task(self._feed_rest())
        ending = asyncio.create_task(self._until_asked())
        try:
            await asyncio.wait({feeding, ending}, return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                await feeding
                return True
        finally:
            for task in (feeding, ending):
                task.cancel()
            await asyncio.gather(feeding, ending, return_exceptions=True)
        for feed in self.feeds:
            log.warning(
                "a sink has not got all pages; the next run goes on with it", sink=feed.name, reason=feed.trouble
            )
        return False

    async def close(self) -> None:
        """Close all sinks."""
        for feed in self.feeds:
            await feed.close()

    async def _feed_rest(self) -> None:
        await asyncio.gather(*(_feed(feed, ends=True) for feed in self.feeds))

    async def _until_asked(self) -> None:
        """Return 10 s after somebody has asked the run to end, or when it is to end at once."""
        await self._run_state.asked.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._run_state.hurried.wait(), _ASKED_S)

    async def _press_back(self) -> None:
        while True:
            self.press_back()
            await asyncio.sleep(LOOK_S)

    def press_back(self) -> None:
        """Pause the crawl while a sink is too far behind, and resume it when all have caught up with half of that."""
        is_paused = self._run_state.is_paused_by(Cause.SINK)
        most = self._backlog_bytes // 2 if is_paused else self._backlog_bytes
        late = next((feed for feed in self.feeds if feed.behind_bytes > most), None)
        if late is not None:
            why = f": {late.trouble}" if late.trouble else ""
            self._run_state.pause(Cause.SINK, f"paused: the sink {late.name} is behind{why}")
        elif is_paused:
            self._run_state.resume(Cause.SINK)


async def _feed(feed: SinkFeed, *, ends: bool) -> None:
    """Feed a sink, for ever or until it has all."""
    while True:
        wait_s = await feed.step()
        if wait_s is None and ends:
            return
        await asyncio.sleep(LOOK_S if wait_s is None else wait_s)
