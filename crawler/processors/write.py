"""What is kept of a visit: an answered one becomes an exchange, and the exchange a response or a revisit.

Nothing is written here. The disposition gives the exchange to the journal with the visit's lines, before the URL is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol

from anabranch.crawler.archiving.exchanges import (
    NOT_MODIFIED,
    SAME_PAYLOAD,
    Answer,
    Exchange,
    Original,
    Outlink,
    Revisit,
)
from anabranch.crawler.archiving.payload_rows import Fetched
from anabranch.crawler.chain import Step
from anabranch.crawler.reporting.annotations import DUPLICATE_DIGEST
from anabranch.crawler.reporting.annotations import NOT_MODIFIED as SERVER_NOT_MODIFIED
from anabranch.crawler.visit import Visit

#: What crawl.log notes of a payload that is not written again: why, and the profile of its record (Heritrix's words).
NOTES = {
    SAME_PAYLOAD: (DUPLICATE_DIGEST, "digest"),
    NOT_MODIFIED: (SERVER_NOT_MODIFIED, "notModified"),
}


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
        revisit = await self._revisit_of(new)
        return new if revisit is None else replace(new, revisit=revisit)

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


class Write:
    """The step behind the extraction: what is archived of an answered visit."""

    def __init__(self, archivist: Archivist) -> None:
        self._archivist = archivist

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.exchange`; what got no answer has none."""
        lease, response = visit.lease, visit.response
        if response is not None and visit.status > 0:
            visit.exchange = await self._archivist.exchange(
                lease.url, response, hops=lease.hops, via=lease.via, outlinks=visit.links
            )
        return Step.PROCEED


def notes_of(exchange: Exchange | None) -> tuple[str, str]:
    """What crawl.log notes of a payload that was not written again (see `NOTES`); nothing for others."""
    return ("", "") if exchange is None or exchange.revisit is None else NOTES[exchange.revisit.profile]
