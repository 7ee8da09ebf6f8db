"""The records of the Frontier's interface and of its parts, and the ids of queues and gates.

Times are epoch seconds, durations end in `_s`. A `Row` has the columns of the table `url` in their order.

A turn orders the lanes of a gate, and the gates in the store. It is a 64-bit integer: the queue's precedence (smaller is served
first), then the arrival. Arrivals and ordinals come from one rising sequence, so no two turns are equal.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import Enum, Flag, auto
from functools import lru_cache
from typing import Final, NamedTuple, NewType

import xxhash

QueueKey = NewType("QueueKey", str)  # the name of a work queue, by the assignment policy
GateKey = NewType("GateKey", str)  # the name of a gate: mostly a host

#: Default precedence of a row; smaller is served first (Heritrix: NORMAL, cost 1).
NORMAL: Final = 3 << 8 | 1
#: Precedence of a URL scheduled with `front`.
FRONT: Final = 1 << 8 | 1
#: Added to the precedence of a row that waits for its retry, so that it sorts behind all servable rows.
WAITING: Final = 1 << 20


class Candidate(NamedTuple):
    """A URL that was found and not yet admitted. A tuple, because every link of every page becomes one."""

    url: str  #: absolute and canonical; the Frontier does not change it
    key: bytes | None = None  #: the dedup key; None = the URL in UTF-8
    hops: str = ""  #: the path from the seed, one letter a hop
    payload: bytes | None = None  #: opaque to the Frontier; comes back in the lease
    front: bool = False  #: serve before URLs of normal precedence
    force: bool = False  #: enqueue though seen
    precedence: int | None = None  #: the URI precedence, 0 to 255, smaller first; None = by the order's policy

    def dedup_key(self) -> bytes:
        """The bytes by which two candidates are the same URL."""
        return self.url.encode() if self.key is None else self.key


class VerdictKind(Enum):
    """The decision about a candidate."""

    NEW = "new"  #: it is queued (or will be, when the store has it)
    SEEN = "seen"  #: it was queued before
    REFUSED = "refused"  #: it cannot be queued, see the reason; do not send it again
    BUSY = "busy"  #: the store is behind; send it again later
    LATER = "later"  #: a filter that may block decides in the store thread


class Verdict(NamedTuple):
    """The answer for one candidate, in the order of the batch."""

    kind: VerdictKind
    reason: str = ""  #: why it is refused, in words


NEW: Final = Verdict(VerdictKind.NEW)
SEEN: Final = Verdict(VerdictKind.SEEN)
BUSY: Final = Verdict(VerdictKind.BUSY)
LATER: Final = Verdict(VerdictKind.LATER)


class OutcomeKind(Enum):
    """How a lease ended; the value is stored in the table `done`."""

    DONE = "done"  #: fetched, whatever the HTTP status
    FAILED = "failed"  #: given up
    DISREGARDED = "disregarded"  #: deliberately not fetched (robots, scope, operator)
    RETRY = "retry"  #: to be tried again after `after_s`; counts as an attempt
    DEFERRED = "deferred"  #: back to its old place, no attempt counted; the slot rests if something was fetched
    RETIRE = "retire"  #: as DEFERRED, and its queue is retired (Heritrix's retire directive)

    # Members are single objects; Enum's own hash is a Python call, and outcomes are counted at every finish.
    __hash__ = object.__hash__


#: The kinds that end a URL: it leaves its queue for the table `done`.
ENDING: Final = frozenset({OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED})


class HostTrouble(Enum):
    """A trouble of a host, which closes its gate for longer than the usual rest."""

    NONE = "none"
    THROTTLED = "throttled"  #: 429
    UNAVAILABLE = "unavailable"  #: 503, or another answer with Retry-After
    UNREACHABLE = "unreachable"  #: refused connections, time-outs, lost connections


class Outcome(NamedTuple):
    """The crawler's report about a lease. A tuple, because every page makes one."""

    kind: OutcomeKind
    status: int = 0  #: the fetch status code (HTTP, or Heritrix's negative codes)
    start_s: float | None = None  #: when the fetch began; None = nothing was fetched, the slot does not rest
    end_s: float | None = None  #: when it ended; rests are counted from here
    after_s: float = 0.0  #: RETRY: earliest next try, counted from now
    trouble: HostTrouble = HostTrouble.NONE  #: closes the host's gate, for longer with each time in a row
    retry_after_s: float = 0.0  #: the host's Retry-After, counted from now; 0 = none


