"""URLs that the Frontier already has, remembered so that links to them cost little: most links lead to known pages.

`candidates` asks here first, before scope, key and filter; `disposition` reports the Frontier's verdicts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain, compress
from operator import itemgetter, not_
from typing import Final

import numpy as np

from anabranch.crawler.extract.links import Link
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.records import NEW, SEEN, Candidate, Verdict

#: URLs remembered at most, a power of two: 8 MiB, whatever their lengths.
_SLOTS: Final = 1 << 20
#: The Frontier is not asked about fewer URLs than this before they are candidates.
_MIN_BATCH: Final = 4
_url_of: Final = itemgetter(Link._fields.index("url"))


class SeenUrls:
    """A cache of URLs that the Frontier called new or seen; it calls them seen for as long as this process lives.

    Each URL is a 64-bit hash in one of the two slots that its lowest bits name, which keep the last two. A new URL is taken for
    a seen one with a probability of 2^-44, as by the store's fingerprints. `unseen` looks up dedup keys in the Frontier;
    None: only candidates are. `count` is called with the number of links that were remembered.
    """

    def __init__(
        self,
        unseen: Callable[[Sequence[bytes]], Sequence[bool]] | None,
        slots: int = _SLOTS,
        count: Callable[[int], None] | None = None,
    ) -> None:
        assert slots.bit_count() == 1, "a power of two"
        self._lookups = None if unseen is None else LookupBatcher(unseen)
        # Two slots of a kind forget a twentieth of what one of twice the number forgets at 30,000 URLs, a third at 300,000.
        self._last, self._before = np.zeros((2, slots // 2), np.int64)
        self._mask = slots // 2 - 1
        self._count = count

    def unseen(self, links: Sequence[Link]) -> list[Link]:
        """The links that the Frontier may accept. Cost: 0.2 µs a link, all in one look, and 4 µs."""
        numbers = np.fromiter(map(hash, map(_url_of, links)), np.int64, len(links))
        slots = numbers & self._mask
        is_unseen = (self._last[slots] != numbers) & (self._before[slots] != numbers)
        unseen = list(compress(links, is_unseen.tolist()))
        if self._count is not None:
            self._count(len(links) - len(unseen))
        return unseen

    async def are_new(self, urls: Sequence[str], keys: Sequence[bytes | None]) -> Sequence[bool]:
        """Which URLs the Frontier may accept; the others are remembered. Few URLs are not looked up. Cost: 1 µs a URL.

        A key is None if the URL is its own key. Raises: FrontierError; CrawlerError if anything else fails, since a page that
        ended without its links would never be read again.
        """
        if self._lookups is None or len(urls) < _MIN_BATCH:
            return [True] * len(urls)
        try:
            are_new = await self._lookups([key or url.encode() for url, key in zip(urls, keys, strict=True)])
        except FrontierError:
            raise
        except Exception as error:
            text = f"the filter cannot be asked: {error!r}; the same command goes on with the job"
            raise CrawlerError(text) from error
        for url in compress(urls, map(not_, are_new)):
            self._remember(url)
        return are_new

    def learn(self, candidates: Sequence[Candidate], verdicts: Sequence[Verdict]) -> None:
        """Remember what the Frontier has. URLs that it refused, may accept later or leaves to another filter are not seen."""
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            if verdict is SEEN or verdict is NEW:
                self._remember(candidate.url)

    def _remember(self, url: str) -> None:
        number = hash(url)
        slot = number & self._mask
        last = self._last[slot]
        if last != number:
            self._last[slot], self._before[slot] = number, last


class LookupBatcher:
    """Batches filter look-ups of one event-loop iteration into one call of `look_up` in the next. Cost: 10 µs a look-up."""

    def __init__(self, look_up: Callable[[Sequence[bytes]], Sequence[bool]]) -> None:
        self._look_up = look_up
        self._waiting: list[tuple[Sequence[bytes], asyncio.Future[Sequence[bool]]]] = []

    async def __call__(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """The answers to these keys. Raises what `look_up` raises, in every task of the batch."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._run)
        answers: asyncio.Future[Sequence[bool]] = loop.create_future()
        self._waiting.append((keys, answers))
        return await answers

    def _run(self) -> None:
        batch = [waiting for waiting in self._waiting if not waiting[1].done()]  # the others' tasks were cancelled
        self._waiting = []
        try:
            found = self._look_up(list(chain.from_iterable(keys for keys, _ in batch)))
        except Exception as error:  # noqa: BLE001  each task gets it
            for _, answers in batch:
                answers.set_exception(error)
            return
        start = 0
        for keys, answers in batch:
            answers.set_result(found[start : start + len(keys)])
            start += len(keys)
