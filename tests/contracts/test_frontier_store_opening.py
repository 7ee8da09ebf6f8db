"""Rules about closing and opening again, at once or after a crash, that every store of the Frontier keeps."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.frontier.errors import FormatMismatch, StoreInUse
from anabranch.frontier.records import FRONT, OutcomeKind, turn_of
from anabranch.frontier.stores.contract import Counters, Ended, LeftGate, Moved, Standing
from anabranch.frontier.stores.sql import postgres
from tests.frontier.stores.rows import (
    A_LANE,
    IDENTITY,
    KINDS,
    NOW_S,
    OTHER_LANE,
    Home,
    done,
    facts,
    gate_row,
    home,
    lane,
    queue_row,
    row,
    waiting,
)

QUEUE, GATE = A_LANE


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with home(request.param, tmp_path) as made:
        yield made


def test_a_new_store_is_clean_and_empty(place: Home) -> None:
    """Nothing need be marked again where nothing was."""
    opening = place.open()
    assert (opening.clean, opening.counters, dict(opening.notes), opening.epoch) == (True, Counters(), {}, 1)


@pytest.mark.parametrize("clean", [True, False])
def test_an_opening_tells_how_the_last_owner_ended(place: Home, clean: bool) -> None:
    """And how often the store was opened, and what it counts."""
    place.open()
    place.teller.say([row(1), row(2), row(3)], standings=[(QUEUE, Standing.PAUSED)])
    place.teller.say(ended=[done(row(1))], moved=[Moved(row(2), waiting(row(2), NOW_S))])
    opening = place.reopen(clean=clean)
    counters = Counters(last_ordinal=3, queued=2, done=1, paused=2, waiting=1, queues=1)
    assert (opening.clean, opening.counters, opening.epoch) == (clean, counters, 2)
    assert place.reopen(clean=True).clean


@pytest.mark.parametrize("clean", [True, False])
def test_all_that_was_synced_is_there_again(place: Home, clean: bool) -> None:
    """Rows, lanes, queues, gates, what ended and what is known."""
    place.open()
    lanes = [A_LANE, OTHER_LANE, (QUEUE, OTHER_LANE[1])]
    rows = [row(number, lane=lanes[number % 3], precedence=FRONT + number % 2) for number in range(1, 10)]
    rows.append(row(10, "http://a.test/ä", key=b"\xff\x00", payload=b"\x00", hops="LE", via=1))
    teller = place.teller
    teller.say(rows, gates=[gate_row(GATE, blocked_until_s=math.inf, slots=2)])
    away = [Moved(old, waiting(old, NOW_S + old.ordinal)) for old in rows[3:6]]
    teller.say(
        moved=away, ended=[done(rows[0]), Ended(rows[1], -2, OutcomeKind.FAILED)], queues=[queue_row(QUEUE, spent=9)]
    )
    teller.say(standings=[(OTHER_LANE[0], Standing.RETIRED)])
    teller.answers()

    def told() -> list[object]:
        gates = [teller.store.gate(gate) for gate in (GATE, OTHER_LANE[1])]
        heads = [teller.heads(found) for found in lanes]
        return [facts(teller.store), gates, heads, teller.retries(), teller.line(GATE), teller.line(OTHER_LANE[1])]

    before = told()
    place.reopen(clean=clean)
    assert told() == before
    teller.say([row(11, rows[0].url), row(12)])
    assert teller.store.counters().queued == 9


def test_another_identity_is_refused(place: Home) -> None:
    """URLs queued under one policy cannot be served under another; the store stays as it is."""
    place.open()
    place.teller.say([row(1)])
    place.teller.store.close(clean=True)
    place.teller.store = place.make()
    with pytest.raises(FormatMismatch, match="policy"):
        place.teller.store.open(IDENTITY | {"policy": "host"}, NOW_S, lambda: None)
    place.teller.store.close(clean=True)
    place.teller.store = place.make()
    opening = place.open()
    assert (opening.clean, opening.counters.queued) == (True, 1)


def test_a_store_has_one_owner_at_a_time(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is refused and harms nothing."""
    monkeypatch.setattr(postgres, "_LOCK_S", 0.1)
    place.open()
    place.teller.say([row(1)])
    second = place.make()
    with pytest.raises(StoreInUse):
        second.open(IDENTITY, NOW_S, lambda: None)
    if second is not place.teller.store:
        second.close(clean=True)
    place.teller.say([row(2)])
    assert place.teller.heads() == [1, 2]


def test_notes_are_kept_by_name(place: Home) -> None:
    """The last word for each name; whether the end was clean or not."""
    place.open()
    place.teller.store.note({"checkpoint": "7", "filter": "a"})
    place.teller.store.note({"checkpoint": "8"})
    assert dict(place.reopen(clean=False).notes) == {"checkpoint": "8", "filter": "a"}
    place.teller.store.note({"more": "ä"})
    assert dict(place.reopen().notes) == {"checkpoint": "8", "filter": "a", "more": "ä"}


# Gates


