"""Queues that are paused or retired while their URLs are leased."""

from itertools import permutations

import pytest

from anabranch.frontier.models import QueueKey
from tests.frontier.builder import HASTE, build, pages

A = QueueKey("a.test")


@pytest.mark.parametrize("orders", [*permutations(["pause", "retire", "resume"]), ("retire", "pause", "retire")])
def test_leases_of_a_retired_queue_are_counted_whatever_was_ordered_before(orders: tuple[str, ...]) -> None:
    """URLs of retired queues are not pending, leased ones are in flight, and nothing is counted twice."""
    rig = build(politeness=HASTE)
    rig.add(*pages("a.test", 2))
    lease = rig.lease_now()
    for order in orders:
        getattr(rig.core.operations, order)(A)
        is_retired = rig.state_of("a.test") == "retired"
        assert (rig.core.pending, rig.core.in_flight, rig.core.counts().retired) == (not is_retired, 1, is_retired)
    rig.finish(lease)
    rig.core.take_answers()  # the store says how many URLs of retired queues there are
    assert (rig.core.pending, rig.core.counts().retired) == (not is_retired, is_retired)
    assert rig.core.is_done is is_retired
    rig.core.check()


def test_a_last_url_that_ends_in_a_queue_that_was_retired_then_paused_ends_the_crawl() -> None:
    """Nothing is left that anybody could wait for."""
    rig = build(politeness=HASTE)
    rig.add("http://a.test/")
    lease = rig.lease_now()
    rig.core.operations.retire(A)
    rig.core.operations.pause(A)
    rig.finish(lease)
    assert rig.core.is_done
