"""What a share of a crawl has for the others: kept with the page's end that it comes from, gone when the other has it.

The parcels of one transaction are joined, up to a size: a page brings some links, and a row for each page would cost more than
its links do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sqlalchemy import Connection

from anabranch.frontier.stores import statements
from anabranch.frontier.stores.dialect import Values, execute, fetch, fetch_for, write
from anabranch.frontier.stores.messages import Exchanged, Parcel

#: A parcel that has reached this size is joined with no other.
FULL_BYTES = 1 << 17


class ParcelChanges:
    """Collects parcels and pages, and writes all that go to one share together."""

    def __init__(self) -> None:
        self._parcels: list[Parcel] = []
        self._delivered: dict[int, int] = {}
        self._pages: list[tuple[int, str]] = []

    def add(self, exchanged: Exchanged) -> None:
        """Take what one batch says, after all that came before it."""
        self._parcels += exchanged.parcels
        self._pages += exchanged.pages
        for share, number in exchanged.delivered:
            self._delivered[share] = max(number, self._delivered.get(share, 0))

    def write(self, connection: Connection) -> None:
        """Write all. Cost: a row for some hundred pages, about 10 µs, and one statement for each share that has parcels."""
        parcels, self._parcels = self._parcels, []
        delivered, self._delivered = self._delivered, {}
        pages, self._pages = self._pages, []
        write(connection, statements.INSERT_PARCEL, list(joined(parcels)))
        write(connection, statements.INSERT_PAGE, pages)
        for share, number in delivered.items():
            execute(connection, statements.DELETE_PARCELS, (share, number))


def joined(parcels: Sequence[Parcel]) -> Iterator[Parcel]:
    """The same in fewer: neighbours of one share are one, up to `FULL_BYTES`, under the last one's number. Pure."""
    for share, of_share in groupby(sorted(parcels), key=lambda parcel: parcel.share):
        number, contents, size = 0, list[bytes](), 0
        for _, number, content in of_share:
            contents.append(content)
            size += len(content)
            if size >= FULL_BYTES:
                yield Parcel(share, number, b"".join(contents))
                contents, size = [], 0
        if contents:
            yield Parcel(share, number, b"".join(contents))


def read(connection: Connection, share: int, after: int, limit: int) -> list[Parcel]:
    """What is kept for a share, by number, behind one."""
    return list(map(Parcel._make, fetch(connection, statements.PARCELS, (share, after, limit))))


def with_pages(connection: Connection, rows: Sequence[Values]) -> Sequence[Values]:
    """Rows of `url`, each with the URL of the page that it was found on, also if that is another share's. Cost: a seek each."""
    ordinals = sorted({-row[7] for row in rows if row[7] < 0})
    pages: dict[int, str] = dict(fetch_for(connection, statements.PAGES, [(ordinal,) for ordinal in ordinals]))
    return [(*row[:11], pages.get(-row[7], row[11])) for row in rows]
