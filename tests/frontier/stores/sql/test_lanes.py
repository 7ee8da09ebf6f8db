"""Turns are taken or not by what a lane counts at that moment, however batches fall into transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.records import Turn
from anabranch.frontier.stores.contract import Announced, Batch, Standing
from anabranch.frontier.stores.sql.lanes import KnownLanes
from tests.frontier.stores.crawl_file import Crawl, crawl
from tests.frontier.stores.rows import A_LANE, done, row


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        yield made


def announced(turn: int) -> list[Announced]:
    return [Announced(*A_LANE, Turn(turn))]


def test_rows_of_a_lane_that_nobody_announced_are_refused(store: Crawl) -> None:
    """No line would ever lead to them."""
    with pytest.raises(InvariantBroken, match="which no batch has announced"):
        store.write(store.batch([row(1)], announced=[]))
    assert store.values("SELECT count(*) FROM url") == [(0,)]


def test_a_lane_that_was_announced_and_got_nothing_is_empty(store: Crawl) -> None:
    """Its row died: the lane stays until it is removed."""
    store.write(store.batch(announced=announced(5)))
    assert store.values("SELECT turn, count FROM lane") == [(5, 0)]
    batch = store.batch(announced=[])
    batch.removed = [A_LANE]
    store.write(batch)
    assert store.values("SELECT count(*) FROM lane") == [(0,)]


def test_a_new_lane_of_a_queue_that_stands_still_is_shelved(store: Crawl) -> None:
    """Its rows are counted with the others of the queue."""
    batch = store.batch([row(1)])
    batch.standings = [(A_LANE[0], Standing.PAUSED)]
    store.write(batch)
    store.add(row(2, lane=(A_LANE[0], 7)))
    assert store.values("SELECT shelved FROM lane ORDER BY gate") == [(1,), (1,)]
    assert store.totals.paused == 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.sampled_from(["announce", "turn", "new", "known", "end", "remove"]), max_size=12),
    ends=st.sets(st.integers(0, 11)),
    is_paused=st.booleans(),
)
def test_a_lane_comes_to_the_same_whatever_the_transactions(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], ends: set[int], is_paused: bool
) -> None:
    """One batch per step, once each in its own transaction, once cut at random. A lane that counts nothing may stay or go."""
    ways = [set(range(12)), ends]
    lanes = []
    for cuts in ways:
        with crawl(tmp_path_factory.mktemp("crawl") / "frontier.db") as store:
            batch = store.batch([row(100, "http://known.test/", lane=(1, 1)), row(101)])
            batch.standings = [(A_LANE[0], Standing.PAUSED)] if is_paused else []
            store.write(batch)
            alive, pending = [101], []
            for at, step in enumerate(steps, start=1):
                batch = store.batch(announced=announced(at) if step in ("announce", "new", "known") else [])
                if step == "turn":
                    batch.turns = [(A_LANE, Turn(at))]
                elif step == "remove":
                    batch.removed = [A_LANE]
                elif step == "end" and alive:
                    batch.ended = [done(row(alive.pop()))]
                elif step in ("new", "known"):
                    url = None if step == "new" else "http://known.test/"
                    batch.new = [row(200 + at, url)]
                    alive += [200 + at] if step == "new" else []
                pending.append(batch)
                if at in cuts:
                    store.write(*pending)
                    pending = []
            store.write(*pending)
            lanes.append(store.values("SELECT * FROM lane WHERE count > 0 ORDER BY queue"))
    assert lanes[0] == lanes[1]


def test_a_remembered_lane_is_the_last_one_written() -> None:
    """Whatever was forgotten meanwhile to make room; what was deleted is not remembered."""
    known = KnownLanes(remembered=2)
    for count in range(1, 4):
        known.put((1, 1), (Turn(5), count, 0, 0))
        known.put((count, 9), (Turn(6), 1, 0, 0))
    assert known.get((1, 1)) == (5, 3, 0, 0)
    assert known.get((1, 9)) is None
    known.drop((1, 1))
    assert known.get((1, 1)) is None


def test_a_lane_leaves_the_line_with_its_last_row_and_comes_back_with_the_next(store: Crawl) -> None:
    """The line's index knows of counts only through this column."""
    store.add(row(1), row(2))
    for ordinal, servable in ((1, 1), (2, 0)):
        store.write(ended(store, ordinal))
        assert store.values("SELECT servable FROM lane") == [(servable,)]
    store.add(row(3))
    assert store.values("SELECT count, servable FROM lane") == [(1, 1)]


def ended(store: Crawl, ordinal: int) -> Batch:
    return store.batch(ended=[done(row(ordinal))])
