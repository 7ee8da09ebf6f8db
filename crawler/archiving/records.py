"""WARC 1.1 records of an exchange: pure functions from what was fetched to bytes, streamed.

A response's payload stands as it came over the wire, content coding and all; its header fields stand as received and in their
order. Only the framing must say what is there: the HTTP library has taken the transfer coding off, so `Transfer-Encoding`
becomes `X-Crawler-Transfer-Encoding`, and a `Content-Length` that does not tell the payload's size becomes
`X-Crawler-Content-Length`, with the size that is (Common Crawl's and Nutch's names; readers would else look for chunks).
Format: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, Protocol

SAME_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"

#: Why a body ends early: our annotation in crawl.log -> the word of `WARC-Truncated`.
TRUNCATED: Mapping[str, str] = MappingProxyType(
    {"lenTrunc": "length", "timeTrunc": "time", "midFetchTrunc": "disconnect", "headerTrunc": "unspecified"}
)

#: Request fields that open doors: an archive is for others to read, so they are left out.
SECRET_FIELDS = frozenset([b"authorization", b"proxy-authorization", b"cookie"])

_BODILESS = frozenset([204, 304])
_CHUNK_BYTES = 1 << 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNFIT_IN_URL = re.compile(r"[^!-~]")
_BREAKS = re.compile(r"[\x00-\x1f\x7f]+")
_BREAKS_IN_BYTES = re.compile(rb"[\r\n\x00]+")


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


class Outlink(Protocol):
    """A link as an extractor found it."""

    @property
    def url(self) -> str:
        """The canonical URL."""

    @property
    def hop(self) -> str:
        """How it is followed: a letter."""

    @property
    def context(self) -> str:
        """Where it stood: `a/@href`; may be empty."""


class Original(NamedTuple):
    """The record that a revisit stands for."""

    url: str  #: its WARC-Target-URI
    date: str  #: its WARC-Date
    digest: bytes  #: SHA-1 of its payload


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


class Record(NamedTuple):
    """One record, not yet compressed: fields without Block-Digest and Content-Length, then the block in two parts."""

    kind: str
    record_id: str
    fields: tuple[tuple[str, str], ...]
    head: bytes
    body: Body | None = None

    def stream(self) -> Iterator[bytes]:
        """The record's bytes, in pieces. Cost: the body is read twice, since its digest stands before it."""
        digest = hashlib.sha1(self.head, usedforsecurity=False)
        for chunk in self._body():
            digest.update(chunk)
        size = len(self.head) + (self.body.size if self.body is not None else 0)
        last = (("WARC-Block-Digest", digest_text(digest.digest())), ("Content-Length", str(size)))
        lines = ["WARC/1.1", f"WARC-Type: {self.kind}", f"WARC-Record-ID: {self.record_id}"]
        lines += [f"{name}: {_BREAKS.sub(' ', value)}" for name, value in (*self.fields, *last)]
        yield ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "replace") + self.head
        written = len(self.head)
        for chunk in self._body():
            written += len(chunk)
            yield chunk
        if written != size:
            raise ValueError(f"{written} bytes of a block of {size} are left: its body was closed too early")
        yield b"\r\n\r\n"

    def _body(self) -> Iterator[bytes]:
        return iter(()) if self.body is None else self.body.chunks()


def warcinfo_record(filename: str, made_s: float, facts: Mapping[str, str]) -> Record:
    """The first record of each file: who made it, how, under which name. Facts that are empty are left out."""
    fields = (
        ("WARC-Date", warc_date(made_s)),
        ("WARC-Filename", filename),
        ("Content-Type", "application/warc-fields"),
    )
    return Record("warcinfo", _new_id(), fields, _warc_fields((name, text) for name, text in facts.items() if text))


