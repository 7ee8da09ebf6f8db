"""WARC 1.1 records of an exchange: pure functions from what was fetched to bytes, streamed.

A response's payload stands as it came over the wire, content coding and all; its header fields stand as received and in their
order. Only the framing must say what is there: the HTTP library has taken the transfer coding off, so `Transfer-Encoding`
becomes `X-Crawler-Transfer-Encoding`, and a `Content-Length` that does not tell the payload's size becomes
`X-Crawler-Content-Length`, with the size that is (Common Crawl's and Nutch's names; readers would else look for chunks).
A revisit after a 304 has no block, as the format allows: with the 304's own header pywb would replay that, without it the page.
Format: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from crawler.archiving.exchanges import NOT_MODIFIED, TRUNCATED, Answer, Body, Exchange, warc_date

#: Request fields that open doors: an archive is for others to read, so they are left out.
SECRET_FIELDS = frozenset([b"authorization", b"proxy-authorization", b"cookie"])

_BODILESS = frozenset([204, 304])
_CHUNK_BYTES = 1 << 16
_UNFIT_IN_URL = re.compile(r"[^!-~]")
_BREAKS = re.compile(r"[\x00-\x1f\x7f]+")
_BREAKS_IN_BYTES = re.compile(rb"[\r\n\x00]+")


class Record(NamedTuple):
    """One record, not yet compressed: fields without Block-Digest and Content-Length, then the block in two parts."""

    kind: str
    record_id: str
    fields: tuple[tuple[str, str], ...]
    head: bytes
    body: Body | None = None

    def stream(self) -> Iterator[bytes]:
        """The record's bytes, in pieces, of which the first is all that stands before the body.

        Cost: the body is read twice, since its digest stands before it.
        """
        digest = hashlib.sha1(self.head, usedforsecurity=False)
        for chunk in self._body():
            digest.update(chunk)
        size = len(self.head) + (self.body.size if self.body is not None else 0)
        last = (("WARC-Block-Digest", digest_text(digest.digest())), ("Content-Length", str(size)))
        fields = (("WARC-Type", self.kind), ("WARC-Record-ID", self.record_id), *self.fields, *last)
        yield b"WARC/1.1\r\n" + _warc_fields(fields) + b"\r\n" + self.head
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
    if revisit is None:
        cut = next((TRUNCATED[cut.value] for cut in answer.cuts if cut.value in TRUNCATED), "")
        truncated = (("WARC-Truncated", cut),) if cut else ()
        digest = ("WARC-Payload-Digest", digest_text(answer.body.digest))
        return Record("response", _new_id(), (*common, digest, *truncated, kind), response_head(answer), answer.body)
    fields = (
        *common,
        ("WARC-Profile", revisit.profile),
        ("WARC-Refers-To-Target-URI", _url(revisit.original.url)),
        ("WARC-Refers-To-Date", revisit.original.date),
        ("WARC-Payload-Digest", digest_text(revisit.original.digest)),
    )
    if revisit.profile == NOT_MODIFIED:
        return Record("revisit", _new_id(), fields, b"")
    return Record("revisit", _new_id(), (*fields, kind), response_head(answer))


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


@lru_cache(maxsize=1024)  # a payload's is written in five places, and the coding is Python's own
def digest_text(digest: bytes) -> str:
    """`sha1:` and Base32."""
    return "sha1:" + base64.b32encode(digest).decode()


def _warc_fields(fields: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"{name}: {text}" for name, text in fields]
    if _BREAKS.search("".join(lines)):  # hardly ever, and a page has hundreds of lines
        lines = [_BREAKS.sub(" ", line) for line in lines]
    return "\r\n".join([*lines, ""]).encode("utf-8", "replace")


def _url(url: str) -> str:
    """The URL without anything that could end its field."""
    if url.isascii() and url.isprintable() and " " not in url:  # as canonical URLs are
        return url
    return _UNFIT_IN_URL.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode("utf-8", "replace")), url)


def _new_id() -> str:
    return f"<urn:uuid:{uuid.uuid4()}>"
