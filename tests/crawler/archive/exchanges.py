"""Exchanges as plain data, and what strangers read out of WARC files."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator

from anabranch.crawler.archive.compression import Compression, Gzip, Zstd
from anabranch.crawler.archive.files import WarcOptions
from anabranch.crawler.archive.records import Exchange, Revisit

#: 2026-01-01T00:00:00.25Z.
START_S = 1_767_225_600.25

OPTIONS = WarcOptions(prefix="test", size_bytes=1 << 30, facts={"software": "anabranch", "robots": "obey"})


class Cut(Enum):
    """Why a body is not whole."""

    LENGTH = "lenTrunc"
    TIME = "timeTrunc"
    DECODED = "decTrunc"


@dataclass(frozen=True, slots=True)
class Payload:
    """A body in memory, which counts how often it is read."""

    data: bytes
    reads: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def digest(self) -> bytes:
        return hashlib.sha1(self.data).digest()

    def chunks(self, size: int = 65536) -> Iterator[bytes]:
        self.reads.append(size)
        stream = BytesIO(self.data)
        while chunk := stream.read(size):
            yield chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer as an exchange wants it."""

    body: Payload
    status: int = 200
    reason: str = "OK"
    version: str = "1.1"
    raw_headers: tuple[tuple[bytes, bytes], ...] = ()
    request: bytes = b"GET / HTTP/1.1\r\nHost: a.test\r\nCookie: secret=1\r\nAccept: */*\r\n\r\n"
    received: tuple[bytes, ...] = ()
    secrets: frozenset[bytes] | None = None
    cuts: tuple[Cut, ...] = ()
    address: str = "192.0.2.7"
    start_s: float = START_S
    end_s: float = START_S + 0.5


class Found(NamedTuple):
    """A link."""

    url: str
    hop: str
    context: str = ""


HTML = ((b"Content-Type", b"text/html; charset=utf-8"),)


def exchange(
    url: str = "http://a.test/",
    data: bytes = b"<p>page",
    *,
    raw_headers: Sequence[tuple[bytes, bytes]] = HTML,
    revisit: Revisit | None = None,
    **answer: object,
) -> Exchange:
    """An exchange that went well."""
    answered = Answered(body=Payload(data), raw_headers=tuple(raw_headers), **answer)  # type: ignore[arg-type]
    return Exchange(url=url, response=answered, revisit=revisit)


class Read(NamedTuple):
    """One record as a stranger reads it."""

    kind: str
    url: str
    fields: dict[str, str]
    http: dict[str, str]
    payload: bytes


def zstd() -> Any:
    """The library of zstd."""
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


@cache
def dictionary() -> bytes:
    """A small dictionary for records like these."""
    samples = [f"WARC/1.1\r\nWARC-Target-URI: http://a.test/{n}\r\nWARC-Date: 2026-0{n}\r\n" for n in range(300)]
    content: bytes = zstd().train_dict([sample.encode() for sample in samples], 2000).dict_content
    return content


#: Name -> what makes the compression of WARC files.
COMPRESSIONS: Mapping[str, Callable[[], Compression]] = {
    "gzip": Gzip,
    "zstd": Zstd,
    "dictionary": lambda: Zstd(dictionary()),
}


def unpacked(path: Path, start: int = 0, end: int | None = None) -> bytes:
    """The records of a finished file, by the libraries alone."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data[start:end])
    size = int.from_bytes(data[4:8], "little") if data[:4] == b"\x5d\x2a\x4d\x18" else 0
    known = zstd().ZstdDict(data[8 : 8 + size]) if size else None
    plain: bytes = zstd().decompress(data[start:end], zstd_dict=known)
    return plain


def read_by_warcio(path: Path) -> list[Read]:
    """All records, digests verified; any complaint is an error. It cannot read zstd, so it is given the records."""
    found = []
    with path.open("rb") if path.suffix == ".gz" else BytesIO(unpacked(path)) as stream:
        for record in ArchiveIterator(stream, check_digests="raise"):
            http = {} if record.http_headers is None else dict(record.http_headers.headers)
            payload = record.raw_stream.read()
            assert record.digest_checker.passed is not False
            fields = dict(record.rec_headers.headers)
            found.append(Read(record.rec_type, fields.get("WARC-Target-URI", ""), fields, http, payload))
    return found


def read_by_fastwarc(path: Path) -> list[tuple[str, str]]:
    """Type and URL of all records; every digest that can be verified is right."""
    found = []
    for record in FastIterator(str(path), parse_http=False):
        assert record.verify_block_digest()
        record.parse_http()
        kind = record.headers.get("WARC-Type")
        if kind == "response" and record.is_http:  # it verifies the payloads of these alone
            assert record.verify_payload_digest()
        found.append((kind, record.headers.get("WARC-Target-URI", "")))
    return found


def warcs(folder: Path) -> list[Path]:
    """The finished files, in order."""
    return sorted([*folder.glob("*.warc.gz"), *folder.glob("*.warc.zst")])


def urls_in(folder: Path) -> list[str]:
    """The URLs of all answers in finished files, as both readers find them."""
    by_warcio = [
        read.url for path in warcs(folder) for read in read_by_warcio(path) if read.kind in {"response", "revisit"}
    ]
    by_fastwarc = [
        url for path in warcs(folder) for kind, url in read_by_fastwarc(path) if kind in {"response", "revisit"}
    ]
    assert by_warcio == by_fastwarc
    return by_warcio
