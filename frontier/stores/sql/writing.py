"""From batches to statements: the sum of one transaction's batches, and the right to write it.

Rows are collected and written once, at the end or before queues are opened or paused. A row that is added and taken out in
between never touches the disk. Names, counts and times are written with the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from anabranch.frontier.errors import InvariantBroken, StoreInUse, StoreSetBack
from anabranch.frontier.records import ENDING, WAITING, GateKey, OutcomeKind, QueueKey, Row, Turn, seen_fingerprints
from anabranch.frontier.stores.contract import (
    Answer,
    Batch,
    Counters,
    Ended,
    GateRow,
    LeftGate,
    LinkRow,
    Opening,
    Place,
    QueueRow,
    ShareOf,
    Standing,
    in_one_share,
)
from anabranch.frontier.stores.sql import schema, statements
from anabranch.frontier.stores.sql.execution import execute, fetch, write
from anabranch.frontier.stores.sql.lanes import KnownLanes, LaneChanges
from anabranch.frontier.stores.sql.reading import NO_WINDOW, Question, gate_values, seen_ordinals

_MARK = "transaction"  # name in `crawl`: the last one that wrote, "epoch.number"

#: `value` of an Enum is a Python call.
_NAMES = {kind: kind.value for kind in OutcomeKind}
_FAILED = OutcomeKind.FAILED


AnyRow = TypeVar("AnyRow", Row, LinkRow)


class Owner(Protocol):
    """The owner's side of a store. Its methods belong to the store thread; those with a connection run in its transaction."""

    lanes: KnownLanes  #: rows of `lane` as the owner wrote them

    @property
    def serving(self) -> Collection[int]:
        """The shares whose gates may be taken."""
        ...

    @property
    def idle_s(self) -> float | None:
        """How long the thread may sleep when nothing comes; None: for ever."""
        ...

    @property
    def ender(self) -> int:
        """The mark of the owner in rows of ended URLs: the epoch of one of several workers, else 0."""
        ...

    @property
    def shares_epoch(self) -> int | None:
        """The epoch under which shares are held; None: all rows are the owner's."""
        ...

    def share_of(self, gate: GateKey, /) -> int:
        """The share of a gate."""
        ...

    def open(self, connection: Connection, place: str, identity: Mapping[str, str], now_s: float) -> Opening:
        """Make the tables if they are missing, and become an owner. Raises: FormatMismatch, StoreInUse."""
        ...

    def openings(self, connection: Connection) -> Mapping[str, int]:
        """The openings that this state of the store comes from, by name: the number of the last batch of each."""
        ...

    def check(self, connection: Connection) -> None:
        """The fence of a transaction that writes: until it ends nobody takes over. Raises: StoreInUse if somebody has."""

    def rejoin(self, connection: Connection, *, is_new: bool) -> None:
        """Go on after a failure, in a transaction of its own; `is_new`: with a new session. Raises: as `check`."""

    def put_totals(self, connection: Connection, totals: Counters, number: int | None, now_s: float) -> None:
        """Write the totals after a batch."""

    def shown(self, totals: Counters) -> Counters:
        """The totals as the core knows them."""
        ...

    def leave_mark(self, connection: Connection, mark: str) -> None:
        """Name the transaction in itself."""

    def is_marked(self, connection: Connection, mark: str) -> bool:
        """The last transaction that was kept has this name."""
        ...

    def note(self, connection: Connection, notes: Mapping[str, str]) -> None:
        """Keep these facts by name."""

    def committed(self, adopted: Sequence[int]) -> None:
        """A transaction was kept that began with `check`; it adopted these links."""

    def tasks(self, post: Callable[[list[Answer]], None]) -> list[Question]:
        """The questions of the owner's own that are due."""
        ...

    def close(self, connection: Connection, *, clean: bool) -> None:
        """Note how the owner has ended."""


