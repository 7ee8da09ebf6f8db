"""The archived parts of a visit (`Exchange`), and the WARC 1.1 records made of it: pure functions to bytes, streamed.

A response's payload and header fields are stored as received. Only the framing is corrected, because the HTTP library has
removed the transfer coding: `Transfer-Encoding` becomes `X-Crawler-Transfer-Encoding`, and a `Content-Length` that is not the
payload's size becomes `X-Crawler-Content-Length`, with the right one added (as Common Crawl and Nutch do; otherwise readers
would look for chunks). A dropped line that readers would take for a field, or for the end of the head, becomes the field
`X-Crawler-Line-N`, N being its number.
A revisit after a 304 has no block: with the 304's own header pywb would replay that, not the page.
Format: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from anabranch.crawler.fetch.addresses import MIME
from anabranch.crawler.fetch.response import Body, Response

SAME_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"

#: Why a body is cut off: annotation in crawl.log -> value of `WARC-Truncated`.
TRUNCATED: Mapping[str, str] = MappingProxyType(
    {"lenTrunc": "length", "timeTrunc": "time", "midFetchTrunc": "disconnect"}
    | {"headerTrunc": "unspecified", "midFetchAbort": "unspecified"}
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


#: A link as the extractor found it: canonical URL, hop letter, context (`a/@href`, or empty).
Outlink = tuple[str, str, str]


class RecordLocation(NamedTuple):
    """The location of a record."""

    filename: str  #: name of the finished file
    offset: int  #: of the record's member


class Original(NamedTuple):
    """The record that a revisit refers to."""

    url: str  #: its WARC-Target-URI
    date: str  #: its WARC-Date
    digest: bytes  #: SHA-1 of its payload
    place: RecordLocation | None = None  #: None if it is not known


class Revisit(NamedTuple):
    """Why a payload is not written again."""

    profile: str  #: `SAME_PAYLOAD` or `NOT_MODIFIED`
    original: Original


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A visit to be archived."""

    url: str  #: as fetched
    response: Response
    hops: str = ""  #: path from the seed, one letter per hop
    via: str | None = None  #: the page it was found on
    outlinks: Sequence[Outlink] = ()
    revisit: Revisit | None = None

    @property
    def is_cut(self) -> bool:
        """The payload is cut off."""
        return any(cut.value in TRUNCATED for cut in self.response.cuts)

    @property
    def may_be_original(self) -> bool:
        """A revisit may refer to it: whole, not empty, and not a redirect (pywb replays those without their payload)."""
        response = self.response
        return bool(response.body.size) and not self.is_cut and not 300 <= response.status < 400

    @property
    def date(self) -> str:
        """The WARC-Date of its records: when the fetch began."""
        return warc_date(self.response.start_s)


@lru_cache(maxsize=1024)  # the date of a visit is written in five places
def warc_date(time_s: float) -> str:
    """`yyyy-mm-ddThh:mm:ss.ffffffZ`: WARC 1.1 allows fractions of a second."""
    return (_EPOCH + timedelta(seconds=time_s)).isoformat(timespec="microseconds").replace("+00:00", "Z")


#: Request fields with credentials. They are left out: others read the archive.
SECRET_FIELDS = frozenset([b"authorization", b"proxy-authorization", b"cookie"])

_BODILESS = frozenset([204, 304])
_CHUNK_BYTES = 1 << 16
_IDS_AT_ONCE = 96
_UNFIT_IN_URL = re.compile(r"[^!-~]")
_BREAKS = re.compile(r"[\x00-\x1f\x7f]+")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE32_PAIRS = [first + second for first in _BASE32 for second in _BASE32]
_BREAKS_IN_BYTES = re.compile(rb"[\r\n\x00]+")
#: Before a line that readers would misread, with its number.
_MARK = b"X-Crawler-Line-%d: "
#: Around a name, for one reader or another.
_READ_AS_SPACE = b" \t\v\f\x1c\x1d\x1e\x1f"


#: What follows the block of a record.
END_OF_RECORD = b"\r\n\r\n"


