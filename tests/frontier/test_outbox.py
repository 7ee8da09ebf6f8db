"""One batch and its questions, and the one sequence of numbers."""

from __future__ import annotations

import pytest

from anabranch.frontier.models import GateKey
from anabranch.frontier.outbox import Outbox
from anabranch.frontier.scheduling.gatelines import GateHeap, Line
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.workqueues import Lane, WorkQueue
from anabranch.frontier.turns import Turn
from tests.frontier.builder import START_S, CountingStore, build


def line() -> Line:
    return Line(Gate(2, GateKey("a.test"), Politeness()), GateHeap())


def test_numbers_rise_from_the_last_one() -> None:
    """Ordinals and turns come from one sequence, so that no two are equal."""
    outbox = Outbox(41)
    assert [outbox.number(), outbox.number()] == [42, 43]
    assert outbox.last_number == 43


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("heads", [Lane(WorkQueue(1, 1), line(), Turn(1), 1)]),
        ("lanes", [(line(), None)]),
        ("gates", [line()]),
        ("next_gates", 3),
        ("retries", None),
        ("retries", (1.0, 2)),
    ],
)
def test_every_question_counts_until_it_is_asked(name: str, question: object) -> None:
    """Waiting rows may be asked for from the very beginning, which is None; no question is False."""
    outbox = Outbox(0)
    assert not outbox.has_questions()
    setattr(outbox, name, question)
    assert outbox.has_questions()
    outbox.questions_asked()
    assert not outbox.has_questions()


def test_a_call_says_one_batch_and_a_call_that_changes_nothing_says_none() -> None:
    """Batches are numbered without gaps; each has the time and how far the sequence has come."""
    store = CountingStore()
    rig = build(store=store)
    rig.add("http://a.test/1", "http://b.test/1")
    rig.clock.advance(5.0)
    rig.core.wake()
    rig.finish(rig.lease_now())
    rig.add("http://a.test/1")
    assert [batch.number for batch in store.batches] == list(range(1, len(store.batches) + 1))
    assert (store.batches[0].now_s, store.batches[0].last_number) == (START_S, 2)
    assert (store.batches[-1].now_s, rig.core.said) == (START_S + 5.0, len(store.batches))
