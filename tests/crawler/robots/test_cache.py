"""Tests of the meaning of an answer, and of how long and how many rules are kept."""

from __future__ import annotations

import pytest

from anabranch.crawler.robots.cache import (
    CachedRules,
    CrawlDelays,
    PendingVerdicts,
    RobotsCache,
    RobotsVerdict,
    describe_cached,
    verdict_of,
)
from anabranch.crawler.robots.retrieval import robots_url, rules_of
from anabranch.crawler.robots.rules import ALLOW_ALL, DISALLOW_ALL, RobotsRules, parse_robots
from anabranch.frontier.records import GateKey
from tests.rows import each_row

URL = "https://a.test/private/x"
STRICT = parse_robots(b"User-agent: *\nDisallow: /", "anabranch")


@each_row("status", [301, 302, 304, 307, 399, 400, 401, 403, 404, 410, 451, 499])
def test_an_answer_without_rules_allows_everything(status: int) -> None:
    """RFC 9309, 2.3.1.3: unavailable, whatever the body says; redirects that cannot be followed are that, too (2.3.1.2)."""
    assert rules_of(status, b"User-agent: *\nDisallow: /", "anabranch") is ALLOW_ALL
    assert ALLOW_ALL.allows(URL)


@each_row("status", [429, 500, 502, 503, 599, 600, 999, 100, 101, 0, -2, -4])
def test_a_host_that_could_not_be_asked_allows_nothing(status: int) -> None:
    """RFC 9309, 2.3.1.4: unreachable. A busy host is one (429), and so is an answer that no standard knows.

    Heritrix allows everything after a 5xx.
    """
    assert rules_of(status, b"User-agent: *\nAllow: /", "anabranch") is DISALLOW_ALL
    assert not DISALLOW_ALL.allows(URL)


def test_a_good_answer_is_read() -> None:
    """For the product, whole or cut."""
    body = b"User-agent: *\nDisallow: /public\nDisallow: /"
    assert not rules_of(200, body, "anabranch").allows(URL)
    assert rules_of(299, body, "anabranch", is_cut=True).allows(URL)


def test_a_robots_txt_of_which_nothing_can_be_read_forbids_all() -> None:
    """It is unreachable; a missing one is missing, whatever its body, and an empty one forbids nothing."""
    assert rules_of(200, b"", "anabranch", is_cut=True) is DISALLOW_ALL
    assert rules_of(404, b"", "anabranch", is_cut=True) is ALLOW_ALL
    assert rules_of(200, b"", "anabranch").allows(URL)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a.test/", "http://a.test/robots.txt"),
        ("https://a.test:8443/x/y?q=//z", "https://a.test:8443/robots.txt"),
        ("http://a.test/?x=/", "http://a.test/robots.txt"),
        ("http://[::1]:81/a", "http://[::1]:81/robots.txt"),
    ],
)
def test_robots_url_is_at_the_root_of_the_origin(url: str, expected: str) -> None:
    """RFC 9309, 2.3: scheme, host and port, then /robots.txt."""
    assert robots_url(url) == expected


def test_the_cache_answers_for_the_whole_origin_and_no_other() -> None:
    """Scheme and port are part of the origin."""
    cache = RobotsCache()
    cache.put("http://a.test/x", ALLOW_ALL, 0.0)
    assert cache.get("http://a.test/y?z", 1.0) is ALLOW_ALL
    assert cache.get("https://a.test/x", 1.0) is None
    assert cache.get("http://a.test:81/x", 1.0) is None


def test_rules_live_for_a_day_unless_it_is_said_otherwise() -> None:
    """RFC 9309, 2.4: 24 hours, a parsed disallow included; then they are gone."""
    for cache, lifetime_s in ((RobotsCache(), 86_400.0), (RobotsCache(60.0), 60.0)):
        cache.put(URL, STRICT, 100.0)
        assert cache.get(URL, 100.0 + lifetime_s - 0.1) is STRICT
        assert cache.get(URL, 100.0 + lifetime_s) is None
        assert (len(cache), cache.size_bytes) == (0, 0)


def test_a_robots_txt_that_could_not_be_had_is_asked_for_again_after_an_hour() -> None:
    """DISALLOW_ALL is a guess, so it lives less long than an answer; how long can be said, too."""
    for cache, lifetime_s in ((RobotsCache(), 3600.0), (RobotsCache(unreachable_s=5.0), 5.0)):
        cache.put(URL, DISALLOW_ALL, 0.0)
        assert cache.get(URL, lifetime_s - 0.1) is DISALLOW_ALL
        assert cache.get(URL, lifetime_s) is None


