"""WARC 1.1 records of an exchange: pure functions from what was fetched to bytes, streamed.

A response's payload stands as it came over the wire, content coding and all; its header fields stand as received and in their
order. Only the framing must say what is there: the HTTP library has taken the transfer coding off, so `Transfer-Encoding`
becomes `X-Crawler-Transfer-Encoding`, and a `Content-Length` that does not tell the payload's size becomes
`X-Crawler-Content-Length`, with the size that is (Common Crawl's and Nutch's names; readers would else look for chunks).
A revisit after a 304 has no block, as the format allows: with the 304's own header pywb would replay that, without it the page.
Format: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from anabranch.crawler.archiving.exchanges import NOT_MODIFIED, TRUNCATED, Answer, Body, Exchange, Outlink, warc_date

#: Request fields that open doors: an archive is for others to read, so they are left out.
SECRET_FIELDS = frozenset([b"authorization", b"proxy-authorization", b"cookie"])

_BODILESS = frozenset([204, 304])
_CHUNK_BYTES = 1 << 16
_FIT_IN_URL = bytes(range(ord("!"), ord("~") + 1))
_UNFIT_IN_URL = re.compile(r"[^!-~]")
_BREAKS = re.compile(r"[\x00-\x1f\x7f]+")
_BREAKS_IN_BYTES = re.compile(rb"[\r\n\x00]+")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE32_PAIRS = tuple(first + second for first in _BASE32 for second in _BASE32)
_SHIFTS = tuple(range(150, -1, -10))  # of a SHA-1 digest, which has 160 bits


class Record(NamedTuple):
    """One record, not yet compressed: fields without Block-Digest and Content-Length, then the block in two parts."""

    kind: str
    record_id: str
    fields: bytes  #: each with its line's end
    head: bytes
    body: Body | None = None

    @property
    def body_bytes(self) -> int:
        """The size of the block's second part."""
        return 0 if self.body is None else self.body.size

    def stream(self) -> Iterator[bytes]:
        """The record's bytes, in pieces, of which the first is all that stands before the body.

        Cost: the body is read twice, since its digest stands before it.
        """
        digest = hashlib.sha1(self.head, usedforsecurity=False)
        for chunk in self._body():
            digest.update(chunk)
        size = len(self.head) + self.body_bytes
        first = f"WARC/1.1\r\nWARC-Type: {self.kind}\r\nWARC-Record-ID: {self.record_id}\r\n"
        last = f"WARC-Block-Digest: {_base32(digest.digest())}\r\nContent-Length: {size}\r\n\r\n"
        yield b"".join((first.encode(), self.fields, last.encode(), self.head))
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
    block = _warc_fields((name, text) for name, text in facts.items() if text)
    return Record("warcinfo", _new_ids(1)[0], _warc_fields(fields), block)


def exchange_records(exchanges: Sequence[Exchange], warcinfo_id: str) -> list[list[Record]]:
    """The records of each visit: response or revisit first, then request (if it is known) and metadata, bound to it."""
    ids = _new_ids(3 * len(exchanges))
    return [
        _visit_records(exchange, warcinfo_id, ids[start : start + 3])
        for exchange, start in zip(exchanges, range(0, len(ids), 3), strict=True)
    ]


def _visit_records(exchange: Exchange, warcinfo_id: str, record_ids: Sequence[str]) -> list[Record]:
    answer, (first_id, *ids) = exchange.response, record_ids
    common = _common_fields(exchange, warcinfo_id)
    records = [_answer_record(exchange, first_id, common)]
    common += f"WARC-Concurrent-To: {first_id}\r\n".encode()
    if sent := answer.request:
        fields = common + b"Content-Type: application/http; msgtype=request\r\n"
        records.append(Record("request", ids[0], fields, request_head(sent)))
    fields = common + b"Content-Type: application/warc-fields\r\n"
    records.append(Record("metadata", ids[1], fields, metadata_block(exchange)))
    return records


def _common_fields(exchange: Exchange, warcinfo_id: str) -> bytes:
    """Of all records of a visit: when, what, in which file, whence. None of them can have what would end its field."""
    url, (address, *_) = _url(exchange.url), exchange.response.address.partition("%")
    whence = f"WARC-IP-Address: {address}\r\n" if address else ""
    fields = f"WARC-Date: {exchange.date}\r\nWARC-Target-URI: {url}\r\nWARC-Warcinfo-ID: {warcinfo_id}\r\n{whence}"
    return fields.encode()


