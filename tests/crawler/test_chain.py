"""The chain: processors in order until one says stop."""

import pytest

from anabranch.crawler.chain import Step, chain_of, run_chain
from anabranch.crawler.reporting.statistics import WorkerBoard
from tests.crawler.builder import visit


def processors(*steps):
    """Processors that answer these steps (or raise), and the list in which they note their numbers."""
    ran = []

    def processor(number, step):
        async def process(visit):
            ran.append((number, visit))
            if isinstance(step, Exception):
                raise step
            return step

        return process

    return chain_of(processor(number, step) for number, step in enumerate(steps)), ran


def shown():
    """A board that the visit's worker stands on."""
    board = WorkerBoard()
    board.begin(visit().worker, visit().lease.url, 0)
    return board


async def test_every_processor_gets_the_visit_in_order() -> None:
    """As long as all say proceed, none is left out."""
    chain, ran = processors(Step.PROCEED, Step.PROCEED, Step.PROCEED)
    one = visit()
    await run_chain(chain, one, shown())
    assert ran == [(0, one), (1, one), (2, one)]


async def test_nothing_runs_after_a_stop() -> None:
    """The processor that says stop is the last."""
    chain, ran = processors(Step.PROCEED, Step.STOP, Step.PROCEED)
    await run_chain(chain, visit(), shown())
    assert [number for number, _ in ran] == [0, 1]


async def test_what_a_processor_raises_passes_through_and_ends_the_chain() -> None:
    """The chain judges no error: that is the worker's business."""
    chain, ran = processors(KeyError("odd"), Step.PROCEED)
    with pytest.raises(KeyError, match="odd"):
        await run_chain(chain, visit(), shown())
    assert [number for number, _ in ran] == [0]


async def test_the_board_shows_which_processor_a_worker_is_in() -> None:
    """By its name, an own one's too."""
    board = shown()

    async def look_twice(_):
        assert [fact.step for fact in board.facts()] == ["look_twice"]
        return Step.PROCEED

    await run_chain(chain_of([look_twice]), visit(), board)
    assert list(board.times) == []
    board.end(visit().worker)
    assert list(board.times) == ["look_twice"]
