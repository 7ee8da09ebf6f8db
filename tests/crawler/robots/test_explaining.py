"""What a person is told of a robots.txt and a URL."""

from __future__ import annotations

import pytest

from anabranch.crawler.robots.cache import Kept
from anabranch.crawler.robots.explaining import explain_robots, explain_rules, kept_words
from anabranch.crawler.robots.parsing import ALLOW_ALL, DISALLOW_ALL, RobotsRules, parse_robots

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


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (ALLOW_ALL, "asked for 2m ago, it was answered as one that is not there: all is allowed, for another 1m"),
        (DISALLOW_ALL, "asked for 2m ago, it could not be had: nothing of its host is fetched, for another 1m"),
        (
            parse_robots(BODY, "anabranch"),
            "asked for 2m ago, it was answered: its rules for anabranch hold for another 1m, Crawl-delay 2.5 s",
        ),
        (
            parse_robots(b"", "x"),
            "asked for 2m ago, it was answered: it says nothing to us, which holds for another 1m",
        ),
    ],
)
def test_what_a_crawl_knows_of_a_robots_txt_is_said_with_its_age(rules: RobotsRules, words: str) -> None:
    """When it was asked for, what came of it, and for how long that holds."""
    assert kept_words(Kept(rules, 1000.0, 1180.0), 1120.0) == words


@pytest.mark.parametrize("kept", [None, Kept(ALLOW_ALL, 0.0, 5.0)])
def test_a_robots_txt_that_is_not_known_is_to_be_asked_for(kept: Kept | None) -> None:
    """Never fetched by this run, or too long ago."""
    assert kept_words(kept, 5.0).startswith("its rules are not known, or too old")
