"""Processors of the operator's own: `[job] processors`, functions that see each fetched page before it is written.

    async def function(visit: Visit) -> Step | None

None is `Step.PROCEED`; after `Step.STOP` the page is logged, but neither written nor are its links followed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from crawler.chain import Processor, Step
from crawler.outcomes.errors import OrderError
from crawler.outcomes.failures import FetchError
from crawler.outcomes.ownfunctions import OwnFunctionFailed, failed, own_function, shown
from crawler.visit import Visit

KEY = "[job] processors"


def own_processors(names: Sequence[str]) -> tuple[Processor, ...]:
    """The processors of these names, in their order. Raises: OrderError, one line that names the key."""
    return tuple(own_processor(name) for name in names)


def own_processor(name: str) -> Processor:
    """One of them. What it raises becomes an OwnFunctionFailed. Raises: OrderError if it is not to be had, or not async."""
    function = own_function(name, KEY)
    if not _is_async(function):
        raise OrderError(f"{KEY} {name} is not async; write `async def {name.partition(':')[2]}(visit)`")

    async def process(visit: Visit) -> Step:
        try:
            answer = await function(visit)
        except FetchError:
            raise  # a verdict on the page, with a status of its own
        except Exception as error:  # it is the operator's function, which may raise anything
            raise failed(name, error) from error
        if answer is None:
            return Step.PROCEED
        if not isinstance(answer, Step):
            raise OwnFunctionFailed(f"{name} answered {shown(repr(answer))}; it must be a Step or None")
        return answer

    process.__name__ = name  # what reports call it by
    return process


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
