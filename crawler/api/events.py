"""The events of a crawl in a program: they go to Python's `logging`, unless the program has configured structlog."""

from __future__ import annotations

import structlog


def log_by_logging() -> None:
    """Send events to `logging` by the names of their modules. Does nothing if structlog is configured already."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
