"""URLs that the Frontier has: what is known, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anabranch.crawler.extracting.links import Link
from anabranch.crawler.processors.known import Known
from anabranch.frontier.models import BUSY, LATER, NEW, SEEN, Candidate, Verdict, VerdictKind


class Filter:
    """Calls keys new but for some, and notes what it was asked."""

    def __init__(self, *seen: bytes) -> None:
        self.seen = seen
        self.asked: list[bytes] = []

    def __call__(self, keys: Sequence[bytes]) -> list[bool]:
        self.asked += keys
        return [key not in self.seen for key in keys]


LINKS = [Link(f"http://a.test/{number}", "L") for number in range(5)]


def learn(known: Known, *said: tuple[Link, Verdict]) -> None:
    known.learn([Candidate(link.url) for link, _ in said], [verdict for _, verdict in said])


@pytest.mark.parametrize("verdict", [NEW, SEEN])
def test_what_the_frontier_has_is_known(verdict: Verdict) -> None:
    """It would call it seen each time; the other links stay, in their order."""
    known = Known(Filter())
    assert known.unknown(LINKS) == LINKS
    learn(known, (LINKS[1], verdict), (LINKS[3], verdict))
    assert known.unknown(LINKS) == [LINKS[0], LINKS[2], LINKS[4]]


@pytest.mark.parametrize("verdict", [BUSY, LATER, Verdict(VerdictKind.REFUSED, "it has no host")])
def test_what_the_frontier_may_take_later_is_not_known(verdict: Verdict) -> None:
    """It must be asked again, or another filter decides, which counts what it is asked."""
    known = Known(Filter())
    learn(known, (LINKS[0], verdict))
    assert known.unknown(LINKS[:1]) == LINKS[:1]


def test_what_is_remembered_is_bounded_and_never_wrong() -> None:
    """A URL that comes later takes the slot of an earlier one, which is then a candidate again; nothing else is known."""
    known = Known(Filter(), slots=4, lately=2)
    many = [Link(f"http://a.test/{number}", "L") for number in range(1000)]
    for link in many:
        learn(known, (link, NEW))
        assert known.unknown([link]) == []
    assert len(known.unknown(many)) in range(994, 997)  # those in the slots, and two at most that were asked for lately
    others = [Link(f"http://b.test/{number}", "L") for number in range(1000)]
    assert known.unknown(others) == others


def test_the_hop_and_the_place_of_a_link_make_no_difference() -> None:
    """A URL is queued once, by whatever way it was found."""
    known = Known(Filter())
    learn(known, (LINKS[0], NEW))
    assert known.unknown([Link(LINKS[0].url, "E", "img/@src")]) == []


def test_links_that_were_asked_for_lately_are_known_without_a_slot() -> None:
    """Most pages of a site lead to the same ones. They are as many as is said: then others have their turn."""
    known = Known(Filter(), slots=1, lately=2)
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
    known = Known(Filter(), slots=1)
    other = LINKS[0]
    learn(known, (long, NEW))
    assert known.unknown([long]) == []
    learn(known, (other, NEW))
    assert known.unknown([long]) == [long]


async def test_of_many_links_the_filter_says_which_are_new() -> None:
    """By their keys; what it has seen is known from then on."""
    seen = Filter(b"http://a.test/1", b"key")
    known = Known(seen)
    keys = [None, None, None, b"key", None]
    assert await known.are_new([link.url for link in LINKS], keys) == [True, False, True, False, True]
    assert seen.asked == [b"http://a.test/0", b"http://a.test/1", b"http://a.test/2", b"key", b"http://a.test/4"]
    assert known.unknown(LINKS) == [LINKS[0], LINKS[2], LINKS[4]]


async def test_of_a_few_links_the_filter_is_not_asked() -> None:
    """As candidates they are asked for, too, and it would be asked twice of most that are new."""
    seen = Filter(b"http://a.test/1")
    assert await Known(seen).are_new([link.url for link in LINKS[:3]], [None] * 3) == [True] * 3
    assert seen.asked == []
