"""Queued URLs to the front of their queues."""

import pytest

from anabranch.frontier.core import Frontier
from anabranch.frontier.models import NORMAL, Candidate, OutcomeKind
from anabranch.frontier.stores.memory import MemoryStore
from tests.frontier.builder import HASTE, DelayingStore, Rig, build, pages

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
    rig.core.check()
    rig.finish(first)
    assert rig.drain(0.0) == [URLS[last], *(url for url in URLS[1:] if url != URLS[last])]
    rig.core.check()


def test_those_in_front_keep_their_order() -> None:
    """That of acceptance: saying it again changes nothing, nor does saying it twice at once."""
    rig = a_queue()
    bring_forward(rig.core, URLS[9], URLS[3], URLS[9])
    bring_forward(rig.core, URLS[9])
    assert rig.drain(0.0)[:3] == [URLS[3], URLS[9], URLS[0]]
    rig.core.check()


def test_what_is_leased_or_has_ended_or_is_unknown_stays_as_it_is() -> None:
    """A row that is leased is found, and is left alone."""
    rig = a_queue()
    rig.finish(rig.lease_now())
    leased = rig.lease_now()
    bring_forward(rig.core, URLS[0], URLS[1], "http://a.test/unknown", "no URL")
    rig.finish(leased)
    assert rig.drain(0.0) == URLS[2:]
    rig.core.check()


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
