"""A `uniq` for streams of lines: read, ask the filter, write the new lines, and only then mark them.

One round is what one read gave, so a new line goes out at once, and a long file goes in rounds of thousands. Marking comes
last: whenever the process ends, a line that was not written is not marked. It may be written twice, but it is never lost.

A line's key is its bytes without its end: the line feed, and a carriage return before it (or before the end of the stream).
Bytes are passed on as they came. An empty line is no key: it is counted and left out.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.dedup.errors import DedupError
from anabranch.dedup.files.durable import sync_file
from anabranch.dedup.keys import first_of_each

if TYPE_CHECKING:
    from anabranch.dedup.linefilters import LineFilter

#: What one read takes at most: some 5,000 URLs.
READ_BYTES = 1 << 18
#: A longer line is left out: no server takes such a URL, and a stream without line ends must fit in memory.
MAX_LINE_BYTES = 1 << 20
#: Without input, `pieces` yields this often.
IDLE_S = 1.0


class OutputFailed(DedupError, OSError):
    """The output takes no more bytes. What was not written whole is not marked: the next run writes it."""


class ReaderGone(OutputFailed):
    """The reader of the output has closed it (`| head`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTotals:
    """Counts of the bytes and lines read, and of lines by outcome; the last four add up to `lines`."""

    read_bytes: int = 0
    lines: int = 0  #: whole lines read
    new: int = 0  #: written and marked
    seen: int = 0  #: known to the filter, or met before in the same round
    empty: int = 0  #: nothing but a line end
    too_long: int = 0  #: longer than MAX_LINE_BYTES


class Lines:
    """Cuts bytes that come in pieces into lines, given without their line feed. Holds one line and one piece at most."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()  # of a line without its end
        self._rest_bytes = 0  # its true length; beyond the limit nothing is kept
        self.too_long = 0  #: lines left out because they are longer than the limit

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece ends, in order. Cost: O(len(piece))."""
        first, *lines = piece.split(b"\n")
        self._hold(first)
        if not lines:
            return []
        last = lines.pop()
        if len(piece) > self._limit_bytes:
            whole = len(lines)
            lines = [line for line in lines if len(line) <= self._limit_bytes]
            self.too_long += whole - len(lines)
        lines[:0] = self._take()
        self._hold(last)
        return lines

    def end(self) -> list[bytes]:
        """The last line, if the stream ended without a line feed."""
        return self._take() if self._rest_bytes else []

    def _hold(self, part: bytes) -> None:
        self._rest_bytes += len(part)
        if self._rest_bytes <= self._limit_bytes:
            self._rest += part
        else:
            self._rest.clear()

    def _take(self) -> list[bytes]:
        is_whole = self._rest_bytes <= self._limit_bytes
        taken = [bytes(self._rest)] if is_whole else []
        self.too_long += not is_whole
        self._rest.clear()
        self._rest_bytes = 0
        return taken


class LineUniq:
    """Writes each line that the filter does not know, once, in the order of the stream."""

    def __init__(
        self,
        seen: LineFilter,
        write: Callable[[bytes], None],
        *,
        on_too_long: Callable[[], object] | None = None,
        limit_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._seen = seen
        self._write = write
        self._on_too_long = on_too_long  # called for the first such line
        self._lines = Lines(limit_bytes)
        self._counts = Counter[str]()

    @property
    def totals(self) -> StreamTotals:
        """The counts of lines so far."""
        return StreamTotals(**self._counts)

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the stream. Raises: OutputFailed, and what the filter raises; nothing is lost then."""
        self._counts["read_bytes"] += len(piece)
        self._pass_on(self._lines.feed(piece), b"\n")

    def end(self) -> None:
        """Take the bytes after the last line feed as a line; it is written without one. Raises as `feed`."""
        self._pass_on(self._lines.end(), b"")

    def _pass_on(self, lines: list[bytes], ending: bytes) -> None:
        counts = self._counts
        skipped = self._lines.too_long - counts["too_long"]
        if skipped and not counts["too_long"] and self._on_too_long is not None:
            self._on_too_long()
        counts["too_long"] += skipped
        counts["lines"] += len(lines) + skipped
        keys = [line.removesuffix(b"\r") for line in lines]
        if b"" in keys:
            is_key = [bool(key) for key in keys]
            lines, keys = list(compress(lines, is_key)), list(compress(keys, is_key))
            counts["empty"] += len(is_key) - len(keys)
        if not keys:
            return
        is_new = (self._seen.unseen(keys) & first_of_each(keys)).tolist()
        new = list(compress(keys, is_new))
        if new:
            self._write(b"\n".join(compress(lines, is_new)) + ending)
            self._seen.mark(new)
        counts["new"] += len(new)
        counts["seen"] += len(keys) - len(new)


def pieces(fd: int, name: str, wake: int | None = None) -> Iterator[bytes]:
    """Yield bytes as they come, b"" each IDLE_S without any, until the end or `wake` is readable. Raises: OSError."""
    wakes = [] if wake is None else [wake]
    while True:
        ready, _, _ = select.select([fd, *wakes], [], [], IDLE_S)
        if wake in ready:
            return
        if not ready:
            yield b""
            continue
        try:
            piece = os.read(fd, READ_BYTES)
        except BlockingIOError:  # another reader of the same pipe was quicker
            continue
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error
        if not piece:
            return
        yield piece


class Output:
    """Writes to a descriptor, each time all or an error.

    A lasting output syncs a file before `write` returns: a mark on the disk without its line would lose the line. If
    the file ends inside a line, which a killed run may leave, a line feed comes first.
    """

    def __init__(self, fd: int, *, lasting: bool) -> None:
        self._fd = fd
        self._is_synced = lasting and stat.S_ISREG(os.fstat(fd).st_mode)
        self._is_torn = self._is_synced and _ends_inside_a_line(fd)

    def write(self, data: bytes) -> None:
        """Write all of it. Raises: ReaderGone, OutputFailed; a part may then be written."""
        view = memoryview(b"\n" + data if self._is_torn else data)
        try:
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:  # another user of the descriptor made it non-blocking
                    select.select([], [self._fd], [])
            if self._is_synced:
                sync_file(self._fd)
        except BrokenPipeError as error:
            raise ReaderGone(error.errno, "the reader of the output is gone") from error
        except OSError as error:
            raise OutputFailed(
                error.errno, f"the output cannot be written: {error.strerror}; see to it, then run it again"
            ) from error
        self._is_torn = False


def _ends_inside_a_line(fd: int) -> bool:
    """True if the descriptor appends to a file with a torn last line, as far as that can be known."""
    size = os.fstat(fd).st_size
    if not size or not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND:
        return False
    try:
        with Path(f"/dev/fd/{fd}").open("rb") as file:  # the descriptor itself cannot read
            file.seek(size - 1)
            return file.read(1) != b"\n"
    except OSError:
        return False


class Cadence:
    """Calls a function periodically: after an interval, and so that it takes at most a twentieth of the time."""

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._due_s = clock() + interval_s
        self._done = 0

    def keep(self, work: Callable[[], None], amount: int) -> None:
        """Call `work` if it is due and the amount of work has grown since the last call."""
        began_s = self._clock()
        if began_s < self._due_s or amount == self._done:
            return
        work()
        now_s = self._clock()
        self._done = amount
        self._due_s = now_s + max(self._interval_s, 19 * (now_s - began_s))