class Record(NamedTuple):
    """One uncompressed record: fields without Block-Digest and Content-Length, then the block in two parts."""

    kind: str
    record_id: str
    fields: bytes  #: lines
    head: bytes
    body: Body | None = None

    @property
    def body_bytes(self) -> int:
        """The size of the block's second part."""
        return 0 if self.body is None else self.body.size

    def stream(self) -> Iterator[bytes]:
        """The record's bytes, first all before the body. Cost: the body is read twice, because its digest precedes it."""
        digest = hashlib.sha1(self.head, usedforsecurity=False)
        for chunk in self._body():
            digest.update(chunk)
        size = len(self.head) + self.body_bytes
        first = f"WARC/1.1\r\nWARC-Type: {self.kind}\r\nWARC-Record-ID: {self.record_id}\r\n"
        last = f"WARC-Block-Digest: {digest_text(digest.digest())}\r\nContent-Length: {size}\r\n\r\n"
        yield b"".join((first.encode(), self.fields, last.encode(), self.head))
        written = len(self.head)
        for chunk in self._body():
            written += len(chunk)
            yield chunk
        if written != size:
            raise ValueError(f"{written} of {size} bytes of a block could be read: its body was closed too early")
        yield END_OF_RECORD

    def _body(self) -> Iterator[bytes]:
        return iter(()) if self.body is None else self.body.chunks()


def warcinfo_record(filename: str, made_s: float, facts: Mapping[str, str], ids: RecordIds) -> Record:
    """The first record of each file: its name, and the facts that are not empty."""
    fields = (
        ("WARC-Date", warc_date(made_s)),
        ("WARC-Filename", filename),
        ("Content-Type", "application/warc-fields"),
    )
    block = _warc_fields((name, text) for name, text in facts.items() if text)
    return Record("warcinfo", ids.new(), _warc_fields(fields), block)


class NameRecord(NamedTuple):
    """A name that was looked up, to be archived."""

    url: str  #: `dns:host` (RFC 4501)
    time_s: float  #: epoch seconds, when it was asked for
    data: bytes  #: the time and the resource records, as Heritrix writes them


def name_record(name: NameRecord, warcinfo_id: str, ids: RecordIds) -> Record:
    """The record of a name that was looked up: a response of type text/dns, as Heritrix has it (DnsResponseRecordBuilder)."""
    fields = (
        ("WARC-Date", warc_date(name.time_s)),
        ("WARC-Target-URI", _url(name.url)),
        ("WARC-Warcinfo-ID", warcinfo_id),
        ("WARC-Payload-Digest", digest_text(hashlib.sha1(name.data, usedforsecurity=False).digest())),
        ("Content-Type", MIME),
    )
    return Record("response", ids.new(), _warc_fields(fields), name.data)


class RecordIds:
    """Makes ids of records: random UUIDs (version 4, RFC 9562) as URNs.

    Random bytes are taken for many at once: `os.urandom` releases the GIL, so this thread waits to get it back. That cost 35 µs
    a page, of 900.
    """

    def __init__(self) -> None:
        self._random = b""

    def new(self) -> str:
        """Make one."""
        if not self._random:
            self._random = os.urandom(16 * _IDS_AT_ONCE)
        mine, self._random = self._random[:16], self._random[16:]
        return f"<{UUID(bytes=mine, version=4).urn}>"


def exchange_records(exchange: Exchange, warcinfo_id: str, ids: RecordIds) -> list[Record]:
    """The records of a visit: response or revisit, then request (if it is known) and metadata, which refer to the first."""
    # No value of the common fields can contain a line break.
    address = exchange.response.address.partition("%")[0]
    server = f"WARC-IP-Address: {address}\r\n" if address else ""
    target = f"WARC-Date: {exchange.date}\r\nWARC-Target-URI: {_url(exchange.url)}\r\n"
    common = f"{target}WARC-Warcinfo-ID: {warcinfo_id}\r\n{server}".encode()
    first = _response_record(exchange, common, ids)
    common += f"WARC-Concurrent-To: {first.record_id}\r\n".encode()
    records = [first]
    if sent := exchange.response.request:
        fields = common + b"Content-Type: application/http; msgtype=request\r\n"
        records.append(Record("request", ids.new(), fields, request_head(sent, exchange.response.secrets or ())))
    fields = common + b"Content-Type: application/warc-fields\r\n"
    records.append(Record("metadata", ids.new(), fields, metadata_block(exchange)))
    return records


