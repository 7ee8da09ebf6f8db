"""Entries in rising order, against a plain sorted list."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.records import OutcomeKind, UrlRecord, UrlState
from anabranch.frontier.stores.contract import EndedRecord
from anabranch.frontier.stores.memory.tables import Ascending, EndedRows
from tests.frontier.stores.rows import row

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


def test_every_way_to_end_is_kept_with_its_attempts() -> None:
    """And its status, whatever its sign and size."""
    ended, most = EndedRows(), (1 << 63) - 1
    for ordinal, kind in enumerate(OutcomeKind, 1):
        ended.add(row(ordinal)._replace(attempts=ordinal * 10), -ordinal * most // 10, kind)
    assert [(one.outcome, one.attempts, one.status) for one in ended.after(0, 100)] == [
        (kind, ordinal * 10, -ordinal * most // 10) for ordinal, kind in enumerate(OutcomeKind, 1)
    ]


def test_a_key_is_kept_if_it_is_not_the_url() -> None:
    """Else the URL stands for it."""
    ended = EndedRows()
    ended.add(row(1), 200, OutcomeKind.DONE)
    ended.add(row(2)._replace(key=b"\xff"), 404, OutcomeKind.FAILED)
    assert list(ended.keys()) == [(1, row(1).url.encode()), (2, b"\xff")]
    assert ended.after(1, 9) == [EndedRecord(2, row(2).url, b"\xff", 404, OutcomeKind.FAILED, row(2).attempts)]


def test_a_row_that_has_not_ended_is_not_there() -> None:
    """Nor is anything known of it."""
    ended = EndedRows()
    ended.add(row(1), 200, OutcomeKind.DONE)
    assert (ended.url(1), ended.url(2)) == (row(1).url, None)
    assert (ended.record(1), ended.record(2)) == (UrlRecord(row(1).url, UrlState.ENDED, 200, "done", 0, 1), None)
    assert ended.kinds() == {OutcomeKind.DONE: 1}


def test_the_collector_has_nothing_to_look_into() -> None:
    """However many rows have ended: texts, bytes and numbers are all there is. Failures, which are few, keep more."""
    ended = EndedRows()
    for ordinal in range(1, 100):
        ended.add(row(ordinal)._replace(key=b"key"), 200, OutcomeKind.DONE, 5.0)
    kept = [value for value in vars(ended).values() if isinstance(value, dict)]
    assert len(kept) == 5
    assert not any(map(gc.is_tracked, kept))
