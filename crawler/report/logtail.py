"""The ends of logs: last whole lines, lines added later, how the last run of a job went, and why its last tries failed."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from glob import escape
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.report.table import escaped
from anabranch.frontier.times import duration_words

#: The log of the progress of a job's runs, below `logs/`.
PROGRESS_LOG_FILE = "progress-statistics.log"
#: The event in it that ends a run.
ENDED = "ENDED"
#: Those that begin a run, or pause it; see `progress_log.CrawlEvent`.
_RUNNING, _PAUSED = "RUNNING", "PAUSED"
#: The file of failed tries, below a job's folder.
ERRORS = "logs/errors.jsonl"
#: How much of the end of errors.jsonl is read.
_TAIL_BYTES = 1 << 18
#: Characters of a URL and of a reason that are kept: both may be a site's words.
_URL_CHARS = 200
_REASON_CHARS = 300
#: Endings of names of compressed files, which are not read.
_COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst"})
#: The text of a place in a log: an offset, and which file it is in; without that the one that has the log's name.
_PLACE = re.compile(r"[0-9]{1,18}(-[0-9]{1,20}-[0-9]{1,20})?")


def last_lines(path: Path, most_bytes: int) -> list[str]:
    """The whole lines in the last `most_bytes` of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            start = max(os.fstat(file.fileno()).st_size - most_bytes, 0)
            file.seek(max(start - 1, 0))  # with the newline before a whole line
            read = file.read(most_bytes + 1 if start else most_bytes)
    except OSError:
        return []
    if start:
        read = read.partition(b"\n")[2]
    return _lines(read)


class LogFollower:
    """Reads what is added to a log, each line once, also while it is rotated: the rest of the old file first, then the new one.

    The old file is held open, so that it may be compressed or removed. It is left once the new one has content: until then a
    line may still come. Of a file that is truncated, what was not read before is lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None  #: that is read now
        self._position = 0  #: bytes of it that were read
        self._others: set[tuple[int, int]] = set()  #: files that were rotated before
        self._next: list[int] = []  #: files that `next_lines` reads after this one
        self._is_begun = False

    def __del__(self) -> None:
        """Close the files: whoever follows a log just stops asking."""
        for file in (*self._next, *([] if self._file is None else [self._file])):
            os.close(file)

    def new_lines(self, most_bytes: int = 1 << 20) -> list[str]:
        """The whole lines since the last call, of each file within so many bytes; none at the first call."""
        is_first, self._is_begun = not self._is_begun, True
        lines: list[str] = []
        for file in self._newer_files():
            lines += self._read(most_bytes)
            self._follow(file)
        lines += self._read(most_bytes)
        return [] if is_first else lines

    @property
    def place(self) -> str:
        """The place behind what was read, which `resume` takes, also in another process."""
        return "0" if self._file is None else "-".join(map(str, (self._position, *_id(self._file))))

    def resume(self, place: str) -> None:
        """Go on behind a place, also in a file that was rotated since.

        If the file is gone, or the place is unknown, the log is read from its begin: lines may come twice, but none is lost.
        """
        last, rotated = _opened(self.path), self._open_rotated()
        files = [*rotated, *([] if last is None else [last])]
        found = _behind(place, files, last)
        self._file, self._position = (last, 0) if found is None else found
        self._others = set() if self._file is None else {_version(file) for file in files[: files.index(self._file)]}
        for file in files:
            if file != self._file:
                os.close(file)
        self._is_begun = True

    def next_lines(self, most_bytes: int = 1 << 20) -> list[tuple[str, str]]:
        """The next whole lines, the place behind each before it, from about so many bytes; call it again until there are none.

        None is left out, however many there are. The first call without `resume` begins at the end.
        """
        if not self._is_begun:
            return [(self.place, line) for line in self.new_lines()]
        while not (lines := self._read_on(most_bytes)):
            if not self._next:
                self._next = self._newer_files()
                if not self._next:
                    return []
                if lines := self._read_on(most_bytes):  # from before the rotation
                    return lines
            self._follow(self._next.pop(0))
        return lines

    def _read_on(self, most_bytes: int) -> list[tuple[str, str]]:
        """The whole lines behind the position, within so many bytes, or the first one if it is longer."""
        if self._file is None:
            return []
        size = os.fstat(self._file).st_size
        if size < self._position:  # truncated, maybe after it was copied
            self._position, self._others = 0, self._versions()
        read = os.pread(self._file, most_bytes, self._position)
        if len(read) == most_bytes and b"\n" not in read:
            return self._read_on(2 * most_bytes)
        lines = []
        for line in read.split(b"\n")[:-1]:
            self._position += len(line) + 1
            lines.append((self.place, line.decode("utf-8", "replace")))
        return lines

    def _newer_files(self) -> list[int]:
        """The files after the one that is read now, open, the oldest first: those that are rotated already, and the last."""
        last = _opened(self.path)
        if last is None:
            return []
        if self._file is None:
            return [last]
        if not _has_replaced(last, self._file):
            os.close(last)
            return []
        read_now = {_id(last), _id(self._file)}
        found = []
        for file in self._open_rotated():
            if _id(file) in read_now or _version(file) in self._others:
                os.close(file)
            else:
                found.append(file)
                self._others.add(_version(file))
        return [*found, last]

    def _follow(self, file: int) -> None:
        if self._file is None:
            self._others = self._versions()
        else:
            self._others.add(_version(self._file))
            os.close(self._file)
        self._file, self._position = file, 0

    def _versions(self) -> set[tuple[int, int]]:
        files = self._open_rotated()
        try:
            return {_version(file) for file in files}
        finally:
            for file in files:
                os.close(file)

    def _open_rotated(self) -> list[int]:
        """The files that had the log's name, the oldest first, without compressed ones."""
        found = self.path.parent.glob(f"{escape(self.path.name)}?*")
        named = [path for path in sorted(found, key=_age) if path.suffix not in _COMPRESSED]
        files = [_opened(path, os.O_NOFOLLOW) for path in named]  # a link may lead out of the job
        return [file for file in files if file is not None]

    def _read(self, most_bytes: int) -> list[str]:
        """The whole lines behind the position, within so many bytes of the end."""
        if self._file is None:
            return []
        size = os.fstat(self._file).st_size
        if size < self._position:  # truncated, maybe after it was copied
            self._position, self._others = 0, self._versions()
        # One byte more tells whether the first line is whole.
        begin = max(self._position, size - most_bytes - 1)
        read = os.pread(self._file, size - begin, begin)
        whole = read[: read.rfind(b"\n") + 1]
        is_cut, self._position = begin > self._position, begin + len(whole)
        return _lines(whole.partition(b"\n")[2] if is_cut else whole)


