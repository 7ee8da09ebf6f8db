"""Rows and batches for the tests of the stores: short to write, complete for a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from anabranch.frontier.records import (
    NORMAL,
    WAITING,
    GateKey,
    OutcomeKind,
    QueueKey,
    Row,
    Turn,
    name_id,
    precedence_of,
    turn_of,
)
from anabranch.frontier.stores.contract import (
    Announced,
    Answer,
    Batch,
    Ended,
    FrontierStore,
    GateRead,
    GateRow,
    GatesRead,
    HeadsRead,
    LaneId,
    LaneRow,
    LanesRead,
    Opening,
    QueueRow,
    RetriesRead,
    Standing,
    Synced,
)
from anabranch.frontier.stores.memory.store import MemoryStore
from anabranch.frontier.stores.sql.store import SqlStore
from tests.postgres_server import server

T = TypeVar("T")
AnswerT = TypeVar("AnswerT", bound=Answer)

#: Every store there is. Without a PostgreSQL server its tests are skipped, and fail in CI.
KINDS = ("memory", "sqlite", "postgres")

NOW_S = 1_000_000.0
IDENTITY = {"policy": "bkdr:997", "politeness": "host"}
A_LANE: LaneId = (name_id("queue 1"), name_id("a.test"))
OTHER_LANE: LaneId = (name_id("queue 2"), name_id("b.test"))


def lane(queue: str, gate: str) -> LaneId:
    """The lane of a queue at a gate, by name."""
    return name_id(queue), name_id(gate)


def row(ordinal: int, url: str | None = None, lane: LaneId = A_LANE, precedence: int = NORMAL, **more: object) -> Row:
    """A queued row; the URL is made of the ordinal unless it is given."""
    columns = {
        "queue": lane[0],
        "gate": lane[1],
        "precedence": precedence,
        "ordinal": ordinal,
        "url": url or f"http://a.test/{ordinal}",
        "key": None,
        "hops": "",
        "via": 0,
        "attempts": 0,
        "due_s": None,
        "payload": None,
    }
    return Row(**(columns | more))  # type: ignore[arg-type]


def waiting(old: Row, due_s: float) -> Row:
    """The row after a failed try."""
    return old._replace(precedence=old.precedence % WAITING + WAITING, attempts=old.attempts + 1, due_s=due_s)


def served_again(old: Row) -> Row:
    """The row when its retry has come due."""
    return old._replace(precedence=old.precedence % WAITING, due_s=None)


def done(row: Row, status: int = 200) -> Ended:
    """The end of a row that was fetched."""
    return Ended(row, status, OutcomeKind.DONE)


def queue_key(queue: int) -> QueueKey:
    """The name under which the teller announces a queue."""
    return QueueKey(f"queue of {queue}")


def gate_key(gate: int) -> GateKey:
    """The name under which the teller announces a gate."""
    return GateKey(f"gate of {gate}")


def gate_row(gate: int, **more: object) -> GateRow:
    """Make the row of a gate without history, except for `more`."""
    row = GateRow(gate, gate_key(gate), 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, None)
    return row._replace(**more)  # type: ignore[arg-type]


def queue_row(queue: int, **more: object) -> QueueRow:
    """Make the row of a queue without history, except for `more`."""
    row = QueueRow(queue, queue_key(queue), Standing.OPEN, 3, 0, None, 0, 0)
    return row._replace(**more)  # type: ignore[arg-type]


def answers_of(kind: type[AnswerT], answers: Iterable[Answer]) -> list[AnswerT]:
    """The answers of one kind, in their order."""
    return [answer for answer in answers if isinstance(answer, kind)]


def synced(answers: Iterable[Answer]) -> list[Synced]:
    """Return the answers that report durable batches."""
    return answers_of(Synced, answers)


def duplicates(answers: Iterable[Answer]) -> list[int]:
    """Ordinals of the rows that died, in order."""
    return sorted(row.ordinal for answer in synced(answers) for row in answer.duplicates)


def ordinals(read: HeadsRead) -> list[int]:
    """The rows of a read, by number."""
    return [head.row.ordinal for head in read.heads]


@dataclass
class Teller:
    """Says batches to a store and asks it: numbers what it says, announces each lane once, names queues and gates by id.

    A lane's turn is the ordinal of the row it is announced for, unless `say` is told another.
    """

    store: FrontierStore
    number: int = 0
    last_number: int = 0
    announced: set[LaneId] = field(default_factory=set)
    now_s: float = NOW_S

    def say(
        self,
        new: Sequence[Row] = (),
        *,
        turns: dict[LaneId, Turn] | None = None,
        forced: Iterable[int] = (),
        settled: Mapping[int, tuple[int, OutcomeKind]] = MappingProxyType({}),
        retried: Mapping[int, int] = MappingProxyType({}),
        **lists: Iterable[object],
    ) -> Batch:
        """Write one batch: new rows, and the batch's other lists by their names.

        `turns`: announce these lanes with these turns, whether they are known or not.
        """
        self.number += 1
        batch = Batch(self.number, self.now_s)
        batch.new, batch.forced, batch.settled = list(new), {*forced, *retried}, dict(settled)
        batch.retried = dict(retried)
        said = turns or {}
        needed = {(row.queue, row.gate) for row in new if row.ordinal not in settled}
        unknown = sorted(needed - self.announced - said.keys())
        self.announced |= {*unknown, *said}
        said = said | {lane: _first_turn(new, lane) for lane in unknown}
        batch.announced = [Announced(*lane, turn) for lane, turn in said.items()]
        batch.queue_names = [(lane[0], queue_key(lane[0]), 3) for lane in said]
        batch.gate_names = [(lane[1], gate_key(lane[1])) for lane in said]
        for name, values in lists.items():
            getattr(batch, name).extend(values)
        arrivals = [turn - turn_of(precedence_of(turn), 0) for turn in said.values()]
        self.last_number = max([self.last_number, *arrivals, *(row.ordinal for row in new)])
        batch.last_number = self.last_number
        self.store.write(batch)
        return batch

    def change_turns(self, turns: dict[LaneId, Turn]) -> None:
        """Write a batch that says only these."""
        self.number += 1
        batch = Batch(self.number, self.now_s)
        batch.turns = list(turns.items())
        batch.last_number = self.last_number
        self.store.write(batch)

    def answers(self) -> list[Answer]:
        """All answers, once everything is durable."""
        self.store.flush()
        return self.store.take_answers()

    def answer(self, kind: type[AnswerT]) -> AnswerT:
        """The only answer of this kind since the last call."""
        (answer,) = answers_of(kind, self.answers())
        return answer

    def heads(self, lane: LaneId = A_LANE, limit: int = 16) -> list[int]:
        """Ordinals of a lane's first rows."""
        self.store.ask_heads(lane, limit, with_queue=False)
        answer = self.answer(HeadsRead)
        assert answer.lane == lane
        return ordinals(answer)

    def line(self, gate: int, after: Turn | None = None, limit: int = 16) -> list[LaneRow]:
        """The servable lanes of a gate."""
        self.store.ask_lanes(gate, after, limit)
        answer = self.answer(LanesRead)
        assert answer.gate == gate
        return answer.lanes

    def take_gate(self, gate: int, lanes: int = 16) -> GateRead:
        """Hold one gate."""
        self.store.ask_gate(gate, gate_key(gate), lanes)
        answer = self.answer(GatesRead)
        assert (answer.asked, answer.wakes_s) == (gate, None)
        (gate,) = answer.gates
        return gate

    def take_gates(self, now_s: float = NOW_S, limit: int = 16, lanes: int = 16) -> GatesRead:
        """Hold gates that are servable."""
        self.store.ask_gates(now_s, limit, lanes)
        answer = self.answer(GatesRead)
        assert answer.asked is None
        return answer

    def retries(self, after: tuple[float, int] | None = None, limit: int = 16) -> list[Row]:
        """Rows that wait."""
        self.store.ask_retries(after, limit)
        return self.answer(RetriesRead).rows

    def holds(self, now_s: float = NOW_S, limit: int = 16) -> list[int]:
        """Hold gates that are servable; which they were."""
        return [gate.row.id for gate in self.take_gates(now_s, limit).gates]


