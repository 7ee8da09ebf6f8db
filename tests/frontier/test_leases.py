"""Leases by the ordinal of their URL."""

from __future__ import annotations

import math

import pytest

from anabranch.frontier.errors import LeaseLost
from anabranch.frontier.leases import MAX_PAGES, Leases
from anabranch.frontier.models import GateKey, Head, Lease, QueueKey
from anabranch.frontier.scheduling.gatelines import GateHeap, Line
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.workqueues import Lane, WorkQueue
from anabranch.frontier.turns import Turn
from tests.frontier.builder import row


def hand_out(leases: Leases, ordinal: int = 7, now_s: float = 12.5, via: str | None = "http://a.test/") -> Lease:
    queue = WorkQueue(1, 1)
    queue.key = QueueKey("bkdr:1")
    lane = Lane(queue, Line(Gate(2, GateKey("a.test"), Politeness()), GateHeap()), Turn(1), 3000)
    taken = row(ordinal)._replace(hops="LL", attempts=2, key=b"own", payload=b"\0", via=3)
    return leases.hand_out(lane, Head(taken, via), now_s)


def lost(leases: Leases, now_s: float) -> list[int]:
    return [lease.ordinal for lease, _, _ in leases.take_expired(now_s)]


def test_a_lease_says_all_that_a_worker_needs() -> None:
    """The row's facts, its queue and gate by name, and the moment; it ends only with its process."""
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
        until_s=math.inf,
    )


def test_a_lease_comes_back_once() -> None:
    """It answers what was kept beside it; the second time it is lost."""
    leases = Leases()
    lease = hand_out(leases)
    assert (len(leases), leases.ordinals(), leases.since_s(7)) == (1, {7}, lease.since_s)
    assert leases.find(lease)[0] is lease
    held = leases.take_back(lease)
    assert (held[0], held[1].id, held[2].row.ordinal) == (lease, (1, 2), 7)
    assert (len(leases), leases.ordinals(), leases.since_s(7)) == (0, set(), None)
    with pytest.raises(LeaseLost, match=r"the lease of http://a\.test/7 is not out"):
        leases.take_back(lease)


def test_another_lease_of_the_same_url_is_not_this_one() -> None:
    """A worker that lost its lease cannot end the one that another got since."""
    leases = Leases()
    old = hand_out(leases)
    leases.take_back(old)
    new = hand_out(leases, now_s=99.0)
    with pytest.raises(LeaseLost):
        leases.take_back(old)
    assert leases.take_back(new)[0] is new


def test_a_lease_without_end_is_never_lost() -> None:
    """Its owner is the one who fetches: if that process dies, so does the lease."""
    leases = Leases()
    hand_out(leases)
    assert leases.next_expiry() is None
    assert lost(leases, 1e12) == []


def test_a_lease_that_is_not_ended_in_its_time_is_lost() -> None:
    """The oldest first; it is counted, and whoever had it hears of it."""
    leases = Leases(lease_s=60.0)
    first, second, third = (hand_out(leases, ordinal, now_s) for ordinal, now_s in [(1, 0.0), (2, 10.0), (3, 20.0)])
    assert (first.until_s, leases.next_expiry()) == (60.0, 60.0)
    leases.take_back(second)
    assert lost(leases, 59.9) == []
    assert lost(leases, 80.0) == [1, 3]
    assert leases.lost == 2
    with pytest.raises(LeaseLost):
        leases.take_back(third)


def test_a_renewed_lease_lasts_as_long_again() -> None:
    """From the renewal on; what was handed out before still names it."""
    leases = Leases(lease_s=60.0)
    lease = hand_out(leases, now_s=0.0)
    renewed = leases.renew(lease, 50.0)
    assert renewed == lease._replace(until_s=110.0)
    assert (leases.next_expiry(), lost(leases, 109.0)) == (110.0, [])
    again = leases.renew(lease, 100.0)
    assert leases.take_back(renewed)[0] == again
    assert leases.next_expiry() is None


def test_a_lost_lease_cannot_be_renewed() -> None:
    """It may have been given to another meanwhile."""
    leases = Leases(lease_s=60.0)
    lease = hand_out(leases, now_s=0.0)
    assert lost(leases, 60.0) == [7]
    with pytest.raises(LeaseLost):
        leases.renew(lease, 61.0)


def test_a_page_that_sent_links_ahead_of_its_end_is_remembered_as_their_via() -> None:
    """The store tells a page's URL only when its end is written; so many pages are kept, the oldest goes first."""
    leases = Leases()
    page = hand_out(leases, 3)
    assert hand_out(leases, 8, via=None).via is None
    leases.remember(page)
    assert hand_out(leases, 9, via=None).via == page.url
    for ordinal in range(100, 100 + MAX_PAGES):
        leases.remember(page._replace(ordinal=ordinal))
    assert hand_out(leases, 10, via=None).via is None
