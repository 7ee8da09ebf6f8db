"""Decisions that need several parts: how a Frontier ends while leases are out."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.errors import FrontierError, StoreUnavailable
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.parts import Steps, asked, flushed, run
from anabranch.frontier.records import NORMAL, Candidate, Lease, OutcomeKind, WaitsFor, Wake
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.stores.memory.store import MemoryStore
from tests.frontier.builder import HASTE, DelayingStore, Rig, build, pages

URL = "http://a.test/"
REST = Politeness(delay_factor=0.0, min_delay_s=5.0, max_delay_s=5.0)
ORDER = FrontierOrder(policy="host", politeness=REST, group="domain", group_politeness=REST)


class Clock:
    """Epoch seconds that only a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def leased(frontier: Frontier) -> Lease | None:
    """The next lease, when the store has answered all that it was asked."""
    for _ in range(5):
        lease = frontier.lease()
        if lease is not None:
            return lease
        frontier.flush()
    return None


def test_a_lease_that_is_out_at_the_end_is_queued_again_and_its_host_rests(tmp_path: Path) -> None:
    """Its fetch may have gone on until the end, in order though the end was; no attempt is counted."""
    clock = Clock()
    with open_frontier(tmp_path, ORDER, clock=clock) as frontier:
        frontier.schedule([Candidate(URL)])
        first = leased(frontier)
        clock.now_s = 1010.0
    with open_frontier(tmp_path, ORDER, clock=clock) as frontier:
        assert leased(frontier) is None
        assert frontier.wake().at_s == 1015.0
        clock.now_s = 1015.0
        again = leased(frontier)
        assert first is not None
        assert again is not None
        assert (again.ordinal, again.url, again.attempts) == (first.ordinal, URL, 0)
        frontier.operations.check()


def test_a_lease_ends_with_its_frontier(tmp_path: Path) -> None:
    """A lease that comes back after the end is refused, and changes nothing."""
    with open_frontier(tmp_path, ORDER) as frontier:
        frontier.schedule([Candidate(URL)])
        lease = leased(frontier)
        assert lease is not None
    try:
        frontier.release(lease)
    except FrontierError:
        pass
    else:
        raise AssertionError("a lease outlived its Frontier")


def test_an_opening_says_that_it_can_be_asked_at_once(tmp_path: Path) -> None:
    """Nothing was read yet, so the first lease begins to read; after that the store is awaited, not the time."""
    clock = Clock()
    with open_frontier(tmp_path, ORDER, clock=clock) as frontier:
        frontier.schedule([Candidate(URL)])
    with open_frontier(tmp_path, ORDER, clock=clock) as frontier:
        assert frontier.wake() == Wake(clock.now_s, WaitsFor.TIME)
        assert leased(frontier) is not None
        assert frontier.wake() == Wake(None, WaitsFor.FINISH | WaitsFor.URLS)


URLS = pages("a.test", 12)


def a_queue(store: MemoryStore | None = None) -> Rig:
    """Twelve URLs of one host, no rests."""
    rig = build(politeness=HASTE, store=store)
    rig.add(*URLS)
    return rig


def bring_forward(core: Frontier, *urls: str) -> None:
    core.advancing.advance(core.advancing.rows([Candidate(url) for url in urls])())


@pytest.mark.parametrize("last", [1, 5, 11])
def test_a_queued_url_goes_before_the_others_of_its_queue(last: int) -> None:
    """Whether its row is in memory or in the store alone."""
    rig = a_queue()
    first = rig.lease_now()
    bring_forward(rig.core, URLS[last])
    rig.core.operations.check()
    rig.finish(first)
    assert rig.drain(0.0) == [URLS[last], *(url for url in URLS[1:] if url != URLS[last])]
    rig.core.operations.check()


