"""The members of a gzipped WARC file, one per record: where each ends, and what a record says of itself."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import BinaryIO, NamedTuple

from crawler.archiving.cdxj import IndexLine
from crawler.archiving.exchanges import NOT_MODIFIED

#: How much of a record is looked at for its fields and those of the answer in it.
HEAD_BYTES = 1 << 17

_BLOCK_BYTES = 1 << 14  # a member of zeros grows a thousandfold
_GZIP = 31  # zlib: gzip with its header
_ANSWERS = frozenset({"response", "revisit"})


class Member(NamedTuple):
    """One whole member of a file."""

    offset: int
    length: int
    head: bytes  #: what it begins with, uncompressed; at most `HEAD_BYTES`

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + self.length


def whole_members(file: BinaryIO, start: int = 0) -> Iterator[Member]:
    """The members from an offset on, up to the first that is torn or no gzip at all. Cost: the file is decompressed once.

    A member is whole if its check sum and size are right. Raises: OSError.
    """
    file.seek(start)
    offset, waiting = start, b""
    while True:
        inflate, head, taken = zlib.decompressobj(_GZIP), bytearray(), 0
        while not inflate.eof:
            waiting = waiting or file.read(_BLOCK_BYTES)
            if not waiting:
                return
            try:
                plain = inflate.decompress(waiting)
            except zlib.error:
                return
            head += plain[: HEAD_BYTES - len(head)]
            taken += len(waiting) - len(inflate.unused_data)
            waiting = inflate.unused_data
        yield Member(offset, taken, bytes(head))
        offset += taken


def index_line(member: Member, filename: str) -> IndexLine | None:
    """The line of index for a record that is an answer; None for others, and for what is no WARC record."""
    fields, block = _fields(member.head)
    if fields.get("warc-type") not in _ANSWERS:
        return None
    http, _ = _fields(block)
    status = HTTPStatus.NOT_MODIFIED if fields.get("warc-profile") == NOT_MODIFIED else 0
    with suppress(ValueError, IndexError):
        status = int(block.split(b"\r\n", 1)[0].split(b" ", 2)[1])
    return IndexLine(
        url=fields.get("warc-target-uri", ""),
        date=fields.get("warc-date", ""),
        mime=http.get("content-type", ""),
        status=int(status),
        digest=fields.get("warc-payload-digest", ""),
        length=member.length,
        offset=member.offset,
        filename=filename,
        is_revisit=fields["warc-type"] == "revisit",
    )


def _fields(head: bytes) -> tuple[dict[str, str], bytes]:
    """The first value of each field below a first line, names in lower case; and what follows the empty line."""
    text, _, rest = head.partition(b"\r\n\r\n")
    found: dict[str, str] = {}
    for line in text.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        found.setdefault(name.decode("utf-8", "replace").strip().lower(), value.decode("utf-8", "replace").strip())
    return found, rest
