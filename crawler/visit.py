"""The record of one visit: a lease on its way through the processors, and what they find out about its URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.crawler.archive.records import Exchange, RecordLocation
from anabranch.crawler.extract.links import Link
from anabranch.crawler.fetch.response import Response
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.robots.directives import NOTHING, Directives
from anabranch.frontier import HOST_BUSY, Prepared
from anabranch.frontier.records import Candidate, Lease, OutcomeKind

if TYPE_CHECKING:  # it imports the HTTP library
    from anabranch.crawler.archive.cdxserver import Captures

#: Lost links of a page that errors.jsonl names; the others are only counted.
MAX_LOST_NAMED = 10


class Step(Enum):
    """The step after a processor: the next processor, or none."""

    PROCEED = auto()
    STOP = auto()


class ChainDecision(Enum):
    """The decision of a processor about the URL, apart from the result of its fetch."""

    NONE = auto()  #: the fetch decides
    EXCLUDED = auto()  #: robots.txt forbids the URL
    DEFERRED = auto()  #: another URL was fetched in its place; it goes back to its place in the queue
    NO_RULES = auto()  #: its robots.txt was requested in its place and is not available: the host rests
    RELEASED = auto()  #: nothing was fetched; it goes back to its place, and its slot does not rest


class LostLink(NamedTuple):
    """A link that is not followed because a user function failed for it."""

    url: str
    hops: str  #: including the link's own
    error: UserFunctionFailed


@dataclass(slots=True)
class Visit:
    """A URL on its way through the crawl: processors fill it in, the disposition reads it; one worker holds it at a time."""

    lease: Lease  #: the URL, how it was found (`hops`, `via`), and where it was queued
    worker: int  #: the worker's number, from 1
    decision: ChainDecision = ChainDecision.NONE
    response: Response | None = None  #: to the URL, or to what was fetched in its place
    archived: Response | None = None  #: the archived response that a 304 confirmed: the page's links come from it
    captures: Captures | None = None  #: captures elsewhere, on their way; None: nobody was asked
    failure: FetchError | None = None  #: the fetch failed, or the URL was refused
    broken: Exception | None = None  #: a processor failed
    links: list[Link] = field(default_factory=list)  #: those of the page; a processor may change the list
    body_rule: int = 0  #: number of the rule that left the body unread; 0: it was read
    robots_tries: int = 0  #: failed tries of the robots.txt, without which the order allows the URL; 0: it has rules
    dropped_links: int = 0  #: links beyond the limit of outlinks
    lost_links: int = 0  #: links for which a user function failed
    lost: list[LostLink] = field(default_factory=list)  #: the first `MAX_LOST_NAMED` of them
    notes: tuple[str, ...] = ()  #: annotations for crawl.log; a processor may add to them
    stopped_by: str = ""  #: the user's processor that wants the page neither written nor followed
    directives: Directives = NOTHING  #: what the page asks of robots
    exchange: Exchange | None = None  #: what is archived
    place: RecordLocation | None = None  #: where, if that was done before the visit ends
    discovered: list[Candidate] = field(default_factory=list)  #: scheduled when the visit ends
    prepared: Prepared | None = (
        None  #: the answers of the filter and the policies for its end; None: they are asked then
    )

    def received(self, response: Response) -> None:
        """A response to the URL, or to what was fetched in its place, has arrived."""
        self.response = response

    def recalled(self, archived: Response | None) -> None:
        """The page has not changed; `archived` is its earlier response, None if that cannot be read."""
        self.archived = archived

    def lack_robots(self, tries: int) -> None:
        """Its robots.txt cannot be fetched, and after so many tries the order allows it all the same; 0: it has rules."""
        self.robots_tries = tries

    def stopped_before_body(self, rule: int) -> None:
        """The rule of this number left the body unread."""
        self.body_rule = rule

    def failed(self, error: FetchError) -> None:
        """The fetch failed, or a processor refused the URL."""
        self.failure = error

    def postponed(self, error: FetchError) -> None:
        """A service that the visit needs is away: it comes again, with all that it leads to."""
        self.failure, self.discovered, self.prepared = error, [], None

    def prepare(self, prepared: Prepared) -> None:
        """The filter and the policies have been asked for its end."""
        self.prepared = prepared

    def broke(self, error: Exception) -> None:
        """A processor, ours or the user's, failed."""
        self.broken = error

    def decide(self, decision: ChainDecision) -> None:
        """End the URL this way, whatever its fetch brought."""
        self.decision = decision

    def extracted(self, links: list[Link], notes: tuple[str, ...], *, dropped: int, directives: Directives) -> None:
        """The page was parsed."""
        self.links, self.notes = links, notes
        self.dropped_links, self.directives = dropped, directives

    def edited(self, links: list[Link], notes: tuple[str, ...], *, stopped_by: str) -> None:
        """A user's processor has changed links and notes, and maybe stopped the page."""
        self.links, self.notes, self.stopped_by = links, notes, stopped_by

    def lose(self, link: LostLink) -> None:
        """A user function failed for this link, so that it is not followed."""
        self.lost_links += 1
        if len(self.lost) < MAX_LOST_NAMED:
            self.lost.append(link)

    def archive(self, exchange: Exchange) -> None:
        """Write the exchange to the WARC files when the visit ends."""
        self.exchange = exchange

    def archived_at(self, place: RecordLocation | None) -> None:
        """The exchange has been written already."""
        self.place = place

    def ask(self, captures: Captures) -> None:
        """Other archives were asked for captures of the URL."""
        self.captures = captures

    def discover(self, candidates: list[Candidate]) -> None:
        """Schedule these candidates, and no others, when the visit ends."""
        self.discovered = candidates

    def take_discovered(self, keep: int = 0) -> list[Candidate]:
        """Remove and return the candidates, except for the last `keep`."""
        split = max(len(self.discovered) - keep, 0)
        taken, self.discovered = self.discovered[:split], self.discovered[split:]
        return taken

    @property
    def fetch_times(self) -> tuple[float, float] | None:
        """When the fetch began and ended (epoch seconds); None if nothing was fetched."""
        timed = self.response or self.failure
        return (timed.start_s, timed.end_s) if timed is not None and timed.end_s else None

    @property
    def is_busy(self) -> bool:
        """The host answered the URL itself, with a status that asks for a rest and another try."""
        if self.response is None or self.broken is not None or self.decision is not ChainDecision.NONE:
            return False
        if self.body_rule:  # the operator wants no other try
            return False
        return self.response.status in HOST_BUSY

    @property
    def status(self) -> int:
        """The fetch status of the URL: HTTP's, or one of Heritrix's negative codes."""
        if self.decision is ChainDecision.EXCLUDED:
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
        """Close the bodies, which may be files, and wait for no other archive."""
        if self.captures is not None:
            self.captures.close()
        for response in (self.response, self.archived):
            if response is not None:
                response.body.close()


Processor = Callable[[Visit], Awaitable[Step]]

#: A user's processor of `[job] processors`: an `async def` that sees each answered page before it is written.
#: None goes on to the next one, `Step.STOP` drops the page.
PageProcessor = Callable[[Visit], Awaitable[Step | None]]

#: The processors of a crawl in their order, each with its name in reports.
Chain = tuple[tuple[str, Processor], ...]

#: Ends a visit and returns how; None if its lease was given back or lost.
Dispose = Callable[[Visit], Coroutine[Any, Any, OutcomeKind | None]]