def _opened(path: Path, flags: int = 0) -> int | None:
    """The regular file at this path, open; None without one."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def _has_replaced(new: int, old: int) -> bool:
    """It is another file, and has content."""
    return _id(new) != _id(old) and os.fstat(new).st_size > 0


def _behind(place: str, files: Sequence[int], last: int | None) -> tuple[int, int] | None:
    """The file and the offset of a place; None if no file has it. `last` is the file of a place without one."""
    if not _PLACE.fullmatch(place):
        return None
    offset, *identity = map(int, place.split("-"))
    wanted = tuple(identity) or (None if last is None else _id(last))
    found = next((file for file in files if _id(file) == wanted and _begins_line(file, offset)), None)
    return None if found is None else (found, offset)


def _begins_line(file: int, offset: int) -> bool:
    """A line begins at the offset, or will."""
    return offset == 0 or os.pread(file, 1, offset - 1) == b"\n"


def _id(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _version(file: int) -> tuple[int, int]:
    """Identifies a rotated file: its time stays as it is, and a newer file with its inode has another time."""
    status = os.fstat(file)
    return status.st_ino, status.st_mtime_ns


def _age(path: Path) -> tuple[int, int, str]:
    """Sorts rotated files, the oldest first: by time, and those of one time by name, a.log.2 before a.log.1."""
    number = path.suffix.removeprefix(".")
    try:
        return path.stat().st_mtime_ns, -int(number) if number.isdecimal() else 0, path.name
    except OSError:  # it has been moved on
        return 0, 0, path.name


def _lines(read: bytes) -> list[str]:
    """The whole lines as text. Bytes that are not UTF-8, perhaps from a site, are replaced."""
    return read[: read.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")[:-1]


# progress-statistics.log


class ProgressLine(NamedTuple):
    """The figures of a line that people chart."""

    time_s: float  #: epoch seconds
    discovered: int
    queued: int
    downloaded: int
    pages_per_s: float  #: of the last seconds
    kb_per_s: float
    failed: int
    active: int


def parse_progress_line(line: str) -> ProgressLine | None:
    """A line of statistics; None for the legend, an event, or a line that is cut. Pure."""
    cells = line.split()[: len(_READERS)]
    try:
        return ProgressLine(*(read(cell) for read, cell in zip(_READERS, cells, strict=True)))
    except ValueError:
        return None


def _read_time(cell: str) -> float:
    return datetime.strptime(cell, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def _read_rate(cell: str) -> float:
    """The rate of the last seconds, which has the mean of the crawl in brackets behind it."""
    return float(cell.partition("(")[0])


def _read_kib(cell: str) -> float:
    return _read_rate(cell) * 1.024


#: What reads each cell, in the order of `ProgressLine`.
_READERS: tuple[Callable[[str], Any], ...] = (_read_time, int, int, int, _read_rate, _read_kib, int, int)


class RunMark(NamedTuple):
    """A moment at which a crawl was started, paused, resumed, stopped or killed."""

    time_s: float  #: epoch seconds
    what: str  #: start, pause, resume, stop, or kill


def run_marks(lines: Iterable[str]) -> list[RunMark]:
    """The marks of a progress log. A run that begins while another one goes on says that this was killed, at its last line.
    Pure.
    """
    marks: list[RunMark] = []
    phase, last_s = "", 0.0
    for line in lines:
        cells = line.split(None, 3)
        try:
            time_s = _read_time(cells[0])
        except (ValueError, IndexError):
            continue
        event = cells[2] if cells[1:2] == ["CRAWL"] and len(cells) > 2 else ""
        if event == _RUNNING:
            if phase == _RUNNING:
                marks.append(RunMark(last_s, "kill"))
            marks.append(RunMark(time_s, "resume" if phase == _PAUSED else "start"))
        elif event == _PAUSED:
            marks += [RunMark(time_s, "start")] * (not phase) + [RunMark(time_s, "pause")]
        elif event == ENDED:
            marks.append(RunMark(time_s, "stop"))
        if event in {_RUNNING, _PAUSED}:
            phase = event
        elif event == ENDED:
            phase = ""
        last_s = time_s
    return marks


class LastRun(NamedTuple):
    """The last run, as the end of a log reports it."""

    progress: ProgressLine | None  #: the last line of statistics
    ending: str  #: why it ended; empty if it was killed


def last_run(path: Path, tail_bytes: int = 1 << 14) -> LastRun:
    """The last run of a log, which may not exist."""
    lines = last_lines(path, tail_bytes)
    progress = next(filter(None, map(parse_progress_line, reversed(lines))), None)
    return LastRun(progress, lines[-1].partition(f" CRAWL {ENDED} - ")[2] if lines else "")


# errors.jsonl


class Trouble(NamedTuple):
    """Why a try failed, seen from a later moment. All its text is printable."""

    url: str
    reason: str
    ago_s: float
    is_final: bool  #: the URL was given up
    again_in_s: float | None  #: it is not tried again before; None: it is given up, or the time is not known

    @classmethod
    def of(
        cls, url: str, reason: str, *, ago_s: float = 0.0, is_final: bool, again_in_s: float | None = None
    ) -> Trouble:
        """A trouble with its text made printable and short."""
        return cls(_printable(url, _URL_CHARS), _printable(reason, _REASON_CHARS), ago_s, is_final, again_in_s)

    def describe(self) -> str:
        """`connection refused, tried again in 40s (http://a.test/)`: where there is no room, the URL is cut off."""
        return f"{self.cause()} ({self.url})"

    def cause(self) -> str:
        """`connection refused, tried again in 40s`."""
        if self.is_final:
            then = "given up"
        elif self.again_in_s is None:
            then = "to be tried again"
        else:
            then = f"tried again in {duration_words(max(self.again_in_s, 0.0))}"
        return f"{self.reason}, {then}"


def last_logged(directory: Path, now_s: float, url: str = "") -> Trouble | None:
    """The last trouble of a stopped job, or of one of its URLs, from the ends of its errors.jsonl and those of its workers."""
    found = []
    for file in error_files(directory):
        failure = next((failure for failure in last_failures(file) if not url or failure["url"] == url), None)
        if failure is not None:
            ago_s = max(now_s - datetime.fromisoformat(failure["time"]).timestamp(), 0.0)
            reason = failure["message"] or failure["words"]
            found.append(Trouble.of(failure["url"], reason, ago_s=ago_s, is_final=failure["final"]))
    return min(found, key=lambda trouble: trouble.ago_s, default=None)


def failures_logged(directory: Path, most: int) -> list[Mapping[str, Any]]:
    """The fields of the last lines, the last one first, from the ends of the job's errors.jsonl and those of its workers."""
    found = chain.from_iterable(islice(last_failures(file), most) for file in error_files(directory))
    return sorted(found, key=lambda failure: str(failure["time"]), reverse=True)[:most]


def reasons_logged(directory: Path) -> dict[str, str]:
    """Why the last failed try of each URL failed, by URL, from the lines that `last_logged` reads."""
    reasons: dict[str, str] = {}
    for file in error_files(directory):
        for failure in last_failures(file):
            reasons.setdefault(failure["url"], _printable(failure["message"] or failure["words"], _REASON_CHARS))
    return reasons


def error_files(directory: Path) -> list[Path]:
    """The errors.jsonl of a job, and those of its workers; each may be missing."""
    return [directory / ERRORS, *directory.glob(f"workers/*/{ERRORS}")]


def last_failures(errors: Path) -> Iterator[Mapping[str, Any]]:
    """The lines at the end of errors.jsonl, the last one first, without malformed ones; none if the file cannot be read."""
    for line in reversed(last_lines(errors, _TAIL_BYTES)):
        with suppress(ValueError, RecursionError):
            fields: dict[str, Any] = json.loads(line)
            match fields:
                case {"url": str(), "words": str(), "message": str() | None, "final": bool(), "time": str(time)}:
                    datetime.fromisoformat(time)
                    yield fields


def _printable(text: str, most: int) -> str:
    text = escaped(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
