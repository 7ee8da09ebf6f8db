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
    known = Known(slots=4, lately=2)
    many = [Link(f"http://a.test/{number}", "L") for number in range(1000)]
    for link in many:
        learn(known, (link, NEW))
        assert known.unknown([link]) == []
    assert len(known.unknown(many)) in range(994, 997)  # those in the slots, and two at most that were asked for lately
    others = [Link(f"http://b.test/{number}", "L") for number in range(1000)]
    assert known.unknown(others) == others


def test_the_hop_and_the_place_of_a_link_make_no_difference() -> None:
    """A URL is queued once, by whatever way it was found."""
    known = Known()
    learn(known, (LINKS[0], NEW))
    assert known.unknown([Link(LINKS[0].url, "E", "img/@src")]) == []


def test_links_that_were_asked_for_lately_are_known_without_a_slot() -> None:
    """Most pages of a site lead to the same ones. They are as many as is said: then others have their turn."""
    known = Known(slots=1, lately=2)
    for link in LINKS[:2]:
        learn(known, (link, NEW))
        assert known.unknown([link]) == []
    assert known.unknown(LINKS[:3]) == LINKS[2:3]
    learn(known, (LINKS[2], NEW))
    assert known.unknown(LINKS[:3]) == []
    assert known.unknown(LINKS[:3]) == LINKS[:2]


@pytest.mark.parametrize("long", [Link(f"http://a.test/{'x' * 600}", "L"), Link("http://a.test/", "I", "x" * 600)])
def test_long_links_are_not_kept_as_they_are(long: Link) -> None:
    """They may be as long as a site likes, and are known by their hashes all the same."""
    known = Known(slots=1)
    other = LINKS[0]
    learn(known, (long, NEW))
    assert known.unknown([long]) == []
    learn(known, (other, NEW))
    assert known.unknown([long]) == [long]
