"""Links out of style sheets and scripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extract.css_js import css_links, speculative_links


def css_urls(text: str) -> list[str]:
    return [url for url, _, _ in css_links(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a{b:url(x.png)}", ["x.png"]),
        ("a{b:URL( 'x.png' )}", ["x.png"]),
        ('a{b:url("x y.png")}', ["x y.png"]),
        ("@import 'x.css' screen;", ["x.css"]),
        ('@IMPORT/**/"x.css";', ["x.css"]),
        ("@import url(x.css) layer(a);", ["x.css"]),
        ("@font-face{src:url(a.woff2) format('woff2'),url(b.woff)}", ["a.woff2", "b.woff"]),
        ("a{b:src('x.png')}", ["x.png"]),
        (
            "a{b:image-set('a.png' 1x, url(b.png) 2x type('image/png'), url('c.png') 3x)} d{e:url(f)}",
            ["a.png", "b.png", "c.png", "f"],
        ),
        ("a{b:-webkit-image-set(url(x) 1x)}", ["x"]),
        ("a{b:image-set('x'; c:url(y)}", ["x", "y"]),
        (r"a{b:u\72 l(x)}", ["x"]),
        (r"a{b:\000075rl(x)}", ["x"]),
        (r"@im\port 'x';", ["x"]),
        (r"a{b:url(x\)\26 y)}", ["x)&y"]),
        ("a{b:url('x\\\ny')}", ["xy"]),
        ("a{b:url(x", ["x"]),
        ("a{b:url('x", ["x"]),
        ("/* url(no) */ a{b:url(x)}", ["x"]),
        ("a{content:'url(no)'; b:url(x)}", ["x"]),
        ("a{content:'broken\n} b{c:url(x)}", ["x"]),
        ("@namespace svg url(http://no.test/); a{b:url(x)}", ["x"]),
        ("a{b:url(data:image/png;base64,AA)}", []),
        ("a{b:curl(no) my-url(no) 1url(no) _url(no)}", []),
        ("a{b:url(no no)}", []),
        ("a{b:url() url('')}", []),
        ("a{b:format('no')}", []),
        ("@importx 'no';", []),
        ("/* url(no)", []),
    ],
)
def test_what_is_a_link(text, expected) -> None:
    """By the tokens of CSS: comments, strings and escapes as a browser reads them."""
    assert css_urls(text) == expected


def test_an_escape_that_is_no_character_is_replaced() -> None:
    """Zero, surrogates, and what Unicode has not."""
    assert css_urls(r"a{b:url('\0\d800\110000x')}") == ["\ufffd\ufffd\ufffdx"]


PIECES = [
    "url(",
    "image-set(",
    "@import ",
    "@namespace ",
    '"',
    "'",
    "\\",
    "/*",
    "*/",
    "(",
    ")",
    "a",
    " ",
    "\n",
    "u\\72 ",
    "src(",
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_of_css_is_read_once(piece) -> None:
    """Nothing is read again from each of a hundred thousand beginnings (else this test does not end)."""
    assert len(css_urls(piece * (1_000_000 // len(piece)))) < 2


@given(st.lists(st.sampled_from([*PIECES, "é", ";", "}", ","]), max_size=40).map("".join))
def test_no_style_sheet_raises(text) -> None:
    """And no link is empty."""
    assert all(css_urls(text))


def script_urls(text: str) -> list[str]:
    return [url for url, hop, context in speculative_links(text) if (hop, context) == ("X", "script")]


@pytest.mark.parametrize(
    "url",
    ["http://b.test/x", "https://b.test", "//b.test/x", "/x", "./x", "../x", "x.html", "a/b.json?c", "img/x.PNG#y"],
)
def test_what_looks_like_a_url_is_one(url) -> None:
    """In quotes of any kind."""
    assert script_urls(f"a = '{url}'") == script_urls(f'{{"a":"{url}"}}') == script_urls(f"`{url}`") == [url]


@pytest.mark.parametrize(
    "text",
    ["click", "text/html", "a.b", "some words.html", "/", "//", "x y", "#a", "http://", "/*", "<b>", "1.5", "/^a$/"],
)
def test_other_strings_are_none(text) -> None:
    """Media types, names, expressions, sentences."""
    assert script_urls(f"a = '{text}'") == []


def test_escapes_of_json_are_undone() -> None:
    r"""`\/` above all."""
    assert script_urls(r'{"a": "http:\/\/b.test\/\u0078\x79"}') == ["http://b.test/xy"]


def test_a_stray_quote_costs_nothing() -> None:
    """An apostrophe in a comment does not turn the strings after it inside out."""
    assert script_urls("// don't\na='/x.html';b='/y.html'") == ["/x.html", "/y.html"]


@pytest.mark.parametrize("piece", ["'", "'a", '"/', "'" + "a" * 2000, "'./", "\\", "'a/a/"])
def test_a_megabyte_of_script_is_read_once(piece) -> None:
    """No string is tried from each of its letters (else this test does not end)."""
    script_urls(piece * (1_000_000 // len(piece)))


@given(st.text(alphabet="'\"\\/u0x.:ahtps \n", max_size=60))
def test_no_script_raises(text) -> None:
    """And nothing empty is a URL."""
    assert all(script_urls(text))