def _response_record(exchange: Exchange, common: bytes, ids: RecordIds) -> Record:
    """The response record, or the revisit in its place."""
    response, revisit = exchange.response, exchange.revisit
    kind = b"Content-Type: application/http; msgtype=response\r\n"
    if revisit is None:
        cut = next((TRUNCATED[cut.value] for cut in response.cuts if cut.value in TRUNCATED), "")
        truncated = f"WARC-Truncated: {cut}\r\n" if cut else ""
        fields = common + f"WARC-Payload-Digest: {digest_text(response.body.digest)}\r\n{truncated}".encode() + kind
        return Record("response", ids.new(), fields, response_head(response), response.body)
    fields = common + _warc_fields(
        (
            ("WARC-Profile", revisit.profile),
            ("WARC-Refers-To-Target-URI", _url(revisit.original.url)),
            ("WARC-Refers-To-Date", revisit.original.date),
            ("WARC-Payload-Digest", digest_text(revisit.original.digest)),
        )
    )
    if revisit.profile == NOT_MODIFIED:
        return Record("revisit", ids.new(), fields, b"")
    return Record("revisit", ids.new(), fields + kind, response_head(response))


def response_head(response: Response) -> bytes:
    """Status line and header fields as received, with corrected framing (see above), up to and with the empty line."""
    size, has_body = str(response.body.size).encode(), response.status not in _BODILESS
    lines = [f"HTTP/{response.version} {response.status} {response.reason}".encode("utf-8", "surrogateescape")]
    reframed = False
    for name, value, line, mark in _received(response):
        field = name.strip().lower()
        is_wrong = field == b"transfer-encoding" or (field == b"content-length" and has_body and value.strip() != size)
        reframed |= is_wrong
        lines.append((b"X-Crawler-" if is_wrong else mark) + line)
    if response.secrets is not None:
        lines = _redacted(lines, response.secrets)
    length = b"Content-Length: " + size
    if reframed and has_body and length not in lines:
        lines.append(length)
    if _BREAKS_IN_BYTES.search(b"".join(lines)):  # rare
        lines = [_BREAKS_IN_BYTES.sub(b" ", line) for line in lines]
    return b"\r\n".join((*lines, b"", b""))


#: In place of a value that others must not see.
REDACTED = "redacted"
_SETS_COOKIE = re.compile(rb"(set-cookie2?[ \t]*:).*", re.IGNORECASE | re.DOTALL)


def _redacted(lines: Iterable[bytes], secrets: Iterable[bytes]) -> list[bytes]:
    """The lines of a head without cookies and without these values."""
    shown = [_SETS_COOKIE.sub(rb"\1 " + REDACTED.encode(), line) for line in lines]
    for value in sorted(secrets, key=len, reverse=True):  # one may be a part of another
        shown = [line.replace(value, REDACTED.encode()) for line in shown]
    return shown


def without_secrets(exchange: Exchange) -> Exchange:
    """The exchange with URLs that have no value of a login in them, as session ids in queries."""
    secrets = sorted(exchange.response.secrets or (), key=len, reverse=True)
    values = [value.decode("latin-1") for value in secrets]
    texts = [exchange.url, exchange.via or "", *(url for url, _, _ in exchange.outlinks)]
    if not any(value in text for value in values for text in texts):
        return exchange

    def hidden(text: str) -> str:
        for value in values:
            text = text.replace(value, REDACTED)
        return text

    return replace(
        exchange,
        url=hidden(exchange.url),
        via=None if exchange.via is None else hidden(exchange.via),
        outlinks=[(hidden(url), hop, context) for url, hop, context in exchange.outlinks],
    )