def _answer_record(exchange: Exchange, record_id: str, common: bytes) -> Record:
    """The response, or what stands for it."""
    answer, revisit = exchange.response, exchange.revisit
    kind = b"Content-Type: application/http; msgtype=response\r\n"
    if revisit is None:
        cut = next((TRUNCATED[cut.value] for cut in answer.cuts if cut.value in TRUNCATED), "")
        truncated = f"WARC-Truncated: {cut}\r\n" if cut else ""
        fields = common + f"WARC-Payload-Digest: {digest_text(answer.body.digest)}\r\n{truncated}".encode() + kind
        return Record("response", record_id, fields, response_head(answer), answer.body)
    fields = common + _warc_fields(
        (
            ("WARC-Profile", revisit.profile),
            ("WARC-Refers-To-Target-URI", _url(revisit.original.url)),
            ("WARC-Refers-To-Date", revisit.original.date),
            ("WARC-Payload-Digest", digest_text(revisit.original.digest)),
        )
    )
    if revisit.profile == NOT_MODIFIED:
        return Record("revisit", record_id, fields, b"")
    return Record("revisit", record_id, fields + kind, response_head(answer))


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
    if _BREAKS_IN_BYTES.search(b"".join(lines)):  # hardly ever
        lines = [_BREAKS_IN_BYTES.sub(b" ", line) for line in lines]
    return b"\r\n".join((*lines, b"", b""))


def request_head(sent: bytes) -> bytes:
    """The request as it was sent, without the fields that open doors."""
    small = sent.lower()
    if not any(field in small for field in SECRET_FIELDS):
        return sent
    lines = sent.split(b"\r\n")
    kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in SECRET_FIELDS]
    return b"\r\n".join([lines[0], *kept])


def metadata_block(exchange: Exchange) -> bytes:
    """How the URL was found, how long it took and what it links to, in Heritrix's words."""
    answer = exchange.response
    via = f"via: {_url(exchange.via)}\r\n" if exchange.via else ""
    found = f"hopsFromSeed: {exchange.hops}" if exchange.hops else "seed: "
    took_ms = max(round((answer.end_s - answer.start_s) * 1000), 0)
    return f"{via}{found}\r\nfetchTimeMs: {took_ms}\r\n".encode() + _outlink_lines(exchange.outlinks)


def _outlink_lines(links: Sequence[Outlink]) -> bytes:
    """A line for each; as they are, unless something in one of them could end its field."""
    parts = [*chain.from_iterable(links)]
    words = {*parts[1::3], *parts[2::3]}
    unfit = "".join(parts[::3]).encode("utf-8", "replace").translate(None, _FIT_IN_URL)
    if unfit or "" in words or not "".join(words).isprintable():
        return _lines([f"outlink: {_url(url)} {hop} {context}".rstrip() for url, hop, context in links])
    return "".join([f"outlink: {url} {hop} {context}\r\n" for url, hop, context in links]).encode("utf-8", "replace")


@lru_cache(maxsize=1024)  # a payload's is written in five places
def digest_text(digest: bytes) -> str:
    """`sha1:` and Base32."""
    return _base32(digest)


def _base32(digest: bytes) -> str:
    """As above. In pieces of ten bits: three times as fast as the library, which takes any length."""
    number = int.from_bytes(digest, "big")
    return "sha1:" + "".join([_BASE32_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def _warc_fields(fields: Iterable[tuple[str, str]]) -> bytes:
    return _lines([f"{name}: {text}" for name, text in fields])


def _lines(lines: list[str]) -> bytes:
    text = "".join(lines)
    if not (text.isascii() and text.isprintable()) and _BREAKS.search(
        text
    ):  # hardly ever, and a page has hundreds of lines
        lines = [_BREAKS.sub(" ", line) for line in lines]
    return "\r\n".join([*lines, ""]).encode("utf-8", "replace")


def _is_fit(url: str) -> bool:
    """Nothing in it could end its field, as in canonical URLs."""
    return url.isascii() and url.isprintable() and " " not in url


def _url(url: str) -> str:
    """The URL without anything that could end its field."""
    if _is_fit(url):
        return url
    return _UNFIT_IN_URL.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode("utf-8", "replace")), url)


def _new_ids(number: int) -> list[str]:
    """Random UUIDs (version 4) as URNs. One question to the kernel for all."""
    digits = os.urandom(16 * number).hex()
    return [_urn(digits[start : start + 32]) for start in range(0, len(digits), 32)]


def _urn(h: str) -> str:
    return f"<urn:uuid:{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}>"
