"""Which event loop a crawl runs on: Python's own, or uvloop, which does the same in C."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Literal

from anabranch.crawler.outcomes.errors import OrderError

#: `auto` is uvloop where it is installed.
LoopName = Literal["auto", "asyncio", "uvloop"]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def loop_factory(name: LoopName) -> LoopFactory:
    """What makes the loop of that name. Raises: OrderError if it is not installed."""
    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        made: LoopFactory = importlib.import_module("uvloop").new_event_loop
    except ImportError as error:
        if name == "auto":
            return asyncio.new_event_loop
        raise OrderError(
            "[crawl] loop: uvloop is not installed; install anabranch[speed], or take auto or asyncio"
        ) from error
    return made
