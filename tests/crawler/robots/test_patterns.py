"""Patterns of robots.txt rules: what they match, which of them decides, and what they may cost."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.robots.patterns import (
    PatternIndex,
    allows_by,
    line_of,
    normalised_path,
    normalised_pattern,
    rank,
)
from tests.rows import each_row


def index_of(*patterns: str) -> PatternIndex:
    """An index of allowing rules; the line is the place in the list, from 1."""
    index = PatternIndex()
    for number, pattern in enumerate(patterns, 1):
        index.add(normalised_pattern(pattern), number, allows=True)
    index.compact()
    return index


def decider(path: str, *patterns: str) -> int | None:
    """The number of the pattern that decides about the path; 0 if none matches, None if it costs too much."""
    weight = index_of(*patterns).heaviest(normalised_path(path))
    return weight and line_of(weight)


@each_row(
    ("pattern", "matched", "others"),
    [
        ("/fish", ["/fish", "/fish.html", "/fish/salmon", "/fishheads?id=1"], ["/Fish", "/catfish", "/?id=fish", "/"]),
        ("/fish*", ["/fish", "/fish.html", "/fishheads"], ["/Fish", "/catfish"]),
        ("/fish/", ["/fish/", "/fish/?id=1"], ["/fish", "/fish.html"]),
        ("/*.php", ["/a.php", "/f/a.php?x", "/index?f=a.php/"], ["/", "/windows.PHP", "/php/"]),
        ("/*.php$", ["/a.php", "/f/a.php", "/a.php.php"], ["/a.php?x", "/a.php/", "/a.php5"]),
        ("/fish*.php", ["/fish.php", "/fishheads/cat.php?x"], ["/Fish.PHP", "/fish"]),
        ("/$", ["/"], ["/a", "/?"]),
        ("*", ["/", "/a"], []),
        ("*$", ["/", "/a"], []),
        ("*/a", ["/a", "/b/a", "/b/ab"], ["/b"]),
        ("/a*$", ["/a", "/ab"], ["/b"]),
        ("/a*a$", ["/aa", "/aba"], ["/a"]),
        ("/a*b*b$", ["/abb", "/axbxb"], ["/ab", "/abbc"]),
        ("/a**b", ["/ab", "/axb"], ["/a"]),
        ("/a$b", ["/a$b", "/a$bc"], ["/a", "/ab"]),
        ("/a$$", ["/a$"], ["/a", "/a$b"]),
        ("/*ab*ba$", ["/abba", "/ab-ba"], ["/aba", "/abb"]),
    ],
)
def test_a_pattern_matches_from_the_start_with_stars_and_an_end(
    pattern: str, matched: list[str], others: list[str]
) -> None:
    """RFC 9309, 2.2.2 and 2.2.3, and the examples that Google publishes."""
    assert {path: decider(path, pattern) for path in matched} == dict.fromkeys(matched, 1)
    assert {path: decider(path, pattern) for path in others} == dict.fromkeys(others, 0)


@each_row(
    ("one", "other"),
    [
        ("/a%2fb", "/a%2Fb"),
        ("/%62%61%7A", "/baz"),
        ("/%7Euser", "/~user"),
        ("/a b", "/a%20b"),
        ("/a|b", "/a%7Cb"),
        ("/a{b", "/a%7bb"),
        ('/a"b', "/a%22b"),
        ("/\x00", "/%00"),
    ],
)
def test_an_octet_has_one_spelling_on_both_sides(one: str, other: str) -> None:
    """Unreserved octets stand unescaped, all that may not stand is escaped, and escapes are upper case (RFC 3986, 6.2.2)."""
    assert normalised_path(one) == normalised_path(other)
    assert decider(one, other) == decider(other, one) == 1


@pytest.mark.parametrize(("one", "other"), [("/a%2Fb", "/a/b"), ("/a%3Fb", "/a?b"), ("/a%26", "/a&")])
def test_a_reserved_octet_and_its_escape_are_two(one: str, other: str) -> None:
    """An escaped slash is no slash (RFC 9309, 2.2.2)."""
    assert decider(one, other) == decider(other, one) == 0


def test_a_character_is_its_utf8_octets_in_pattern_and_path() -> None:
    """A raw character in either is the same as its escapes; a path that is no text is no error."""
    raw = "/ツ".encode().decode("latin-1")  # as a pattern comes out of the file
    assert decider("/%E3%83%84", raw) == decider("/ツ", raw) == decider("/%e3%83%84x", raw) == 1
    assert normalised_path("/\udcff") == "/%FF"


def test_signs_of_a_pattern_are_characters_of_a_url() -> None:
    """`%2A` and `%24` in a pattern mean the characters themselves (RFC 9309, 2.2.3); in a URL both spellings do."""
    assert decider("/a*b", "/a%2Ab") == decider("/a%2ab", "/a%2Ab") == 1
    assert decider("/axb", "/a%2Ab") == 0
    assert decider("/a$", "/a%24") == 1
    assert decider("/a", "/a%24") == 0
    assert decider("/a%24b", "/a$b") == 1


def test_the_rule_with_the_most_octets_decides_whatever_its_place() -> None:
    """Octets of the pattern, stars included, not of what it matches."""
    assert decider("/page.html", "/page", "/*.html") == 2
    assert decider("/page.html", "/*.htm", "/page.h", "/") == 2
    assert decider("/page.htm", "/page", "/*.htm") == 2
    assert decider("/aaaa", "/*a", "/aaa", "/a*****", "/") == 3
    assert decider("/x", "/x$", "/x") == 1


def test_of_equal_octets_the_rule_that_allows_decides() -> None:
    """The least strict one (RFC 9309, 2.2.2), in whatever order, in all kinds of rules."""
    for forbidding, allowing in (("/a", "/a"), ("/*b", "/ab"), ("/ab$", "/*b$"), ("/a*", "/ab")):
        for order in (False, True):
            index = PatternIndex()
            for allows in (order, not order):
                index.add(allowing if allows else forbidding, 1, allows=allows)
            weight = index.heaviest("/ab")
            assert weight
            assert allows_by(weight), (forbidding, allowing)


def test_a_weight_holds_octets_leave_and_line() -> None:
    """In this order."""
    assert rank(2, 1, allows=False) > rank(1, 99, allows=True) > rank(1, 100, allows=False)
    assert line_of(rank(7, 43_000, allows=True)) == 43_000
    assert allows_by(rank(7, 43_000, allows=True))
    assert not allows_by(rank(7, 43_000, allows=False))


def naive(pattern: str, path: str) -> bool:
    """Match a pattern by the regular expression of the same meaning."""
    end = "$" if pattern.endswith("$") else ""
    body = pattern[: len(pattern) - len(end)]
    meaning = ".*".join(map(re.escape, body.split("*"))) + (r"\Z" if end else "")
    return re.match(meaning, path, re.DOTALL) is not None


patterns = st.text("ab/*$", min_size=1, max_size=12).filter(lambda text: text[0] in "/*")
paths = st.text("ab/$", max_size=20).map(lambda text: normalised_path("/" + text))


@given(
    st.lists(st.tuples(patterns.map(normalised_pattern), st.booleans()), max_size=60),
    st.lists(paths, max_size=5),
    st.booleans(),
)
def test_the_index_decides_as_trying_every_rule_does(
    rules: list[tuple[str, bool]], asked: list[str], is_compact: bool
) -> None:
    """However the rules are kept, the heaviest that matches is found."""
    index = PatternIndex()
    for number, (pattern, allows) in enumerate(rules, 1):
        index.add(pattern, number, allows=allows)
    if is_compact:
        index.compact()
    for path in asked:
        matching = [
            rank(len(pattern), number, allows=allows)
            for number, (pattern, allows) in enumerate(rules, 1)
            if naive(pattern, path)
        ]
        assert (index.heaviest(path) or 0) >> 32 == max(matching, default=0) >> 32


@given(st.text(st.characters(max_codepoint=255)))
def test_normalising_twice_changes_nothing(text: str) -> None:
    """Whatever octets there are."""
    once = normalised_path(text.encode("latin-1").decode("latin-1")) if text.isascii() else normalised_pattern(text)
    again = normalised_path(once) if text.isascii() else normalised_pattern(once)
    assert once == again
    assert once.isascii()


# Hostile rules


def tries(index: PatternIndex, path: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rules with a star are matched against the path."""
    from anabranch.crawler.robots import patterns as module

    tried = []
    matches = module._Pieces.matches
    monkeypatch.setattr(module._Pieces, "matches", lambda self, path: tried.append(1) or matches(self, path))
    index.heaviest(path)
    return len(tried)


