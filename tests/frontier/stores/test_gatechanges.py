"""What becomes of the rows of gates: facts, and the windows of those that the core does not hold."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from anabranch.frontier.stores.messages import LeftGate
from anabranch.frontier.stores.reading import take_gate
from anabranch.frontier.turns import Turn
from tests.frontier.stores.crawl_file import Crawl, crawl, gate_facts
from tests.frontier.stores.rows import gate_key


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        yield made


def test_facts_leave_the_window_as_it_is(store: Crawl) -> None:
    """A held gate stays held when its times change, and one that is not keeps its turn."""
    first, second = store.batch(), store.batch()
    first.gate_names, first.woken = [(1, gate_key(1)), (2, gate_key(2))], [(2, Turn(5))]
    store.write(first)
    with store.connection.begin():
        take_gate(store.connection, 1, gate_key(1), 1)
    second.gates = [gate_facts(1, rests_until_s=7.25), gate_facts(2, slots=4), gate_facts(3)]
    store.write(second)
    assert store.values("SELECT id, held, turn, rests_until_s, slots FROM gate ORDER BY id") == [
        (1, 1, None, 7.25, None), (2, 0, 5, 0.0, 4), (3, 0, None, 0.0, None)
    ]  # fmt: skip


STEPS = st.lists(
    st.one_of(
        st.integers(1, 9),  # woken
        st.tuples(st.none() | st.integers(1, 9), st.booleans()),  # left: (turn, closed)
        st.just("held"),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, cuts=st.sets(st.integers(0, 8)))
@example(steps=[1, 2], cuts=set())
@example(steps=["held", 1], cuts=set())
def test_a_window_comes_to_the_same_whatever_the_transactions(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object], cuts: set[int]
) -> None:
    """The smaller turn counts, a held gate is not woken, and what is left is as it was said."""
    for ends in (cuts, set(range(len(steps)))):
        with crawl(tmp_path_factory.mktemp("crawl") / "frontier.db") as store:
            named = store.batch()
            named.gate_names = [(1, gate_key(1))]
            store.write(named)
            for start, end in pairwise(
                sorted({0, len(steps), *(end for end in ends if end < len(steps))} | _reads(steps))
            ):
                _do(store, steps[start:end])
            assert store.values("SELECT held, turn, wakes_s FROM gate") == [_expected(steps)]


def _reads(steps: list[object]) -> set[int]:
    """A gate is taken by a read, which sees what was said before it."""
    return {at + more for at, step in enumerate(steps) if step == "held" for more in (0, 1)}


def _do(store: Crawl, steps: list[object]) -> None:
    batches = []
    for step in steps:
        batch = store.batch()
        if isinstance(step, int):
            batch.woken = [(1, Turn(step))]
        elif isinstance(step, tuple):
            turn, is_closed = step
            batch.left = [LeftGate(1, turn, 50.0 if is_closed and turn else None)]
        else:
            with store.connection.begin():
                take_gate(store.connection, 1, gate_key(1), 1)
        batches.append(batch)
    store.write(*batches)


def _expected(steps: list[object]) -> tuple[int, int | None, float | None]:
    held, turn, wakes_s = 0, None, None
    for step in steps:
        if isinstance(step, tuple):
            held, turn, wakes_s = 0, step[0], 50.0 if step[1] and step[0] else None
        elif isinstance(step, int):
            turn = turn if held else min(step, turn or step)
        else:
            held, turn, wakes_s = 1, None, None
    return held, turn, wakes_s
