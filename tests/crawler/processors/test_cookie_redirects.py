"""Redirects that only set a cookie: which URLs are asked for once more, how often, and what the log says."""

from __future__ import annotations

import tracemalloc

import pytest

from anabranch.crawler.fetch.cookies import Cookies
from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.processors.candidates import FindCandidates
from anabranch.crawler.processors.cookie_redirects import COOKIES_OFF, MAX_KEPT_CHARS, MAX_REPEATS, RepeatForCookies
from anabranch.crawler.scope.scope import open_scope
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.crawler.visit import Visit
from anabranch.frontier.records import Candidate
from tests.crawler.builder import lease, response

NOW_S = 1_700_000_000.0
A, B = "http://a.test/a", "http://a.test/b"


async def no_seed(url: str, via: str) -> None:
    """No test has redirects of seeds."""


class Site:
    """A jar, and the visits of a site that redirects."""

    def __init__(self, *, has_cookies: bool = True, max_embeds: int = 5) -> None:
        scope = open_scope(ScopeSection(max_embeds=max_embeds))
        scope.add_seed("http://a.test/")
        self.cookies = Cookies()
        finder = FindCandidates(scope, Canonicalizer(), no_seed)
        self.process = RepeatForCookies(finder, self.cookies_for if has_cookies else lambda _: None)

    def cookies_for(self, url: str) -> str:
        return self.cookies.header(url, NOW_S)

    async def redirect(self, url: str, target: str, cookie: str = "", *, hops: str = "L", via: str = "") -> Visit:
        """Ask for the URL with the cookies of the jar; the answer leads to the target and sets the cookie."""
        sent = self.cookies_for(url)
        fields = {"Location": target} | ({"Set_Cookie": cookie} if cookie else {})
        answer = response(302, **fields)._replace(sent=f"GET / HTTP/1.1\r\nCookie: {sent}\r\n\r\n".encode)
        if cookie:
            self.cookies.learn(url, [cookie], NOW_S)
        visit = Visit(lease(url, hops=hops, via=via or "http://a.test/"), 1, response=answer)
        await self.process(visit)
        return visit


def forced(url: str, hops: str) -> list[Candidate]:
    return [Candidate(url, hops=hops, force=True)]


async def test_a_page_that_redirects_to_itself_with_a_cookie_is_asked_for_once_more() -> None:
    """It comes from the queue, one redirect further from its seed."""
    assert (await Site().redirect(A, A, "k=1")).discovered == forced(A, "LR")


async def test_a_page_that_leads_back_behind_a_cookie_is_asked_for_once_more() -> None:
    """A leads to B, which sets the cookie and leads to A."""
    site = Site()
    assert not (await site.redirect(A, B)).discovered
    assert (await site.redirect(B, A, "k=1; Path=/", hops="LR", via=A)).discovered == forced(A, "LRR")


async def test_the_first_page_of_a_longer_chain_is_asked_for_once_more() -> None:
    """Whichever page of the chain sets the cookie."""
    site = Site()
    await site.redirect(A, B)
    await site.redirect(B, f"{A}/c", "k=1; Path=/", hops="LR", via=A)
    assert (await site.redirect(f"{A}/c", A, hops="LRR", via=B)).discovered == forced(A, "LRRR")


async def test_the_page_that_led_here_counts_without_being_remembered() -> None:
    """Another process has asked for it, or this one before it was killed."""
    assert (await Site().redirect(B, A, "k=1; Path=/", hops="LR", via=A)).discovered == forced(A, "LRR")


@pytest.mark.parametrize("cookie", ["", "k=0", "k=1; Path=/elsewhere", "k=1; Max-Age=0"])
async def test_without_a_new_value_it_is_a_loop(cookie: str) -> None:
    """No cookie, the one that was sent, one for other pages, one that is taken back."""
    site = Site()
    site.cookies.learn(A, ["k=0"], NOW_S)
    assert not (await site.redirect(A, A, cookie)).discovered


@pytest.mark.parametrize(("hops", "most"), [("L", MAX_REPEATS), ("LRRRR", 1)])
async def test_each_new_value_counts_once_and_three_at_most(hops: str, most: int) -> None:
    """A server that invents a value for each answer is left alone; redirects that led to the page allow it one repeat."""
    site, via = Site(), "http://a.test/"
    for number in range(MAX_REPEATS + 3):
        visit = await site.redirect(A, A, f"k={number}", hops=hops, via=via)
        if not visit.discovered:
            break
        hops, via = visit.discovered[0].hops, A
    assert number == most


@pytest.mark.parametrize(("redirects", "is_repeated"), [(5, True), (6, False)])
async def test_two_pages_that_lead_to_each_other_are_repeated_three_times(redirects: int, is_repeated: bool) -> None:
    """Two redirects are one repeat."""
    visit = await Site().redirect(B, A, "k=1; Path=/", hops="L" + "R" * redirects, via=A)
    assert visit.discovered == (forced(A, f"L{'R' * (redirects + 1)}") if is_repeated else [])


async def test_the_count_lasts_beyond_the_memory() -> None:
    """It is in the hops: a process that is killed after each answer asks no more often."""
    hops, via, asked = "L", "http://a.test/", 0
    while (visit := await Site().redirect(A, A, f"k={asked}", hops=hops, via=via)).discovered:
        hops, via, asked = visit.discovered[0].hops, A, asked + 1
    assert asked == MAX_REPEATS


async def test_many_pages_that_lead_to_one_ask_for_it_three_times_together() -> None:
    """Each sets a new cookie, and has no redirect before it: the hops alone would count none."""
    site, asked = Site(), 0
    await site.redirect(A, B)
    for number in range(20):
        asked += len((await site.redirect(f"{A}/{number}", A, f"k={number}; Path=/")).discovered)
        asked += len((await site.redirect(A, A, f"l={number}; Path=/", hops="LR", via=f"{A}/{number}")).discovered)
    assert asked == MAX_REPEATS


async def test_two_hosts_that_lead_to_each_other_end() -> None:
    """Each sets a new cookie each time."""
    site, urls, hops = Site(), (A, "http://b.test/b"), "L"
    via = "http://a.test/"
    for number in range(20):
        url, target = urls[number % 2], urls[1 - number % 2]
        visit = await site.redirect(url, target, f"k={number}; Path=/", hops=hops, via=via)
        if number and not visit.discovered:
            break
        hops, via = hops + "R", url
    assert number <= 2 * MAX_REPEATS + 1


async def test_long_urls_and_cookies_are_bounded_together() -> None:
    """A site that redirects each of a million long URLs with the most cookies."""
    site = Site()
    for number in range(10):
        site.cookies.learn(A, [f"k{number}={'v' * 800}; Path=/"], NOW_S)
    tracemalloc.start()
    try:
        for number in range(1_500):
            await site.redirect(f"{A}?{number}{'x' * 4000}", B)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * MAX_KEPT_CHARS


async def test_what_is_out_of_scope_stays_there() -> None:
    """A cookie makes no page wanted."""
    assert not (await Site(max_embeds=0).redirect("http://b.test/", "http://b.test/", "k=1")).discovered


async def test_with_cookies_off_the_note_names_the_setting() -> None:
    """Only where a cookie would have helped."""
    site = Site(has_cookies=False)
    visit = await site.redirect(A, A, "k=1")
    assert (visit.discovered, visit.notes) == ([], (COOKIES_OFF,))
    assert (await site.redirect(A, A)).notes == ()
    assert (await site.redirect(A, B, "k=1")).notes == ()
