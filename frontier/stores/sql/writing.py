"""From batches to statements: the sum of one transaction's batches.

Rows are collected and written once, at the end or before queues are opened or paused. A row that is added and taken out in
between never touches the disk. Names, counts and times are written with the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from anabranch.frontier.errors import InvariantBroken, StoreInUse
from anabranch.frontier.records import ENDING, GateKey, OutcomeKind, QueueKey, Row, Turn, seen_fingerprints
from anabranch.frontier.stores.contract import (
    Batch,
    Counters,
    Ended,
    Exchanged,
    GateRow,
    LeftGate,
    Parcel,
    Place,
    QueueRow,
    Standing,
)
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.execution import execute, fetch, fetch_locked, write
from anabranch.frontier.stores.sql.lanes import KnownLanes, LaneChanges
from anabranch.frontier.stores.sql.reading import NO_WINDOW, gate_values, seen_ordinals

#: `value` of an Enum is a Python call.
_NAMES = {kind: kind.value for kind in OutcomeKind}


class TransactionWriter:
    """Writes the batches of one transaction, in their order. O(1) a row, see `statements` for what each costs."""

    def __init__(self, connection: Connection, totals: Counters, epoch: int, lanes: KnownLanes | None = None) -> None:
        """`totals` are those of the last transaction that was committed, `epoch` the owner's; `lanes` remembers lanes."""
        self._connection = connection
        self._epoch = epoch
        #: Rows of `url` since the last flush, by ordinal, and the places that are to be emptied before they are filled.
        self._placed: dict[int, Row] = {}
        self._emptied: list[Place] = []
        self._batches: list[Batch] = []
        self._known_lanes = KnownLanes() if lanes is None else lanes
        self._queues = QueueChanges()
        self._gates = GateChanges()
        self._now_s = 0.0
        self._is_flushed = True
        self._totals = totals
        #: Right after a flush of all.
        self.totals = totals
        self.number: int | None = None  #: of the last batch
        self.duplicates: list[Row] = []  #: new rows that died

    def add(self, batch: Batch) -> None:
        """Take one batch."""
        self.number = batch.number
        self._now_s = batch.now_s
        if batch.last_number > self._totals.last_ordinal:
            self._totals = self._totals._replace(last_ordinal=batch.last_number)
        self._is_flushed = False
        self._place(batch)
        self._batches.append(batch)
        if batch.queues or batch.queue_names:
            self._queues.add(batch)
        if batch.gates or batch.gate_names or batch.woken or batch.left:
            self._gates.add(batch)
        if batch.standings:
            self._flush_all()
            for queue, standing in batch.standings:
                self._set_standing(queue, standing)

    def flush(self) -> None:
        """Write all that was added. Raises: InvariantBroken; StoreInUse if the epoch is not ours any more."""
        if self._is_flushed:
            return
        check_epoch(self._connection, self._epoch)
        self._flush_all()
        self.totals = self._totals
        facts = {**self.totals._asdict(), "batch": self.number}
        rows = [(name, str(value)) for name, value in facts.items()]
        write(self._connection, statements.PUT_FACTS, [*rows, ("now_s", repr(self._now_s))])
        self._is_flushed = True

    def _flush_all(self) -> None:
        batches, self._batches = self._batches, []
        outcomes, lanes = self._write_rows(batches)
        queues = self._queues.write(self._connection)
        self._gates.write(self._connection)
        self._queues, self._gates = QueueChanges(), GateChanges()
        _write_exchanged(self._connection, [batch.exchanged for batch in batches if batch.exchanged is not None])
        lanes.write(self._connection)
        self._change_totals(
            queued=lanes.rows,
            waiting=lanes.waiting,
            paused=lanes.stopped[Standing.PAUSED],
            retired=lanes.stopped[Standing.RETIRED],
            queues=queues,
            **{kind.value: outcomes[kind.value] for kind in ENDING},
        )

    def _write_rows(self, batches: Sequence[Batch]) -> tuple[Counter[str], LaneChanges]:
        """Write the rows; the result counts the ends by outcome, and has the lanes' changes.

        Raises: InvariantBroken if a row to take out is not there.
        """
        lanes = LaneChanges(self._known_lanes)
        emptied = write(self._connection, statements.DELETE_URL, sorted(self._emptied))
        if emptied != len(self._emptied):
            raise InvariantBroken(f"{len(self._emptied) - emptied} rows that end or move are not in the store")
        died = self._enter_new(batches)
        settled = _settled(batches)
        for row in died:
            if self._placed.pop(row.ordinal, None) is None and row.ordinal not in settled:
                raise InvariantBroken(f"row {row.ordinal} ends or moves, and its key was known before it came")
        write(self._connection, statements.INSERT_URL, sorted(self._placed.values()))
        dead = {row.ordinal for row in died}
        ended = [ended for batch in batches for ended in batch.ended]
        ended += [end for ordinal, end in settled.items() if ordinal not in dead]
        rows = sorted(map(_done_row, ended))
        write(self._connection, statements.INSERT_DONE, rows)
        laneless = dead | settled.keys()
        for batch in batches:
            lanes.add(batch, laneless)
        self._placed, self._emptied = {}, []
        self.duplicates.extend(died)
        return Counter([outcome for _, _, _, _, outcome, _ in rows]), lanes

    def _place(self, batch: Batch) -> None:
        """Note which rows of `url` leave and come."""
        placed = self._placed
        for row, _, _ in batch.ended:
            self._take_out(row)
        for old, moved in batch.moved:
            self._take_out(old)
            placed[moved.ordinal] = moved
        if batch.new:
            settled = batch.settled
            placed.update([(row.ordinal, row) for row in batch.new if row.ordinal not in settled])

    def _take_out(self, row: Row) -> None:
        placed = self._placed.pop(row.ordinal, None)
        if placed is None:
            self._emptied.append(row[:4])
        elif placed[:4] != row[:4]:
            raise InvariantBroken(f"row {row.ordinal} ends or moves at {row[:4]}, and is at {placed[:4]}")

    def _enter_new(self, batches: Sequence[Batch]) -> list[Row]:
        """Enter the new rows' fingerprints into `seen`; the result is the rows with known keys."""
        died: list[Row] = []
        if not any(batch.forced for batch in batches):
            plain = [row for batch in batches for row in batch.new]
            return self._enter(plain, is_forced=False) if plain else died
        new = ((row.ordinal in batch.forced, row) for batch in batches for row in batch.new)
        for is_forced, rows in groupby(new, key=lambda pair: pair[0]):
            died += self._enter([row for _, row in rows], is_forced=is_forced)
        return died

    def _enter(self, rows: Sequence[Row], *, is_forced: bool) -> list[Row]:
        # Of equal keys the first row wins if it is not forced, the last one if it is.
        fingerprints = seen_fingerprints([row.dedup_key() for row in rows])
        ordinals = [row.ordinal for row in rows]
        if is_forced:
            write(
                self._connection,
                statements.REPLACE_SEEN,
                sorted(dict(zip(fingerprints, ordinals, strict=True)).items()),
            )
            return []
        winners = dict(zip(reversed(fingerprints), reversed(ordinals), strict=True))
        found = sorted(winners)
        if write(self._connection, statements.ENTER_SEEN, [(one, winners[one]) for one in found]) == len(rows):
            return []
        known = seen_ordinals(self._connection, found)
        return [row for row, one in zip(rows, fingerprints, strict=True) if known[one] != row.ordinal]

    def _change_totals(self, **changes: int) -> None:
        totals = self._totals
        self._totals = totals._replace(**{name: getattr(totals, name) + by for name, by in changes.items()})

    def _set_standing(self, queue: int, standing: Standing) -> None:
        """Open, pause or retire a queue with all its lanes. An unknown queue is ignored."""
        found = fetch(self._connection, statements.STANDING, (queue,))
        if not found or found[0][0] == standing:
            return
        (((rows,),), old) = fetch(self._connection, statements.ROWS_OF_QUEUE, (queue,)), Standing(found[0][0])
        execute(self._connection, statements.SET_STANDING, (int(standing), queue))
        execute(self._connection, statements.SHELVE, (int(standing), int(standing), queue))
        self._known_lanes.forget()
        if standing is Standing.OPEN:
            execute(self._connection, statements.WAKE_GATES_OF_QUEUE, (queue,))
        for one, sign in ((old, -1), (standing, 1)):
            if one is not Standing.OPEN:
                self._change_totals(**{one.name.lower(): sign * int(rows)})


