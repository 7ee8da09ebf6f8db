"""The life of a work queue: a table that holds every step that can happen, and no other."""

import pytest

from frontier.errors import LifecycleError
from frontier.lifecycle import NEXT, RESTS_IN, Holds, QueueState, next_state

#: Steps that cannot happen, and why. (What a queue rests in is no step.)
IMPOSSIBLE = {
    # Nothing is read, waits or is leased of a queue without rows.
    (QueueState.EMPTY, Holds.LEASES),
    (QueueState.EMPTY, Holds.HEADS),
    (QueueState.EMPTY, Holds.ASKED),
    (QueueState.EMPTY, Holds.RETRIES),
    # A lease needs a head in memory.
    (QueueState.INACTIVE, Holds.LEASES),
    (QueueState.LOADING, Holds.LEASES),
    (QueueState.SNOOZED, Holds.LEASES),
    # Heads in memory leave by a lease, or are given up for rows that are in the store.
    (QueueState.READY, Holds.RETRIES),
    (QueueState.READY, Holds.NOTHING),
    # Heads are asked for only where rows are; a row that waits leaves by coming due.
    (QueueState.SNOOZED, Holds.ASKED),
    (QueueState.SNOOZED, Holds.NOTHING),
}


def test_every_pair_is_a_rest_a_step_or_impossible() -> None:
    """The table is total: each state and holding is a rest, a step of the table, or named as impossible."""
    rests = {(state, holds) for holds, state in RESTS_IN.items()}
    every = {(state, holds) for state in QueueState for holds in Holds}
    assert rests | set(NEXT) | IMPOSSIBLE == every
    assert len(rests) + len(NEXT) + len(IMPOSSIBLE) == len(every)


def test_a_step_leads_to_the_state_that_its_holding_rests_in() -> None:
    """What a queue holds decides its state, wherever it comes from."""
    assert {step: RESTS_IN[step[1]] for step in NEXT} == NEXT


def test_every_state_can_be_left_and_reached_again() -> None:
    """No state is a trap, none is beyond reach."""
    steps = {state: {after for (before, _), after in NEXT.items() if before is state} for state in QueueState}
    for origin in QueueState:
        reached = {origin}
        while more := set().union(*(steps[state] for state in reached)) - reached:
            reached |= more
        assert reached == set(QueueState)


@pytest.mark.parametrize(("state", "holds"), list(NEXT))
def test_a_step_of_the_table_is_taken(state: QueueState, holds: Holds) -> None:
    """A queue moves as the table says."""
    assert next_state(state, holds) is NEXT[state, holds]


@pytest.mark.parametrize("holds", list(Holds))
def test_a_queue_that_holds_the_same_stays(holds: Holds) -> None:
    """Being told the same twice moves nothing."""
    assert next_state(RESTS_IN[holds], holds) is RESTS_IN[holds]


@pytest.mark.parametrize(("state", "holds"), sorted(IMPOSSIBLE, key=str))
def test_an_impossible_step_raises(state: QueueState, holds: Holds) -> None:
    """A step that is not in the table shows at once, with both names."""
    with pytest.raises(LifecycleError, match=f"a queue that is {state.value} may not come to hold {holds.value}"):
        next_state(state, holds)
