"""URLs that the Frontier has: what is known, and for how long."""

from __future__ import annotations

import pytest

from crawler.extracting.links import Link
from crawler.processors.known import Known
from frontier.models import BUSY, LATER, NEW, SEEN, Candidate, Verdict, VerdictKind

LINKS = [Link(f"http://a.test/{number}", "L") for number in range(5)]


def learn(known: Known, *said: tuple[Link, Verdict]) -> None:
    known.learn([Candidate(link.url) for link, _ in said], [verdict for _, verdict in said])


@pytest.mark.parametrize("verdict", [NEW, SEEN])
def test_what_the_frontier_has_is_known(verdict: Verdict) -> None:
    """It would call it seen each time; the other links stay, in their order."""
    known = Known()
    assert known.unknown(LINKS) == LINKS
    learn(known, (LINKS[1], verdict), (LINKS[3], verdict))
    assert known.unknown(LINKS) == [LINKS[0], LINKS[2], LINKS[4]]


@pytest.mark.parametrize("verdict", [BUSY, LATER, Verdict(VerdictKind.REFUSED, "it has no host")])
def test_what_the_frontier_may_take_later_is_not_known(verdict: Verdict) -> None:
    """It must be asked again, or another filter decides, which counts what it is asked."""
    known = Known()
    learn(known, (LINKS[0], verdict))
    assert known.unknown(LINKS[:1]) == LINKS[:1]


def test_what_is_remembered_is_bounded_and_never_wrong() -> None:
    """A URL that comes later takes the slot of an earlier one, which is then a candidate again; nothing else is known."""
    known = Known(slots=4)
    many = [Link(f"http://a.test/{number}", "L") for number in range(1000)]
    for link in many:
        learn(known, (link, NEW))
        assert known.unknown([link]) == []
    assert len(known.unknown(many)) == 996
    others = [Link(f"http://b.test/{number}", "L") for number in range(1000)]
    assert known.unknown(others) == others


def test_the_hop_and_the_place_of_a_link_make_no_difference() -> None:
    """A URL is queued once, by whatever way it was found."""
    known = Known()
    learn(known, (LINKS[0], NEW))
    assert known.unknown([Link(LINKS[0].url, "E", "img/@src")]) == []