class SoleOwner:
    """Owns the tables whole, since its opening. An epoch, the number of openings, tells it from those before and after it."""

    serving: Collection[int] = (0,)
    idle_s = None
    shares_epoch = None
    ender = 0
    share_of = staticmethod(in_one_share)

    def __init__(self, epoch: int = 0) -> None:
        """`epoch`: of an opening that has taken place."""
        self._epoch = epoch
        #: The marks that the store may have: one commit may have failed. The last one is of the transaction under way.
        self._may_be_kept: list[str] = [""]
        self.lanes = KnownLanes()

    def open(self, connection: Connection, place: str, identity: Mapping[str, str], now_s: float) -> Opening:
        """Open the tables with `schema.open_tables`."""
        opening = schema.open_tables(connection, place, identity, now_s)
        self._epoch = opening.epoch
        with connection.begin():
            self._may_be_kept = [self._last_mark(connection)]
        return opening

    def openings(self, connection: Connection) -> Mapping[str, int]:
        """Return `schema.openings`."""
        return schema.openings(connection)

    def check(self, connection: Connection) -> None:
        """Make sure that no other owner has opened the store, nor can before this transaction ends. Raises: StoreInUse.

        An owner that takes over waits for the commit, and so reads all that it keeps; after a take-over nothing is committed.
        """
        ((stored,),) = fetch(connection, statements.FACT_FOR_SHARE, ("epoch",))
        if int(stored) < self._epoch:
            raise StoreSetBack(f"the database is at opening {stored}, and this one is {self._epoch}: it was set back")
        if int(stored) != self._epoch:
            raise StoreInUse(
                f"another owner has taken over (it is opening {stored}, this one was {self._epoch}); open it anew"
            )

    def rejoin(self, connection: Connection, *, is_new: bool) -> None:
        """Nobody else was here meanwhile, and nothing that was kept is gone. Raises: as `check`; StoreSetBack."""
        if not is_new:
            return
        self.check(connection)
        if self._last_mark(connection) not in self._may_be_kept:
            raise StoreSetBack("the database lacks transactions that it had acknowledged: it was set back")

    def put_totals(self, connection: Connection, totals: Counters, number: int | None, now_s: float) -> None:
        """Among the facts of the crawl."""
        facts = {**totals._asdict(), "batch": number}
        rows = [(name, str(value)) for name, value in facts.items()]
        write(connection, statements.PUT_FACTS, [*rows, ("now_s", repr(now_s))])

    def shown(self, totals: Counters) -> Counters:
        """Return the totals unchanged."""
        return totals

    def leave_mark(self, connection: Connection, mark: str) -> None:
        """Among the facts of the crawl. The epoch is part of the mark: numbers begin anew with each owner."""
        write(connection, statements.PUT_FACTS, [(_MARK, f"{self._epoch}.{mark}")])
        self._may_be_kept.append(f"{self._epoch}.{mark}")

    def is_marked(self, connection: Connection, mark: str) -> bool:
        """It is the last one."""
        return self._last_mark(connection) == f"{self._epoch}.{mark}"

    def _last_mark(self, connection: Connection) -> str:
        found = fetch(connection, statements.FACT, (_MARK,))
        return str(found[0][0]) if found else ""

    def note(self, connection: Connection, notes: Mapping[str, str]) -> None:
        """Among the facts of the crawl."""
        schema.put_notes(connection, notes)

    def committed(self, adopted: Sequence[int]) -> None:  # noqa: ARG002
        """It is the owner until its session ends, so there is no lease; the mark of the last transaction is kept."""
        self._may_be_kept = self._may_be_kept[-1:]

    def tasks(self, post: Callable[[list[Answer]], None]) -> list[Question]:  # noqa: ARG002
        """None."""
        return []

    def close(self, connection: Connection, *, clean: bool) -> None:
        """Among the facts of the crawl."""
        schema.mark(connection, clean)