def test_rules_whose_text_the_url_does_not_contain_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL is matched against a few of tens of thousands of rules with stars."""
    index = index_of(*(f"/*{number:05}z" for number in range(20_000)), "/*shop*cart")
    assert tries(index, "/eu/shop/77777/cart", monkeypatch) < 150
    assert decider("/eu/shop/1/cart", *(f"/*{number:05}z" for number in range(200)), "/*shop*cart") == 201


def test_rules_that_cost_too_much_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of rules that all nearly match a long path: the work is bounded, and no answer is made up."""
    index = index_of(*(f"/*aaa{number}" for number in range(30_000)))
    assert index.heaviest("/" + "a" * 100) is None
    assert tries(index, "/" + "a" * 8000, monkeypatch) <= 500_000 // 8000


def test_a_pattern_of_thousands_of_stars_is_matched_without_going_back() -> None:
    """Each piece is looked for once: a backtracking matcher would not live to see the end of this."""
    stars = "/" + "*a" * 8000
    assert decider("/" + "a" * 7999, stars + "b") == 0
    assert decider("/" + "a" * 8000 + "b", stars + "b") == 1
    assert decider("/" + "a" * 7000, stars + "$") == 0


def test_what_rules_take_in_memory_is_estimated() -> None:
    """It grows with each rule; of one with stars with its text and its pieces."""
    sizes = [index_of(*rules).size_bytes for rules in ([], ["/a"], ["/a", "/b$"], ["/a*b"], ["/a*bb"], ["/a*b*c"])]
    assert sizes == sorted(set(sizes))
    assert sizes[:3] == [0, 16, 32]


def test_tens_of_thousands_of_rules_take_little_memory() -> None:
    """Those without stars 16 bytes each, as is said: a cache holds a hundred files of 500 KB."""
    rules = [f"/{number}" for number in range(30_000)]
    tracemalloc.start()
    try:
        index = index_of(*rules)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert index.size_bytes == 480_000
    assert held < 1.5 * index.size_bytes


def test_rules_for_the_same_paths_are_kept_once() -> None:
    """The heaviest of them."""
    assert len(index_of("/a", "/a", "/a*", "/b$", "/b$", "/*c")) == 3
