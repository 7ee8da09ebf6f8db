"""Ignore sets: what each has, what it leaves alone, its versions, and that no URL makes one slow."""

from __future__ import annotations

from hashlib import sha256

import pytest

from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.scope.rules import Decision, ignore_sets
from anabranch.crawler.urls.ignoresets import IGNORE_SETS, patterns_of, pinned
from tests.rows import each_row

#: Set -> URLs that it has, and URLs that it leaves alone.
ROWS = {
    "calendars@1": (
        [
            "http://a.test/events/2024-05/",
            "http://a.test/events/month/2024-05/",
            "http://a.test/calendar/2024/5/17",
            "http://a.test/veranstaltungen/2024-05-17",
            "http://a.test/events/?tribe-bar-date=2031-01-01",
            "http://a.test/event/fair/?ical=1",
            "http://a.test/cal?month=5&year=2031",
            "http://a.test/cal?year=2031&view=grid&month=5",
            "http://a.test/month.calendar/2031/05/01/-",
            "http://a.test/month_view.php?date=20310501",
            "https://calendar.google.com/calendar/event?action=TEMPLATE",
        ],
        [
            "http://a.test/2024/05/17/a-post/",
            "http://a.test/news/2024-05-17-flood",
            "http://a.test/events/summer-fair/",
            "http://a.test/calendar/",
            "http://a.test/list?year=2024",
            "http://a.test/medical=1?x=ical",
        ],
    ),
    "share-buttons@1": (
        [
            "https://www.facebook.com/sharer/sharer.php?u=http://a.test/",
            "https://de-de.facebook.com/sharer.php?u=x",
            "https://twitter.com/intent/tweet?url=x",
            "https://x.com/share?text=x",
            "https://www.linkedin.com/shareArticle?mini=true",
            "https://www.pinterest.co.uk/pin/create/button/?url=x",
            "https://www.reddit.com/submit?url=x",
            "https://t.me/share/url?url=x",
            "https://wa.me/?text=x",
            "https://news.ycombinator.com/submitlink?u=x",
            "https://vk.com/share.php?url=x",
            "http://a.test/post/?share=facebook",
            "http://a.test/post/?nb=1&share=jetpack-whatsapp",
        ],
        [
            "https://www.facebook.com/museum",
            "https://twitter.com/museum/status/1",
            "https://x.com/museum",
            "https://www.reddit.com/r/museum/comments/1",
            "http://a.test/?share=42",
            "http://a.test/share/prices",
            "http://a.test/?u=https://twitter.com/intent/tweet",
        ],
    ),
    "forum-actions@1": (
        [
            "http://a.test/posting.php?mode=reply&f=1&t=2",
            "http://a.test/forum/posting.php?f=1&mode=quote&p=2",
            "http://a.test/ucp.php?mode=login",
            "http://a.test/viewtopic.php?t=1&view=print",
            "http://a.test/newreply.php?do=newreply&p=1",
            "http://a.test/printthread.php?tid=1",
            "http://a.test/member.php?action=profile&uid=1",
            "http://a.test/index.php?topic=1.0;action=printpage",
            "http://a.test/index.php?action=reminder",
            "http://a.test/threads/a-title.1/add-reply",
            "http://a.test/posts/12/report",
            "http://a.test/topic/1-x/?do=findComment&comment=2",
            "http://a.test/a-post/?replytocom=17",
        ],
        [
            "http://a.test/viewtopic.php?f=1&t=2",
            "http://a.test/viewforum.php?f=1&start=50",
            "http://a.test/showthread.php?t=1&page=2",
            "http://a.test/index.php?topic=1.15",
            "http://a.test/index.php?action=recent",
            "http://a.test/threads/a-title.1/page-2",
            "http://a.test/members/ann.1/",
            "http://a.test/login.php",
        ],
    ),
    "session-ids@1": (
        [
            "http://a.test/p;jsessionid=0123456789abcdef",
            "http://a.test/p?PHPSESSID=abc",
            "http://a.test/p?a=1&osCsid=abc",
            "http://a.test/p?sid=0123456789abcdef0123456789abcdef",
            "http://a.test/p?CFID=1&CFTOKEN=2",
            "http://a.test/(S(lit3py55t21z5v55vlm25s55))/p.aspx",
            "http://a.test/session/0123456789abcdef0123/p",
        ],
        [
            "http://a.test/p?sid=17",
            "http://a.test/p?s=search",
            "http://a.test/session/2",
            "http://a.test/sessions/0123456789abcdef0123",
            "http://a.test/(s)/p",
            "http://a.test/p?phpsessid=",
        ],
    ),
}


def test_each_set_has_rows() -> None:
    """In each of its versions."""
    assert set(ROWS) == {f"{name}@{version}" for name, versions in IGNORE_SETS.items() for version in versions}


@each_row(("name", "url"), [(name, url) for name, (taken, _) in ROWS.items() for url in taken])
def test_a_set_has_what_it_is_for(name: str, url: str) -> None:
    """By one of its patterns, which `why` names."""
    rule = ignore_sets([name])
    assert rule.ask(url, "L", None) is Decision.REJECT
    assert rule.detail is not None
    assert rule.detail(url).startswith(f"{name}, ")


@each_row(("name", "url"), [(name, url) for name, (_, left) in ROWS.items() for url in left])
def test_a_set_leaves_pages_alone(name: str, url: str) -> None:
    """Those that look alike, too."""
    assert ignore_sets([name]).ask(url, "L", None) is None


@each_row(
    ("name", "digest"),
    [
        ("calendars@1", "dc516095a4ce2df9"),
        ("share-buttons@1", "0e424efc556828bd"),
        ("forum-actions@1", "7383061da3ebe11b"),
        ("session-ids@1", "ca8650e4295a0e91"),
    ],
)
def test_a_version_never_changes(name: str, digest: str) -> None:
    """Jobs keep it: whoever improves a list adds a version."""
    text = "\n".join(pattern.pattern for pattern in patterns_of(name))
    assert sha256(text.encode()).hexdigest()[:16] == digest


def test_a_job_keeps_the_version_that_it_began_with() -> None:
    """Also if the order names none."""
    order = CrawlOrder(scope=ScopeSection.model_validate({"ignore": "calendars"}))
    assert order.scope.ignore == ("calendars@1",)
    assert 'ignore = [\n    "calendars@1",\n]' in dump_order(order)


@pytest.mark.parametrize("name", ["calender", "calendars@", "calendars@9", "calendars@1x", "calendars@" + "9" * 5000])
def test_a_set_that_is_not_known_is_refused(name: str) -> None:
    """With the names that there are."""
    with pytest.raises(
        ValueError, match=r"which is no (ignore set; there are calendars, share|version of that ignore set)"
    ):
        pinned(name)


@pytest.mark.parametrize(
    "part",
    [
        "/",
        "&",
        "?m=1&",
        "&y=1",
        "(a",
        "/events/",
        "/posting.php?a&",
        "/index.php?a;",
        "action=",
        ";a",
        "s=0123456789abcdef",
        "&mode",
    ],
)
@pytest.mark.parametrize("name", list(ROWS))
def test_no_url_makes_a_set_slow(name: str, part: str) -> None:
    """A site chooses its URLs: one of 60,000 characters takes milliseconds."""
    url = "http://a.test/" + part * (60_000 // len(part))
    ignore_sets([name]).ask(url, "L", None)