def check_epoch(connection: Connection, epoch: int) -> None:
    """Make sure that no other owner has opened the store, nor can before this transaction ends. Raises: StoreInUse.

    An owner that takes over waits for the commit, and so reads all that it keeps; after a take-over nothing is committed.
    """
    ((stored,),) = fetch_locked(connection, statements.FACT, ("epoch",), "SHARE")
    if int(stored) != epoch:
        raise StoreInUse(f"another owner has taken over (it is opening {stored}, this one was {epoch}); open it anew")


def _settled(batches: Sequence[Batch]) -> dict[int, Ended]:
    """New rows that go to `done` at once, by ordinal."""
    return {
        row.ordinal: Ended(row, *batch.settled[row.ordinal])
        for batch in batches
        if batch.settled
        for row in batch.new
        if row.ordinal in batch.settled
    }


def _done_row(ended: Ended) -> tuple[Any, ...]:
    row, status, outcome = ended
    return row.ordinal, row.url, row.key, status, _NAMES[outcome], row.attempts


class QueueChanges:
    """Collects names and facts by id, and writes each queue once, in about 3 µs."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[int, QueueKey, int]] = {}
        self._rows: dict[int, QueueRow] = {}

    def add(self, batch: Batch) -> None:
        """Take one batch, in order. Of several names for one id the first one counts."""
        for name in batch.queue_names:
            self._names.setdefault(name[0], name)
        for row in batch.queues:
            self._rows[row[0]] = row

    def write(self, connection: Connection) -> int:
        """Write all; the result counts the new queues. A queue that changed and was never named is made, open."""
        named = [(id_, key, int(Standing.OPEN), rank, 0, None, 0, 0) for id_, key, rank in self._names.values()]
        new = write(connection, statements.NAME_QUEUES, sorted(named))
        changed = sorted((row.id, *row[3:]) for row in self._rows.values())
        if write(connection, statements.PUT_QUEUES, changed) < len(changed):
            # Known ones stay as they were just written.
            unnamed = [(*row[:2], int(Standing.OPEN), *row[3:]) for row in self._rows.values()]
            new += write(connection, statements.NAME_QUEUES, sorted(unnamed))
        return new


class GateChanges:
    """Collects what changes by id, and writes each gate once, in about 4 µs."""

    def __init__(self) -> None:
        self._names: dict[int, GateKey] = {}
        self._rows: dict[int, GateRow] = {}
        self._left: dict[int, LeftGate] = {}
        self._woken: dict[int, Turn] = {}

    def add(self, batch: Batch) -> None:
        """Take one batch, in order."""
        for gate, key in batch.gate_names:
            self._names.setdefault(gate, key)
        for row in batch.gates:
            self._rows[row[0]] = row
        for left in batch.left:
            self._left[left.id] = left
            self._woken.pop(left.id, None)
        for gate, turn in batch.woken:
            known = self._left.get(gate)
            if known is None:
                self._woken[gate] = min(turn, self._woken.get(gate, turn))
            elif known.turn is None or turn < known.turn:
                self._left[gate] = known._replace(turn=turn)

    def write(self, connection: Connection) -> None:
        """Write all."""
        new = [gate_values(gate, key) for gate, key in self._names.items() if gate not in self._rows]
        write(connection, statements.NAME_GATES, sorted(new))
        write(connection, statements.PUT_GATES, [(*row, *NO_WINDOW) for _, row in sorted(self._rows.items())])
        write(connection, statements.LEAVE_GATES, [left for _, left in sorted(self._left.items())])
        write(connection, statements.WAKE_GATES, sorted(self._woken.items()))


#: A parcel that has reached this size is joined with no other.
FULL_BYTES = 1 << 17


def _write_exchanged(connection: Connection, exchanged: Sequence[Exchanged]) -> None:
    """Write parcels and pages, and delete delivered parcels. Cost: a row for some hundred pages, about 10 µs."""
    write(connection, statements.INSERT_PARCEL, list(joined([parcel for one in exchanged for parcel in one.parcels])))
    write(connection, statements.INSERT_PAGE, [page for one in exchanged for page in one.pages])
    delivered: dict[int, int] = {}
    for share, number in [pair for one in exchanged for pair in one.delivered]:
        delivered[share] = max(number, delivered.get(share, 0))
    for share, number in delivered.items():
        execute(connection, statements.DELETE_PARCELS, (share, number))


def joined(parcels: Sequence[Parcel]) -> Iterator[Parcel]:
    """The same in fewer parcels: neighbours of one share are joined, up to `FULL_BYTES`, under the last one's number."""
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