class TransactionWriter:
    """Writes the batches of one transaction, in their order. O(1) a row, see `statements` for what each costs."""

    def __init__(self, connection: Connection, totals: Counters, owner: Owner) -> None:
        """`totals` are those of the last transaction that was committed."""
        self._connection = connection
        self._owner = owner
        #: Rows of `url` since the last flush, by ordinal, and the places that are to be emptied before they are filled.
        self._placed: dict[int, Row] = {}
        self._emptied: list[Place] = []
        self._batches: list[Batch] = []
        self._known_lanes = owner.lanes
        self._queues = QueueChanges()
        self._gates = GateChanges(owner.share_of)
        self._now_s = 0.0
        self._is_flushed = True
        self._totals = totals
        #: Right after a flush of all.
        self.totals = totals
        self.number: int | None = None  #: of the last batch
        self.duplicates: list[Row] = []  #: new rows that died
        self.adopted: list[int] = []  #: links that became rows
        self._gone: set[int] = set()  #: failures of the batches under way whose URLs are queued again by now

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
        """Write all that was added. Raises: InvariantBroken; StoreInUse if another owner has taken over."""
        if self._is_flushed:
            return
        self._owner.check(self._connection)
        self._flush_all()
        self.totals = self._totals
        self._owner.put_totals(self._connection, self.totals, self.number, self._now_s)
        self._is_flushed = True

    def _flush_all(self) -> None:
        batches, self._batches = self._batches, []
        outcomes, lanes = self._write_rows(batches)
        queues = self._queues.write(self._connection)
        self._gates.write(self._connection)
        self._queues, self._gates = QueueChanges(), GateChanges(self._owner.share_of)
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
        outcomes = self._write_ended(batches, [end for ordinal, end in settled.items() if ordinal not in dead])
        laneless = dead | settled.keys()
        for batch in batches:
            lanes.add(batch, laneless)
        self._placed, self._emptied = {}, []
        self.duplicates.extend(died)
        return outcomes, lanes

    def _write_ended(self, batches: Sequence[Batch], settled: Sequence[Ended]) -> Counter[str]:
        """Write rows that have ended, without failures whose URLs are queued again by now; count them by outcome."""
        gone = self._gone
        ended = [ended for batch in batches for ended in batch.ended]
        ended += settled
        rows = sorted(map(partial(_done_row, self._owner.ender), ended))
        failures = [row for batch in batches for row in _failure_rows(batch.ended, batch.now_s)]
        failures += _failure_rows(settled, None)
        if gone:
            rows, failures = ([row for row in listed if row[0] not in gone] for listed in (rows, failures))
        write(self._connection, statements.INSERT_DONE, rows)
        write(self._connection, statements.INSERT_FAILURE, sorted(failures))
        return Counter([_NAMES[one.outcome] for one in ended if one.row.ordinal not in gone])

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
        """Enter the new rows' fingerprints into `seen`, those of adopted links too; the result is the rows with known keys.

        So only the holder of a share enters the keys of its hosts, and no worker waits for another. Forced links are the
        exception: their sender enters them, because an operator's command counts what becomes of them.
        """
        new, forced = list(chain.from_iterable(batch.new for batch in batches)), _forced(batches)
        exchanges = [batch.exchange for batch in batches if batch.exchange is not None]
        links = [link for exchange in exchanges for link in exchange.outbound]
        died = self._enter_in_order([*new, *_of(forced, links)] if forced else new, forced, batches)
        if links:
            sent = self._unknown([link for link in links if link.ordinal not in forced])
            write(self._connection, statements.INSERT_LINK, sorted([*sent, *_of(forced - died, links)]))
        self._take_away([link for exchange in exchanges for link in exchange.adopted])
        return _of(died, new)

    def _unknown(self, links: Sequence[LinkRow]) -> list[LinkRow]:
        """The links whose keys are not in `seen`. Those that others are entering may be among them: nothing is waited for."""
        fingerprints = seen_fingerprints([link.dedup_key() for link in links])
        known = seen_ordinals(self._connection, sorted(set(fingerprints)))
        return [link for link, one in zip(links, fingerprints, strict=True) if one not in known]

    def _take_away(self, adopted: Sequence[LinkRow]) -> None:
        """Delete links that were adopted, also those whose keys were known."""
        write(self._connection, statements.DELETE_LINKS, sorted(link[:2] for link in adopted))
        self.adopted += [link.ordinal for link in adopted]

    def _enter_in_order(
        self, rows: Sequence[Row | LinkRow], forced: Collection[int], batches: Sequence[Batch]
    ) -> set[int]:
        self._gone.clear()
        if not forced:
            return self._enter(rows) if rows else set()
        died: set[int] = set()
        for is_forced, group in groupby(rows, key=lambda row: row.ordinal in forced):
            entered = [*group]
            died |= self._enter_again(entered, batches) if is_forced else self._enter(entered)
        return died

    def _enter_again(self, rows: Sequence[Row | LinkRow], batches: Sequence[Batch]) -> set[int]:
        """Enter the fingerprints of forced rows, of equal keys the last one's. The result is the numbers of those that die.

        The last row of each key ends as a failure no more, if it was one: its URL is queued again.
        """
        fingerprints = seen_fingerprints([row.dedup_key() for row in rows])
        owners = seen_ordinals(self._connection, sorted(set(fingerprints)))
        retried = {new: failed for batch in batches for new, failed in batch.retried.items()}
        died: set[int] = set()
        replaced: list[tuple[int, int]] = []  # (row that had the key, row that has it now)
        entered: dict[int, int] = {}
        for row, fingerprint in zip(rows, fingerprints, strict=True):
            ordinal, owner = row.ordinal, owners.get(fingerprint)
            if retried.get(ordinal, owner) != owner:
                died.add(ordinal)
                continue
            owners[fingerprint] = entered[fingerprint] = ordinal
            if owner is not None:
                replaced.append((owner, ordinal))
        self._take_failures(replaced, batches)
        write(self._connection, statements.REPLACE_SEEN, sorted(entered.items()))
        return died

    def _take_failures(self, replaced: Sequence[tuple[int, int]], batches: Sequence[Batch]) -> None:
        """Remove the replaced rows that have failed, also in an earlier batch of this transaction, and count them."""
        begun = {row.ordinal: number for number, batch in enumerate(batches) for row in _coming(batch)}
        failing = {ordinal: number for number, batch in enumerate(batches) for ordinal in _failing(batch)}
        here = {old for old, new in replaced if failing.get(old, len(batches)) <= begun[new]}
        rows = sorted((old,) for old, _ in replaced if old not in here)
        taken = write(self._connection, statements.DELETE_FAILED, rows)
        if taken:
            write(self._connection, statements.DELETE_FAILURES, rows)
        self._gone |= here
        self._change_totals(failed=-taken, retried=taken + len(here))

    def _enter(self, rows: Sequence[Row | LinkRow]) -> set[int]:
        """Enter their fingerprints, of equal keys the first one's; the result is the numbers of those with known keys.

        A key that stands there for the row itself is not known: its sender has entered it.
        """
        fingerprints = seen_fingerprints([row.dedup_key() for row in rows])
        ordinals = [row.ordinal for row in rows]
        winners = dict(zip(reversed(fingerprints), reversed(ordinals), strict=True))
        found = sorted(winners)
        if write(self._connection, statements.ENTER_SEEN, [(one, winners[one]) for one in found]) == len(rows):
            return set()
        known = seen_ordinals(self._connection, found)
        return {ordinal for ordinal, one in zip(ordinals, fingerprints, strict=True) if known[one] != ordinal}

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


