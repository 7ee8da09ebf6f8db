"""From batches to statements: what the batches of one transaction add up to.

Rows are collected and written as late as the order allows: before a read, and at the end. What is added and taken out in
between never touches the disk. Names, counts and times are written once, at the end or before a read that needs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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
from anabranch.frontier.stores.sql.lanes import KnownLanes, LaneChanges
from anabranch.frontier.stores.sql.reading import NO_WINDOW, gate_values, seen_ordinals
from anabranch.frontier.stores.sql.statements import Values, execute, fetch, fetch_locked, write

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
        #: What is written after the rows.
        self._known_lanes = KnownLanes() if lanes is None else lanes
        self._lanes = LaneChanges(self._known_lanes)
        self._queues = QueueChanges()
        self._gates = GateChanges()
        self._parcels = ParcelChanges()
        self._outcomes: Counter[str] = Counter()
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
        if batch.exchanged is not None:
            self._parcels.add(batch.exchanged)
        if batch.standings:
            self._flush_facts()
            for queue, standing in batch.standings:
                self._stand(queue, standing)

    def flush_rows(self) -> None:
        """Write the rows, so that a read sees them. Raises: InvariantBroken if a row to take out is not there."""
        batches, self._batches = self._batches, []
        if not batches:
            return
        emptied = write(self._connection, statements.DELETE_URL, sorted(self._emptied))
        if emptied != len(self._emptied):
            raise InvariantBroken(f"{len(self._emptied) - emptied} rows that end or move are not in the store")
        died = self._enter_new(batches)
        settled = _settled(batches)
        self._bury(died, settled)
        write(self._connection, statements.INSERT_URL, sorted(self._placed.values()))
        dead = {row.ordinal for row in died}
        self._write_ended(
            [ended for batch in batches for ended in batch.ended]
            + [ended for ordinal, ended in settled.items() if ordinal not in dead]
        )
        laneless = dead | settled.keys()
        for batch in batches:
            self._lanes.add(batch, laneless)
        self._placed, self._emptied = {}, []
        self.duplicates.extend(died)

    def flush(self) -> None:
        """Write all that was added. Raises: InvariantBroken; StoreInUse if the epoch is not ours any more."""
        if self._is_flushed:
            return
        check_epoch(self._connection, self._epoch)
        self._flush_facts()
        self.totals = self._totals
        facts = {**self.totals._asdict(), "batch": self.number}
        rows = [(name, str(value)) for name, value in facts.items()]
        write(self._connection, statements.PUT_FACTS, [*rows, ("now_s", repr(self._now_s))])
        self._is_flushed = True

    def _flush_facts(self) -> None:
        self.flush_rows()
        queues = self._queues.write(self._connection)
        self._gates.write(self._connection)
        self._parcels.write(self._connection)
        counted = self._lanes.write(self._connection)
        outcomes, self._outcomes = self._outcomes, Counter()
        self._change_totals(
            queued=counted.rows,
            waiting=counted.waiting,
            paused=counted.stopped[Standing.PAUSED],
            retired=counted.stopped[Standing.RETIRED],
            queues=queues,
            **{kind.value: outcomes[kind.value] for kind in ENDING},
        )

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
            placed.update((row.ordinal, row) for row in batch.new if row.ordinal not in settled)

    def _take_out(self, row: Row) -> None:
        placed = self._placed.pop(row.ordinal, None)
        if placed is None:
            self._emptied.append(row[:4])
        elif placed[:4] != row[:4]:
            raise InvariantBroken(f"row {row.ordinal} ends or moves at {row[:4]}, and is at {placed[:4]}")

    def _write_ended(self, ended: Sequence[Ended]) -> None:
        rows = sorted(map(_done_row, ended))
        write(self._connection, statements.INSERT_DONE, rows)
        self._outcomes.update([outcome for _, _, _, _, outcome, _ in rows])

    # New rows

    def _bury(self, died: Sequence[Row], settled: Collection[int]) -> None:
        for row in died:
            if self._placed.pop(row.ordinal, None) is None and row.ordinal not in settled:
                raise InvariantBroken(f"row {row.ordinal} ends or moves, and its key was known before it came")

    def _enter_new(self, batches: Sequence[Batch]) -> list[Row]:
        """Enter the new rows' fingerprints into `seen`; answers the rows whose key was known."""
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
        pairs = list(zip(fingerprints, [row.ordinal for row in rows], strict=True))
        if is_forced:
            write(self._connection, statements.REPLACE_SEEN, sorted(dict(pairs).items()))
            return []
        winners = sorted(dict(reversed(pairs)).items())
        if write(self._connection, statements.ENTER_SEEN, winners) == len(pairs):
            return []
        known = seen_ordinals(self._connection, [fingerprint for fingerprint, _ in winners])
        died = {ordinal for fingerprint, ordinal in pairs if known[fingerprint] != ordinal}
        return [row for row in rows if row.ordinal in died]

    # Totals

    def _change_totals(self, **changes: int) -> None:
        totals = self._totals
        self._totals = totals._replace(**{name: getattr(totals, name) + by for name, by in changes.items()})

    def _stand(self, queue: int, standing: Standing) -> None:
        """Let a queue and all its lanes stand otherwise. A queue that is unknown is ignored."""
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
    """Make sure that the store was not opened again, and is not before this transaction has ended. Raises: StoreInUse.

    Whoever takes over waits for the commit, and so reads all that it keeps; after a take-over nothing is committed.
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
        """Take one batch, after all that came before it. Of several names for one id the first one counts."""
        for name in batch.queue_names:
            self._names.setdefault(name[0], name)
        for row in batch.queues:
            self._rows[row[0]] = row

    def write(self, connection: Connection) -> int:
        """Write all; answers how many queues are new. A queue that changed and was never named is made, open."""
        names, self._names = self._names, {}
        rows, self._rows = self._rows, {}
        named = [(id_, key, int(Standing.OPEN), rank, 0, None, 0, 0) for id_, key, rank in names.values()]
        new = write(connection, statements.NAME_QUEUES, sorted(named))
        changed = sorted((row.id, *row[3:]) for row in rows.values())
        if write(connection, statements.PUT_QUEUES, changed) < len(rows):
            # Those that are known stay as they were just written.
            unnamed = [(*row[:2], int(Standing.OPEN), *row[3:]) for row in rows.values()]
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
        """Take one batch, after all that came before it."""
        for gate, key in batch.gate_names:
            self._names.setdefault(gate, key)
        for row in batch.gates:
            self._rows[row[0]] = row
        for left in batch.left:
            self._left[left.id] = left
            self._woken.pop(left.id, None)
        for gate, turn in batch.woken:
            self._wake(gate, turn)

    def write(self, connection: Connection) -> None:
        """Write all."""
        names, self._names = self._names, {}
        rows, self._rows = self._rows, {}
        left, self._left = self._left, {}
        woken, self._woken = self._woken, {}
        new = [gate_values(gate, key) for gate, key in names.items() if gate not in rows]
        write(connection, statements.NAME_GATES, sorted(new))
        write(connection, statements.PUT_GATES, sorted([(*row, *NO_WINDOW) for row in rows.values()], key=_id))
        write(connection, statements.LEAVE_GATES, sorted(left.values(), key=_id))
        write(connection, statements.WAKE_GATES, sorted(woken.items()))

    def _wake(self, gate: int, turn: Turn) -> None:
        left = self._left.get(gate)
        if left is None:
            self._woken[gate] = min(turn, self._woken.get(gate, turn))
        elif left.turn is None or turn < left.turn:
            self._left[gate] = left._replace(turn=turn)


def _id(values: Values) -> int:
    id_: int = values[0]
    return id_


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
