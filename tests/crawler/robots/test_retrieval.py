"""Redirects of a robots.txt: what they may cost together."""

from __future__ import annotations

import asyncio

from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.fetch.options import FetchLimits
from anabranch.crawler.fetch.response import Response
from anabranch.crawler.outcomes.failures import FetchTimeout
from anabranch.crawler.robots.retrieval import MAX_REDIRECTS, follow_redirects
from anabranch.crawler.robots.rules import MAX_ROBOTS_BYTES
from tests.crawler.builder import response


async def test_all_redirects_together_have_the_time_of_one_fetch() -> None:
    """Each hop gets what is left; of a body no more is fetched than counts."""
    given: list[FetchLimits] = []

    async def get(url: str, *, limits: FetchLimits) -> Response:
        given.append(limits)
        await asyncio.sleep(0.001)
        return response(301)._replace(headers=CIMultiDictProxy(CIMultiDict(Location="/next")))

    found = await follow_redirects(get, "http://a.test/robots.txt", 60.0)
    assert (found.response.status, found.url, found.is_lost) == (301, "http://a.test/next", False)
    assert {limits.max_body_bytes for limits in given} == {MAX_ROBOTS_BYTES + 1}
    times = [limits.timeout_s for limits in given]
    assert times[0] == 60.0
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == MAX_REDIRECTS + 1


async def test_a_redirect_for_which_no_time_is_left_is_a_refusal() -> None:
    """The host took all of it; what is at the end of its redirects is not known."""
    moved = response(301)._replace(headers=CIMultiDictProxy(CIMultiDict(Location="/next")))

    async def get(url: str, *, limits: FetchLimits) -> Response:
        if limits.timeout_s == 0.0:
            raise FetchTimeout("not done within 0 s")
        await asyncio.sleep(2 * limits.timeout_s)
        return moved

    found = await follow_redirects(get, "http://a.test/robots.txt", 0.001)
    assert (found.response, found.is_lost) == (moved, True)


async def test_the_last_answer_is_given_the_beginning_of_the_first_fetch() -> None:
    """After redirects its times are those of the whole; nothing else changes."""
    moved = response(301)._replace(headers=CIMultiDictProxy(CIMultiDict(Location="/next")), start_s=7.0)
    last = response(200)._replace(start_s=8.0, end_s=9.0)
    answers = iter((moved, last))

    async def get(url: str, *, limits: FetchLimits) -> Response:
        return next(answers)

    found = await follow_redirects(get, "http://a.test/robots.txt", 60.0)
    assert found.response == last._replace(start_s=7.0)