def _received(response: Response) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Name, value and line of each field, and what is to stand before it; of a repaired head all lines as they came."""
    fields = response.raw_headers
    if not (response.received or response.cuts):  # as mostly: the library takes only names that all readers take
        return [(name, value, name + b": " + value, b"") for name, value in fields]
    lines = response.received or tuple(name + b": " + value for name, value in fields)
    return [
        (*line.partition(b":")[::2], line, _MARK % number if _is_misread(line, number) else b"")
        for number, line in enumerate(lines, 1)
    ]


def _is_misread(line: bytes, number: int) -> bool:
    """Whether readers take a line of a broken head for what it is not.

    warcio takes `Location : x` for a field, and a line of white space of any kind for the end of the head. pywb cannot replay a
    record with a name that is not ASCII; of its values it removes such ones by their names.
    """
    name = line.partition(b":")[0]
    if _BREAKS_IN_BYTES.search(line):
        return True
    if line.startswith((b" ", b"\t")) and number > 1:  # it belongs to the line before
        return not line.decode("latin-1").strip() or not line.decode("utf-8", "replace").strip()
    return not name.isascii() or name != name.strip(_READ_AS_SPACE)


def request_head(sent: bytes, secrets: Iterable[bytes] = ()) -> bytes:
    """The request as sent, without credentials."""
    for value in sorted(secrets, key=len, reverse=True):
        sent = sent.replace(value, REDACTED.encode())
    small = sent.lower()
    if not any(field in small for field in SECRET_FIELDS):
        return sent
    lines = sent.split(b"\r\n")
    kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in SECRET_FIELDS]
    return b"\r\n".join([lines[0], *kept])


def metadata_block(exchange: Exchange) -> bytes:
    """How the URL was found, how long the fetch took and what the page links to, in Heritrix's words."""
    response = exchange.response
    via = f"via: {_url(exchange.via)}\r\n" if exchange.via else ""
    found = f"hopsFromSeed: {exchange.hops}" if exchange.hops else "seed: "
    took_ms = max(round((response.end_s - response.start_s) * 1000), 0)
    return f"{via}{found}\r\nfetchTimeMs: {took_ms}\r\n".encode() + _lines(_outlink_lines(exchange.outlinks))


def _outlink_lines(outlinks: Sequence[Outlink]) -> list[str]:
    """A line for each. All URLs are looked at together: 13 µs in place of 60 for 60 links."""
    together = "".join([url for url, _, _ in outlinks])
    if together.isascii() and together.isprintable() and " " not in together:  # as mostly: they are canonical
        return [
            f"outlink: {url} {hop} {context}" if context else f"outlink: {url} {hop}" for url, hop, context in outlinks
        ]
    return [f"outlink: {_url(url)} {hop} {context}".rstrip() for url, hop, context in outlinks]


@lru_cache(maxsize=1024)  # the digest of a payload is written in five places
def digest_text(digest: bytes) -> str:
    """A SHA-1 digest as `sha1:` and Base32 (RFC 4648). In pieces of ten bits: a third of the library's time."""
    number = int.from_bytes(digest, "big")
    return "sha1:" + "".join([_BASE32_PAIRS[number >> shift & 1023] for shift in range(150, -1, -10)])


def _warc_fields(fields: Iterable[tuple[str, str]]) -> bytes:
    return _lines([f"{name}: {text}" for name, text in fields])


def _lines(lines: list[str]) -> bytes:
    text = "".join(lines)
    if not (text.isascii() and text.isprintable()) and _BREAKS.search(text):  # rare
        lines = [_BREAKS.sub(" ", line) for line in lines]
    return "\r\n".join([*lines, ""]).encode("utf-8", "replace")


def _url(url: str) -> str:
    """The URL, with every character percent-encoded that could end its field. Canonical URLs have none."""
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return _UNFIT_IN_URL.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode("utf-8", "replace")), url)