def test_the_cache_forgets_the_origin_asked_for_longest_ago() -> None:
    """A full cache drops the least recently used origin."""
    cache = RobotsCache(max_origins=2)
    cache.put("http://a.test/", ALLOW_ALL, 0.0)
    cache.put("http://b.test/", ALLOW_ALL, 0.0)
    cache.get("http://a.test/", 1.0)
    cache.put("http://c.test/", ALLOW_ALL, 2.0)
    assert [cache.get(f"http://{name}.test/", 3.0) for name in "abc"] == [ALLOW_ALL, None, ALLOW_ALL]


def test_rules_of_thousands_of_hostile_hosts_do_not_fill_the_memory() -> None:
    """The cache is bounded by its size, too; the newest rules are kept however large they are."""
    large = parse_robots(b"User-agent: *\n" + b"".join(b"Allow: /%d\n" % number for number in range(1000)), "x")
    cache = RobotsCache(max_bytes=3 * large.size_bytes)
    for number in range(20):
        cache.put(f"http://{number}.test/", large, 0.0)
        cache.put(f"http://{number}.test/", large, 0.0)
    assert (len(cache), cache.size_bytes) == (3, 3 * large.size_bytes)
    small = RobotsCache(max_bytes=1)
    small.put(URL, large, 0.0)
    assert small.get(URL, 0.0) is large


def large_rules(rules: int = 5000) -> RobotsRules:
    lines = b"".join(b"Allow: /*/%d/*\n" % number for number in range(rules))
    return parse_robots(b"User-agent: *\n" + lines, "x")


def test_large_rules_make_room_for_each_other_before_others_do() -> None:
    """A few hosts with very many rules do not cost all others theirs; of the large ones the least recently used goes."""
    large = large_rules()
    cache = RobotsCache(max_bytes=2 * large.size_bytes + 10_000)
    cache.put("http://small.test/", STRICT, 0.0)
    for name in "ab":
        cache.put(f"http://{name}.test/", large, 0.0)
    assert cache.get("http://a.test/", 0.0) is large
    cache.put("http://c.test/", large, 0.0)
    assert [name for name in ("small", *"abc") if cache.get(f"http://{name}.test/", 0.0)] == ["small", "a", "c"]


def test_rules_that_are_larger_than_all_room_are_kept_alone() -> None:
    """Whoever asked for them is asked about them most."""
    large = large_rules()
    cache = RobotsCache(max_bytes=1)
    cache.put("http://small.test/", STRICT, 0.0)
    cache.put(URL, large, 0.0)
    assert cache.get(URL, 0.0) is large
    assert (len(cache), cache.size_bytes) == (1, large.size_bytes)


def test_refusals_are_counted_in_a_row_and_by_origin() -> None:
    """Rules that are kept end the row."""
    cache = RobotsCache()
    assert [cache.refused(url) for url in (URL, URL, "http://a.test/", URL)] == [1, 2, 1, 3]
    cache.put(URL, STRICT, 0.0)
    assert cache.refused(URL) == 1


def test_refusals_of_very_many_origins_are_forgotten() -> None:
    """The one that refused longest ago first."""
    cache = RobotsCache(max_origins=2)
    assert [cache.refused(f"http://{name}.test/") for name in "abacaab"] == [1, 1, 2, 1, 3, 4, 1]


def test_a_look_at_the_cache_is_no_use_of_it() -> None:
    """It tells what is kept, since when and until when; what was asked for longest ago goes first all the same."""
    cache = RobotsCache(max_origins=2)
    for number in (1, 2):
        cache.put(f"http://{number}.test/", ALLOW_ALL, float(number))
    assert cache.look("http://1.test/x") == CachedRules(ALLOW_ALL, 1.0, 86_401.0)
    cache.put("http://3.test/", ALLOW_ALL, 3.0)
    assert cache.look("http://1.test/") is None


A, B, C = GateKey("a.test"), GateKey("b.test"), GateKey("c.test")


def test_a_gate_keeps_the_longest_delay_of_its_origins() -> None:
    """Whichever is told last; one that is taken back takes no memory."""
    delays = CrawlDelays()
    told = [("http", 9.0), ("https", 2.0), ("http", 0.0), ("https", 0.0)]
    assert [delays.learn(A, origin, delay_s) for origin, delay_s in told] == [9.0, 9.0, 2.0, 0.0]
    assert len(delays) == 0


def test_of_a_gate_with_very_many_origins_those_with_the_longest_delays_are_kept(monkeypatch) -> None:
    """A host has 65,535 ports, and each may have a robots.txt."""
    monkeypatch.setattr("anabranch.crawler.robots.cache.MAX_OF_GATE", 2)
    delays = CrawlDelays()
    assert [delays.learn(A, str(delay_s), delay_s) for delay_s in (3.0, 5.0, 4.0)] == [3.0, 5.0, 5.0]
    assert len(delays) == 2
    assert delays.learn(A, "5.0", 0.0) == 4.0


