"""One lease on its way through the chain: what was fetched, what was found, how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from crawler.failures import HOST_BUSY, FetchError
from crawler.processors.extract import Link
from crawler.processors.fetch import Response
from crawler.status import FetchStatus
from frontier.models import Candidate, Lease


class Ending(Enum):
    """What the chain decided apart from the fetch's own result."""

    NONE = auto()  #: the fetch decides
    EXCLUDED = auto()  #: robots.txt forbids it
    DEFERRED = auto()  #: something else was fetched in its place; back to its old place
    UNRULED = auto()  #: its robots.txt was fetched in its place, and the host said that it is busy
    RELEASED = auto()  #: nothing was fetched; back to its old place, the slot does not rest


@dataclass(slots=True)
class Visit:
    """Filled in by the processors, read by the disposition. Only one worker holds it."""

    lease: Lease
    worker: int  #: the worker's number, from 1
    ending: Ending = Ending.NONE
    response: Response | None = None  #: of the page, or of what was fetched in its place
    failure: FetchError | None = None
    broken: Exception | None = None  #: a processor's own fault
    links: list[Link] = field(default_factory=list)
    dropped_links: int = 0  #: links beyond the limit of outlinks
    discovered: list[Candidate] = field(default_factory=list)

    @property
    def fetched(self) -> tuple[float, float] | None:
        """When the fetch began and ended (epoch seconds); None if nothing was fetched."""
        timed = self.response or self.failure
        return (timed.start_s, timed.end_s) if timed is not None and timed.end_s else None

    @property
    def page(self) -> Response | None:
        """The answer that the URL's lines show; None if there is none, or only a busy host's to its robots.txt."""
        return None if self.ending is Ending.UNRULED else self.response

    @property
    def busy(self) -> Response | None:
        """The answer, to the URL or in its place, by which the host asked for a rest; None if it did not."""
        asks = self.response is not None and self.response.status in HOST_BUSY and self.broken is None
        return self.response if asks else None

    @property
    def status(self) -> int:
        """The fetch status of the URL: HTTP's, or one of Heritrix's negative codes."""
        if self.ending is Ending.EXCLUDED:
            return FetchStatus.ROBOTS_EXCLUDED
        if self.ending is Ending.UNRULED:
            return FetchStatus.ROBOTS_FAILED
        if self.broken is not None:
            return FetchStatus.PROCESSOR_FAILED
        if self.failure is not None:
            return self.failure.status
        return self.response.status if self.response is not None else FetchStatus.UNATTEMPTED

    @property
    def mime(self) -> str:
        """Content type without parameters, lower case; empty if unknown."""
        if self.page is None:
            return ""
        return self.page.headers.get("Content-Type", "").partition(";")[0].strip().lower()
