"""The links of a header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.extract.reading import header_links, link_links


def links(status=200, **headers):
    named = CIMultiDict((name.replace("_", "-"), value) for name, value in headers.items())
    return list(header_links(CIMultiDictProxy(named), status))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("</a>; rel=next", [("/a", "L")]),
        ('<a>; rel="prev"', [("a", "L")]),
        ("<a>;rel=canonical", [("a", "L")]),
        ("<a>; hreflang=de; REL = Alternate", [("a", "L")]),
        ("<a>; rel=preload; as=style", [("a", "E")]),
        ("<a>; rel=stylesheet, <b>; rel=next", [("a", "E"), ("b", "L")]),
        ('<a>; title="x, <no>; rel=next"; rel=icon', [("a", "E")]),
        (r'<a>; title="\"; rel=no"; rel=icon', [("a", "E")]),
        ('<a>; rel="other next"', [("a", "L")]),
        (",, <a> ; rel=next ,,", [("a", "L")]),
        ("<a,b;c>; rel=next", [("a,b;c", "L")]),
        ("<a>; rel=next; rel=stylesheet", [("a", "L")]),
        ("<a>", []),
        ("<a>; rel", []),
        ("<a>; rel=shortlink", []),
        ('<a>; rel="https://api.w.org/"', []),
        ("<a>; rel=preconnect", []),
        ('<a>; rel=next; anchor="#x"', []),
        ("a; rel=next", []),
        ("<a; rel=next", []),
    ],
)
def test_link_by_rfc_8288(field, expected) -> None:
    """Only relations that lead to documents are followed, with the hops of the element `link`; the first `rel` counts."""
    assert [(url, hop) for url, hop, _ in link_links(field)] == expected


def test_each_field_has_its_hop_and_context() -> None:
    """Where the page moved is a redirect, what it also is is inferred."""
    assert links(Refresh="5; url=/r", Content_Location="/c", Link="</n>; rel=next") == [
        ("/r", "R", "Refresh"),
        ("/c", "I", "Content-Location"),
        ("/n", "L", "Link rel=next"),
    ]


@pytest.mark.parametrize(("status", "expected"), [(301, ["/l"]), (399, ["/l"]), (201, ["/l", "/r"]), (200, ["/r"])])
def test_location_counts_where_it_means_something(status, expected) -> None:
    """Of a redirect it is all that counts."""
    assert [url for url, _, _ in links(status, Location="/l", Refresh="0;/r")] == expected


def test_several_link_fields_are_one() -> None:
    """RFC 9110 section 5.3."""
    headers = CIMultiDictProxy(CIMultiDict([("link", "<a>; rel=next"), ("LINK", "<b>; rel=next")]))
    assert [url for url, _, _ in header_links(headers, 200)] == ["a", "b"]


@given(
    st.lists(st.sampled_from(["<", ">", "a", ";", ",", "=", '"', "\\", " ", "rel=next", "rel="]), max_size=40).map(
        "".join
    )
)
def test_no_field_raises(field) -> None:
    """What is broken is left out."""
    assert all(hop in "LE" for _, hop, _ in link_links(field))


@pytest.mark.parametrize("piece", ["<a>", "<a>;", '<a>;rel="', ", ", "<", '<x>;a="\\', "<a>;rel=next,"])
def test_a_long_field_is_read_once(piece) -> None:
    """Its end is never read (else this test does not end)."""
    assert len(list(link_links(piece * 100_000))) < 10_000
