"""`check` finds what is wrong: each rule broken by hand, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.inspect.audit import check_counters, check_memory
from anabranch.frontier.records import OutcomeKind
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.scheduling.readylist import Lane, LanePlace, WorkQueue
from anabranch.frontier.stores.contract import Counters
from tests.frontier.builder import HASTE, Rig, build, pages


def busy_rig() -> Rig:
    """Two queues at gates of their own, with heads in memory and rows in the store; one of them has a lease out."""
    rig = build(group="domain")
    rig.add(*pages("a.test", 30))
    rig.add(*pages("b.other", 30))
    rig.finish(rig.lease_now(), OutcomeKind.DEFERRED)
    rig.lease_now()
    rig.core.take_answers()
    return rig


def lane_of(rig: Rig, host: str) -> Lane:
    (lane,) = rig.line(host).lanes.values()
    return lane


def queue_of(rig: Rig, host: str) -> WorkQueue:
    return lane_of(rig, host).queue


def hold_a_url_twice(rig: Rig) -> None:
    lane_of(rig, "a.test").window.append(lane_of(rig, "a.test").window[0])


def hold_a_leased_url(rig: Rig) -> None:
    lane = lane_of(rig, "b.other")
    (ordinal,) = lane.leased
    lane.window.append(lane.window[0]._replace(row=lane.window[0].row._replace(ordinal=ordinal)))


def lose_a_lease(rig: Rig) -> None:
    rig.parts.leases._held.clear()


def be_ready_with_nothing(rig: Rig) -> None:
    lane_of(rig, "a.test").window.clear()


def stand_nowhere(rig: Rig) -> None:
    lane = lane_of(rig, "a.test")
    lane.place = LanePlace.NOWHERE
    lane.line.active -= 1


def miscount_active_lanes(rig: Rig) -> None:
    rig.line("a.test").active += 1


def wait_against_its_place(rig: Rig) -> None:
    line = rig.line("a.test")
    line.waiting.offer(lane_of(rig, "a.test").turn, queue_of(rig, "a.test").id)


def stay_though_dropped(rig: Rig) -> None:
    lane_of(rig, "a.test").is_dropped = True


def miscount_leases(rig: Rig) -> None:
    queue_of(rig, "a.test").out += 1


def miscount_heads(rig: Rig) -> None:
    queue_of(rig, "a.test").heads -= 1


def miscount_questions(rig: Rig) -> None:
    queue_of(rig, "a.test").asked += 1
    rig.schedule.placement.asked += 1


def miscount_all_questions(rig: Rig) -> None:
    rig.schedule.placement.asked += 1


def lease_two_of_a_queue(rig: Rig) -> None:
    lane = lane_of(rig, "b.other")
    head = lane.take()
    lane.line.gate.out += 1
    assert lane.line.group is not None
    lane.line.group.gate.out += 1
    rig.parts.leases.hand_out(lane, head, 0.0)


def take_a_slot_for_nothing(rig: Rig) -> None:
    rig.line("a.test").gate.out += 1


def take_a_slot_of_the_group_for_nothing(rig: Rig) -> None:
    group = rig.line("a.test").group
    assert group is not None
    group.gate.out += 1


def be_in_another_state(rig: Rig) -> None:
    queue_of(rig, "a.test").state = QueueState.EMPTY


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (hold_a_url_twice, "holds a URL twice"),
        (hold_a_leased_url, "holds a URL twice"),
        (lose_a_lease, "lanes and leases disagree about {"),
        (be_ready_with_nothing, "is ready with nothing to serve"),
        (stand_nowhere, "has URLs and is in no ready list"),
        (miscount_active_lanes, "has 1 active lanes"),
        (wait_against_its_place, "waits in its ready list, or not, against its place"),
        (stay_though_dropped, "left memory, and its ready list keeps it"),
        (miscount_leases, "counts 1 out, its lanes 0"),
        (miscount_heads, "heads, its lanes"),
        (miscount_questions, "counts 1 asked, its lanes 0"),
        (miscount_all_questions, "lanes are counted as asked for"),
        (lease_two_of_a_queue, "has 2 leases out"),
        (take_a_slot_for_nothing, "should have 0 leases out"),
        (take_a_slot_of_the_group_for_nothing, "should have 0 leases out"),
        (be_in_another_state, "<WorkQueue a.test empty"),
    ],
)
def test_a_broken_rule_is_found(breakage: Callable[[Rig], None], message: str) -> None:
    """All is well before; the message names what is wrong."""
    rig = busy_rig()
    rig.core.operations.check()
    breakage(rig)
    with pytest.raises(InvariantBroken) as caught:
        check_memory(rig.parts)
    assert message in str(caught.value)


def test_totals_are_compared_one_by_one() -> None:
    """Numbers that were given to nobody are no difference."""
    kept = Counters(last_ordinal=7, queued=3, done=1)
    check_counters(kept, kept._replace(last_ordinal=9))
    for name in set(Counters._fields) - {"last_ordinal"}:
        with pytest.raises(InvariantBroken, match="the store counts"):
            check_counters(kept, kept._replace(**{name: 99}))


def test_an_empty_frontier_is_sound() -> None:
    """Nothing contradicts nothing; one that has ended all its URLs is sound too."""
    rig = build(politeness=HASTE)
    rig.core.operations.check()
    rig.add(*pages("a.test", 3))
    rig.drain(0.0)
    rig.core.operations.check()
