"""What is archived of a fetch: an answer with its request, how the URL was found, where its payload stands already.

Plain data, made by the chain and read by whatever keeps it: WARC files, the memory of payloads, logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Protocol

SAME_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"

#: Why a body ends early: our annotation in crawl.log -> the word of `WARC-Truncated`.
TRUNCATED: Mapping[str, str] = MappingProxyType(
    {"lenTrunc": "length", "timeTrunc": "time", "midFetchTrunc": "disconnect", "headerTrunc": "unspecified"}
)

_CHUNK_BYTES = 1 << 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Body(Protocol):
    """A payload as it came; it may be a file."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def digest(self) -> bytes:
        """SHA-1 of all of it."""

    def chunks(self, size: int = _CHUNK_BYTES) -> Iterator[bytes]:
        """All of it from the beginning, piece by piece; may be asked for twice, one after the other."""


class Answer(Protocol):
    """The part of a response that is archived."""

    @property
    def status(self) -> int:
        """As HTTP says."""

    @property
    def reason(self) -> str:
        """The status in words, as sent; may be empty."""

    @property
    def version(self) -> str:
        """`1.0` or `1.1`."""

    @property
    def raw_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """As received, in order."""

    @property
    def request(self) -> bytes:
        """Request line and fields as sent, up to and with the empty line; empty if it is not known."""

    @property
    def body(self) -> Body:
        """The payload: transfer coding removed, content coding kept."""

    @property
    def cuts(self) -> Sequence[Enum]:
        """Why the body is not whole; their values are annotations of crawl.log."""

    @property
    def address(self) -> str:
        """IP address of the server; empty if it is not known."""

    @property
    def start_s(self) -> float:
        """Epoch seconds; begin of the fetch."""

    @property
    def end_s(self) -> float:
        """Epoch seconds; its end."""


#: A link as an extractor found it: its canonical URL, the letter of how it is followed, where it stood (`a/@href`, or empty).
Outlink = tuple[str, str, str]


class Place(NamedTuple):
    """Where a record stands."""

    filename: str  #: as the file is called when it is finished
    offset: int  #: of the record's gzip member


class Original(NamedTuple):
    """The record that a revisit stands for."""

    url: str  #: its WARC-Target-URI
    date: str  #: its WARC-Date
    digest: bytes  #: SHA-1 of its payload
    place: Place | None = None  #: None if nobody has said it


class Revisit(NamedTuple):
    """Why a payload is not written again."""

    profile: str  #: `SAME_PAYLOAD` or `NOT_MODIFIED`
    original: Original


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What is archived of one visit."""

    url: str  #: as fetched
    response: Answer
    hops: str = ""  #: path from the seed, a letter a hop
    via: str | None = None  #: the page it was found on
    outlinks: Sequence[Outlink] = ()
    revisit: Revisit | None = None

    @property
    def is_cut(self) -> bool:
        """The payload is not all that the server would have sent."""
        return any(cut.value in TRUNCATED for cut in self.response.cuts)

    @property
    def may_be_original(self) -> bool:
        """Its payload is worth a revisit: whole, not empty, and no redirect's (pywb replays those without their payload)."""
        answer = self.response
        return bool(answer.body.size) and not self.is_cut and not 300 <= answer.status < 400

    @property
    def date(self) -> str:
        """The WARC-Date of its records: when the fetch began."""
        return warc_date(self.response.start_s)


@lru_cache(maxsize=1024)  # a visit's is written in five places
def warc_date(time_s: float) -> str:
    """`yyyy-mm-ddThh:mm:ss.ffffffZ`: WARC 1.1 allows fractions of a second."""
    return (_EPOCH + timedelta(seconds=time_s)).isoformat(timespec="microseconds").replace("+00:00", "Z")
