"""The life of a work queue: a table that holds every step that can happen, and no other."""

import pytest

from anabranch.frontier.errors import LifecycleError
from anabranch.frontier.scheduling.lifecycle import NEVER, NEXT, RESTS_IN, STEPS, Holds, QueueState, next_state
from tests.rows import each_row

#: What the operator or a budget decides; from there a queue goes on with whatever it holds.
STANDING = (QueueState.PAUSED, QueueState.RETIRED)


def test_every_pair_is_a_rest_a_step_or_never() -> None:
    """The table is total: each state and holding is a rest, a step, or named as impossible, and only one of them."""
    rests = {(state, holds) for holds, state in RESTS_IN.items()}
    every = {(state, holds) for state in QueueState for holds in Holds}
    assert rests | set(NEXT) | set(NEVER) == every
    assert len(rests) + len(NEXT) + len(NEVER) == len(every)


def test_every_holding_rests_in_a_state_of_its_own() -> None:
    """Eight things to hold, eight states: what a queue holds says where it is."""
    assert set(RESTS_IN) == set(Holds)
    assert sorted(state.value for state in RESTS_IN.values()) == sorted(state.value for state in QueueState)


def test_a_step_leads_to_the_state_that_its_holding_rests_in() -> None:
    """The state of a queue depends on what it holds, not on the state before."""
    assert {step: RESTS_IN[step[1]] for step in NEXT} == NEXT


def test_the_steps_in_words_are_the_steps_of_the_table() -> None:
    """Nothing can happen that is not said in words, and every impossible step says why."""
    assert {(state, holds) for state, steps in STEPS.items() for holds in steps} == set(NEXT)
    assert all(words for steps in STEPS.values() for words in steps.values())
    assert all(NEVER.values())


def test_every_state_can_be_left_and_reached_again() -> None:
    """No state is a trap, none is beyond reach."""
    steps = {state: {after for (before, _), after in NEXT.items() if before is state} for state in QueueState}
    for origin in QueueState:
        reached = {origin}
        while more := set().union(*(steps[state] for state in reached)) - reached:
            reached |= more
        assert reached == set(QueueState)


@each_row("stop", STANDING)
@each_row("state", list(QueueState))
def test_a_queue_can_be_paused_and_retired_in_every_state(state: QueueState, stop: QueueState) -> None:
    """The operator need not wait for the right moment: leases that are out end in order."""
    holds = Holds[stop.name]
    assert next_state(state, holds) is stop


@each_row("stop", STANDING)
@each_row("holds", list(Holds))
def test_a_stopped_queue_goes_on_with_what_it_holds(stop: QueueState, holds: Holds) -> None:
    """Resuming a queue, or raising its budget, leads to the state of what it holds then."""
    assert next_state(stop, holds) is RESTS_IN[holds]


def test_the_strongest_holding_comes_first() -> None:
    """An order of the operator is stronger than any lease or row; nothing is weaker than nothing."""
    order = ["PAUSED", "RETIRED", "LEASES", "HEADS", "ASKED", "ROWS", "RETRIES", "NOTHING"]
    assert [holds.name for holds in Holds] == order


@each_row(
    "life",
    [
        # A queue of one URL.
        ["EMPTY", "ROWS INACTIVE", "ASKED LOADING", "HEADS READY", "LEASES IN_FLIGHT", "NOTHING EMPTY"],
        # The fetch fails, and is tried again.
        ["IN_FLIGHT", "RETRIES SNOOZED", "HEADS READY", "LEASES IN_FLIGHT", "NOTHING EMPTY"],
        # The session is over: others go first.
        ["IN_FLIGHT", "ROWS INACTIVE", "ASKED LOADING", "HEADS READY"],
        # The total budget is spent by a lease; a larger one wakes the queue.
        ["IN_FLIGHT", "RETIRED RETIRED", "ROWS INACTIVE", "ASKED LOADING"],
        # Paused with a lease out, resumed while it is out still.
        ["IN_FLIGHT", "PAUSED PAUSED", "LEASES IN_FLIGHT", "HEADS READY"],
        # Paused, and over its budget by the lease that ended meanwhile.
        ["IN_FLIGHT", "PAUSED PAUSED", "RETIRED RETIRED", "ROWS INACTIVE"],
        # Two leases may be out: the second question finds no more.
        ["READY", "ASKED LOADING", "LEASES IN_FLIGHT", "NOTHING EMPTY"],
    ],
    ids=lambda life: "-".join(step.split()[-1].lower() for step in life),
)
def test_a_life_is_walked_by_the_table(life: list[str]) -> None:
    """The lives that operators know, step by step, written down beside the table."""
    state = QueueState[life[0]]
    for step in life[1:]:
        holds, after = step.split()
        state = next_state(state, Holds[holds])
        assert state is QueueState[after]


@each_row(("state", "holds"), list(NEXT))
def test_a_step_of_the_table_is_taken(state: QueueState, holds: Holds) -> None:
    """A queue moves as the table says."""
    assert next_state(state, holds) is NEXT[state, holds]


@each_row("holds", list(Holds))
def test_a_queue_that_holds_the_same_stays(holds: Holds) -> None:
    """Being told the same twice moves nothing."""
    assert next_state(RESTS_IN[holds], holds) is RESTS_IN[holds]


@each_row(("state", "holds"), sorted(NEVER, key=str))
def test_an_impossible_step_raises(state: QueueState, holds: Holds) -> None:
    """A step that is not in the table shows at once, with both names and the reason."""
    with pytest.raises(LifecycleError) as raised:
        next_state(state, holds)
    assert (
        str(raised.value) == f"a queue that is {state.value} may not come to hold {holds.value}: {NEVER[state, holds]}"
    )
