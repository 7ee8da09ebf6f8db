"""Crawlee's requests as candidates, and leases as its requests again. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from crawlee import Request, RequestState
from yarl import URL

from anabranch.frontier.adapters.crawlee.runs import Run
from anabranch.frontier.models import Candidate, HostTrouble, Lease, Outcome, OutcomeKind, UrlRecord
from anabranch.frontier.policies.authority import authority

#: Heritrix's status of a URL that robots.txt forbids.
ROBOTS_PRECLUDED = -9998
#: `handled_at` of what is looked up: that it was handled is kept, when it was is not.
_SOME_TIME = datetime.fromtimestamp(0, UTC)
THROTTLED = 429


@dataclass(slots=True)
class Flight:
    """A request that is out."""

    lease: Lease
    request: Request
    run: Run | None = None  #: whose worker has it
    trouble: HostTrouble = HostTrouble.NONE
    retry_after_s: float = 0.0

    def outcome(self, kind: OutcomeKind, now_s: float) -> Outcome:
        """How it ends now. Its fetch counts as long as it was out, for Crawlee does not say when it was fetched.

        One that was skipped was not fetched, so nothing rests.
        """
        if self.request.state is RequestState.SKIPPED:
            return Outcome(kind, ROBOTS_PRECLUDED)
        status = 0 if self.trouble is HostTrouble.NONE else THROTTLED
        times = (self.lease.since_s, now_s)
        return Outcome(kind, status, *times, trouble=self.trouble, retry_after_s=self.retry_after_s)


def key_of(unique_key: str) -> bytes:
    """What dedup sees."""
    return unique_key.encode()


def candidate_of(request: Request, *, front: bool, force: bool = False) -> Candidate:
    """The request as it is now. Raises: ValueError if its data is none that JSON can hold, as in Crawlee's own storages."""
    payload = request.model_dump_json(by_alias=True).encode()
    return Candidate(ascii_url(request.url), key_of(request.unique_key), payload=payload, front=front, force=force)


def request_of(url: str, key: bytes, payload: bytes | None) -> Request:
    """The request of a row; of one that another program has queued, its URL alone. Raises: ValueError for a foreign payload."""
    if payload is None:
        return Request.from_url(url, unique_key=key.decode())
    return Request.model_validate_json(payload)


def handled_request(record: UrlRecord, unique_key: str) -> Request:
    """A request that was handled: its URL, its key, and how it ended."""
    request = Request.from_url(record.url, unique_key=unique_key, handled_at=_SOME_TIME)
    request.state = RequestState.ERROR if record.outcome == OutcomeKind.FAILED.value else RequestState.DONE
    if record.status == ROBOTS_PRECLUDED:
        request.state = RequestState.SKIPPED
    return request


def ascii_url(url: str) -> str:
    """The URL as it goes over the wire, so that a host has one gate however its name is written."""
    return url if url.isascii() else str(URL(url))


def host_of(url: str) -> str | None:
    """Whose gate a URL stands at; None if it has no host."""
    found = authority(ascii_url(url))
    return None if found is None else found.host
