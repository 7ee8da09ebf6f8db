"""Log configuration: where the events of structlog go, and how they look. No other module decides that.

The logs of visits (crawl.log and others) are not configured here: see `accounts.crawl_log` and `job.journal`.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TextIO, cast

import structlog

from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.report.table import escaped
from anabranch.dedup.files.durable import append_to

#: The lowest level that is shown, by the number of -v flags (quiet is -1).
LEVELS: dict[int, int] = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}

LogFormat = Literal["console", "json"]


def configure_logs(
    verbosity: int, stream: TextIO | None = None, *, style: LogFormat = "console", file: Path | None = None
) -> TextIO | None:
    """Send events of at least the level of `verbosity` to a stream, one line each, in UTC.

    The stream is `file` (appended to), else `stream`, else standard error. Returns the file that was opened, or None; the
    caller closes it when no more events come (`closing_logs`). Raises: StorageError if it cannot be opened.
    """
    out = stream
    if file is not None:
        with storage_errors(file, other="[logs] file"):
            out = cast("TextIO", _LogFile(file))
    shown: TextIO | None = out or sys.stderr  # a process may have no standard error
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_renderers(style, is_terminal=shown is not None and shown.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[max(-1, min(verbosity, 2))]),
        # Standard error is looked up at each event: a live display may replace it.
        logger_factory=lambda *_: structlog.PrintLogger(out or sys.stderr),
        cache_logger_on_first_use=False,
    )
    return None if file is None else out


@contextmanager
def closing_logs(file: TextIO | None) -> Iterator[None]:
    """Inside, events go to the file that `configure_logs` returned; afterwards to standard error again."""
    try:
        yield
    finally:
        if file is not None:
            configure_logs(0)
            file.close()


def _renderers(style: LogFormat, *, is_terminal: bool) -> list[structlog.typing.Processor]:
    """Make a line of an event: for a terminal, or one JSON object with exceptions as text."""
    if style == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    return [
        _escape,
        structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=structlog.dev.plain_traceback),
    ]


def _escape(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape what a terminal would obey, because an event may quote a site."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = escaped(value)
    return event


class _LogFile(io.TextIOBase):
    """Appends to a file, at each flush to the file that has the name at that time, so that an operator may move it.

    Each line is written at once, so a process that is killed leaves whole lines. If a write fails, its text is lost and the
    crawl goes on.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        append_to(path, b"")

    def write(self, text: str) -> int:
        self._text += text
        return len(text)

    def flush(self) -> None:
        text, self._text = self._text, ""
        if text:
            with suppress(OSError):
                append_to(self._path, text.encode("utf-8", "backslashreplace"))
