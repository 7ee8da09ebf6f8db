"""What a server answered, raw, and what is read out of it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from anabranch.crawler.fetching.decoding import codings_in, decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from multidict import CIMultiDictProxy

    from anabranch.crawler.fetching.bodies import Body


class Cut(Enum):
    """Where an answer was cut; the value is the annotation in `crawl.log`, as Heritrix has it."""

    LENGTH = "lenTrunc"  #: the body was longer than its limit
    TIME = "timeTrunc"  #: the time ran out, or the body came too slowly, after its first byte
    DISCONNECT = "midFetchTrunc"  #: the connection ended before the body did, or a bad chunk came
    HEADERS = "headerTrunc"  #: more headers than are taken; if they had no end, there is no body
    DECODED = "decTrunc"  #: the content coding is broken, or its content is longer than is read


class Response(NamedTuple):
    """What a server answered. Who has it owns its body, and closes that."""

    url: str  #: as it was asked for
    status: int  #: HTTP status, 101 or 200..999
    reason: str  #: its words, as sent; may be empty
    version: str  #: of HTTP: "1.1"
    headers: CIMultiDictProxy[str]  #: names in any case, several values by `getall`; odd bytes as surrogates
    raw_headers: tuple[tuple[bytes, bytes], ...]  #: as received, in order
    sent: Callable[[], bytes]  #: makes `request`
    body: Body  #: the payload: transfer coding removed, content coding kept
    address: str  #: IP address that the connection went to; empty behind a proxy, which alone knows it
    start_s: float  #: epoch seconds, when the fetch began (before DNS)
    end_s: float  #: epoch seconds, when the body was read
    cuts: tuple[Cut, ...] = ()  #: where it was cut
    has_surplus: bool = False  #: bytes came behind it; they are no part of it

    @property
    def request(self) -> bytes:
        """Request line and headers as they were sent, without credentials, ending in an empty line. Made anew each time."""
        return self.sent()

    def content(self, limit: int) -> tuple[bytes, bool]:
        """The body with its content codings undone, at most `limit` bytes; True if there is more, or the coding is broken.

        Cost: at most `limit` bytes and some hundred KiB for each coding, whatever the body claims; about 5 ms for a MiB, so
        what is large belongs in a thread. Broken codings give what could be decoded; they raise nothing.
        """
        coded = self.headers.getall("Content-Encoding", None)
        codings = codings_in(coded) if coded else ()
        if not codings:
            return self.body.read(limit), self.body.size > limit
        return decoded(self.body.chunks(), codings, limit)

    def beginning(self, start_s: float) -> Response:
        """The same answer, as the end of a fetch that began earlier (with a redirect)."""
        return self._replace(start_s=start_s)

    @property
    def media_type(self) -> str:
        """Content-Type without parameters, lower case; empty if there is none."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def is_success(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300

    @property
    def location(self) -> str | None:
        """Where a redirect leads, as it was sent; None if this is none."""
        return self.headers.get("Location") if 300 <= self.status < 400 else None


def header_fields(raw: Iterable[tuple[bytes, bytes]]) -> CIMultiDictProxy[str]:
    """Fields as they were received, by their names; odd bytes become surrogates."""
    from multidict import CIMultiDict, CIMultiDictProxy  # noqa: PLC0415 - help must be fast

    return CIMultiDictProxy(
        CIMultiDict((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in raw)
    )
