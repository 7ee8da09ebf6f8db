"""What a person is told of a robots.txt and a URL."""

from __future__ import annotations

from crawler.robots.explaining import explain_robots, explain_rules
from crawler.robots.parsing import ALLOW_ALL, DISALLOW_ALL

BODY = b"""\xef\xbb\xbf# for robots
User-agent: *\r
Disallow: /a  # not this

User-agent: AnaBranch
User-agent: other
Disallow: /b\x1b[31m
Allow: /b/c
Crawl-delay: 2.5
Sitemap: http://a.test/\x1bmap
"""


def test_the_group_and_the_line_that_decide_are_named() -> None:
    """By number, and as the line stands there."""
    told = explain_robots(BODY, "http://a.test/b/c/d", "anabranch")
    assert (told.allowed, told.group, told.group_lines, told.line, told.text) == (
        *(True, "anabranch", (5,)),
        *(8, "Allow: /b/c"),
    )
    assert told.lines() == [
        "allowed",
        "group: anabranch (named in line 5)",
        "line 8: Allow: /b/c (this rule has the most octets)",
        "crawl delay: 2.5 s",
        "sitemap: http://a.test/\ufffdmap",
    ]


def test_a_sites_text_does_not_reach_the_terminal_as_it_is() -> None:
    """Control characters are replaced, long lines are cut."""
    assert explain_robots(BODY, "http://a.test/b%1B[31m", "other").text == "Disallow: /b\ufffd[31m"
    long = b"User-agent: *\nDisallow: /" + b"x" * 500
    told = explain_robots(long, "http://a.test/" + "x" * 500, "other")
    assert told.text == "Disallow: /" + "x" * 109 + "…"


def test_everybodys_group_is_named_as_such_and_so_is_none() -> None:
    """A product without a group has everybody's, if there is one."""
    assert explain_robots(BODY, "http://a.test/a", "third").lines()[:3] == [
        "disallowed",
        "group: * (named in line 2)",
        "line 3: Disallow: /a  # not this (this rule has the most octets)",
    ]
    assert explain_robots(b"", "http://a.test/a", "third").lines() == [
        "allowed",
        "group: none speaks to this product",
        "no rule matches",
    ]


def test_rules_that_no_file_says_are_explained_in_words() -> None:
    """There was no robots.txt, or it could not be had."""
    assert explain_rules(ALLOW_ALL, "http://a.test/").lines()[::2] == ["allowed", "all may be fetched"]
    assert explain_rules(DISALLOW_ALL, "http://a.test/").lines()[::2] == ["disallowed", "nothing may be fetched"]
    assert explain_robots(BODY, "http://a.test/robots.txt", "x").reason == "robots.txt may always be fetched"


def test_a_group_that_is_named_ten_thousand_times_is_told_shortly() -> None:
    """The first ten lines will do."""
    told = explain_robots(b"User-agent: *\n" * 10_000, "http://a.test/", "x")
    assert told.lines()[1] == "group: * (named in line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)"
