"""Log configuration: the only place that decides where events go and how they look."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TextIO, cast

import structlog

from anabranch.crawler.jobs.durablefiles import append_to
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.reporting.escaping import escaped

#: Least level shown, by the number of -v flags (quiet is -1).
LEVELS: dict[int, int] = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}

LogFormat = Literal["console", "json"]


def configure_logs(
    verbosity: int, stream: TextIO | None = None, *, style: LogFormat = "console", file: Path | None = None
) -> TextIO | None:
    """Send events of at least the level of `verbosity` to a stream, one line each, in UTC.

    The stream is `file` (appended to), else `stream`, else standard error. Answers the file that was opened, for the caller to
    close when no more events come. Raises: StorageError if it cannot be opened.
    """
    out = stream if file is None else _opened(file)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_renderers(style, is_terminal=(out or sys.stderr).isatty() if (out or sys.stderr) is not None else False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[max(-1, min(verbosity, 2))]),
        logger_factory=_to(out),
        cache_logger_on_first_use=False,
    )
    return None if file is None else out


@contextmanager
def closing_logs(file: TextIO | None) -> Iterator[None]:
    """While inside, events go to the file that `configure_logs` answered; what comes later goes to standard error again."""
    try:
        yield
    finally:
        if file is not None:
            configure_logs(0)
            file.close()


def _renderers(style: LogFormat, *, is_terminal: bool) -> list[structlog.typing.Processor]:
    """An event becomes a line: for the eye, or one JSON object whose exceptions are text."""
    if style == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    return [
        _escape,
        structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=structlog.dev.plain_traceback),
    ]


def _escape(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape what a terminal would obey: an event may quote a site."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = escaped(value)
    return event


class _Appended(io.TextIOBase):
    """Writes a file, each flushed text to the one that has the name then, so that an operator may move it. What cannot be
    written is lost, and the crawl goes on.
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


def _opened(file: Path) -> TextIO:
    """The file, for text by lines; a process that was killed leaves whole lines."""
    with storage_errors(file, other="[logs] file"):
        return cast(TextIO, _Appended(file))


def _to(stream: TextIO | None) -> structlog.typing.WrappedLogger:
    """A factory that looks standard error up when it writes: a live display may stand in for it."""
    return lambda *_: structlog.PrintLogger(stream or sys.stderr)