def _first_turn(rows: Iterable[Row], lane: LaneId) -> Turn:
    return turn_of(3, min(row.ordinal for row in rows if row[:2] == lane))


def facts(store: FrontierStore, page: int = 3) -> dict[str, object]:
    """All that a store tells of its rows, page by page."""
    queues = list(pages(lambda after: store.queues(None, after, page), lambda fact: fact.row.id))
    rows = list(pages(lambda after: store.queued(after, page), lambda head: head.row[:4]))
    ended = list(pages(lambda after: store.ended_after(after or 0, page), lambda record: record.ordinal))
    failed = list(pages(lambda after: store.retry_reads.failed_after(after or 0, page), lambda record: record.ordinal))
    keys = sorted(key for chunk in store.keys(page) for key in chunk)
    return {
        "queues": queues,
        "rows": rows,
        "ended": ended,
        "failed": failed,
        "failures": dict(store.retry_reads.by_status()),
        "blocked": store.retry_reads.blocked(NOW_S),
        "keys": keys,
        "lanes": [list(pages(partial(_lanes, store, fact.row.id, page), lambda lane: lane.gate)) for fact in queues],
        "records": [store.look_up(key) for key in keys],
        "ended records": store.ended(keys),
        "counters": store.counters(),
        "tally": {state: count for state, count in store.tally().items() if count},
        "longest": [fact.count for fact in store.queues(None, None, page, longest_first=True)],
    }


def pages(read: Callable[[Any], list[T]], place: Callable[[T], object]) -> Iterator[T]:
    """All that can be listed, a page at a time."""
    after = None
    while page := read(after):
        yield from page
        after = place(page[-1])


def _lanes(store: FrontierStore, queue: int, limit: int, after: int | None) -> list[LaneRow]:
    return store.lanes(queue, after, limit)


@contextmanager
def store_maker(kind: str, folder: Path) -> Iterator[Callable[[], FrontierStore]]:
    """Makes stores that all lie at one place, each to be opened when the one before is closed."""
    if kind == "memory":
        memory = MemoryStore()
        yield lambda: memory
    elif kind == "sqlite":
        yield lambda: SqlStore(folder / "frontier.db")
    else:
        with server() as url:
            yield lambda: SqlStore(url)


@dataclass
class Home:
    """A place where a store lies, with a teller that goes on when the store is opened again."""

    make: Callable[[], FrontierStore]
    teller: Teller = field(init=False)

    def __post_init__(self) -> None:
        self.teller = Teller(self.make())

    def open(self, now_s: float = NOW_S) -> Opening:
        """Open the store."""
        return self.teller.store.open(IDENTITY, now_s, lambda: None)

    def reopen(self, *, clean: bool = True, now_s: float = NOW_S) -> Opening:
        """Close the store and open it again."""
        self.teller.store.flush()
        self.teller.store.close(clean=clean)
        self.teller.store = self.make()
        return self.open(now_s)


@contextmanager
def home(kind: str, folder: Path) -> Iterator[Home]:
    """A store that is not open yet, and is closed at the end."""
    with store_maker(kind, folder) as make:
        made = Home(make)
        yield made
        made.teller.store.close(clean=False)
