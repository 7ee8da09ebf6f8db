"""Scrapy's requests as candidates, and leases as its requests.

A payload is the pickled dictionary of a request. A request that cannot be pickled, or any if the Frontier is in memory alone,
stays here as an object, and its payload names it; a later run does not know that name. A row without a payload (another
program has queued it) is a plain request of its URL.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from anabranch.frontier.models import Candidate, Lease

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


class Packed(NamedTuple):
    """A request for the Frontier."""

    candidate: Candidate
    trouble: Exception | None  #: why it cannot be serialised, and is kept here; None: it is, or need not be
    key: bytes | None  #: by which a request that is the same is known; None: none is


class Unmade(NamedTuple):
    """A lease of which no request can be made."""

    url: str
    reason: Exception | None  #: None: an earlier run kept the request in its memory


class Requests:
    """Translates for one run of one spider."""

    def __init__(self, spider: Spider, fingerprint: Callable[[Request], bytes], *, is_durable: bool) -> None:
        self._spider = spider
        self._fingerprint = fingerprint
        self._is_durable = is_durable
        self._run = secrets.token_bytes(8)  # no other run has it
        self._numbers = count()
        self._kept: dict[bytes, Request] = {}
        self._unserializable: set[bytes] = set()  # keys of those that were kept

    def candidate(self, request: Request, *, is_unique: bool) -> Packed:
        """The request for the Frontier. `is_unique`: no other is the same, whatever its fingerprint.

        What dies with the process is no longer known when that has died: its fingerprint is not for the filter on disk.
        """
        key = self._fingerprint(request)
        payload, trouble = self._payload(request)
        candidate = Candidate(
            request.url,
            key=key if trouble is None and not is_unique else key + self._nonce(),
            hops="L" * min(request.meta.get("depth", 0), _MOST_HOPS),
            payload=payload,
            precedence=precedence(request),
        )
        return Packed(candidate, trouble, None if is_unique else key)

    def was_kept(self, key: bytes) -> bool:
        """A request with this key could not be serialised."""
        return key in self._unserializable

    def keep_known(self, key: bytes) -> None:
        """From now on one was."""
        self._unserializable.add(key)

    def forget(self, candidate: Candidate) -> None:
        """It was not taken."""
        self._kept.pop(candidate.payload or b"", None)

    def request(self, lease: Lease) -> Request | Unmade:
        """The request of a lease. Its class, its callback may be gone since an earlier run has queued it."""
        payload = lease.payload or b""
        if payload[:1] == _KEPT:
            return self._kept.get(payload) or Unmade(lease.url, None)
        try:
            if not payload:
                return Request(lease.url)
            if payload[:1] != _PICKLED:
                raise ValueError("its payload is not Scrapy's")  # noqa: TRY301 - one end for all that cannot be made
            return request_from_dict(pickle.loads(payload[1:]), spider=self._spider)  # noqa: S301 - our own job's
        except Exception as error:  # noqa: BLE001 - what it holds is the project's, and may raise anything
            return Unmade(lease.url, error)

    def is_kept(self, lease: Lease) -> bool:
        """The request of a lease is no row of the store's."""
        return (lease.payload or b"").startswith(_KEPT)

    def ended(self, lease: Lease) -> None:
        """The request will not be asked for again."""
        self._kept.pop(lease.payload or b"", None)

    def _payload(self, request: Request) -> tuple[bytes, Exception | None]:
        trouble: Exception | None = None
        if self._is_durable:
            try:
                return _PICKLED + pickle.dumps(request.to_dict(spider=self._spider), protocol=4), None
            except (ValueError, pickle.PicklingError, AttributeError, TypeError) as error:
                trouble = error
        payload = _KEPT + self._nonce()
        self._kept[payload] = request
        return payload, trouble

    def _nonce(self) -> bytes:
        return self._run + next(self._numbers).to_bytes(8)


def precedence(request: Request) -> int:
    """0 to 255, smaller first. Priorities beyond ±63 are as ±63: so many have a place."""
    is_start = bool(request.meta.get("is_start_request", False))
    return max(0, min(_MIDDLE - _STEP * request.priority + is_start, _LAST))
