"""Entries in rising order, against a plain sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.stores.memory_order import Ascending

ENTRY = st.tuples(st.integers(0, 20), st.integers(0, 3))
STEP = st.tuples(st.booleans(), ENTRY)


@given(st.lists(STEP, max_size=120), st.integers(1, 3), st.tuples(st.integers(-1, 21)) | ENTRY, st.integers(0, 9))
def test_it_is_a_sorted_list(
    steps: list[tuple[bool, tuple[int, int]]], chunk: int, bound: tuple[int, ...], limit: int
) -> None:
    """Whatever comes and goes, in chunks that split and vanish at once."""
    order: Ascending[tuple[int, int]] = Ascending(chunk)
    model: list[tuple[int, int]] = []
    for adds, entry in steps:
        if not adds:
            assert order.discard(entry) == (entry in model)
            model = [other for other in model if other != entry]
        elif entry not in model:
            order.add(entry)
            model = sorted([*model, entry])
        assert list(order) == model
        assert order.first() == (model[0] if model else None)
        assert bool(order) == bool(model)
    assert order.since(bound, limit) == [entry for entry in model if entry >= bound][:limit]
    assert all(0 < len(held) <= 2 * chunk for held in order._chunks)


@pytest.mark.parametrize("size", [0, 1, 9])
def test_everything_is_not_below_the_empty_bound(size: int) -> None:
    """So the empty tuple means from the start."""
    order: Ascending[tuple[int]] = Ascending(2)
    for number in range(size):
        order.add((number,))
    assert order.since((), 100) == [(number,) for number in range(size)]
