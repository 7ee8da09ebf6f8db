"""Rows and batches for the tests of the stores: short to write, complete for a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from frontier.fingerprints import name_id
from frontier.models import NORMAL, WAITING, GateKey, OutcomeKind, QueueKey, Row
from frontier.stores.base import (
    Answer,
    Batch,
    Ended,
    FrontierStore,
    GateRow,
    HeadsRead,
    LaneId,
    LaneRow,
    Moved,
    QueueRow,
    Synced,
)

IDENTITY = {"policy": "bkdr:997", "politeness": "host"}
A_LANE: LaneId = (name_id("queue 1"), name_id("a.test"))
OTHER_LANE: LaneId = (name_id("queue 2"), name_id("b.test"))


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


def lane_rows(*lanes: LaneId) -> list[LaneRow]:
    """Announcements of new lanes."""
    return [LaneRow(*lane, 3, arrival, 0) for arrival, lane in enumerate(lanes, start=1)]


def gate_row(name: str, until_s: float = 0.0) -> GateRow:
    return GateRow(name_id(name), GateKey(name), until_s, 0.0, 0.0, 3.0)


def queue_row(name: str) -> QueueRow:
    return QueueRow(name_id(name), QueueKey(name))


def read(answers: Iterable[Answer]) -> list[HeadsRead]:
    """The reads among the answers."""
    return [answer for answer in answers if isinstance(answer, HeadsRead)]


def synced(answers: Iterable[Answer]) -> list[Synced]:
    """What became durable."""
    return [answer for answer in answers if isinstance(answer, Synced)]


def duplicates(answers: Iterable[Answer]) -> list[int]:
    """Ordinals of the rows that died, in order."""
    return sorted(row.ordinal for answer in synced(answers) for row in answer.duplicates)


@dataclass
class Teller:
    """Numbers the batches that it writes, and announces each lane once."""

    store: FrontierStore
    number: int = 0
    announced: set[LaneId] = field(default_factory=set)

    def say(
        self,
        new: Sequence[Row] = (),
        *,
        forced: Iterable[int] = (),
        ended: Iterable[Ended] = (),
        moved: Iterable[Moved] = (),
        queues: Iterable[QueueRow] = (),
        gates: Iterable[GateRow] = (),
    ) -> None:
        """Write one batch."""
        self.number += 1
        lanes = {(row.queue, row.gate) for row in new} - self.announced
        self.announced |= lanes
        self.store.write(
            Batch(
                number=self.number,
                new=list(new),
                forced=set(forced),
                ended=list(ended),
                moved=list(moved),
                queues=list(queues),
                lanes=lane_rows(*sorted(lanes)),
                gates=list(gates),
            )
        )

    def answers(self) -> list[Answer]:
        """All answers, once everything is durable."""
        self.store.flush()
        return self.store.take_answers()

    def heads(self, lane: LaneId = A_LANE, limit: int = 16) -> list[int]:
        """Ordinals of a lane's first rows."""
        self.store.ask_heads(lane, limit)
        (answer,) = read(self.answers())
        assert answer.lane == lane
        return [head.row.ordinal for head in answer.heads]


def done(row: Row, status: int = 200) -> Ended:
    return Ended(row, status, OutcomeKind.DONE)