def exchange_records(exchange: Exchange, warcinfo_id: str) -> list[Record]:
    """The records of a visit: response or revisit first, then request (if it is known) and metadata, bound to it."""
    answer = exchange.response
    common = [
        ("WARC-Date", exchange.date),
        ("WARC-Target-URI", _url(exchange.url)),
        ("WARC-Warcinfo-ID", warcinfo_id),
    ]
    if answer.address:
        common.append(("WARC-IP-Address", answer.address.partition("%")[0]))
    first = _answer_record(exchange, common)
    common.append(("WARC-Concurrent-To", first.record_id))
    records = [first]
    if sent := answer.request:
        fields = (*common, ("Content-Type", "application/http; msgtype=request"))
        records.append(Record("request", _new_id(), fields, request_head(sent)))
    fields = (*common, ("Content-Type", "application/warc-fields"))
    records.append(Record("metadata", _new_id(), fields, metadata_block(exchange)))
    return records


def _answer_record(exchange: Exchange, common: Sequence[tuple[str, str]]) -> Record:
    """The response, or what stands for it."""
    answer, revisit = exchange.response, exchange.revisit
    kind = ("Content-Type", "application/http; msgtype=response")
    head = response_head(answer)
    if revisit is None:
        cut = next((TRUNCATED[cut.value] for cut in answer.cuts if cut.value in TRUNCATED), "")
        truncated = (("WARC-Truncated", cut),) if cut else ()
        digest = ("WARC-Payload-Digest", digest_text(answer.body.digest))
        return Record("response", _new_id(), (*common, digest, *truncated, kind), head, answer.body)
    fields = (
        *common,
        ("WARC-Profile", revisit.profile),
        ("WARC-Refers-To-Target-URI", _url(revisit.original.url)),
        ("WARC-Refers-To-Date", revisit.original.date),
        ("WARC-Payload-Digest", digest_text(revisit.original.digest)),
        kind,
    )
    return Record("revisit", _new_id(), fields, head)


def response_head(answer: Answer) -> bytes:
    """Status line and header fields as received, framing made honest (see above), up to and with the empty line."""
    size, has_body = str(answer.body.size).encode(), answer.status not in _BODILESS
    lines = [f"HTTP/{answer.version} {answer.status} {answer.reason}".encode("utf-8", "surrogateescape")]
    reframed = False
    for name, value in answer.raw_headers:
        field = name.lower()
        is_wrong = field == b"transfer-encoding" or (field == b"content-length" and has_body and value.strip() != size)
        reframed |= is_wrong
        lines.append((b"X-Crawler-" if is_wrong else b"") + name + b": " + value)
    if reframed and has_body:
        lines.append(b"Content-Length: " + size)
    return b"".join(_BREAKS_IN_BYTES.sub(b" ", line) + b"\r\n" for line in lines) + b"\r\n"


def request_head(sent: bytes) -> bytes:
    """The request as it was sent, without the fields that open doors."""
    lines = sent.split(b"\r\n")
    kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in SECRET_FIELDS]
    return b"\r\n".join([lines[0], *kept])


def metadata_block(exchange: Exchange) -> bytes:
    """How the URL was found, how long it took and what it links to, in Heritrix's words."""
    answer = exchange.response
    fields = [("via", _url(exchange.via))] if exchange.via else []
    fields.append(("hopsFromSeed", exchange.hops) if exchange.hops else ("seed", ""))
    fields.append(("fetchTimeMs", str(max(round((answer.end_s - answer.start_s) * 1000), 0))))
    outlinks = (("outlink", f"{_url(link.url)} {link.hop} {link.context}".rstrip()) for link in exchange.outlinks)
    return _warc_fields(chain(fields, outlinks))


def warc_date(time_s: float) -> str:
    """`yyyy-mm-ddThh:mm:ss.ffffffZ`: WARC 1.1 allows fractions of a second."""
    return (_EPOCH + timedelta(seconds=time_s)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def digest_text(digest: bytes) -> str:
    """`sha1:` and Base32."""
    return "sha1:" + base64.b32encode(digest).decode()


def _warc_fields(fields: Iterable[tuple[str, str]]) -> bytes:
    lines = (f"{name}: {_BREAKS.sub(' ', text)}\r\n" for name, text in fields)
    return "".join(lines).encode("utf-8", "replace")


def _url(url: str) -> str:
    """The URL without anything that could end its field."""
    return _UNFIT_IN_URL.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode("utf-8", "replace")), url)


def _new_id() -> str:
    return f"<urn:uuid:{uuid.uuid4()}>"
