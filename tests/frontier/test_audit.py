"""`check` finds what is wrong: each rule broken by hand, once."""

from collections.abc import Callable

import pytest

from frontier.audit import check_lanes
from frontier.errors import InvariantBroken
from frontier.lifecycle import QueueState
from frontier.workqueues import Lane, Place
from tests.frontier.builder import Rig, build, pages


def busy_rig() -> Rig:
    """One queue with rows in the store, heads in memory, and one lease out; another one that waits."""
    rig = build(policy="host")
    rig.add(*pages("a.test", 30))
    rig.add(*pages("b.test", 30))
    rig.lease_now()
    rig.core.wake()
    return rig


def check(rig: Rig) -> None:
    check_lanes(rig.schedule, rig.core._leases.ordinals())


def lane_of(rig: Rig, host: str) -> Lane:
    return next(lane for lane in rig.schedule.index if lane.queue.key == host)


def hold_a_url_twice(rig: Rig) -> None:
    lane_of(rig, "a.test").window.append(lane_of(rig, "a.test").window[0])


def hold_a_leased_url(rig: Rig) -> None:
    lane = lane_of(rig, "a.test")
    lane.leased.add(lane.window[0].row.ordinal)
    rig.core._leases._held[lane.window[0].row.ordinal] = next(iter(rig.core._leases._held.values()))


def lose_a_lease(rig: Rig) -> None:
    rig.core._leases._held.clear()


def count_too_few(rig: Rig) -> None:
    lane_of(rig, "b.test").rows = -1


def be_ready_with_nothing(rig: Rig) -> None:
    lane_of(rig, "b.test").place = Place.READY


def stand_nowhere(rig: Rig) -> None:
    lane_of(rig, "b.test").place = Place.NOWHERE


def miscount_rows(rig: Rig) -> None:
    lane_of(rig, "b.test").queue.rows += 1


def miscount_leases(rig: Rig) -> None:
    lane_of(rig, "b.test").queue.out += 1


def lease_two_of_a_queue(rig: Rig) -> None:
    lane = lane_of(rig, "a.test")
    head = lane.take()
    gate = rig.schedule.gate(lane.gate)
    assert gate is not None
    gate.out += 1
    rig.core._leases.hand_out(lane, gate, head, 0.0)


def take_a_slot_for_nothing(rig: Rig) -> None:
    next(iter(rig.schedule.gates())).out += 1


def be_in_another_state(rig: Rig) -> None:
    lane_of(rig, "b.test").queue.state = QueueState.EMPTY


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (hold_a_url_twice, "holds a URL twice"),
        (hold_a_leased_url, "holds a URL twice"),
        (lose_a_lease, "lanes and leases disagree about {1}"),
        (count_too_few, "counts -17 rows in the store"),
        (be_ready_with_nothing, "is ready with nothing to serve"),
        (stand_nowhere, "has URLs and stands in no line"),
        (miscount_rows, "counts 31 rows, its lanes 30"),
        (miscount_leases, "counts 1 out, its lanes 0"),
        (lease_two_of_a_queue, "has 2 leases out"),
        (take_a_slot_for_nothing, "should have 1 leases out"),
        (be_in_another_state, "<WorkQueue b.test empty 30 urls> holds"),
    ],
)
def test_a_broken_rule_is_found(breakage: Callable[[Rig], None], message: str) -> None:
    """All is well before; the message names what is wrong."""
    rig = busy_rig()
    if breakage is be_ready_with_nothing:
        rig = build()
        rig.add(*pages("b.test", 1))
    check(rig)
    breakage(rig)
    with pytest.raises(InvariantBroken) as caught:
        check(rig)
    assert message in str(caught.value)


def test_an_empty_frontier_is_sound() -> None:
    """Nothing contradicts nothing."""
    build().core.check()
