"""Log configuration: where the events of structlog go, and how they look. `accounts.crawl_log` has the logs of visits."""

from __future__ import annotations

import io
import logging
import sys
import traceback
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
    """Send events of at least the level of `verbosity`, in UTC, to `file` (appended to), else `stream`, else standard error.

    Returns the opened file or None; the caller closes it at the end (`closing_logs`). Raises: StorageError.
    """
    out = stream
    if file is not None:
        with storage_errors(file, other="[logs] file"):
            out = cast("TextIO", _LogFile(file))
    shown: TextIO | None = out or sys.stderr  # a process may have no standard error
    renderers: list[structlog.typing.Processor]
    if style == "json":  # exceptions as text
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    else:
        colors = shown is not None and shown.isatty()
        plain = structlog.dev.plain_traceback
        renderers = [_escape, escape_traceback, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[max(-1, min(verbosity, 2))]),
        # Standard error is looked up at each event: a live display may replace it.
        logger_factory=lambda *_: structlog.PrintLogger(out or sys.stderr),
        cache_logger_on_first_use=False,
    )
    # psycopg logs warnings about errors that it ignores; without a handler Python prints them on standard error.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
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


def _escape(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape what a terminal would obey, because an event may quote a site."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = escaped(value)
    return event


def _escaped_traceback(exc_info: structlog.typing.ExcInfo) -> str:
    """Format a traceback as Python does and escape each line: the message of an exception may quote a site."""
    return "\n".join(map(escaped, "".join(traceback.format_exception(*exc_info)).rstrip("\n").split("\n")))


#: Processor that makes the text `exception` of the exception of an event.
escape_traceback = structlog.processors.ExceptionRenderer(_escaped_traceback)


class _LogFile(io.TextIOBase):
    """Appends whole lines to the file that has the name then, so that an operator may move it. A failed write is lost."""

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
