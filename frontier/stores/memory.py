"""A store that forgets at the end of the process and answers inside the call.

It is a product store (crawls that need no resume, other programs' short runs), and the core's tests use it because nothing in
it takes time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from frontier.fingerprints import seen_fingerprint
from frontier.models import WAITING, Head, OutcomeKind, Row, UrlRecord, UrlState
from frontier.stores.base import (
    Answer,
    Batch,
    Counters,
    Ended,
    HeadsRead,
    LaneId,
    Moved,
    Opening,
    Synced,
)


class MemoryStore:
    """Rows by lane and precedence, each in order of acceptance.

    All operations are O(1) per row, but for a row that moves back among those that are served: that sorts its precedence.
    """

    def __init__(self) -> None:
        self._lanes: defaultdict[LaneId, dict[int, OrderedDict[int, Row]]] = defaultdict(dict)
        self._rows: dict[int, Row] = {}
        self._ended: dict[int, Ended] = {}
        self._seen: dict[int, int] = {}
        self._last_ordinal = 0
        self._answers: list[Answer] = []

    def open(self, identity: dict[str, str], on_change: Callable[[], None]) -> Opening:
        """Begin empty: no past, so any identity is right; answers come inside the calls, so nobody need be woken."""
        del identity, on_change
        return Opening(clean=True, counters=Counters(), queues=[], lanes=[], gates=[], waiting=[])

    def write(self, batch: Batch) -> None:
        """Take the batch at once; it is as durable as it will ever be."""
        for ended in batch.ended:
            self._take_out(ended.row)
            self._ended[ended.row.ordinal] = ended
        for moved in batch.moved:
            self._move(moved)
        duplicates = [row for row in batch.new if not self._add(row, forced=row.ordinal in batch.forced)]
        self._answers.append(Synced(batch.number, duplicates))

    def ask_heads(self, lane: LaneId, limit: int) -> None:
        """Answer at once."""
        levels = self._lanes.get(lane, {})
        served = sorted(level for level in levels if level < WAITING)
        rows = (row for level in served for row in levels[level].values())
        heads = [Head(row, self._url_of(row.via)) for row in islice(rows, limit)]
        self._answers.append(HeadsRead(lane, heads))

    def take_answers(self) -> list[Answer]:
        """Hand over what was answered."""
        answers, self._answers = self._answers, []
        return answers

    def flush(self) -> None:
        """Nothing is ever behind."""

    def look_up(self, key: bytes) -> UrlRecord | None:
        """Look the key up in both states."""
        ordinal = self._seen.get(seen_fingerprint(key))
        if ordinal is None:
            return None
        if (row := self._rows.get(ordinal)) is not None:
            state = UrlState.QUEUED if row.due_s is None else UrlState.WAITING
            return UrlRecord(row.url, state, 0, "", row.attempts, ordinal)
        row, status, outcome = self._ended[ordinal]
        return UrlRecord(row.url, UrlState.ENDED, status, outcome.value, row.attempts, ordinal)

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """Look each key up among the ended rows."""
        records = {key: self.look_up(key) for key in keys}
        return {key: record for key, record in records.items() if record and record.state is UrlState.ENDED}

    def keys(self, chunk: int) -> Iterator[list[bytes]]:
        """Every key, queued rows first."""
        rows = [*self._rows.values(), *(ended.row for ended in self._ended.values())]
        for start in range(0, len(rows), chunk):
            yield [row.dedup_key() for row in rows[start : start + chunk]]

    def counters(self) -> Counters:
        """Count the rows."""
        kinds = Counter(ended.outcome for ended in self._ended.values())
        return Counters(
            last_ordinal=self._last_ordinal,
            queued=len(self._rows),
            done=kinds[OutcomeKind.DONE],
            failed=kinds[OutcomeKind.FAILED],
            disregarded=kinds[OutcomeKind.DISREGARDED],
        )

    def close(self, *, clean: bool) -> None:
        """Nothing to let go of; `clean` has no meaning here."""

    def _add(self, row: Row, *, forced: bool) -> bool:
        fingerprint = seen_fingerprint(row.dedup_key())
        if fingerprint in self._seen and not forced:
            return False
        self._seen[fingerprint] = row.ordinal
        self._last_ordinal = max(self._last_ordinal, row.ordinal)
        self._put(row)
        return True

    def _move(self, moved: Moved) -> None:
        self._take_out(moved.old)
        self._put(moved.new)

    def _put(self, row: Row) -> None:
        self._rows[row.ordinal] = row
        levels = self._lanes[row.queue, row.gate]
        level = levels.setdefault(row.precedence, OrderedDict())
        stands_behind = not level or next(reversed(level)) < row.ordinal
        level[row.ordinal] = row
        if not stands_behind and row.precedence < WAITING:
            levels[row.precedence] = OrderedDict(sorted(level.items()))

    def _take_out(self, row: Row) -> None:
        del self._rows[row.ordinal]
        levels = self._lanes[row.queue, row.gate]
        del levels[row.precedence][row.ordinal]
        if not levels[row.precedence]:
            del levels[row.precedence]
            if not levels:
                del self._lanes[row.queue, row.gate]

    def _url_of(self, ordinal: int) -> str | None:
        ended = self._ended.get(ordinal)
        return None if ended is None else ended.row.url