def test_those_in_front_keep_their_order() -> None:
    """That of acceptance: saying it again changes nothing, nor does saying it twice at once."""
    rig = a_queue()
    bring_forward(rig.core, URLS[9], URLS[3], URLS[9])
    bring_forward(rig.core, URLS[9])
    assert rig.drain(0.0)[:3] == [URLS[3], URLS[9], URLS[0]]
    rig.core.operations.check()


def test_what_is_leased_or_has_ended_or_is_unknown_stays_as_it_is() -> None:
    """A row that is leased is found, and is left alone."""
    rig = a_queue()
    rig.finish(rig.lease_now())
    leased = rig.lease_now()
    bring_forward(rig.core, URLS[0], URLS[1], "http://a.test/unknown", "no URL")
    rig.finish(leased)
    assert rig.drain(0.0) == URLS[2:]
    rig.core.operations.check()


def test_what_waits_for_its_retry_goes_on_waiting() -> None:
    """Its time has not come."""
    rig = a_queue()
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=50.0)
    bring_forward(rig.core, URLS[0])
    assert rig.core.advancing.rows([Candidate(URLS[0])])() == []
    assert rig.lease_now().url == URLS[1]


def test_a_row_keeps_all_but_its_place() -> None:
    """Its key, its path, its payload and where it was found."""
    rig = build(politeness=HASTE)
    page = Candidate("http://a.test/page")
    rig.core.schedule([page])
    lease = rig.lease_now()
    mine = Candidate("http://a.test/x", b"key", hops="LL", payload=b"mine")
    rig.core.schedule([Candidate("http://a.test/y"), mine], found_on=lease)
    rig.finish(lease)
    (row,) = rig.core.advancing.rows([mine])()
    assert (row.precedence, row.via) == (NORMAL, lease.ordinal)
    rig.core.advancing.advance([row])
    out = rig.lease_now()
    assert (out.key, out.hops, out.payload, out.via) == (b"key", "LL", b"mine", page.url)


def test_heads_that_are_on_their_way_are_asked_for_again() -> None:
    """They were read before the row was moved."""
    store = DelayingStore()
    rig = a_queue(store)
    store.flush()
    assert rig.core.lease() is None
    bring_forward(rig.core, URLS[7])
    store.flush()
    while (lease := rig.core.lease()) is None:
        store.flush()
    assert lease.url == URLS[7]


# Work in steps


def failing() -> int:
    raise StoreUnavailable("gone")


def test_each_answer_comes_back_to_its_question() -> None:
    """And what the steps come to is the result."""

    def steps() -> Steps[str]:
        first = yield from asked(int, "17")
        second = yield from asked(max, first, 20)
        return f"{first}, {second}"

    assert run(steps()) == "17, 20"


def test_steps_without_a_question_are_done_at_once() -> None:
    """An answer from memory needs no store."""

    def steps() -> Steps[int]:
        yield from ()
        return 3

    assert run(steps()) == 3


def test_an_error_is_raised_where_the_question_was_asked() -> None:
    """So that the steps may go on, as any caller may."""

    def steps() -> Steps[str]:
        try:
            yield from asked(failing)
        except StoreUnavailable as error:
            return f"{error}, {(yield from asked(str, 5))}"
        return "no error"

    assert run(steps()) == "gone, 5"


def test_an_error_that_nobody_meets_ends_the_steps() -> None:
    """The error is raised unchanged."""
    with pytest.raises(StoreUnavailable, match="gone"):
        run(asked(failing))


def test_a_flush_goes_on_until_nothing_more_follows_from_the_answers() -> None:
    """A gate that is read meanwhile is changed, and the change is written too."""
    store = DelayingStore()
    rig = build(store=store)
    rig.core.block("a.test", 2_000_000.0)  # type: ignore[arg-type]  # its gate is read first, then it is blocked
    run(flushed(rig.parts, store))
    assert rig.core.unacknowledged.last == rig.core.unacknowledged.durable > 0
    assert rig.parts.outbox.batch.is_empty
    assert [row.blocked_until_s for batch in store.batches for row in batch.gates] == [2_000_000.0]