class Row(NamedTuple):
    """One queued URL in the store. (queue, gate, precedence, ordinal) is its place."""

    queue: int  #: id of the work queue
    gate: int  #: id of the gate
    precedence: int  #: smaller first
    ordinal: int  #: the global order of acceptance, from 1
    url: str
    key: bytes | None  #: None = the URL in UTF-8
    hops: str
    via: int  #: ordinal of the page it was found on, 0 = none
    attempts: int  #: tries that counted so far
    due_s: float | None  #: earliest time of the next try
    payload: bytes | None

    def dedup_key(self) -> bytes:
        """The bytes by which the filter knows this row."""
        return self.url.encode() if self.key is None else self.key

    def record(self) -> UrlRecord:
        """The row as the answer to a question about its URL."""
        state = UrlState.WAITING if self.precedence >= WAITING else UrlState.QUEUED
        place = (self.queue, self.gate, self.due_s)
        record = UrlRecord(self.url, state, 0, "", self.attempts, self.ordinal, *place, self.hops)
        return record._replace(payload=self.payload, precedence=self.precedence, via=self.via)


class Head(NamedTuple):
    """A row that was read for its lane's window, with the page it was found on."""

    row: Row
    via: str | None  #: the URL of the page it was found on


class Lease(NamedTuple):
    """The right to fetch one URL now; it holds a slot of its gate until it is finished or released."""

    ordinal: int  #: the URL's number; names the lease
    url: str  #: what to fetch
    key: bytes  #: the dedup key
    hops: str  #: the path from the seed
    via: str | None  #: the page it was found on
    attempts: int  #: tries that counted before this one
    payload: bytes | None  #: that of its candidate
    queue: QueueKey  #: the work queue that it came from
    gate: GateKey  #: the gate of its host
    since_s: float  #: when it was handed out
    until_s: float = math.inf  #: when it is lost unless renewed


class WaitsFor(Flag):
    """The events that `lease()` may wait for."""

    NOTHING = 0
    TIME = auto()  #: a gate opens or a retry comes due at `Wake.at_s`
    STORE = auto()  #: rows are being read, or too much is not durable yet
    URLS = auto()  #: nothing is queued
    FINISH = auto()  #: a lease must come back first
    OPERATOR = auto()  #: all remaining URLs are in paused queues
    SERVICE = auto()  #: a service that their hosts need is away, see `Frontier.hold`


class Wake(NamedTuple):
    """When to ask `lease()` again, and the events that it waits for."""

    at_s: float | None  #: None = time alone does not help
    waits_for: WaitsFor


class UrlState(Enum):
    """The state of a URL: queued, waiting for a retry, or ended."""

    QUEUED = "queued"
    WAITING = "waiting"
    ENDED = "ended"


class UrlRecord(NamedTuple):
    """The store's record of one URL."""

    url: str
    state: UrlState
    status: int  #: the last fetch status; 0 while it is queued
    outcome: str  #: an `OutcomeKind` value; empty while it is queued
    attempts: int
    ordinal: int
    queue: int = 0  #: id of its work queue, while it is queued
    gate: int = 0  #: id of its gate, while it is queued
    due_s: float | None = None  #: the earliest next try of one that waits
    hops: str | None = None  #: the path from the seed, while it is queued; None = not kept
    payload: bytes | None = None  #: while it is queued
    precedence: int = 0  #: of its row, while it is queued
    via: int = 0  #: ordinal of the page it was found on, while it is queued; 0 = none


#: precedence << 48 | arrival
Turn = NewType("Turn", int)

_ARRIVAL_BITS: Final = 48


def turn_of(precedence: int, arrival: int) -> Turn:
    """The turn of a lane, by its queue's precedence and its number of the sequence."""
    return Turn(precedence << _ARRIVAL_BITS | arrival)


def precedence_of(turn: Turn) -> int:
    """The queue precedence in a turn."""
    return turn >> _ARRIVAL_BITS


def with_precedence(turn: Turn, precedence: int) -> Turn:
    """Return a turn with the same arrival and another precedence."""
    return turn_of(precedence, turn & ((1 << _ARRIVAL_BITS) - 1))


def postponed(turn: Turn, arrivals: int) -> Turn:
    """The turn of so many arrivals later, at the same precedence."""
    last = (1 << _ARRIVAL_BITS) - 1
    return turn_of(precedence_of(turn), min((turn & last) + arrivals, last))


def seen_fingerprint(key: bytes) -> int:
    """The low 64 bits of the key's XXH3-128, as a signed integer. At 10 million URLs one in 370,000 crawls loses one URL."""
    return seen_fingerprints([key])[0]


def seen_fingerprints(keys: Sequence[bytes]) -> list[int]:
    """The fingerprint of each key, at half the price."""
    digest = xxhash.xxh3_128_digest  # big-endian: the low 64 bits are the last 8 bytes
    return list(struct.unpack(">" + "8xq" * len(keys), b"".join([digest(key) for key in keys])))


@lru_cache(65_536)  # a hit costs a fifth of the hash, and a crawl asks for few names often
def name_id(name: str) -> int:
    """The id of a queue or gate: XXH3-64 of its key in UTF-8, as a signed integer. Raises: TypeError for other keys."""
    try:
        encoded = name.encode()
    except (AttributeError, UnicodeEncodeError):
        raise TypeError(f"the key of a queue or gate is text that UTF-8 can hold; not {name!r}") from None
    return int.from_bytes(xxhash.xxh3_64_digest(encoded), "big", signed=True)
