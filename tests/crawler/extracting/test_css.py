"""The links of a style sheet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extracting.css import css_links


def urls(text: str) -> list[str]:
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
    assert urls(text) == expected


def test_an_escape_that_is_no_character_is_replaced() -> None:
    """Zero, surrogates, and what Unicode has not."""
    assert urls(r"a{b:url('\0\d800\110000x')}") == ["\ufffd\ufffd\ufffdx"]


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
def test_a_megabyte_is_read_once(piece) -> None:
    """Nothing is read again from each of a hundred thousand beginnings (else this test does not end)."""
    assert len(urls(piece * (1_000_000 // len(piece)))) < 2


@given(st.lists(st.sampled_from([*PIECES, "é", ";", "}", ","]), max_size=40).map("".join))
def test_no_text_raises(text) -> None:
    """And no link is empty."""
    assert all(urls(text))
