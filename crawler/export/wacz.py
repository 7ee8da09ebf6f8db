"""A job as a web archive that browsers replay: WACZ 1.1.1 (https://specs.webrecorder.net/wacz/1.1.1/), a ZIP file.

    archive/NAME.warc.gz        the WARC files as they are, stored, so that a reader fetches single records
    indexes/index.cdx.gz        one sorted index in blocks of gzip; index.idx has the first key of each block
    pages/pages.jsonl           the seeds that were answered; extraPages.jsonl has the other documents
    logs/crawl.log              the log of all workers
    datapackage.json            each file with its size and SHA-256; datapackage-digest.json has the digest of that

All is streamed: memory does not grow with the job, and files may be larger than 4 GiB.
"""

from __future__ import annotations

import json
import re
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from anabranch.crawler.archive.compression import ZSTD_FILE
from anabranch.crawler.export.cut import CRAWL_LOG, PAGES, CutWarc, JobCut
from anabranch.crawler.export.tables import pages_of
from anabranch.crawler.order.sections import VERSION
from anabranch.crawler.outcomes.errors import UsageError, storage_errors

_WACZ_VERSION: Final = "1.1.1"
#: Lines of a block of the index: one look-up decompresses one block.
_BLOCK_LINES: Final = 3_000
_CHUNK_BYTES: Final = 1 << 20
#: Characters that Data Package allows in no name of a resource.
_UNFIT_IN_NAME: Final = re.compile(r"[^-a-z0-9._/]")
#: The field of a ZIP file that has the time of a file in seconds.
_UTC_FIELD: Final = 0x5455
_GZIP: Final = 16 + zlib.MAX_WBITS
#: Types of documents that a reader of the archive opens as a page.
_DOCUMENTS: Final = frozenset({"text/html", "application/xhtml+xml", "application/pdf", "text/plain"})
#: Hops of what is a part of another page.
_PARTS: Final = ("E", "X", "P")


class WaczFacts(NamedTuple):
    """The content of a package."""

    seeds: int  #: pages of seeds
    others: int  #: other pages
    records: int  #: answers in the index
    warcs: int


def write_wacz(cut: JobCut, file: Path, scratch: Path, now_s: float) -> WaczFacts:
    """Write the package. `scratch` is a folder for parts of the index.

    Raises: UsageError for WARC files that no reader of packages reads, or if there are none; StorageError.
    """
    refuse_unfit(cut)
    with storage_errors(file, "--out"), _Package(file, cut.name, now_s) as package:
        for warc in cut.warcs:
            package.add(f"archive/{warc.name}", _content(warc))
        index = _Index()
        package.add("indexes/index.cdx.gz", index.blocks(cut.index(scratch)))
        package.add("indexes/index.idx", index.keys(), is_packed=True)
        has_text = any(b'"text":' in line for line in cut.lines(PAGES))
        counts = []
        for name, title, of_seeds in (("pages", "Seeds", True), ("extraPages", "Other pages", False)):
            head = {"format": "json-pages-1.0", "id": name, "title": title, "hasText": has_text}
            pages = _Counted(page for page in pages_of(cut) if _is_page(page, of_seeds=of_seeds))
            package.add(f"pages/{name}.jsonl", _json_lines(head, map(_page, pages)), is_packed=True)
            counts.append(pages)
        package.add("logs/crawl.log", cut.lines(CRAWL_LOG), is_packed=True)
        package.describe(counts[0].first)
    if PAGES in cut.damaged:  # it was read twice
        cut.damaged[PAGES] //= 2
    return WaczFacts(counts[0].count, counts[1].count, index.lines, len(cut.warcs))


def refuse_unfit(cut: JobCut) -> None:
    """Raises: UsageError for WARC files in zstd, and without any."""
    if not cut.warcs:
        raise UsageError(f"{cut.directory}: has no WARC files for a WACZ; crawl with --warc, or name --to csv")
    packed = next((warc for warc in cut.warcs if warc.name.endswith(ZSTD_FILE)), None)
    if packed is not None:
        raise UsageError(
            f"{packed.name}: no reader of WACZ knows zstd; `anabranch archive convert {cut.directory} FOLDER` makes gzip "
            "files, and --warcs FOLDER takes them"
        )


def _content(warc: CutWarc) -> Iterator[bytes]:
    left = warc.size
    with warc.opened() as file:
        while left:
            chunk = file.read(min(_CHUNK_BYTES, left))
            if not chunk:
                raise UsageError(f"{warc.path}: was cut while it was read; run the same command again")
            left -= len(chunk)
            yield chunk