def test_all_origins_together_are_bounded_and_the_gate_told_of_longest_ago_goes_first() -> None:
    """A gate that was told of again is young."""
    delays = CrawlDelays(most=3)
    delays.learn(A, "http", 9.0)
    delays.learn(B, "http", 9.0)
    delays.learn(A, "https", 2.0)
    delays.learn(C, "http", 9.0)
    assert len(delays) == 3
    assert (delays.learn(A, "https", 1.0), delays.learn(B, "https", 1.0)) == (9.0, 1.0)
    for port in range(100):
        delays.learn(GateKey(f"{port}.test"), "http", 1.0)
    assert len(delays) == 3


def test_more_origins_of_one_gate_than_all_may_have_are_forgotten_together() -> None:
    """The bound holds even then; the delay that was just learnt still counts."""
    delays = CrawlDelays(most=1)
    delays.learn(A, "http", 9.0)
    assert delays.learn(A, "https", 2.0) == 9.0
    assert len(delays) == 0


RULES = parse_robots(b"User-agent: *\nDisallow: /private", "x")
PAGE = "http://a.test/open"


@each_row(
    ("rules", "url", "verdict"),
    [
        (RULES, PAGE, RobotsVerdict.ALLOWED),
        (RULES, "http://a.test/private", RobotsVerdict.EXCLUDED),
        (ALLOW_ALL, PAGE, RobotsVerdict.ALLOWED),
        (DISALLOW_ALL, PAGE, RobotsVerdict.UNKNOWN),
        (DISALLOW_ALL, "http://a.test/robots.txt", RobotsVerdict.UNKNOWN),
    ],
)
def test_rules_that_could_not_be_had_exclude_nothing(rules: RobotsRules, url: str, verdict: RobotsVerdict) -> None:
    """To be forbidden and not to know are two things: only one of them is final."""
    assert verdict_of(rules, url) is verdict


def test_a_verdict_is_for_one_use() -> None:
    """When the PAGE comes another time, the rules are asked."""
    verdicts = PendingVerdicts()
    verdicts.keep(PAGE, RobotsVerdict.EXCLUDED, 10.0)
    assert [verdicts.take(PAGE, 0.0), verdicts.take(PAGE, 0.0)] == [RobotsVerdict.EXCLUDED, None]


def test_a_verdict_that_is_too_old_is_none() -> None:
    """It lives as long as the rules would, and leaves nothing behind."""
    verdicts = PendingVerdicts()
    verdicts.keep(PAGE, RobotsVerdict.ALLOWED, 10.0)
    assert verdicts.take(PAGE, 10.0) is None
    assert len(verdicts) == 0


def test_the_later_verdict_of_a_url_holds() -> None:
    """It was judged anew, by newer rules."""
    verdicts = PendingVerdicts()
    verdicts.keep(PAGE, RobotsVerdict.ALLOWED, 10.0)
    verdicts.keep(PAGE, RobotsVerdict.EXCLUDED, 20.0)
    assert verdicts.take(PAGE, 15.0) is RobotsVerdict.EXCLUDED


def test_of_very_many_urls_those_are_forgotten_that_have_waited_longest() -> None:
    """They may never come back: their queues may have been retired."""
    verdicts = PendingVerdicts(2)
    for number in range(4):
        verdicts.keep(f"http://{number}.test/", RobotsVerdict.ALLOWED, 10.0)
    assert [verdicts.take(f"http://{number}.test/", 0.0) for number in range(4)] == [
        None,
        None,
        *[RobotsVerdict.ALLOWED] * 2,
    ]


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


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (ALLOW_ALL, "requested 2m ago, it does not exist: everything is allowed for another 1m"),
        (DISALLOW_ALL, "requested 2m ago, without success: nothing of its host is fetched for another 1m"),
        (
            parse_robots(BODY, "anabranch"),
            "requested 2m ago: its rules for anabranch apply for another 1m, Crawl-delay 2.5 s",
        ),
        (
            parse_robots(b"", "x"),
            "requested 2m ago: none of its groups applies to us, for another 1m",
        ),
    ],
)
def test_what_a_crawl_knows_of_a_robots_txt_is_said_with_its_age(rules: RobotsRules, words: str) -> None:
    """When it was asked for, what came of it, and for how long that holds."""
    assert describe_cached(CachedRules(rules, 1000.0, 1180.0), 1120.0) == words


@pytest.mark.parametrize("kept", [None, CachedRules(ALLOW_ALL, 0.0, 5.0)])
def test_a_robots_txt_that_is_not_known_is_to_be_asked_for(kept: CachedRules | None) -> None:
    """Never fetched by this run, or too long ago."""
    assert describe_cached(kept, 5.0).startswith("its rules are unknown or have expired")
