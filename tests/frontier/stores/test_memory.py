"""What is special about the store in memory; what it shares with the others is in the contract."""

from frontier.stores.base import Counters, HeadsRead, Synced
from frontier.stores.memory import MemoryStore
from tests.frontier.stores.rows import A_LANE, IDENTITY, Teller, done, row


def test_it_answers_inside_the_call() -> None:
    """Nobody need wait: the core's tests have no thread and no time in them."""
    teller = Teller(MemoryStore())
    teller.say([row(1)])
    assert teller.store.take_answers() == [Synced(1, [])]
    teller.store.ask_heads(A_LANE, 16)
    (answer,) = teller.store.take_answers()
    assert isinstance(answer, HeadsRead)
    assert [head.row for head in answer.heads] == [row(1)]


def test_it_has_no_past() -> None:
    """Any identity is right for it, and what one store held the next does not know."""
    teller = Teller(MemoryStore())
    teller.say([row(1)])
    teller.store.close(clean=True)
    opening = MemoryStore().open({"policy": "another"}, lambda: None)
    assert (opening.clean, opening.counters) == (True, Counters())


def test_a_lane_that_is_empty_is_forgotten() -> None:
    """Idle lanes cost no memory."""
    store = MemoryStore()
    store.open(IDENTITY, lambda: None)
    teller = Teller(store)
    teller.say([row(1)])
    teller.say(ended=[done(row(1))])
    assert not store._lanes
