"""robots.txt: which answer means what, how it is read, how long it is kept."""

from __future__ import annotations

import pytest
from protego import Protego

from crawler.robots.rules import (
    ALLOW_ALL,
    DISALLOW_ALL,
    MAX_ROBOTS_BYTES,
    RobotsCache,
    RobotsRules,
    parse_robots,
    robots_url,
)

URL = "https://a.test/private/x"


def rules(text: str | bytes, product: str = "anabranch") -> RobotsRules:
    return parse_robots(200, text if isinstance(text, bytes) else text.encode(), product)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 499])
def test_a_4xx_answer_allows_everything(status: int) -> None:
    """RFC 9309 section 2.3.1.3: unavailable means no restrictions, whatever the body says."""
    assert parse_robots(status, b"User-agent: *\nDisallow: /", "anabranch") is ALLOW_ALL
    assert ALLOW_ALL.allows(URL)


@pytest.mark.parametrize("status", [500, 503, 599, 301, 302, 304, 0, -2, -4])
def test_a_host_that_could_not_be_asked_allows_nothing(status: int) -> None:
    """RFC 9309 section 2.3.1.4: unreachable means complete disallow."""
    assert parse_robots(status, b"User-agent: *\nAllow: /", "anabranch") is DISALLOW_ALL
    assert not DISALLOW_ALL.allows(URL)


def test_the_group_of_our_product_wins_over_the_star() -> None:
    """The most specific group speaks, and it alone."""
    text = "User-agent: *\nDisallow: /\n\nUser-agent: Anabranch\nDisallow: /private/\n"
    assert not rules(text).allows(URL)
    assert rules(text).allows("https://a.test/public")
    assert not rules(text, "other").allows("https://a.test/public")


def test_the_longest_match_decides_and_allow_wins_a_tie() -> None:
    """RFC 9309 section 2.2.2, with wildcards."""
    text = "User-agent: *\nDisallow: /p\nAllow: /private/x\nDisallow: /*.pdf$\nDisallow: /tie\nAllow: /tie\n"
    assert rules(text).allows(URL)
    assert not rules(text).allows("https://a.test/private/y")
    assert not rules(text).allows("https://a.test/a.pdf")
    assert rules(text).allows("https://a.test/a.pdf?x")
    assert rules(text).allows("https://a.test/tie")


def test_an_empty_file_allows_everything() -> None:
    """No rule, no restriction, no delay."""
    assert rules("").allows(URL)
    assert rules("").crawl_delay_s is None


def test_crawl_delay_is_given_in_seconds() -> None:
    """The delay of our group; None if there is none or it is no number."""
    assert rules("User-agent: *\nCrawl-delay: 2.5\n").crawl_delay_s == 2.5
    assert rules("User-agent: *\nCrawl-delay: soon\n").crawl_delay_s is None
    assert rules("User-agent: other\nCrawl-delay: 9\n").crawl_delay_s is None
    assert ALLOW_ALL.crawl_delay_s is None
    assert DISALLOW_ALL.crawl_delay_s is None


def test_a_bom_does_not_hide_the_first_line() -> None:
    """A UTF-8 byte order mark belongs to the file, not to the first field."""
    assert not rules(b"\xef\xbb\xbfUser-agent: *\nDisallow: /private/").allows(URL)


def test_bytes_that_are_no_utf8_spoil_only_their_own_line() -> None:
    """Undecodable bytes are replaced; the other rules hold."""
    assert not rules(b"User-agent: *\nDisallow: /\xff\xfe\nDisallow: /private/").allows(URL)


def test_only_the_first_500_kib_count() -> None:
    """What stands behind the limit is not read."""
    head = b"User-agent: *\n" + b"#" * (MAX_ROBOTS_BYTES - 15) + b"\n"
    assert len(head) == MAX_ROBOTS_BYTES
    assert rules(head + b"Disallow: /private/").allows(URL)
    assert not rules(head[1000:].replace(b"##", b"User-agent: *\n#", 1) + b"Disallow: /private/").allows(URL)


def test_robots_txt_itself_is_always_allowed() -> None:
    """RFC 9309 section 2.2.2: /robots.txt is implicitly allowed."""
    assert rules("User-agent: *\nDisallow: /").allows("https://a.test/robots.txt")


def test_a_url_that_the_parser_cannot_read_is_not_allowed() -> None:
    """A fault inside the parser is a refusal, not an error."""
    assert not rules("User-agent: *\nDisallow: /private/").allows("http://[broken/?")


def test_a_file_on_which_the_parser_breaks_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In doubt we stay away."""

    def broken(_: str) -> Protego:
        raise RecursionError

    monkeypatch.setattr(Protego, "parse", broken)
    assert rules("User-agent: *\nAllow: /") is DISALLOW_ALL


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
    """RFC 9309 section 2.3: scheme, host and port, then /robots.txt."""
    assert robots_url(url) == expected


def test_the_cache_answers_for_the_whole_origin_and_no_other() -> None:
    """Scheme and port are part of the origin."""
    cache = RobotsCache()
    cache.put("http://a.test/x", ALLOW_ALL, 0.0)
    assert cache.get("http://a.test/y?z", 1.0) is ALLOW_ALL
    assert cache.get("https://a.test/x", 1.0) is None
    assert cache.get("http://a.test:81/x", 1.0) is None


def test_rules_live_for_a_day() -> None:
    """RFC 9309 section 2.4: 24 hours, a parsed disallow included; then they are gone."""
    cache = RobotsCache()
    strict = rules("User-agent: *\nDisallow: /")
    cache.put(URL, strict, 100.0)
    assert cache.get(URL, 100.0 + 86_399.9) is strict
    assert cache.get(URL, 100.0 + 86_400.0) is None
    assert len(cache) == 0


def test_a_robots_txt_that_could_not_be_had_is_asked_for_again_after_an_hour() -> None:
    """DISALLOW_ALL is a guess, so it lives less long than an answer."""
    cache = RobotsCache()
    cache.put(URL, DISALLOW_ALL, 0.0)
    assert cache.get(URL, 3599.9) is DISALLOW_ALL
    assert cache.get(URL, 3600.0) is None


def test_the_cache_forgets_the_origin_asked_for_longest_ago() -> None:
    """A full cache drops the least recently used origin."""
    cache = RobotsCache(max_origins=2)
    cache.put("http://a.test/", ALLOW_ALL, 0.0)
    cache.put("http://b.test/", ALLOW_ALL, 0.0)
    cache.get("http://a.test/", 1.0)
    cache.put("http://c.test/", ALLOW_ALL, 2.0)
    assert [cache.get(f"http://{name}.test/", 3.0) for name in "abc"] == [ALLOW_ALL, None, ALLOW_ALL]


def test_rules_show_what_they_are() -> None:
    """The repr names the kind and the delay."""
    assert repr(ALLOW_ALL) == "<RobotsRules allow all, crawl delay None>"
    assert repr(DISALLOW_ALL) == "<RobotsRules disallow all, crawl delay None>"
    assert repr(rules("User-agent: *\nCrawl-delay: 3")) == "<RobotsRules parsed, crawl delay 3.0>"
