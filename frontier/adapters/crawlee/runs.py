"""Which run of a crawler a request was given to, and whether that run is over.

Nobody is told when a run is aborted: by an error, by a second Ctrl-C. What its workers had in progress would then be so for
ever, and no later run of the same crawler would end. But the pool asks a queue whether there is anything to do in a task of
its own, its workers are made by that task and inherit its context, and it ends after the last of them.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

#: What Crawlee's AutoscaledPool calls this task. Of other names nothing is known, so nothing is taken back from them.
_POOL_TASK = "autoscaled pool worker task orchestrator"

Run = asyncio.Task[object]

_RUN: ContextVar[Run | None] = ContextVar("anabranch.frontier.adapters.crawlee.runs", default=None)


def asked() -> Run | None:
    """The run that asks now, if one does; the workers that it makes from now on are known as its own."""
    task = asyncio.current_task()
    if task is None or task.get_name() != _POOL_TASK:
        return None
    _RUN.set(task)
    return task


def current() -> Run | None:
    """The run whose worker calls."""
    return _RUN.get()


def is_over(run: Run) -> bool:
    """Whether none of its workers lives any more."""
    return run.done() or run.get_loop().is_closed()


class Runs:
    """The runs that have asked one queue."""

    def __init__(self) -> None:
        self._known: set[Run] = set()

    def over(self) -> set[Run]:
        """Those that are over since the last call; the one that asks now is known from now on."""
        if (run := asked()) is not None:
            self._known.add(run)
        over = {run for run in self._known if is_over(run)}
        self._known -= over
        return over
