"""Questions that come in one turn of the event loop, asked as one: a call for hundreds costs little more than one for a few."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")


class AskedTogether(Generic[AskedT, AnswerT]):
    """Asks `ask` about what all tasks brought in this turn, in the next one. For one event loop.

    `ask` answers about each in order. Cost beside it: 10 µs a question.
    """

    def __init__(self, ask: Callable[[Sequence[AskedT]], Sequence[AnswerT]]) -> None:
        self._ask = ask
        self._waiting: list[tuple[Sequence[AskedT], asyncio.Future[Sequence[AnswerT]]]] = []

    async def __call__(self, asked: Sequence[AskedT]) -> Sequence[AnswerT]:
        """What `ask` says about each. Raises what it raises; so does every other question of this turn."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer)
        answer: asyncio.Future[Sequence[AnswerT]] = loop.create_future()
        self._waiting.append((asked, answer))
        return await answer

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            told = self._ask([each for asked, _ in waiting for each in asked])
        except Exception as error:  # noqa: BLE001  each task is told
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            return
        start = 0
        for asked, answer in waiting:
            if not answer.done():  # its task was cancelled
                answer.set_result(told[start : start + len(asked)])
            start += len(asked)
