"""Links: what the relation of a link means, and where a refresh leads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extract.links import hop_of_rel, refresh_url
from tests.rows import each_row


@each_row(
    ("rel", "hop"),
    [
        ("stylesheet", "E"),
        ("Preload", "E"),
        ("manifest", "E"),
        ("apple-touch-icon", "E"),
        ("next icon", "E"),
        ("next", "L"),
        ("preconnect", None),
        ("pingback icon", None),
        ("", None),
        (None, None),
    ],
)
def test_what_renders_is_embedded_hints_are_nothing_the_rest_leads_on(rel, hop) -> None:
    """Keyword by keyword, the first that decides."""
    assert hop_of_rel(rel) == hop


@each_row(
    ("text", "url"),
    [
        ("0;url=a", "a"),
        ("0; URL = 'b'x", "b"),
        ('5.7 , "c', "c"),
        ("5,d", "d"),
        (".5 e", "e"),
        ("0;f g", "f g"),
        ("0;urlx", "urlx"),
        ("0;u", "u"),
        ("0 url=h", "h"),
        ("0;;url=i", ";url=i"),
        ("\t0;url=j ", "j "),
        ("5", None),
        ("5;", None),
        ("5; ", None),
        ("0url=k", None),
        ("x;url=l", None),
        ("-1;url=m", None),
        ("\u0661;url=n", None),
        ("0;url=", None),
        ('0;url="', None),
        ("", None),
    ],
)
def test_the_url_of_a_refresh(text, url) -> None:
    """The standard's steps find it; a time alone names no URL."""
    assert refresh_url(text) == url


@given(st.text(alphabet="0.;,= \t'\"urlURLx", max_size=40))
def test_no_text_raises(text) -> None:
    """And no URL is empty."""
    assert refresh_url(text) != ""
