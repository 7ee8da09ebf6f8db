"""What was decided of a URL keeps until it comes back."""

from __future__ import annotations

import pytest

from anabranch.crawler.robots.parsing import ALLOW_ALL, DISALLOW_ALL, RobotsRules, parse_robots
from anabranch.crawler.robots.verdicts import Verdict, Verdicts, verdict_of

RULES = parse_robots(b"User-agent: *\nDisallow: /private", "x")
URL = "http://a.test/open"


@pytest.mark.parametrize(
    ("rules", "url", "verdict"),
    [
        (RULES, URL, Verdict.ALLOWED),
        (RULES, "http://a.test/private", Verdict.EXCLUDED),
        (ALLOW_ALL, URL, Verdict.ALLOWED),
        (DISALLOW_ALL, URL, Verdict.UNKNOWN),
        (DISALLOW_ALL, "http://a.test/robots.txt", Verdict.UNKNOWN),
    ],
)
def test_rules_that_could_not_be_had_exclude_nothing(rules: RobotsRules, url: str, verdict: Verdict) -> None:
    """To be forbidden and not to know are two things: only one of them is final."""
    assert verdict_of(rules, url) is verdict


def test_a_verdict_is_for_one_use() -> None:
    """When the URL comes another time, the rules are asked."""
    verdicts = Verdicts()
    verdicts.keep(URL, Verdict.EXCLUDED, 10.0)
    assert [verdicts.take(URL, 0.0), verdicts.take(URL, 0.0)] == [Verdict.EXCLUDED, None]


def test_a_verdict_that_is_too_old_is_none() -> None:
    """It lives as long as the rules would, and leaves nothing behind."""
    verdicts = Verdicts()
    verdicts.keep(URL, Verdict.ALLOWED, 10.0)
    assert verdicts.take(URL, 10.0) is None
    assert len(verdicts) == 0


def test_the_later_verdict_of_a_url_holds() -> None:
    """It was judged anew, by newer rules."""
    verdicts = Verdicts()
    verdicts.keep(URL, Verdict.ALLOWED, 10.0)
    verdicts.keep(URL, Verdict.EXCLUDED, 20.0)
    assert verdicts.take(URL, 15.0) is Verdict.EXCLUDED


def test_of_very_many_urls_those_are_forgotten_that_have_waited_longest() -> None:
    """They may never come back: their queues may have been retired."""
    verdicts = Verdicts(2)
    for number in range(4):
        verdicts.keep(f"http://{number}.test/", Verdict.ALLOWED, 10.0)
    assert [verdicts.take(f"http://{number}.test/", 0.0) for number in range(4)] == [None, None, *[Verdict.ALLOWED] * 2]
