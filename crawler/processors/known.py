"""URLs that the Frontier has and takes no more.

Most links of a page lead to pages that the crawl knows, and the same ones come again and again. For them the answer needs
neither scope nor key, no candidate and no filter. Of those that are not remembered the Frontier is asked, of many at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import compress
from operator import not_
from typing import Final

from anabranch.crawler.extracting.links import Link
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.processors.together import AskedTogether
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.models import NEW, SEEN, Candidate, Verdict

#: URLs that are remembered at most, a power of two: 8 MiB, whatever their lengths.
_SLOTS: Final = 1 << 20
#: Links that are kept as they are, and how long their texts may be: 10 MB, and 20 at most.
_LATELY: Final = 1 << 14
_MAX_CHARS: Final = 512
#: Of fewer URLs that are not remembered the Frontier is not asked before they are candidates.
_MANY: Final = 4


class Known:
    """The latest URLs that the Frontier called new or seen; it would call all of them seen, for as long as this process lives.

    Each is a hash of 64 bits in a slot that its lowest bits name; one that comes later takes the slot over, and what is
    forgotten is a candidate again. A new URL is taken for a known one with a probability of 2^-44: as often as it has the
    fingerprint of one of a million others in the store. The links that were lately found to be known are kept as they are:
    most pages of a site share theirs. Cost: 0.05 µs for one of these, 0.2 µs for another link.

    `unseen` says of dedup keys whether the Frontier may call them new; None: nobody is asked before there are candidates.
    """

    def __init__(
        self, unseen: Callable[[Sequence[bytes]], Sequence[bool]] | None, slots: int = _SLOTS, lately: int = _LATELY
    ) -> None:
        assert slots.bit_count() == 1, "a power of two"
        self._asked = None if unseen is None else AskedTogether(unseen)
        self._hashes = array("q", bytes(8)) * slots
        self._mask = slots - 1
        self._lately: set[Link] = set()
        self._max_lately = lately

    def unknown(self, links: Sequence[Link]) -> list[Link]:
        """Those of the links that the Frontier may take."""
        lately, hashes, mask = self._lately, self._hashes, self._mask
        unknown = []
        for link in [link for link in links if link not in lately]:
            number = hash(link[0])
            if hashes[number & mask] != number:
                unknown.append(link)
            elif len(link[0]) + len(link[2]) <= _MAX_CHARS:
                lately.add(link)
        if len(lately) > self._max_lately:
            lately.clear()
        return unknown

    async def are_new(self, urls: Sequence[str], keys: Sequence[bytes | None]) -> Sequence[bool]:
        """Which of the URLs the Frontier may take; the others are known from now on. Nothing is asked for a few.

        A key is None if the URL is its own. What pages ask in one turn of the loop is asked as one. Cost: 1 µs a URL, a fifth
        of what a candidate costs. Raises: FrontierError; CrawlerError if anything else fails, for a page that ended without
        its links would never be read again.
        """
        if self._asked is None or len(urls) < _MANY:
            return [True] * len(urls)
        asked = [url.encode() if key is None else key for url, key in zip(urls, keys, strict=True)]
        try:
            answers = await self._asked(asked)
        except FrontierError:
            raise
        except Exception as error:
            raise CrawlerError(
                f"the filter cannot be asked: {error!r}; the same command goes on with the job"
            ) from error
        hashes, mask = self._hashes, self._mask
        for number in map(hash, compress(urls, map(not_, answers))):
            hashes[number & mask] = number
        return answers

    def learn(self, candidates: Sequence[Candidate], verdicts: Sequence[Verdict]) -> None:
        """What the Frontier said of each. What it refused, may take later, or lets another filter decide, is not known."""
        hashes, mask = self._hashes, self._mask
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            if verdict is SEEN or verdict is NEW:
                number = hash(candidate.url)
                hashes[number & mask] = number
