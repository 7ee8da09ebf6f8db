"""Answers of earlier fetches, read back from the job's WARC files.

A server that says 304 sends no page, and a page that has not changed leads to what it led to. So its links are read from the
answer that was archived: the header from the record of the last fetch, the payload from that record or, if it is a revisit,
from the one that it refers to. A URL is asked for with a condition only while the files of both are there: an operator may
take finished files away.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import structlog

from anabranch.crawler.archiving.exchanges import Place
from anabranch.crawler.archiving.growing import OPEN
from anabranch.crawler.archiving.members import HEAD_BYTES
from anabranch.crawler.archiving.payload_rows import Fetched
from anabranch.crawler.archiving.payloads import Payloads
from anabranch.crawler.fetching.bodies import Body, Scratch
from anabranch.crawler.fetching.options import Validators
from anabranch.crawler.fetching.response import Response, header_fields
from anabranch.crawler.outcomes.errors import StorageError

log = structlog.get_logger(__name__)

#: The largest body in memory; each has its own, whatever the others have.
MEMORY_BYTES = 32 * 1024

_BLOCK_BYTES = 1 << 16
_GZIP = 31  # zlib: gzip with its header
_END = b"\r\n\r\n"


class NotReadable(Exception):
    """What stands at a place is not the record that was written there."""


class Archive:
    """What a job's WARC files say of URLs that were fetched before. `scratch` takes large bodies.

    Cost of an answer: its record is decompressed, in a thread.
    """

    def __init__(self, folder: Path, payloads: Payloads, scratch: Path) -> None:
        self._folder = folder
        self._payloads = payloads
        self._scratch = scratch
        self._seen: set[str] = set()  # files that were there

    async def validators(self, url: str) -> Validators | None:
        """What to ask a server with that may say 304; None if nothing is known, or its record is not there any more."""
        known = await self._payloads.fetched(url)
        if known is None or known.original.place is None:
            return None
        wanted = {known.place.filename, known.original.place.filename} - self._seen
        if wanted and not await asyncio.to_thread(self._are_there, wanted):
            return None
        self._seen |= wanted
        return known.validators

    async def answer(self, url: str) -> Response | None:
        """The answer of the last fetch, to be closed by the caller; None if it cannot be read.

        It may hold a file: whoever awaits it sees it through (`to_the_end`), since a cancelled one could not be closed.
        """
        known = await self._payloads.fetched(url)
        if known is None:
            return None
        try:
            return await asyncio.to_thread(self._read, url, known)
        except (OSError, NotReadable, StorageError) as error:
            self._seen.clear()
            log.warning("an archived answer cannot be read; the page is fetched anew", url=url, reason=str(error))
            return None

    def _are_there(self, names: set[str]) -> bool:
        return all((self._folder / name).exists() or (self._folder / (name + OPEN)).exists() for name in names)

    def _read(self, url: str, known: Fetched) -> Response:
        """Raises: OSError, NotReadable, StorageError."""
        assert known.original.place is not None
        head = _Answer(self._folder, known.place).head
        body = Scratch(self._scratch, memory_bytes=MEMORY_BYTES, shared_bytes=MEMORY_BYTES).body()
        try:
            _Answer(self._folder, known.original.place).copy_payload(body, known.original.digest)
            return _response(url, head, body)
        except BaseException:
            body.close()
            raise


class _Answer:
    """One record with an HTTP answer. Raises: OSError, NotReadable."""

    def __init__(self, folder: Path, place: Place) -> None:
        self._place = place
        self._pieces = _plain(folder, place)
        fields, block = self._until_end(b"")
        self.head, self._rest = self._until_end(block)
        self._left = self._length(fields) - len(self.head) - len(_END)

    def copy_payload(self, body: Body, digest: bytes) -> None:
        """Give the body what follows the answer's head, which must have this digest."""
        left = self._left
        for piece in chain([self._rest], self._pieces):
            body.append(piece[:left])
            left -= min(len(piece), left)
        if left or body.digest != digest:
            raise self._broken()

    def _until_end(self, begun: bytes) -> tuple[bytes, bytes]:
        """What stands before the next empty line, and what of the record is read behind it."""
        found = bytearray(begun)
        while (end := found.find(_END)) < 0:
            piece = next(self._pieces, b"")
            if not piece or len(found) > HEAD_BYTES:
                raise self._broken()
            found += piece
        return bytes(found[:end]), bytes(found[end + len(_END) :])

    def _length(self, fields: bytes) -> int:
        for line in fields.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length" and value.strip().isdigit():
                return int(value)
        raise self._broken()

    def _broken(self) -> NotReadable:
        return NotReadable(f"{self._place.filename}: no whole answer at {self._place.offset}")


def _plain(folder: Path, place: Place) -> Iterator[bytes]:
    """The record, decompressed, in pieces of bounded size."""
    inflate = zlib.decompressobj(_GZIP)
    with _opened(folder, place.filename) as file:
        file.seek(place.offset)
        while not inflate.eof:
            packed = inflate.unconsumed_tail or file.read(_BLOCK_BYTES)
            if not packed:
                return
            try:
                piece = inflate.decompress(packed, _BLOCK_BYTES)
            except zlib.error as error:
                raise NotReadable(f"{place.filename}: no record at {place.offset}") from error
            if piece:
                yield piece


def _opened(folder: Path, name: str) -> BinaryIO:
    """The file, whether it is finished or grows."""
    with suppress(FileNotFoundError):
        return (folder / (name + OPEN)).open("rb", buffering=0)
    return (folder / name).open("rb", buffering=0)


def _response(url: str, head: bytes, body: Body) -> Response:
    first, *lines = head.split(b"\r\n")
    words = first.decode("utf-8", "surrogateescape").split(" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise NotReadable(f"{url}: its record has no status line")
    fields = tuple((name, value.strip()) for name, _, value in (line.partition(b":") for line in lines))
    return Response(
        url=url,
        status=int(words[1]),
        reason=words[2] if len(words) > 2 else "",
        version=words[0].removeprefix("HTTP/"),
        headers=header_fields(fields),
        raw_headers=fields,
        sent=bytes,
        body=body,
        address="",
        start_s=0.0,
        end_s=0.0,
    )
