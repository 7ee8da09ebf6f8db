"""Responses of earlier fetches, read back from the job's WARC files, and the validators to ask the server with.

A server that answers 304 sends no page, so the page's links are read from the archived response: the header from the record of
the last fetch, the payload from that record or the one that it refers to. A URL is requested conditionally only while the
files of both records exist, because an operator may move finished files. `history.py` knows where the records are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import structlog

from anabranch.crawler.archive.cdxj import HEAD_BYTES
from anabranch.crawler.archive.compression import BrokenMember, MemberReader
from anabranch.crawler.archive.files import OPEN
from anabranch.crawler.archive.history import Fetched, FetchHistory
from anabranch.crawler.archive.records import RecordLocation
from anabranch.crawler.fetch.options import Validators
from anabranch.crawler.fetch.response import Body, Response, Scratch, header_fields
from anabranch.crawler.outcomes.errors import CrawlerError

log = structlog.get_logger(__name__)

#: The largest body in memory.
MEMORY_BYTES = 32 * 1024

_END = b"\r\n\r\n"


class NotReadable(Exception):
    """There is no such record at this place."""


class ArchivedResponses:
    """The archived responses of a job; each is decompressed in a thread. `scratch` is a folder for large bodies."""

    def __init__(self, folder: Path, history: FetchHistory, scratch: Path) -> None:
        self._folder = folder
        self._history = history
        self._scratch = scratch
        self._seen: set[str] = set()  # names of files that were there

    async def validators(self, url: str) -> Validators | None:
        """The validators for a conditional request; None if the URL is not known, or its record is missing."""
        known = await self._history.fetched(url)
        if known is None or known.original.place is None:
            return None
        wanted = {known.place.filename, known.original.place.filename} - self._seen
        if wanted and not await asyncio.to_thread(
            lambda: all((self._folder / name).exists() or (self._folder / (name + OPEN)).exists() for name in wanted)
        ):
            return None
        self._seen |= wanted
        return known.validators

    async def answer(self, url: str) -> Response | None:
        """The response of the last fetch, for the caller to close; None if it cannot be read. Not to be cancelled."""
        known = await self._history.fetched(url)
        if known is None:
            return None
        try:
            return await asyncio.to_thread(self._read, url, known)
        except (OSError, NotReadable, CrawlerError) as error:
            self._seen.clear()
            log.warning("an archived response cannot be read; the page is fetched again", url=url, reason=str(error))
            return None

    def _read(self, url: str, known: Fetched) -> Response:
        """Raises: OSError, NotReadable, CrawlerError."""
        assert known.original.place is not None
        head, _ = _response_in(self._folder, known.place)
        body = Scratch(self._scratch, memory_bytes=MEMORY_BYTES, shared_bytes=MEMORY_BYTES).body()
        try:
            for piece in _response_in(self._folder, known.original.place)[1]:
                body.append(piece)
            if body.digest == known.original.digest:
                return _response(url, head, body)
        except BaseException:
            body.close()
            raise
        body.close()
        raise _broken(known.original.place)


def _response_in(folder: Path, place: RecordLocation) -> tuple[bytes, Iterator[bytes]]:
    """The head and the payload of the HTTP response in a record. Raises: OSError, NotReadable, UsageError."""
    pieces = _decompressed(folder, place)
    fields, block = _until_empty_line(b"", pieces, place)
    head, rest = _until_empty_line(block, pieces, place)
    left = -1
    for line in fields.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and value.strip().isdigit():
            left = int(value) - len(head) - len(_END)
            break
    if left < 0:
        raise _broken(place)

    def payload(left: int) -> Iterator[bytes]:
        for piece in chain([rest], pieces):
            yield piece[:left]
            left -= min(len(piece), left)
        if left:
            raise _broken(place)

    return head, payload(left)


def _until_empty_line(begun: bytes, pieces: Iterator[bytes], place: RecordLocation) -> tuple[bytes, bytes]:
    """The bytes before the next empty line, and those after it that were read."""
    found = bytearray(begun)
    while (end := found.find(_END)) < 0:
        piece = next(pieces, b"")
        if not piece or len(found) > HEAD_BYTES:
            raise _broken(place)
        found += piece
    return bytes(found[:end]), bytes(found[end + len(_END) :])


def _broken(place: RecordLocation) -> NotReadable:
    return NotReadable(f"{place.filename}: no whole response at {place.offset}")


def _decompressed(folder: Path, place: RecordLocation) -> Iterator[bytes]:
    """The record in pieces of bounded size. Raises: OSError, NotReadable, UsageError."""
    with _opened(folder, place.filename) as file:
        try:
            yield from MemberReader(file, place.filename).pieces(place.offset)
        except BrokenMember as error:
            raise NotReadable(f"{place.filename}: no record at {place.offset}") from error


def _opened(folder: Path, name: str) -> BinaryIO:
    """Open the file, whether it is finished or still grows."""
    with suppress(FileNotFoundError):
        return (folder / (name + OPEN)).open("rb", buffering=0)
    return (folder / name).open("rb", buffering=0)


def _response(url: str, head: bytes, body: Body) -> Response:
    first, *lines = head.split(b"\r\n")
    words = first.decode("utf-8", "surrogateescape").split(" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise NotReadable(f"{url}: its record has no status line")
    # A line without a colon was dropped when it came.
    fields = tuple((name, value.strip()) for name, colon, value in (line.partition(b":") for line in lines) if colon)
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
