"""Finds out when all shares are quiet, and ends the crawl."""

from __future__ import annotations

import asyncio

from anabranch.crawler.processes.postoffice import QUIET
from anabranch.crawler.processes.quiescence import Quiet, is_over
from anabranch.crawler.processes.shares import Shares


class QuietWatch:
    """Hears which shares are quiet. When all have said so it asks them, twice; if that proves nothing, it goes on listening."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._quiet: set[int] = set()
        self._asking: asyncio.Task[None] | None = None

    def quiet(self, share: int) -> None:
        """A share has nothing to do, as far as it knows."""
        self._quiet.add(share)
        if len(self._quiet) == self._shares.count and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask(), name="quiet")

    def stir(self, share: int) -> None:
        """Something is sent to a share: it will say again when it is quiet, and until then the crawl does not end."""
        self._quiet.discard(share)

    async def _ask(self) -> None:
        while len(self._quiet) == self._shares.count and self._shares.ending is None:
            first = await self._round()
            second = await self._round()
            # What the parent itself sends is in no share's answer: whoever was stirred since is not known to be quiet.
            if is_over(first, second) and len(first) == len(self._quiet) == self._shares.count:
                self._shares.end()
                return

    async def _round(self) -> dict[int, Quiet]:
        answers = await asyncio.gather(*(self._ask_one(share) for share in range(self._shares.count)))
        return {share: answer for share, answer in enumerate(answers) if answer is not None}

    async def _ask_one(self, share: int) -> Quiet | None:
        """Its answer. One that is not quiet says so as soon as it is, and that comes after this."""
        reply = await self._shares.ask(share, QUIET)
        if reply is None or not reply["is_quiet"]:
            self._quiet.discard(share)
        return None if reply is None else Quiet(**reply)