def _failing(batch: Batch) -> Iterator[int]:
    """The ordinals of its rows that fail."""
    yield from (row.ordinal for row, _, kind in batch.ended if kind is _FAILED)
    yield from (ordinal for ordinal, (_, kind) in batch.settled.items() if kind is _FAILED)


def _coming(batch: Batch) -> Iterator[Row | LinkRow]:
    """Its new rows, and those for other workers."""
    yield from batch.new
    if batch.exchange is not None:
        yield from batch.exchange.outbound


def _forced(batches: Sequence[Batch]) -> set[int]:
    """Ordinals of rows and links that are entered though seen."""
    return {ordinal for batch in batches if batch.forced for ordinal in batch.forced}


def _of(ordinals: Collection[int], rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Those of the rows that have these ordinals."""
    return [row for row in rows if row.ordinal in ordinals] if ordinals else []


def _settled(batches: Sequence[Batch]) -> dict[int, Ended]:
    """New rows that go to `done` at once, by ordinal."""
    return {
        row.ordinal: Ended(row, *batch.settled[row.ordinal])
        for batch in batches
        if batch.settled
        for row in batch.new
        if row.ordinal in batch.settled
    }


def _done_row(worker: int, ended: Ended) -> tuple[Any, ...]:
    row, status, outcome = ended
    return row.ordinal, row.url, row.key, status, _NAMES[outcome], row.attempts, worker


def _failure_rows(ended: Sequence[Ended], ended_s: float | None) -> list[tuple[Any, ...]]:
    """The rows of `failure` for what failed at `ended_s`; None: at each row's `due_s`, and a row without one is left out."""
    return [
        (row.ordinal, row.hops, row.via, row.precedence % WAITING, at_s, row.payload)
        for row, _, kind in ended
        if kind is _FAILED and (at_s := row.due_s if ended_s is None else ended_s) is not None
    ]


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

    def __init__(self, share_of: ShareOf) -> None:
        self._share_of = share_of
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
        share_of = self._share_of
        new = [gate_values(gate, key, share_of(key)) for gate, key in self._names.items() if gate not in self._rows]
        write(connection, statements.NAME_GATES, sorted(new))
        write(
            connection,
            statements.PUT_GATES,
            [(*row, *NO_WINDOW, share_of(row.key)) for _, row in sorted(self._rows.items())],
        )
        write(connection, statements.LEAVE_GATES, [left for _, left in sorted(self._left.items())])
        write(connection, statements.WAKE_GATES, sorted(self._woken.items()))
