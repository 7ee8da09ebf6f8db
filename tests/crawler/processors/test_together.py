"""Questions of one turn of the loop, asked as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from anabranch.crawler.processors.together import AskedTogether


class Asked:
    """Says of each key whether it is longer than a byte, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []

    def __call__(self, keys: Sequence[bytes]) -> list[bool]:
        self.calls.append(list(keys))
        return [len(key) > 1 for key in keys]


async def test_what_comes_in_one_turn_is_one_question() -> None:
    """Each gets the answers to its own keys; what comes later is another question."""
    asked = Asked()
    together = AskedTogether(asked)
    answers = await asyncio.gather(together([b"a", b"bb", b"c"]), together([]), together([b"dd", b"e"]))
    assert answers == [[False, True, False], [], [True, False]]
    assert await together([b"f"]) == [False]
    assert asked.calls == [[b"a", b"bb", b"c", b"dd", b"e"], [b"f"]]


async def test_who_was_cancelled_meanwhile_costs_the_others_nothing() -> None:
    """Their answers are their own."""
    together = AskedTogether(Asked())
    tasks = [asyncio.create_task(together([key])) for key in (b"a", b"bb", b"cc")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert (tasks[0].result(), tasks[1].cancelled(), tasks[2].result()) == ([False], True, [True])


async def test_a_failure_is_told_to_all() -> None:
    """Whoever asks next asks anew."""
    failures = [ValueError("first")]

    def ask(keys: Sequence[bytes]) -> list[bool]:
        if failures:
            raise failures.pop()
        return [True for _ in keys]

    together = AskedTogether(ask)
    told = await asyncio.gather(together([b"a"]), together([b"b"]), return_exceptions=True)
    assert [str(error) for error in told] == ["first", "first"]
    assert await together([b"a"]) == [True]


async def test_nothing_is_asked_before_the_turn_is_over() -> None:
    """Others of the same turn may still come."""
    asked = Asked()
    task = asyncio.create_task(AskedTogether(asked)([b"a"]))
    await asyncio.sleep(0)
    assert asked.calls == []
    with pytest.raises(asyncio.InvalidStateError):
        task.result()
    assert await task == [False]
