"""Leases by the ordinal of their URL."""

import pytest

from frontier.errors import LeaseLost
from frontier.gates import Gate, Politeness
from frontier.leases import Leases
from frontier.models import GateKey, Head, Lease, QueueKey
from frontier.workqueues import Lane, WorkQueue
from tests.frontier.builder import row


def hand_out(leases: Leases, ordinal: int = 7) -> Lease:
    lane = Lane(WorkQueue(1, QueueKey("bkdr:1")), 2, 1)
    gate = Gate(2, GateKey("a.test"), Politeness())
    taken = row(ordinal)._replace(hops="LL", attempts=2, key=b"own", payload=b"\0", via=3)
    return leases.hand_out(lane, gate, Head(taken, "http://a.test/"), 12.5)


def test_a_lease_says_all_that_a_worker_needs() -> None:
    """The row's facts, its queue and gate by name, and the moment."""
    assert hand_out(Leases()) == Lease(
        ordinal=7,
        url="http://a.test/7",
        key=b"own",
        hops="LL",
        via="http://a.test/",
        attempts=2,
        payload=b"\0",
        queue=QueueKey("bkdr:1"),
        gate=GateKey("a.test"),
        since_s=12.5,
    )


def test_a_lease_comes_back_once() -> None:
    """It answers what was kept beside it; the second time it is lost."""
    leases = Leases()
    lease = hand_out(leases)
    assert (len(leases), leases.ordinals()) == (1, {7})
    held = leases.take_back(lease)
    assert (held.lease, held.gate.key, held.lane.gate, held.head.row.ordinal) == (lease, "a.test", 2, 7)
    assert (len(leases), leases.ordinals()) == (0, set())
    with pytest.raises(LeaseLost, match=r"the lease of http://a\.test/7 is not out"):
        leases.take_back(lease)


def test_a_lease_of_another_frontier_is_lost() -> None:
    """An equal lease is not the same lease: nothing happens to the one that is out."""
    leases = Leases()
    mine, foreign = hand_out(leases), hand_out(Leases())
    assert mine == foreign
    with pytest.raises(LeaseLost):
        leases.take_back(foreign)
    assert leases.take_back(mine).lease is mine
