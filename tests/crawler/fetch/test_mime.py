"""The MIME type that the `Content-Type` fields of an answer name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.fetch.mime import MAX_CHARS, SHORT_CHARS, mime_type, remembered
from anabranch.crawler.fetch.response import content_type_of, media_type_of
from tests.rows import each_row

HTML, PLAIN = "text/html", "text/plain"


@each_row(
    ("content_type", "essence", "charset"),
    [
        ("text/html", HTML, None),
        ("Text/HTML;CharSet=GBK", HTML, "GBK"),
        ("\ttext/html \t; charset=gbk\r\n", HTML, "gbk"),
        ('text/html; charset="gbk"', HTML, "gbk"),
        ('text/html; charset="gbk', HTML, "gbk"),
        ('text/html; charset="gb\\k"more', HTML, "gbk"),
        ("text/html; charset= gbk ", HTML, " gbk"),
        ("text/html;; ;charset=gbk", HTML, "gbk"),
        ("text/html; q; =; x=; charset=gbk", HTML, "gbk"),
        ("text/html; charset=gbk; charset=big5", HTML, "gbk"),
        ("text/html; charset=; charset=big5", HTML, "big5"),
        ('text/html; charset=""; charset=big5', HTML, ""),
        ("text/html; charset =gbk", HTML, None),
        ('text/html; x="; charset=gbk"; charset=big5', HTML, "big5"),
        ('text/html; x="\\"; charset=gbk"; charset=big5', HTML, "big5"),
        ("text/html; x=\u0100; charset=big5", HTML, "big5"),
        ("text/html; charset=\u0100; charset=big5", HTML, "big5"),
        ("image/svg+xml;charset=utf-8", "image/svg+xml", "utf-8"),
        ("x!#$%&'*+-.^_`|~/y", "x!#$%&'*+-.^_`|~/y", None),
        ("", "", None),
        (" ", "", None),
        ("html", "", None),
        ("none", "", None),
        ("text", "", None),
        ("text/", "", None),
        ("/html", "", None),
        ("text /html", "", None),
        ("text/ html", "", None),
        ("text/html charset=utf-8", "", None),
        ("text/html/xml", "", None),
        ("text/html(", "", None),
        ("*/*", "", None),
        ("<text/html>", "", None),
        ("text\\html", "", None),
        ("text/html,text/html", HTML, None),
        ("text/plain, text/html; charset=utf-8", HTML, "utf-8"),
        ("text/html; charset=gbk, text/html", HTML, "gbk"),
        ("text/html; charset=gbk, text/plain", PLAIN, None),
        ("text/html; charset=gbk, text/plain, text/html", HTML, None),
        ("text/html; charset=gbk, text/html; charset=big5", HTML, "big5"),
        ("text/html, */*; charset=gbk", HTML, None),
        ("*/*, text/html", HTML, None),
        (", text/html,, ", HTML, None),
        ("html, text/html", HTML, None),
        ("text/html, html", HTML, None),
        ('text/html; x=", text/plain', HTML, None),
        ('text/html; x="a, b", text/plain', PLAIN, None),
        ('text/html; "', HTML, None),
    ],
)
def test_the_type_is_that_of_the_fetch_standard(content_type, essence, charset) -> None:
    """The last valid value of the list counts; what is no type by its grammar is none."""
    assert mime_type(content_type) == (essence, charset)


@each_row(
    ("fields", "expected"),
    [
        ([], ""),
        (["text/html"], "text/html"),
        (["text/plain", "text/html; charset=utf-8"], "text/html"),
        (["text/html", "nonsense"], "text/html"),
        (["Nonsense; x"], "nonsense"),
    ],
)
def test_several_fields_are_one_list(fields, expected) -> None:
    """The type in the log and in a page is that by which it is read; what is no type is shown as it was sent."""
    headers = CIMultiDictProxy(CIMultiDict(("Content-Type", field) for field in fields))
    assert content_type_of(headers) == ", ".join(fields)
    assert media_type_of(headers) == expected


def test_long_fields_are_cut() -> None:
    """They stand in the logs, and go to other processes."""
    for fields in (["x" * 100_000], ["text/html"] * 10_000):
        headers = CIMultiDictProxy(CIMultiDict(("Content-Type", field) for field in fields))
        assert len(content_type_of(headers)) == MAX_CHARS
        assert len(media_type_of(headers)) <= MAX_CHARS


@given(st.lists(st.sampled_from([*'"\\;,=/ at*', "text/html", "charset=gbk"]), max_size=30).map("".join))
def test_no_field_raises(content_type) -> None:
    """A broken field names no type, or a type of two parts."""
    essence = mime_type(content_type).essence
    assert not essence or essence.count("/") == 1


@pytest.mark.parametrize("piece", ['"', ",", ";", "a", '",', ";x=", ';x="', "\\", '"\\', "a/b,", ";charset=\x01"])
def test_a_long_field_is_read_once(piece) -> None:
    """Its end is never read (else this test does not end)."""
    assert len(mime_type("text/html" + piece * 50_000).essence) <= 9 + 50_000


def test_short_texts_are_worked_out_once_and_long_ones_each_time() -> None:
    """Nothing is kept of what is long; both have their answer."""
    asked: list[int] = []

    @remembered(2)
    def size(text: str) -> int:
        asked.append(len(text))
        return len(text)

    for chars in (SHORT_CHARS, SHORT_CHARS + 1) * 2:
        assert size("x" * chars) == chars
    assert asked == [SHORT_CHARS, SHORT_CHARS + 1, SHORT_CHARS + 1]
