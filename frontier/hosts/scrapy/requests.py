"""Scrapy's requests as candidates, and leases as requests again; and the latest requests that the Frontier has.

A payload is the JSON of a request's dictionary (`payloads`). A request that JSON cannot hold, and every request of a Frontier
in memory, stays in this process as an object, and its payload names it; a later run does not know that name. A row without a
payload was queued by another program: it becomes a plain request of its URL.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter, RequestFingerprinterProtocol, request_from_dict

from anabranch.dedup.recent import RecentKeys
from anabranch.frontier.hosts.scrapy.payloads import may_unpickle, pack, unpack
from anabranch.frontier.records import Candidate, Lease

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
#: The first byte of the payload of a request that is kept in this process.
_KEPT = b"k"


class Packed(NamedTuple):
    """A request as a candidate."""

    candidate: Candidate
    trouble: (
        Exception | None
    )  #: why it cannot be serialised and is kept in this process; None: it is serialised, or in memory
    key: bytes | None  #: the key of all requests that count as the same; None: no other does


class Unmade(NamedTuple):
    """A lease of which no request can be made."""

    url: str
    reason: Exception | None  #: None: an earlier run had the request in its memory


class Requests:
    """Translates for one run of one spider."""

    def __init__(self, spider: Spider, fingerprint: Callable[[Request], bytes], *, is_durable: bool) -> None:
        self._spider = spider
        self._fingerprint = fingerprint
        self._is_durable = is_durable
        self._may_unpickle = may_unpickle()
        self._run = secrets.token_bytes(8)  # no other run has it
        self._numbers = count()
        self._kept: dict[bytes, Request] = {}

    def candidate(self, request: Request, *, is_unique: bool) -> Packed:
        """The request as a candidate. `is_unique`: no other counts as the same, even with the same fingerprint.

        A request that stays in this process gets a key of its own: its fingerprint must not be in the filter on disk.
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

    def forget(self, one: Candidate | Lease) -> None:
        """The candidate was not taken, or the lease has ended: drop its request."""
        self._kept.pop(one.payload or b"", None)

    def request(self, lease: Lease) -> Request | Unmade:
        """The request of a lease. Its class or its callback may no longer exist if an earlier run has queued it."""
        payload = lease.payload or b""
        if payload[:1] == _KEPT:
            return self._kept.get(payload) or Unmade(lease.url, None)
        try:
            if not payload:
                return Request(lease.url)
            return request_from_dict(unpack(payload, may_unpickle=self._may_unpickle), spider=self._spider)
        except Exception as error:  # noqa: BLE001 - what it holds is the project's, and may raise anything
            return Unmade(lease.url, error)

    def is_kept(self, lease: Lease) -> bool:
        """Whether the request of a lease is kept in this process."""
        return (lease.payload or b"").startswith(_KEPT)

    def _payload(self, request: Request) -> tuple[bytes, Exception | None]:
        trouble: Exception | None = None
        if self._is_durable:
            try:
                return pack(request.to_dict(spider=self._spider)), None
            except (ValueError, TypeError, RecursionError) as error:
                trouble = error
        payload = _KEPT + self._nonce()
        self._kept[payload] = request
        return payload, trouble

    def _nonce(self) -> bytes:
        return self._run + next(self._numbers).to_bytes(8)


def precedence(request: Request) -> int:
    """The precedence of a request: 0 to 255, smaller first. Priorities beyond ±63 count as ±63."""
    is_start = bool(request.meta.get("is_start_request", False))
    return max(0, min(_MIDDLE - _STEP * request.priority + is_start, _LAST))


#: Requests of a generation; two are kept, some 10 MB of URLs.
_GENERATION = 32_768
#: In a request's `meta`: its URL is not made canonical (Scrapy 2.18).
_VERBATIM = "verbatim_url"


class KnownRequests:
    """A bounded set of requests that the Frontier has: the latest 32,768, and up to as many before them.

    Most links of a page lead to known pages: for these it saves the fingerprint, the candidate and the question to the filter.
    Scrapy's own fingerprinter looks at method, URL, body and `verbatim_url` in the meta, so two plain GETs of one URL are the
    same request. With another fingerprinter, requests with the same fingerprint are.
    """

    def __init__(self, fingerprinter: RequestFingerprinterProtocol) -> None:
        self._fingerprint = fingerprinter.fingerprint
        self._is_usual = type(fingerprinter) is RequestFingerprinter
        self._recent = RecentKeys[str | bytes](_GENERATION)

    def __contains__(self, request: Request) -> bool:
        return self._name(request) in self._recent

    def add(self, request: Request) -> None:
        """Remember a request that the Frontier has."""
        self._recent.add((self._name(request),))

    def _name(self, request: Request) -> str | bytes:
        is_plain = self._is_usual and request.method == "GET" and not request.body and _VERBATIM not in request.meta
        return request.url if is_plain else self._fingerprint(request)
