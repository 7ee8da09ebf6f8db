"""A command's terminal: its output, messages, questions and exit code, a progress line, stop signals, safe standard streams."""

from __future__ import annotations

import io
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from shutil import get_terminal_size
from types import FrameType
from typing import Any, Self, TypeAlias

from rich.console import Console
from rich.live import Live
from rich.text import Text

from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code, first_failure
from anabranch.crawler.outcomes.errors import ExitCode, deciding, storage_error
from anabranch.crawler.report.table import escaped, escaped_lines, folded
from anabranch.frontier.errors import DumpDamaged, UnknownQueue
from anabranch.frontier.times import duration_words

#: Characters of an error that are shown.
_MOST_CHARS = 1000


def say(text: str) -> None:
    """Write lines to standard error, escaped. If it is closed, full or without a reader, they are lost and the run goes on."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(escaped_lines(text), file=sys.stderr, flush=True)  # noqa: T201 - the command's own output


def guarded(
    run: Callable[[], int | None], *, verbosity: int | None = 0, interrupted: ExitCode = ExitCode.INTERRUPTED
) -> int:
    """Run a command and return its exit code. A foreseeable error becomes one line on standard error and its exit code.

    `verbosity`: of its log; None if it logs nothing.
    """
    if verbosity is not None:
        from anabranch.crawler.report.logs import configure_logs  # noqa: PLC0415 - structlog takes as long as a whole `status`

        configure_logs(verbosity)
    try:
        with deciding():
            return run() or ExitCode.DONE
    except BrokenPipeError:
        # What is flushed at the end of the process must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.READER_GONE
    except (UnknownQueue, DumpDamaged, *FORESEEABLE) as last:
        error = first_failure(last)
        code = ExitCode.USAGE if isinstance(error, DumpDamaged) else failure_code(error)
        message = escaped(str(error))
        if len(message) > _MOST_CHARS:  # it quotes the command line, or a name from the web
            message = f"{message[: _MOST_CHARS * 3 // 4]} … {message[-_MOST_CHARS // 4 :]}"
        say(f"anabranch: {message}")
        return code
    except KeyboardInterrupt:
        return interrupted


def put(text: str, *, is_file: bool = False) -> None:
    """Print lines on standard output, escaped; as they are if they are the content of a file, like an order.

    Characters that it cannot encode are escaped. Raises: BrokenPipeError, StorageError.
    """
    text = text if is_file else escaped_lines(text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201 - the command's own output
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, Path("standard output")) from error


def fitted(text: str) -> str:
    """The text with its lines folded to the terminal; as it is if standard output is none."""
    return folded(text, get_terminal_size().columns) if sys.stdout.isatty() else text


def with_flag(words: str, flags: Mapping[str, str]) -> str:
    """Replace the parameter's name at the beginning of a message by its option; `flags` maps names to options."""
    first, space, rest = words.partition(" ")
    return flags.get(first, first) + space + rest


def consents(question: str) -> bool:
    """Ask on standard error and read the answer from standard input; end of input is a no."""
    print(escaped_lines(question), end="", file=sys.stderr, flush=True)  # noqa: T201 - the command's own question
    answer = "" if sys.stdin is None else sys.stdin.readline()
    if not answer.endswith("\n"):
        say("")  # end the line of the question
    return answer.strip().lower() in {"y", "yes"}


REFRESH_S = 0.5

#: Called with lines read, new lines among them, and bytes read, all so far.
Show: TypeAlias = Callable[[int, int, int], None]


@contextmanager
def live_totals(fd: int, *, quiet: bool) -> Iterator[Show]:
    """Show the progress of reading `fd` on standard error, if that is a terminal and neither `fd` nor standard output is."""
    console = Console(stderr=True)
    is_shown = not quiet and console.is_terminal and not os.isatty(fd) and not os.isatty(1)
    about = os.fstat(fd)
    size_bytes = about.st_size if stat.S_ISREG(about.st_mode) else None
    began_s = shown_s = time.monotonic()

    def show(lines: int, new: int, read_bytes: int) -> None:
        nonlocal shown_s
        if live is None:
            return
        now_s = time.monotonic()
        if now_s - shown_s >= REFRESH_S:
            shown_s = now_s
            part = min(read_bytes / size_bytes, 1.0) if size_bytes else None
            live.update(Text(progress_line(lines, new, now_s - began_s, part)), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True) if is_shown else nullcontext() as live:
        yield show


def progress_line(lines: int, new: int, elapsed_s: float, part: float | None) -> str:
    """One line: how long, how far, how fast, how many are new, and which part is done if the end is known. Pure."""
    rate = lines / max(elapsed_s, 1e-3)
    parts = [duration_words(elapsed_s), f"{lines:,} lines ({rate:,.0f}/s)", f"{new:,} new"]
    return " · ".join(parts if part is None else [*parts, f"{part:.0%}"])


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """SIGINT, SIGTERM or SIGHUP ask a command to end in order; a second signal ends the process at once.

    From the first signal on, the descriptor `wake` can be read. A SIGHUP that the caller ignores (`nohup`) stays ignored.
    """

    def __init__(self) -> None:
        self.is_set = False  #: a signal came
        self.on_first: list[Callable[[], object]] = []  #: called by the first signal, in its handler
        self.on_second: list[Callable[[], object]] = []  #: called by the second signal, before the process exits

    def __enter__(self) -> Self:
        self.wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        # The byte is written in the very moment of the signal: a wait that begins just then ends, too.
        self._waker_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        heeded = [number for number in _SIGNALS if not (is_nohup and number == signal.SIGHUP)]
        self._before = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._waker_before)
        os.close(self.wake)
        os.close(self._waker)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_set:
            for clean_up in self.on_second:
                clean_up()
            os._exit(ExitCode.FORCED)
        self.is_set = True
        for call in self.on_first:
            call()


class _Forgiving(io.FileIO):
    """Accepts every write: what cannot be written (no reader, full disk, a closed terminal) is dropped silently."""

    def write(self, data: Any, /) -> int:
        """Write what can be written; returns the length of the data in any case."""
        try:
            super().write(data)
        except OSError:
            hide = os.open(os.devnull, os.O_WRONLY)
            os.dup2(hide, self.fileno())
            os.close(hide)
        return memoryview(data).nbytes


def keep_streams() -> None:
    """Open closed descriptors among 0 to 2 on /dev/null, and make writes to the process's standard error never fail."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        encoding = getattr(sys.stderr, "encoding", None)
        raw = _Forgiving(2, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", write_through=True)
