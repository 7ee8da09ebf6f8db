"""What is kept of a visit: an answered one becomes an exchange, and the exchange a response or a revisit.

Nothing is written here. The disposition gives the exchange to the journal with the visit's lines, before the URL is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol

from crawler.archiving.payload_rows import Fetched
from crawler.archiving.records import NOT_MODIFIED, SAME_PAYLOAD, Answer, Exchange, Original, Outlink, Revisit

#: Annotations of crawl.log for a payload that is not written again (Heritrix's words).
ANNOTATIONS = {SAME_PAYLOAD: "duplicate:digest", NOT_MODIFIED: "duplicate:server-not-modified"}


class Memory(Protocol):
    """What was fetched before; see `archiving.payloads.Payloads`."""

    async def original(self, digest: bytes) -> Original | None:
        """The record that has this payload."""

    async def fetched(self, url: str) -> Fetched | None:
        """The last fetch of the URL."""


class Archivist:
    """Makes exchanges. With `revisit` a payload that is archived already is not written again, a redirect's aside."""

    def __init__(self, memory: Memory, *, revisit: bool) -> None:
        self._memory = memory
        self._revisit = revisit

    async def exchange(
        self, url: str, response: Answer, *, hops: str, via: str | None, outlinks: Sequence[Outlink] = ()
    ) -> Exchange:
        """What is archived of an answer. Cost: as a question to the memory of payloads."""
        new = Exchange(url=url, response=response, hops=hops, via=via, outlinks=outlinks)
        return replace(new, revisit=await self._revisit_of(new))

    async def _revisit_of(self, new: Exchange) -> Revisit | None:
        """Why the payload need not be written; None if it must be."""
        response = new.response
        if response.status == HTTPStatus.NOT_MODIFIED:
            known = await self._memory.fetched(new.url)
            return None if known is None else Revisit(NOT_MODIFIED, known.original)
        if not self._revisit or not new.may_be_original:
            return None
        original = await self._memory.original(response.body.digest)
        return None if original is None else Revisit(SAME_PAYLOAD, original)


def annotation_of(exchange: Exchange | None) -> str:
    """The annotation of crawl.log for a payload that was not written again; empty for others."""
    return "" if exchange is None or exchange.revisit is None else ANNOTATIONS[exchange.revisit.profile]
