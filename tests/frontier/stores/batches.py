"""Whole batches for the tests of the store thread: names and lanes are said each time, as a store must bear."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anabranch.frontier.records import NORMAL, GateKey, OutcomeKind, QueueKey, Row, name_id, turn_of
from anabranch.frontier.stores.contract import Announced, Answer, Batch, Ended, StoreFailed, Synced
from anabranch.frontier.stores.sql.store import SqlStore

IDENTITY = {"policy": "bkdr:997", "politeness": "host"}
NOW_S = 1_000_000.0
QUEUE, GATE = QueueKey("queue"), GateKey("a.test")
LANE = (name_id(QUEUE), name_id(GATE))


def row(ordinal: int, url: str | None = None) -> Row:
    """A queued row of the one lane; the URL is made of the ordinal unless it is given."""
    return Row(*LANE, NORMAL, ordinal, url or f"http://a.test/{ordinal}", None, "", 0, 0, None, None)


def batch(number: int, new: Iterable[int | Row] = (), ended: Iterable[int] = ()) -> Batch:
    """A batch of these rows, given whole or by their ordinals."""
    made = Batch(number, NOW_S)
    made.new = [row(given) if isinstance(given, int) else given for given in new]
    made.ended = [Ended(row(ordinal), 200, OutcomeKind.DONE) for ordinal in ended]
    made.last_number = max((row.ordinal for row in made.new), default=0)
    if made.new:
        made.queue_names = [(LANE[0], QUEUE, 3)]
        made.gate_names = [(LANE[1], GATE)]
        made.announced = [Announced(*LANE, turn_of(3, made.new[0].ordinal))]
    return made


def opened(store: SqlStore, on_change: Callable[[], None] = lambda: None) -> SqlStore:
    """Open the store and return it."""
    store.open(IDENTITY, NOW_S, on_change)
    return store


def synced(answers: Iterable[Answer]) -> list[int]:
    """Numbers of what became durable."""
    return [answer.number for answer in answers if isinstance(answer, Synced)]


def failures(answers: Iterable[Answer]) -> list[StoreFailed]:
    """Whether the store failed."""
    return [answer for answer in answers if isinstance(answer, StoreFailed)]