@pytest.mark.parametrize("clean", [True, False])
def test_gates_that_an_owner_held_get_their_turns_again(place: Home, clean: bool) -> None:
    """The smallest of their servable lanes; a gate without any gets none."""
    place.open()
    lanes = [lane("one", "a.test"), lane("two", "a.test"), lane("one", "b.test"), lane("one", "c.test")]
    rows = [row(number, lane=found) for number, found in enumerate(lanes, start=1)]
    turns = [turn_of(3, arrival) for arrival in (8, 6, 7, 1)]
    teller = place.teller
    teller.say(rows, turns=dict(zip(lanes, turns, strict=True)))
    for _, gate in lanes[1:]:
        teller.take_gate(gate)
    teller.say(ended=[done(rows[3])])
    place.reopen(clean=clean)
    assert teller.holds() == [lanes[0][1], lanes[2][1]]


def test_gates_that_were_not_held_are_as_they_were(place: Home) -> None:
    """Those with a turn keep it, those that are closed stay closed, those with neither have neither."""
    place.open()
    lanes = [lane("one", f"gate {number}") for number in range(4)]
    teller = place.teller
    turns = {found: turn_of(3, number) for number, found in enumerate(lanes, start=1)}
    teller.say([row(number, lane=found) for number, found in enumerate(lanes, start=1)], turns=turns)
    teller.say(woken=[(gate, turns[queue, gate]) for queue, gate in lanes[:3]])
    assert teller.holds(limit=2) == [lanes[0][1], lanes[1][1]]
    left = [LeftGate(lanes[0][1], turn_of(3, 1), NOW_S + 10), LeftGate(lanes[1][1], turn_of(3, 9), None)]
    teller.say(left=left)
    place.reopen(clean=False)
    read = teller.take_gates(NOW_S)
    assert [gate.row.id for gate in read.gates] == [lanes[2][1], lanes[1][1]]
    assert read.wakes_s == NOW_S + 10
    assert teller.holds(NOW_S + 10) == [lanes[0][1]]


# Time


def timed(place: Home) -> None:
    """A store with one of each kind of time, all ten seconds ahead."""
    teller = place.teller
    teller.say([row(1), row(2, lane=OTHER_LANE)])
    times = dict.fromkeys(("rests_until_s", "blocked_until_s", "troubled_s"), NOW_S + 10)
    teller.say(gates=[gate_row(GATE, spacing_s=3.0, last_rest_s=4.0, throttle_s=5.0, **times)])
    teller.say(moved=[Moved(row(1), waiting(row(1), NOW_S + 10))])
    teller.take_gate(OTHER_LANE[1])
    teller.say(left=[LeftGate(OTHER_LANE[1], turn_of(3, 1), NOW_S + 10)])


def times(place: Home) -> list[float | None]:
    """Return the times that the store has now."""
    gate = place.teller.store.gate(GATE)
    assert gate is not None
    assert (gate.spacing_s, gate.last_rest_s, gate.throttle_s) == (3.0, 4.0, 5.0)
    (retry,) = place.teller.retries()
    record = place.teller.store.look_up(retry.dedup_key())
    assert record is not None
    assert record.due_s == retry.due_s
    wakes_s = place.teller.take_gates(0.0).wakes_s
    return [gate.rests_until_s, gate.blocked_until_s, gate.troubled_s, retry.due_s, wakes_s]


def test_a_clock_that_went_back_delays_nothing(place: Home) -> None:
    """Points in time move back by as much, durations stay; and only once."""
    place.open()
    timed(place)
    place.reopen(now_s=NOW_S - 1000)
    assert times(place) == [NOW_S - 990] * 5
    place.reopen(now_s=NOW_S - 1000)
    assert times(place) == [NOW_S - 990] * 5


def test_a_clock_that_went_back_leaves_a_store_that_works(place: Home) -> None:
    """Retries and gates are found at their new times."""
    place.open()
    timed(place)
    place.reopen(clean=False, now_s=NOW_S - 1000)
    place.teller.now_s = NOW_S - 1000
    assert place.teller.holds(NOW_S - 990) == [OTHER_LANE[1]]
    (retry,) = place.teller.retries((NOW_S - 991, 0))
    place.teller.say(moved=[Moved(retry, row(1))])
    place.teller.say(ended=[done(row(1)), done(row(2, lane=OTHER_LANE))])
    assert place.teller.store.counters() == Counters(last_ordinal=2, done=2, queues=2)


def test_times_stay_when_the_clock_went_on(place: Home) -> None:
    """However long the store was closed."""
    place.open()
    timed(place)
    place.reopen(now_s=NOW_S + 100_000)
    assert times(place) == [NOW_S + 10] * 5


def test_a_block_without_end_has_none_when_the_clock_went_back(place: Home) -> None:
    """Infinity is not a point in time."""
    place.open()
    place.teller.say(gates=[gate_row(GATE, blocked_until_s=math.inf)])
    place.reopen(now_s=NOW_S - 1000)
    gate = place.teller.store.gate(GATE)
    assert gate is not None
    assert gate.blocked_until_s == math.inf
