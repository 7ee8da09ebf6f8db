"""References that need no parsing: many at once are plain only if each is."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.crawler.extracting.plain import (
    NAMES,
    PATHS,
    Spelling,
    is_plain_name,
    is_plain_path,
    origin_if_plain,
    urls_of,
)
from anabranch.crawler.urls.parsing import canonical

ORIGIN = "http://a.test:81"
PIECES = st.sampled_from(
    ["/", "//", "a", "B-1", ".", "..", "a.", ":", "80", "%2e", "?", "q=1", "&", "'", "@x", "#f", "|", "ß", "\n", " ", "\\",
     "http:", "x/y.html", ORIGIN, f"{ORIGIN}/", "http://a.test:8", ""]
)  # fmt: skip
TEXTS = st.lists(st.lists(PIECES, max_size=5).map("".join), min_size=1, max_size=5)


@given(TEXTS)
@example(["a?"])
@example(["/?"])
@pytest.mark.parametrize(
    ("spelling", "is_plain"), [(PATHS, is_plain_path), (NAMES, is_plain_name), (urls_of(ORIGIN), origin_if_plain)]
)
def test_many_are_plain_only_if_each_is(spelling: Spelling, is_plain, texts: list[str]) -> None:
    """Whatever they hold, line ends and nothing at all included."""
    if spelling.are_plain(texts):
        assert all(spelling.begins(text) and is_plain(text) for text in texts)


@given(TEXTS)
@example(["a?"])
@example(["/?"])
@pytest.mark.parametrize(("spelling", "place"), [(PATHS, ORIGIN), (NAMES, f"{ORIGIN}/b/"), (urls_of(ORIGIN), "")])
def test_behind_its_place_each_is_what_parsing_makes_of_it(spelling: Spelling, place: str, texts: list[str]) -> None:
    """So nobody need parse them."""
    if spelling.are_plain(texts):
        assert [place + text for text in texts] == [canonical(text, f"{ORIGIN}/b/c?d/e") for text in texts]


@given(TEXTS)
def test_a_text_begins_in_one_way(texts: list[str]) -> None:
    """So each is looked at once."""
    for text in texts:
        assert sum(spelling.begins(text) for spelling in (PATHS, NAMES, urls_of(ORIGIN))) <= 1


@pytest.mark.parametrize(
    ("spelling", "texts"),
    [
        (PATHS, ["/", "/a/b.html", "/a:b/?c=d/e", "/a//b"]),
        (NAMES, ["a.html", "b/c/", "_d?e"]),
        (urls_of(ORIGIN), [f"{ORIGIN}/", f"{ORIGIN}/a;b?c@d"]),
    ],
)
def test_usual_ones_are_plain(spelling: Spelling, texts: list[str]) -> None:
    """They are what sites are made of."""
    assert spelling.are_plain(texts)


@pytest.mark.parametrize(
    ("spelling", "odd"),
    [
        (PATHS, ["//b.test/", "/a/../b", "/a/.b", "/%41", "/a#b", "/ä", "/a b", "/a\n/b", "", "a"]),
        (NAMES, ["", "a:b", "/a", ".a", "..", "?a", "a/./b", "a\nb", "a#"]),
        (urls_of(ORIGIN), [ORIGIN, "http://a.test/", "http://a.test:812/", f"{ORIGIN}/a\n{ORIGIN}/b", f"{ORIGIN}/.."]),
    ],
)
def test_one_odd_one_is_enough(spelling: Spelling, odd: list[str]) -> None:
    """The others are looked at one by one then."""
    plain = {PATHS: "/x", NAMES: "x"}.get(spelling, f"{ORIGIN}/x")
    assert spelling.are_plain([plain])
    assert not any(spelling.are_plain([plain, text, plain]) for text in odd)
