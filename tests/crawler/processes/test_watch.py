"""Finding out that all shares are quiet."""

import asyncio
from collections.abc import Mapping
from typing import Any

from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.processes.watch import QuietWatch


class Asked(Shares):
    """Shares whose answers the test gives."""

    def __init__(self, *answers: list[Mapping[str, Any] | None]) -> None:
        self.count = len(answers)
        self.ending = None
        self.is_ended = False
        self._answers = answers

    async def ask(self, share: int, kind: str, body: bytes = b"", **facts: Any) -> Mapping[str, Any] | None:
        return self._answers[share].pop(0)

    def end(self) -> None:
        self.is_ended = True


def quiet(stirred: int = 0, *, is_quiet: bool = True) -> dict[str, Any]:
    return {"is_quiet": is_quiet, "stirred": stirred, "life": 1}


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_two_equal_rounds_end_the_crawl() -> None:
    """They begin when the last share has said that it is quiet."""
    shares = Asked([quiet(1), quiet(1)], [quiet(4), quiet(4)])
    watch = QuietWatch(shares)
    watch.quiet(0)
    await settle()
    assert not shares.is_ended
    watch.quiet(1)
    await settle()
    assert shares.is_ended


async def test_a_share_that_was_stirred_meanwhile_is_asked_again() -> None:
    """If it is quiet all the same nobody will say so once more."""
    shares = Asked([quiet(1), quiet(2), quiet(2), quiet(2)], [quiet(4), quiet(4), quiet(4), quiet(4)])
    watch = QuietWatch(shares)
    watch.quiet(0)
    watch.quiet(1)
    await settle()
    assert shares.is_ended


async def test_a_share_that_works_or_has_died_says_itself_when_it_is_quiet() -> None:
    """Until then nobody is asked."""
    shares = Asked([quiet(1)] * 5, [quiet(4, is_quiet=False), None, quiet(5), quiet(5)])
    watch = QuietWatch(shares)
    watch.quiet(0)
    watch.quiet(1)
    await settle()
    assert not shares.is_ended
    watch.quiet(1)
    await settle()
    assert shares.is_ended


async def test_a_parcel_on_its_way_makes_its_share_unquiet() -> None:
    """It will say again when it has done what came."""
    shares = Asked([quiet(1)] * 2, [quiet(4)] * 2)
    watch = QuietWatch(shares)
    watch.quiet(0)
    watch.stir(0)
    watch.quiet(1)
    await settle()
    assert not shares.is_ended
    watch.quiet(0)
    await settle()
    assert shares.is_ended


async def test_a_share_that_is_stirred_while_it_is_asked_keeps_the_crawl_open() -> None:
    """What the parent itself sends is in no answer: the seed of an operator would find the doors closed."""
    shares = Asked([quiet(1)] * 4, [quiet(4)] * 4)
    watch = QuietWatch(shares)
    watch.quiet(0)
    watch.quiet(1)
    await asyncio.sleep(0)  # the first round is under way
    watch.stir(1)
    await settle()
    assert not shares.is_ended
    watch.quiet(1)
    await settle()
    assert shares.is_ended