def _is_page(page: Mapping[str, Any], *, of_seeds: bool) -> bool:
    """Whether the page goes into the list of seeds, or into that of other documents."""
    hops = str(page.get("hops") or "")
    if of_seeds or not hops:
        return of_seeds and not hops
    status = page.get("status")
    is_answer = isinstance(status, int) and 200 <= status < 300
    return is_answer and page.get("mime") in _DOCUMENTS and not hops.endswith(_PARTS)


def _page(page: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a page; `ts` is the time of its record."""
    url, moment = page["url"], str(page.get("fetch_time") or "")
    named = blake2b(f"{moment} {url}".encode("utf-8", "replace"), digest_size=10).hexdigest()
    known = {name: page[name] for name in ("title", "text", "mime", "status") if page.get(name) is not None}
    return {"id": named, "url": url, "ts": moment, **known}


def _json_lines(head: object, objects: Iterable[object]) -> Iterator[bytes]:
    yield _json(head)
    yield from map(_json, objects)


def _json(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


class _Counted:
    """Pages that are counted while they are read."""

    def __init__(self, pages: Iterable[Mapping[str, Any]]) -> None:
        self._pages = iter(pages)
        self.count = 0
        self.first: Mapping[str, Any] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Mapping[str, Any]:
        page = next(self._pages)
        self.count += 1
        self.first = self.first or page
        return page


class _Index:
    """An index in blocks, as pywb's ZipNum has it."""

    def __init__(self) -> None:
        self.lines = 0
        self._keys = [b'!meta 0 {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}\n']

    def blocks(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Each block is a gzip member. Memory: a line for each block, 30 bytes a thousand records."""
        offset = 0
        while block := list(islice(lines, _BLOCK_LINES)):
            packer = zlib.compressobj(wbits=_GZIP)
            packed = packer.compress(b"".join(block)) + packer.flush()
            place = {"offset": offset, "length": len(packed), "digest": f"sha256:{sha256(packed).hexdigest()}"}
            key = b" ".join(block[0].split(b" ", 2)[:2])
            self._keys.append(b"%b %b\n" % (key, json.dumps(place).encode()))
            self.lines += len(block)
            offset += len(packed)
            yield packed

    def keys(self) -> Iterator[bytes]:
        """The lines of index.idx, when all blocks are made."""
        return iter(self._keys)


class _Entry(ZipInfo):
    """A file of a package, with its time in UTC as Info-ZIP has it.

    That field is there for a reader, ReplayWeb.page: it looks for fields in a file's own header, as large files have one, only
    if the list at the end has a field, too.
    """

    def __init__(self, path: str, now_s: int, *, is_packed: bool) -> None:
        super().__init__(path, time.gmtime(now_s)[:6])
        self.compress_type = ZIP_DEFLATED if is_packed else ZIP_STORED
        self.external_attr = 0o644 << 16
        self.extra = struct.pack("<HHBL", _UTC_FIELD, 5, 1, now_s)


class _Package:
    """A ZIP file whose files are listed with size and digest. Raises: OSError."""

    def __init__(self, file: Path, title: str, now_s: float) -> None:
        self._zip = ZipFile(file, "x", allowZip64=True)
        self._title = title
        self._now_s = int(now_s) & 0xFFFFFFFF  # the field has room for no more
        self._resources: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._zip.close()
        elif self._zip.fp is not None:
            self._zip.fp.close()  # no list of files: the file is removed

    def add(self, path: str, chunks: Iterable[bytes], *, is_packed: bool = False) -> str:
        """Add a file, stored as it is or packed; returns its digest."""
        about = _Entry(path, self._now_s, is_packed=is_packed)
        digest, written = sha256(), 0
        with self._zip.open(about, "w", force_zip64=True) as out:
            for chunk in chunks:
                digest.update(chunk)
                written += out.write(chunk)
        found = f"sha256:{digest.hexdigest()}"
        name = _UNFIT_IN_NAME.sub("-", path.lower())
        self._resources.append({"name": name, "path": path, "hash": found, "bytes": written})
        return found

    def describe(self, main: Mapping[str, Any] | None) -> None:
        """Add the description of all files; the main page is the first seed."""
        described = {
            "profile": "data-package",
            "wacz_version": _WACZ_VERSION,
            "title": self._title,
            "software": f"anabranch/{VERSION}",
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now_s)),
            "resources": list(self._resources),
        }
        if main is not None:
            described |= {"mainPageURL": main["url"], "mainPageDate": str(main.get("fetch_time") or "")}
        digest = self.add("datapackage.json", [json.dumps(described, indent=2).encode("ascii")])
        self.add("datapackage-digest.json", [_json({"path": "datapackage.json", "hash": digest})])
