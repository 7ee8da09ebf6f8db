"""One lease on its way through the chain: what was fetched, what was found, how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from anabranch.crawler.archiving.exchanges import Exchange
from anabranch.crawler.extracting.links import Link
from anabranch.crawler.fetching.response import Response
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.ownfunctions import OwnFunctionFailed
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.robots.directives import NOTHING, Directives
from anabranch.frontier.hosttroubles import HOST_BUSY
from anabranch.frontier.models import Candidate, Lease


class Ending(Enum):
    """What the chain decided apart from the fetch's own result."""

    NONE = auto()  #: the fetch decides
    EXCLUDED = auto()  #: robots.txt forbids it
    DEFERRED = auto()  #: something else was fetched in its place; back to its old place
    UNRULED = auto()  #: its robots.txt was fetched in its place, and could not be had: the host rests
    RELEASED = auto()  #: nothing was fetched; back to its old place, the slot does not rest


class LostLink(NamedTuple):
    """A link that is not followed, since a function of the operator's own failed for it."""

    url: str
    hops: str  #: with the link's own
    error: OwnFunctionFailed


@dataclass(slots=True)
class Visit:
    """Filled in by the processors, read by the disposition. Only one worker holds it."""

    lease: Lease
    worker: int  #: the worker's number, from 1
    ending: Ending = Ending.NONE
    response: Response | None = None  #: of the page, or of what was fetched in its place
    earlier: Response | None = None  #: what a 304 stands for, from the archive: its links are the page's
    failure: FetchError | None = None
    broken: Exception | None = None  #: a processor's own fault
    links: list[Link] = field(default_factory=list)
    dropped_links: int = 0  #: links beyond the limit of outlinks
    lost_links: int = 0  #: links that a function of the operator's own failed for
    lost: list[LostLink] = field(default_factory=list)  #: the first of them
    notes: tuple[str, ...] = ()  #: annotations of crawl.log that the reading of the page gave
    stopped_by: str = ""  #: the operator's own processor that wants it neither written nor followed
    asked: Directives = NOTHING  #: what the page asks of robots
    exchange: Exchange | None = None  #: what is archived of it
    discovered: list[Candidate] = field(default_factory=list)

    @property
    def fetched(self) -> tuple[float, float] | None:
        """When the fetch began and ended (epoch seconds); None if nothing was fetched."""
        timed = self.response or self.failure
        return (timed.start_s, timed.end_s) if timed is not None and timed.end_s else None

    @property
    def is_busy(self) -> bool:
        """The host answered the URL itself, and asked for a rest."""
        if self.response is None or self.broken is not None or self.ending is not Ending.NONE:
            return False
        return self.response.status in HOST_BUSY

    @property
    def status(self) -> int:
        """The fetch status of the URL: HTTP's, or one of Heritrix's negative codes."""
        if self.ending is Ending.EXCLUDED:
            return FetchStatus.ROBOTS_EXCLUDED
        if self.broken is not None:
            return FetchStatus.PROCESSOR_FAILED
        if self.failure is not None:
            return self.failure.status
        return self.response.status if self.response is not None else FetchStatus.UNATTEMPTED

    @property
    def mime(self) -> str:
        """Content type without parameters, lower case; empty if unknown."""
        return "" if self.response is None else self.response.media_type

    def close(self) -> None:
        """The visit is over: its bodies go."""
        for answer in (self.response, self.earlier):
            if answer is not None:
                answer.body.close()
