"""The table `done` of the store in memory: what is kept of a row that has ended.

Dictionaries of texts and numbers alone, which Python's garbage collector never looks into. A record for each row would be
looked at again and again, for millions of rows that never are garbage, and take four times the memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from anabranch.frontier.models import OutcomeKind, Row, UrlRecord, UrlState
from anabranch.frontier.stores.base import EndedRecord

_KINDS: Final = tuple(OutcomeKind)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
#: A row's number of attempts is packed as attempts << 3 | kind.
_KIND_BITS: Final = 3
_KIND: Final = (1 << _KIND_BITS) - 1


class SortedKeys:
    """The keys of a growing dict in rising order. They are sorted again only after it has grown."""

    def __init__(self, grows: Mapping[int, object]) -> None:
        self._grows = grows
        self._sorted: list[int] = []

    def behind(self, after: int | None) -> Iterator[int]:
        """All keys above one."""
        if len(self._sorted) != len(self._grows):
            self._sorted = sorted(self._grows)
        ids = self._sorted
        return islice(ids, 0 if after is None else bisect_right(ids, after), None)


class EndedRows:
    """Rows that have ended, by ordinal. Every operation costs O(1), but for those that list.

    May be read from any thread: `_status` is written last, and an ordinal that it has is in the others.
    """

    def __init__(self) -> None:
        self._urls: dict[int, str] = {}
        self._keys: dict[int, bytes] = {}  # of those whose key is not the URL
        self._how: dict[int, int] = {}  # attempts and kind
        self._status: dict[int, int] = {}
        self._ordinals = SortedKeys(self._status)

    def add(self, row: Row, status: int, kind: OutcomeKind) -> None:
        """The row has ended so."""
        ordinal, key = row[3], row[5]
        self._urls[ordinal] = row[4]
        if key is not None:
            self._keys[ordinal] = key
        self._how[ordinal] = row[8] << _KIND_BITS | _NUMBERS[kind]
        self._status[ordinal] = status

    def note_page(self, ordinal: int, url: str) -> None:
        """A page of another share of the crawl: `url` knows it by the negative of its ordinal."""
        self._urls[-ordinal] = url

    def url(self, ordinal: int) -> str | None:
        """The URL with this ordinal, if it has ended; with the negative of one: the page of another share."""
        return self._urls.get(ordinal)

    def record(self, ordinal: int) -> UrlRecord | None:
        """What is known of it, if it has ended."""
        if ordinal not in self._status:
            return None
        _, url, _, status, kind, attempts = self._row(ordinal)
        return UrlRecord(url, UrlState.ENDED, status, kind.value, attempts, ordinal)

    def of_url(self, url: str) -> Iterator[tuple[bytes, UrlRecord]]:
        """The dedup key and the record of each that has this URL. Costs a look at all."""
        for ordinal in list(self._status):
            record = self.record(ordinal) if self._urls[ordinal] == url else None
            if record is not None:
                yield self._keys.get(ordinal, url.encode()), record

    def after(self, ordinal: int, limit: int) -> list[EndedRecord]:
        """The first ones above this ordinal. The ordinals are sorted again if there are more than at the last question."""
        return [self._row(found) for found in islice(self._ordinals.behind(ordinal), limit)]

    def keys(self) -> Iterator[tuple[int, bytes]]:
        """The ordinal and the dedup key of each."""
        for ordinal in list(self._status):
            key = self._keys.get(ordinal)
            yield ordinal, self._urls[ordinal].encode() if key is None else key

    def kinds(self) -> Counter[OutcomeKind]:
        """How many have ended in each way."""
        return Counter(_KINDS[how & _KIND] for how in list(self._how.values()))

    def _row(self, ordinal: int) -> EndedRecord:
        how = self._how[ordinal]
        key, status = self._keys.get(ordinal), self._status[ordinal]
        return EndedRecord(ordinal, self._urls[ordinal], key, status, _KINDS[how & _KIND], how >> _KIND_BITS)
