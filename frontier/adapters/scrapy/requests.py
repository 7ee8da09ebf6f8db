"""Scrapy's requests as candidates, and leases as its requests.

A payload is the pickled dictionary of a request. A request that cannot be pickled, or any if the Frontier is in memory alone,
stays here as an object, and its payload names it; a later run does not know that name.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable
from itertools import count

from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from frontier.models import Candidate, Lease

#: In a request's `meta` while it is in flight: the number of its lease.
NUMBER = "frontier_lease"
#: In a request's `meta` on its way to the scheduler: the number of the page that it was found on.
FOUND_ON = "frontier_found_on"

#: Scrapy's priority 0. Its priorities go up, a precedence goes down; start requests come behind the others of theirs.
_MIDDLE = 128
_STEP = 2
_LAST = 255
#: Links in a row that are kept as such.
_MOST_HOPS = 255

_PICKLED, _KEPT = b"p", b"k"


class Requests:
    """Translates for one run of one spider."""

    def __init__(self, spider: Spider, fingerprint: Callable[[Request], bytes], *, is_durable: bool) -> None:
        self.trouble: Exception | None = None  #: why the last candidate could not be serialised
        self._spider = spider
        self._fingerprint = fingerprint
        self._is_durable = is_durable
        self._run = secrets.token_bytes(8)  # no other run has it
        self._numbers = count()
        self._kept: dict[bytes, Request] = {}

    def candidate(self, request: Request, *, is_unique: bool) -> Candidate:
        """The request for the Frontier. `is_unique`: no other is the same, whatever its fingerprint."""
        self.trouble = None
        key = self._fingerprint(request)
        return Candidate(
            request.url,
            key=key + self._nonce() if is_unique else key,
            hops="L" * min(request.meta.get("depth", 0), _MOST_HOPS),
            payload=self._payload(request),
            precedence=precedence(request),
        )

    def forget(self, candidate: Candidate) -> None:
        """It was not taken."""
        self._kept.pop(candidate.payload or b"", None)

    def request(self, lease: Lease) -> Request | None:
        """The request of a lease; None if an earlier run kept it in its memory."""
        payload = lease.payload or b""
        if payload[:1] == _PICKLED:
            return request_from_dict(pickle.loads(payload[1:]), spider=self._spider)  # noqa: S301 - our own job's
        return self._kept.get(payload)

    def is_kept(self, lease: Lease) -> bool:
        """The request of a lease is no row of the store's."""
        return not (lease.payload or b"").startswith(_PICKLED)

    def ended(self, lease: Lease) -> None:
        """The request will not be asked for again."""
        self._kept.pop(lease.payload or b"", None)

    def _payload(self, request: Request) -> bytes:
        if self._is_durable:
            try:
                return _PICKLED + pickle.dumps(request.to_dict(spider=self._spider), protocol=4)
            except (ValueError, pickle.PicklingError, AttributeError, TypeError) as error:
                self.trouble = error
        payload = _KEPT + self._nonce()
        self._kept[payload] = request
        return payload

    def _nonce(self) -> bytes:
        return self._run + next(self._numbers).to_bytes(8)


def precedence(request: Request) -> int:
    """0 to 255, smaller first. Priorities beyond ±63 are as ±63: so many have a place."""
    is_start = bool(request.meta.get("is_start_request", False))
    return max(0, min(_MIDDLE - _STEP * request.priority + is_start, _LAST))
