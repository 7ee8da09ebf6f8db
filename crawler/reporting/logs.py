"""Log configuration: the only place that decides where events go and how they look."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

#: Least level shown, by the number of -v flags (quiet is -1).
LEVELS: dict[int, int] = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG}


def configure_logs(verbosity: int, stream: TextIO | None = None) -> None:
    """Send events of at least the level of `verbosity` to standard error, one line each, in UTC."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(
                colors=(stream or sys.stderr).isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[max(-1, min(verbosity, 2))]),
        logger_factory=_to(stream),
        cache_logger_on_first_use=False,
    )


def _to(stream: TextIO | None) -> structlog.typing.WrappedLogger:
    """A factory that looks standard error up when it writes: a live display may stand in for it."""
    return lambda *_: structlog.PrintLogger(stream or sys.stderr)
