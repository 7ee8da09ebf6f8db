"""What the parts decide together: how a Frontier ends while leases are out."""

from __future__ import annotations

from pathlib import Path

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.models import Candidate, Lease, WaitsFor, Wake
from anabranch.frontier.scheduling.gates import Politeness

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
        frontier.check()


def test_a_lease_ends_with_its_frontier(tmp_path: Path) -> None:
    """What comes back after the end is refused, and changes nothing."""
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
