"""Entries in rising order that come and go anywhere: what a table's index is to the store in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

EntryT = TypeVar("EntryT", bound=tuple[Any, ...])


class Ascending(Generic[EntryT]):
    """Tuples in rising order, no two equal, in chunks of at most twice `chunk`.

    Each chunk has a bound that none of its entries exceeds and all later ones do. Adding behind the last is O(1); adding and
    discarding elsewhere is one search and a shift within one chunk.
    """

    __slots__ = ("_bounds", "_chunk", "_chunks")

    def __init__(self, chunk: int = 500) -> None:
        self._chunk = chunk
        self._chunks: list[list[EntryT]] = []
        self._bounds: list[EntryT] = []

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __iter__(self) -> Iterator[EntryT]:
        return (entry for chunk in self._chunks for entry in chunk)

    def add(self, entry: EntryT) -> None:
        """Put an entry that is not there in its place."""
        bounds, chunks = self._bounds, self._chunks
        if not bounds:
            chunks.append([entry])
            bounds.append(entry)
            return
        if bounds[-1] < entry:
            place = -1
            bounds[-1] = entry
            chunks[-1].append(entry)
        else:
            place = bisect_left(bounds, entry)
            insort(chunks[place], entry)
        if len(chunks[place]) > 2 * self._chunk:
            self._split(place % len(chunks))

    def discard(self, entry: EntryT) -> bool:
        """Take an entry out; False if it was not there."""
        number = bisect_left(self._bounds, entry)
        if number == len(self._bounds):
            return False
        chunk = self._chunks[number]
        place = bisect_left(chunk, entry)
        if place == len(chunk) or chunk[place] != entry:
            return False
        del chunk[place]
        if not chunk:
            del self._chunks[number], self._bounds[number]
        return True

    def first(self) -> EntryT | None:
        """The smallest entry."""
        return self._chunks[0][0] if self._chunks else None

    def since(self, bound: tuple[Any, ...], limit: int) -> list[EntryT]:
        """The first entries that are not below a tuple, which may be shorter than they are. O(log n + limit)."""
        number = bisect_left(self._bounds, bound)
        if number == len(self._bounds):
            return []
        place = bisect_left(self._chunks[number], bound)
        found = self._chunks[number][place : place + limit]
        while len(found) < limit and (number := number + 1) < len(self._chunks):
            found += islice(self._chunks[number], limit - len(found))
        return found

    def _split(self, number: int) -> None:
        chunk = self._chunks[number]
        lower, upper = chunk[: self._chunk], chunk[self._chunk :]
        self._chunks[number : number + 1] = [lower, upper]
        self._bounds.insert(number, lower[-1])
