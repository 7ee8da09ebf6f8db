"""The processor chain: a tuple of named callables, run in order until one says stop.

There is no base class: a processor is anything that takes a visit and answers a `Step`. The disposition is not part of
the chain, since it always runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto

from anabranch.crawler.reporting.statistics import WorkerBoard, step_name
from anabranch.crawler.visit import Visit


class Step(Enum):
    """What follows a processor."""

    PROCEED = auto()
    STOP = auto()


Processor = Callable[[Visit], Awaitable[Step]]


Chain = tuple[tuple[str, Processor], ...]  #: each processor behind its name in reports


def chain_of(processors: Iterable[Processor]) -> Chain:
    """The chain of these processors, in their order."""
    return tuple((step_name(process), process) for process in processors)


async def run_chain(chain: Chain, visit: Visit, board: WorkerBoard) -> None:
    """Pass the visit from processor to processor, as the board shows. What they raise passes through."""
    for name, process in chain:
        board.enter(visit.worker, name)
        if await process(visit) is Step.STOP:
            return
