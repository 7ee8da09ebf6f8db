"""What looks like a URL in a script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extracting.speculative import speculative_links


def urls(text: str) -> list[str]:
    return [url for url, hop, context in speculative_links(text) if (hop, context) == ("X", "script")]


@pytest.mark.parametrize(
    "url",
    ["http://b.test/x", "https://b.test", "//b.test/x", "/x", "./x", "../x", "x.html", "a/b.json?c", "img/x.PNG#y"],
)
def test_what_looks_like_a_url_is_one(url) -> None:
    """In quotes of any kind."""
    assert urls(f"a = '{url}'") == urls(f'{{"a":"{url}"}}') == urls(f"`{url}`") == [url]


@pytest.mark.parametrize(
    "text",
    ["click", "text/html", "a.b", "some words.html", "/", "//", "x y", "#a", "http://", "/*", "<b>", "1.5", "/^a$/"],
)
def test_other_strings_are_none(text) -> None:
    """Media types, names, expressions, sentences."""
    assert urls(f"a = '{text}'") == []


def test_escapes_of_json_are_undone() -> None:
    r"""`\/` above all."""
    assert urls(r'{"a": "http:\/\/b.test\/\u0078\x79"}') == ["http://b.test/xy"]


def test_a_stray_quote_costs_nothing() -> None:
    """An apostrophe in a comment does not turn the strings after it inside out."""
    assert urls("// don't\na='/x.html';b='/y.html'") == ["/x.html", "/y.html"]


@pytest.mark.parametrize("piece", ["'", "'a", '"/', "'" + "a" * 2000, "'./", "\\", "'a/a/"])
def test_a_megabyte_is_read_once(piece) -> None:
    """No string is tried from each of its letters (else this test does not end)."""
    urls(piece * (1_000_000 // len(piece)))


@given(st.text(alphabet="'\"\\/u0x.:ahtps \n", max_size=60))
def test_no_text_raises(text) -> None:
    """And nothing empty is a URL."""
    assert all(urls(text))
