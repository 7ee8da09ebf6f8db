"""URLs that the Frontier has: what is remembered, and look-ups in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from anabranch.crawler.extract.links import Link
from anabranch.crawler.processors.seen_urls import LookupBatcher, SeenUrls
from anabranch.frontier.records import BUSY, LATER, NEW, SEEN, Candidate, Verdict, VerdictKind


class Filter:
    """Calls keys new but for some, and notes what it was asked."""

    def __init__(self, *seen: bytes) -> None:
        self.seen = seen
        self.asked: list[bytes] = []

    def __call__(self, keys: Sequence[bytes]) -> list[bool]:
        self.asked += keys
        return [key not in self.seen for key in keys]


LINKS = [Link(f"http://a.test/{number}", "L") for number in range(5)]


def learn(known: SeenUrls, *said: tuple[Link, Verdict]) -> None:
    known.learn([Candidate(link.url) for link, _ in said], [verdict for _, verdict in said])


@pytest.mark.parametrize("verdict", [NEW, SEEN])
def test_what_the_frontier_has_is_known(verdict: Verdict) -> None:
    """It would call it seen each time; the other links stay, in their order."""
    known = SeenUrls(Filter())
    assert known.unseen(LINKS) == LINKS
    learn(known, (LINKS[1], verdict), (LINKS[3], verdict))
    assert known.unseen(LINKS) == [LINKS[0], LINKS[2], LINKS[4]]


@pytest.mark.parametrize("verdict", [BUSY, LATER, Verdict(VerdictKind.REFUSED, "it has no host")])
def test_what_the_frontier_may_take_later_is_not_known(verdict: Verdict) -> None:
    """It must be asked again, or another filter decides, which counts what it is asked."""
    known = SeenUrls(Filter())
    learn(known, (LINKS[0], verdict))
    assert known.unseen(LINKS[:1]) == LINKS[:1]


def test_what_is_remembered_is_bounded_and_never_wrong() -> None:
    """A URL that comes later takes the slot of an earlier one, which is then a candidate again; nothing else is known."""
    known = SeenUrls(Filter(), slots=4)
    many = [Link(f"http://a.test/{number}", "L") for number in range(1000)]
    for link in many:
        learn(known, (link, NEW))
        assert known.unseen([link]) == []
    assert len(known.unseen(many)) == 996
    others = [Link(f"http://b.test/{number}", "L") for number in range(1000)]
    assert known.unseen(others) == others


def test_the_hop_and_the_place_of_a_link_make_no_difference() -> None:
    """A URL is queued once, by whatever way it was found."""
    known = SeenUrls(Filter())
    learn(known, (LINKS[0], NEW))
    assert known.unseen([Link(LINKS[0].url, "E", "img/@src")]) == []


def test_of_the_urls_that_share_their_slots_the_last_two_are_known() -> None:
    """So a link to a page that was found long ago is seldom judged again; learning a URL again takes no slot."""
    known = SeenUrls(Filter(), slots=2)
    learn(known, (LINKS[0], NEW), (LINKS[1], NEW), (LINKS[1], SEEN))
    assert known.unseen(LINKS[:3]) == LINKS[2:3]
    learn(known, (LINKS[2], NEW))
    assert known.unseen(LINKS[:3]) == LINKS[:1]


async def test_of_many_links_the_filter_says_which_are_new() -> None:
    """By their keys; what it has seen is known from then on."""
    seen = Filter(b"http://a.test/1", b"key")
    known = SeenUrls(seen)
    keys = [None, None, None, b"key", None]
    assert await known.are_new([link.url for link in LINKS], keys) == [True, False, True, False, True]
    assert seen.asked == [b"http://a.test/0", b"http://a.test/1", b"http://a.test/2", b"key", b"http://a.test/4"]
    assert known.unseen(LINKS) == [LINKS[0], LINKS[2], LINKS[4]]


async def test_of_a_few_links_the_filter_is_not_asked() -> None:
    """Scheduling looks them up as well, so most of the new ones would be looked up twice."""
    seen = Filter(b"http://a.test/1")
    assert await SeenUrls(seen).are_new([link.url for link in LINKS[:3]], [None] * 3) == [True] * 3
    assert seen.asked == []


class Asked:
    """Says of each key whether it is longer than a byte, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []

    def __call__(self, keys: Sequence[bytes]) -> list[bool]:
        self.calls.append(list(keys))
        return [len(key) > 1 for key in keys]


async def test_what_comes_in_one_turn_is_one_question() -> None:
    """Each gets the answers to its own keys; what comes later is another question."""
    asked = Asked()
    together = LookupBatcher(asked)
    answers = await asyncio.gather(together([b"a", b"bb", b"c"]), together([]), together([b"dd", b"e"]))
    assert answers == [[False, True, False], [], [True, False]]
    assert await together([b"f"]) == [False]
    assert asked.calls == [[b"a", b"bb", b"c", b"dd", b"e"], [b"f"]]


async def test_who_was_cancelled_meanwhile_costs_the_others_nothing() -> None:
    """Their answers are their own."""
    together = LookupBatcher(Asked())
    tasks = [asyncio.create_task(together([key])) for key in (b"a", b"bb", b"cc")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert (tasks[0].result(), tasks[1].cancelled(), tasks[2].result()) == ([False], True, [True])


async def test_a_failure_is_told_to_all() -> None:
    """Whoever asks next asks anew."""
    failures = [ValueError("first")]

    def ask(keys: Sequence[bytes]) -> list[bool]:
        if failures:
            raise failures.pop()
        return [True for _ in keys]

    together = LookupBatcher(ask)
    told = await asyncio.gather(together([b"a"]), together([b"b"]), return_exceptions=True)
    assert [str(error) for error in told] == ["first", "first"]
    assert await together([b"a"]) == [True]


async def test_nothing_is_asked_before_the_turn_is_over() -> None:
    """Others of the same turn may still come."""
    asked = Asked()
    task = asyncio.create_task(LookupBatcher(asked)([b"a"]))
    await asyncio.sleep(0)
    assert asked.calls == []
    with pytest.raises(asyncio.InvalidStateError):
        task.result()
    assert await task == [False]
