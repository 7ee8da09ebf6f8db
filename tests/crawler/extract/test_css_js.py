"""Links out of style sheets and scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import tinycss2
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tinycss2.ast import Node

from anabranch.crawler.extract.css_js import css_links, manifest_links, speculative_links
from tests.rows import each_row


def css_urls(text: str) -> list[str]:
    return [url for url, _, _ in css_links(text)]


@each_row(
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


@each_row(
    ("bad", "expected"),
    [
        ("url(it's.png)", []),
        ('url(a"b)', []),
        ("url(a'b'c)", []),
        ("url(a(1).png)", []),
        ("url(no no)", []),
        ("url(  no\tno  )", []),
        ("url(a\x01b)", []),
        ("url(a\x7f)", []),
        (r"url(a\)b c)", []),
        (r"url(it's\).png)", []),
        ("url(data:image/svg+xml;utf8,<svg xmlns='http://www.w3.org/2000/svg'/>)", []),
        ("src(no)", []),
        ("src(no.png) x", []),
        ("image-set(url(it's) 1x, 'y' 2x)", ["y"]),
        ("image-set(url(a b) 1x, url(y) 2x)", ["y"]),
        ("url(it's.png) url(y)", ["y"]),
        ("URL(IT'S.PNG)", []),
        (r"u\72l(it's)", []),
        ("@import url(it's.css);", []),
        ("url(#part)", []),
        ("url('#part')", []),
        ("'url(no)'", []),
        ("'it\\'s url(no)'", []),
        ("url('it\\'s')", ["it's"]),
        ('url("it\'s.png")', ["it's.png"]),
        ("url(y) 'z'", ["y"]),
    ],
)
def test_a_bad_url_costs_itself_alone(bad: str, expected: list[str]) -> None:
    """A quote, a bracket or a space in a URL without quotes loses no link after it, in a file of one line."""
    assert css_urls(f"a{{b:{bad}}}c{{d:url(x.png)}}e{{f:url('z.png')}}") == [*expected, "x.png", "z.png"]


def judged(tokens: list[Node]) -> Iterator[str]:
    """The links of a style sheet by the tokens of tinycss2."""
    for number, token in enumerate(tokens):
        if token.type == "url":
            yield token.value
        elif token.type == "function":
            if token.lower_name in ("url", "src"):
                first = [argument for argument in token.arguments if argument.type != "whitespace"][:1]
                yield from (argument.value for argument in first if argument.type == "string")
            yield from judged(token.arguments)
        elif token.type == "at-keyword" and token.lower_value == "import":
            rest = [other for other in tokens[number + 1 :] if other.type not in ("whitespace", "comment")][:1]
            yield from (other.value for other in rest if other.type == "string")
        elif hasattr(token, "content"):
            yield from judged(token.content)


CSS_PIECES = [
    *(
        "url(",
        "URL(",
        "u\\72l(",
        "\\url(",
        "src(",
        "@import ",
        "@import",
        "(",
        ")",
        "'",
        '"',
        "\\'",
        "\\)",
        "\\66 ",
        "\\",
    ),
    *(
        "a",
        "b.png",
        "é",
        "😀",
        " ",
        "\n",
        "\t",
        "/*",
        "*/",
        "{",
        "}",
        ";",
        ":",
        ",",
        "#",
        "-",
        "1",
        "%",
        "\x01",
        "<!--",
        "-->",
    ),
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(CSS_PIECES), max_size=16).map("".join))
def test_links_are_those_of_tinycss2(text: str) -> None:
    """By any tokens. Left out: two backslashes and one before a line end, which tinycss2 reads in its own way in a bad URL."""
    assume("\\\\" not in text and "\\\n" not in text)
    text += "."  # a backslash at the end escapes something
    found = [url for url in judged(tinycss2.parse_component_value_list(text)) if url and not url.startswith("#")]
    assert css_urls(text) == found


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
def test_a_long_piece_of_css_is_read_once(piece) -> None:
    """Nothing is read again from each of a hundred thousand beginnings (else this test does not end)."""
    assert len(css_urls(piece * (250_000 // len(piece)))) < 2


@given(st.lists(st.sampled_from([*PIECES, "é", ";", "}", ","]), max_size=40).map("".join))
def test_no_style_sheet_raises(text) -> None:
    """And no link is empty."""
    assert all(css_urls(text))


def script_urls(text: str) -> list[str]:
    return [url for url, hop, context in speculative_links(text) if (hop, context) == ("X", "script")]


@each_row(
    "url",
    ["http://b.test/x", "https://b.test", "//b.test/x", "/x", "./x", "../x", "x.html", "a/b.json?c", "img/x.PNG#y"],
)
def test_what_looks_like_a_url_is_one(url) -> None:
    """In quotes of any kind."""
    assert script_urls(f"a = '{url}'") == script_urls(f'{{"a":"{url}"}}') == script_urls(f"`{url}`") == [url]


@each_row(
    "text",
    ["click", "text/html", "a.b", "some words.html", "/", "//", "x y", "#a", "http://", "/*", "<b>", "1.5", "/^a$/"],
)
def test_other_strings_are_none(text) -> None:
    """Media types, names, expressions, sentences."""
    assert script_urls(f"a = '{text}'") == []


def test_escapes_of_json_are_undone() -> None:
    r"""`\/` above all."""
    assert script_urls(r'{"a": "http:\/\/b.test\/\u0078\x79"}') == ["http://b.test/xy"]


@each_row(
    ("text", "expected"),
    [
        (json.dumps({"html": '<a href="http://b.test/x">y</a><img src="/y.png">'}), ["http://b.test/x", "/y.png"]),
        (json.dumps({"html": "<a href='/x'>"}), ["/x"]),
        (json.dumps({"u": "/p/\U0001f600.html"}), ["/p/\U0001f600.html"]),
        (json.dumps({"u": "/中/é.html"}), ["/中/é.html"]),
        (json.dumps({"inner": json.dumps({"u": "/x.html", "v": "http://b.test/y"})}), ["/x.html", "http://b.test/y"]),
        (json.dumps(json.dumps(json.dumps(["/x.html"]))), ["/x.html"]),
        (json.dumps({"html": '<a href="/x?a=1&amp;b=2">'}), ["/x?a=1&b=2"]),
        (r"""var t = "<a href=\'/q/r.html\'>";""", ["/q/r.html"]),
        (r"""t = '<a href="\/x\/y.html">'""", ["/x/y.html"]),
        (r'{"html":"\u003ca href=\u0022\/x.html\u0022\u003e"}', ["/x.html"]),
        (r'{"u":"\/a?b=1\u0026c=2"}', ["/a?b=1&c=2"]),
        (r"""a = "\x2fx\x2ehtml" """, ["/x.html"]),
        (r"""a = "/\u{1F600}.html" """, ["/\U0001f600.html"]),
        (r"""a = "/\u{0000000041}.html" """, ["/A.html"]),
        ('a = "/x/\\\ny.html"', ["/x/y.html"]),
        (r"""a = "/x.html\n" """, []),
        (r"""a = "a\n/x.html" """, []),
        (r"""a = "C:\\new\\table.html" """, []),
        (r'{"u":"/\ud83d.html"}', []),
        (r'{"u":"/\ude00\ud83d.html"}', []),
        (r'{"u":"/\u{110000}.html"}', []),
        (r'{"u":"/x.html\"}', ["/x.html"]),
        (r'{"re":"^\/[a-z]+$","type":"text\/html","x":"a\/b"}', []),
    ],
)
def test_strings_are_unescaped_before_they_are_judged(text: str, expected: list[str]) -> None:
    """Also strings in strings. Half of a surrogate pair makes no URL."""
    assert script_urls(text) == expected


@pytest.mark.parametrize("piece", ["\\", '\\\\"', '\\"/x', "\\u005c", "\\ud83d", "'\\\n"])
def test_a_long_piece_of_escapes_is_read_a_few_times(piece: str) -> None:
    """However often they escape each other (else this test does not end)."""
    script_urls(piece * (250_000 // len(piece)))


@each_row(
    ("manifest", "expected"),
    [
        ({"icons": [{"src": "/i.png", "sizes": "9x9"}, {"src": "j.png"}]}, [("/i.png", "E"), ("j.png", "E")]),
        ({"start_url": "/s", "screenshots": [{"src": "c.png"}]}, [("c.png", "E"), ("/s", "L")]),
        (
            {"display": "x", "shortcuts": [{"name": "n", "url": "/u", "icons": [{"src": "k.png"}]}, 3]},
            [("k.png", "E"), ("/u", "L")],
        ),
        ({"icons": {"16": "a.png", "32": "b.png"}}, [("a.png", "E"), ("b.png", "E")]),
        ({"icons": [{"src": 3}, {}, None, "d.png", {"src": ""}], "start_url": None}, [("d.png", "E")]),
        ({"icons": 3, "shortcuts": "x", "screenshots": None}, []),
        ({"url": "/x", "items": [{"src": "y"}]}, []),
        ({"icons": [{"src": f"{n}"} for n in range(1500)]}, [(f"{n}", "E") for n in range(1000)]),
        ([{"icons": [{"src": "x"}]}], []),
        ("text", []),
    ],
)
def test_a_web_app_manifest_gives_its_icons_and_pages(manifest: object, expected: list[tuple[str, str]]) -> None:
    """Members of other types are passed over; another JSON text is no manifest."""
    assert [(url, hop) for url, hop, _ in manifest_links(json.dumps(manifest))] == expected


@each_row("text", ["", "{", "[" * 100_000, '{"icons":' * 100_000, '{"icons": ' + "9" * 9999 + "}", "\0", "x" * 99])
def test_what_is_no_json_is_no_manifest(text: str) -> None:
    """Neither is JSON that is nested without end."""
    assert list(manifest_links(text)) == []


def test_a_stray_quote_costs_nothing() -> None:
    """An apostrophe in a comment does not turn the strings after it inside out."""
    assert script_urls("// don't\na='/x.html';b='/y.html'") == ["/x.html", "/y.html"]


@pytest.mark.parametrize("piece", ["'", "'a", '"/', "'" + "a" * 2000, "'./", "\\", "'a/a/"])
def test_a_long_piece_of_script_is_read_once(piece) -> None:
    """No string is tried from each of its letters (else this test does not end)."""
    script_urls(piece * (250_000 // len(piece)))


@given(st.text(alphabet="'\"\\/u0x.:ahtps \n", max_size=60))
def test_no_script_raises(text) -> None:
    """And nothing empty is a URL."""
    assert all(script_urls(text))


def test_escapes_are_undone_three_times() -> None:
    """Each time costs a pass over the text; no program escapes more often."""
    once = r"\x2fa.html"
    twice, thrice = (once.replace("\\", "\\" * number) for number in (2, 4))
    for escaped in (once, twice, thrice):
        assert [url for url, _, _ in speculative_links(f'"{escaped}"')] == ["/a.html"]
    assert "/a.html" not in [url for url, _, _ in speculative_links('"' + once.replace("\\", "\\" * 8) + '"')]
