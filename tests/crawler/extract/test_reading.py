"""The links of a header, how a document is read, and XML documents that are pages."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.extract.content_type import DocumentKind
from anabranch.crawler.extract.links import ExtractOptions
from anabranch.crawler.extract.reading import (
    Document,
    DocumentHead,
    header_links,
    kind_of,
    link_links,
    may_be_read,
    read,
)
from anabranch.crawler.fetch.mime import mime_type
from tests.rows import each_row

HTML, CSS, SCRIPT, JSON, XML, TEXT, GZIP = DocumentKind
PAGE = b"<!doctype html><a href=x>"
URLSET = b"<?xml version='1.0'?><urlset><url><loc>http://a.test/1</loc></url></urlset>"
RSS = b"<rss><channel><link>http://a.test/1</link></channel></rss>"


def links(status=200, **headers):
    named = CIMultiDict((name.replace("_", "-"), value) for name, value in headers.items())
    return list(header_links(CIMultiDictProxy(named), status))


@each_row(
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
    """Refresh makes a redirect, Content-Location an inferred link."""
    assert links(Refresh="5; url=/r", Content_Location="/c", Link="</n>; rel=next") == [
        ("/r", "R", "Refresh"),
        ("/c", "I", "Content-Location"),
        ("/n", "L", "Link rel=next"),
    ]


@pytest.mark.parametrize(("status", "expected"), [(301, ["/l"]), (399, ["/l"]), (201, ["/l", "/r"]), (200, ["/r"])])
def test_location_counts_where_it_means_something(status, expected) -> None:
    """For a redirect it is the only field that counts."""
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
    """Broken links are left out."""
    assert all(hop in "LE" for _, hop, _ in link_links(field))


@each_row("piece", ["<a>", "<a>;", '<a>;rel="', ", ", "<", '<x>;a="\\', "<a>;rel=next,"])
def test_a_long_field_is_read_once(piece) -> None:
    """Its end is never read (else this test does not end)."""
    assert len(list(link_links(piece * 100_000))) < 10_000


def known(content_type, start, hops="L", url="http://a.test/d", *, may_sniff=True, **options):
    """The kind of a document, and None of one at whose bytes nobody looks."""
    options = ExtractOptions(**{"sitemaps": True, "speculative": True} | options)
    head = DocumentHead(content_type, url, hops, may_sniff=may_sniff)
    essence = mime_type(content_type).essence
    return kind_of(head, start, options) if may_be_read(essence, options, hops) else None


@each_row(
    ("content_type", "start", "hops", "kind"),
    [
        # What is no type is sniffed, as is what servers send for unknown types.
        *(
            (content_type, PAGE, "L", HTML)
            for content_type in ["", "html", "none", "text", "text /html", "text/html charset=utf-8"]
        ),
        *(
            (content_type, PAGE, "L", HTML)
            for content_type in ["*/*", "unknown/unknown", "application/unknown", "null", "-"]
        ),
        *((content_type, PAGE, "L", HTML) for content_type in ["application/octet-stream", "binary/octet-stream"]),
        ("", URLSET, "L", XML),
        ("binary/octet-stream", b"\x1f\x8b\x08", "L", GZIP),
        ("text/html, text/html", PAGE, "L", HTML),
        ("text/plain, text/html", PAGE, "L", HTML),
        ("text/html, text/plain", PAGE, "L", None),
        ("text/html, html", b"words", "L", HTML),
        # A type is believed.
        ("text/plain", PAGE, "L", None),
        ("image/png", PAGE, "L", None),
        ("application/pdf", PAGE, "L", None),
        ("text/css", PAGE, "E", CSS),
        ("text/html", b"body{a:b}", "E", HTML),
        ("text/plain", b"body{a:b}", "E", TEXT),
        ("application/x-css", b"body{a:b}", "E", None),
        ("image/svg+xml", b"<svg>", "E", XML),
        ("application/mathml+xml", b"<math>", "L", XML),
        ("application/json", b"{}", "E", JSON),
        # A style sheet without one.
        ("", b"body{a:b}", "LE", CSS),
        ("", b"body{a:b}", "LER", CSS),
        ("css", b"body{a:b}", "E", CSS),
        ("", b"body{a:b}", "L", None),
        ("", b"a = {b: 1}", "E", TEXT),
        # What was requested as a sitemap is one if it begins like one, whatever its type.
        *(
            (content_type, start, "M", XML)
            for content_type in [
                "text/html",
                "text/plain",
                "image/png",
                "application/pdf",
                "text/css",
                "application/json",
                "video/mp4",
            ]
            for start in (URLSET, b"\n\n<br />Warning\n" + URLSET, RSS, b"http://a.test/1\n")
        ),
        *((content_type, b"\x1f\x8b\x08", "MR", GZIP) for content_type in ["text/html", "image/png", "x"]),
        ("application/xml", b"\x1f\x8b\x08", "M", XML),
        ("application/x-gzip", URLSET, "M", GZIP),
        ("text/html", PAGE, "M", HTML),
        ("image/png", b"\x89PNG", "M", None),
        # So is a feed that is sent as a page or a text, or by a type of its own.
        *(
            (content_type, RSS, "L", XML)
            for content_type in ["text/html", "text/plain", "application/rss", "text/rss", "application/x-rss"]
        ),
        ("application/octet-stream", RSS, "L", XML),
        ("text/html", URLSET, "", XML),
        ("image/png", RSS, "L", None),
        ("text/html", b"\x1f\x8b\x08", "L", HTML),
        ("text/html", b"http://a.test/1\n", "L", HTML),
    ],
)
def test_one_step_decides_what_a_document_is(content_type, start, hops, kind) -> None:
    """By the type, else by the beginning; a sitemap by its beginning."""
    assert known(content_type, start, hops) is kind


def test_sniffing_can_be_forbidden_and_sitemaps_left_out() -> None:
    """`nosniff` concerns what has no type; without `sitemaps` a named type is believed."""
    assert known("", PAGE, may_sniff=False) is None
    assert known("html", PAGE, may_sniff=False) is None
    assert known("application/octet-stream", PAGE, may_sniff=False) is None
    assert known("", b"body{a:b}", "E", may_sniff=False) is TEXT
    assert known("text/html", PAGE, may_sniff=False) is HTML
    assert known("text/html", RSS, "M", sitemaps=False) is HTML
    assert known("text/plain", URLSET, "M", sitemaps=False) is None
    assert known("application/gzip", b"\x1f\x8b", "M", sitemaps=False) is None
    assert known("", b"body{a:b}", "E", css=False) is None


XML_DECLARED = b"<?xml version='1.0' encoding='utf-8'?>\n"
XHTML_SPACE = b"http://www.w3.org/1999/xhtml"


@each_row(
    ("body", "expected"),
    [
        (b"<html xmlns='%b'><body><img src='/1.png'/></body></html>" % XHTML_SPACE, [("/1.png", "E")]),
        (
            XML_DECLARED + b"<!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0 Strict//EN' 'x.dtd'><html><head>"
            b"<link rel='stylesheet' href='/s.css'/><script src='/s.js'/></head><body><a href='/1'>x</a></body></html>",
            [("/s.css", "E"), ("/s.js", "E"), ("/1", "L")],
        ),
        (b"<!-- x --><html><a href='/1?a&amp;b'/></html>", [("/1?a&b", "L")]),
        (b"Warning: x\n" + XML_DECLARED + b"<html><a href='/1'/></html>", [("/1", "L")]),
        (b"<h:html xmlns:h='%b'><h:a href='/1'/><h:img src='/2'/></h:html>" % XHTML_SPACE, [("/1", "L"), ("/2", "E")]),
        (
            b"<!DOCTYPE html [<!ENTITY a '<img src=\"/no\"/>'><!ENTITY b \"]>\">]><html><a href='/1'/></html>",
            [("/1", "L")],
        ),
        (b"<html><base href='/b/'/><a href='1'/></html>", [("/b/1", "L")]),
        (b"<html><style>@import '/1.css';</style></html>", [("/1.css", "E")]),
        (
            b"<?xml version='1.0' encoding='gb2312'?><html><a href='/%b'/></html>" % "\u65b0".encode("gb2312"),
            [("/%E6%96%B0", "L")],
        ),
        (b"<svg><a xlink:href='/1'><image xlink:href='/2.png'/></a></svg>", [("/1", "L"), ("/2.png", "E")]),
        (
            XML_DECLARED
            + b"<!DOCTYPE svg [<!ENTITY ns 'http://www.w3.org/2000/svg'>]><svg xmlns='&ns;'><title/><style><![CDATA["
            b"a{fill:url(/1.svg#x)}]]></style><use href='/2.svg#a'/><feImage href='/3.png'/><script href='/4.js'/></svg>",
            [("/1.svg", "E"), ("/2.svg", "E"), ("/3.png", "E"), ("/4.js", "E")],
        ),
        (
            b"<s:svg xmlns:s='http://www.w3.org/2000/svg'><s:image href='/1.png'/><s:a href='/2'/></s:svg>",
            [("/1.png", "E"), ("/2", "L")],
        ),
        (b"<svg><foreignObject><iframe src='/1'/><a href='/2'/></foreignObject></svg>", [("/1", "E"), ("/2", "L")]),
        (
            b"<math><mrow href='/1'><mi xlink:href='/2'>x</mi></mrow><mglyph src='/3.png'/><mfrac href='/4'/></math>",
            [("/1", "L"), ("/2", "L"), ("/3.png", "E"), ("/4", "L")],
        ),
        # Style sheets of any document.
        (
            XML_DECLARED + b"<?xml-stylesheet type='text/xsl' href='/1.xsl'?><page><a href='/no'/></page>",
            [("/1.xsl", "E")],
        ),
        (
            b"<?xml-stylesheet href=\"/1.css?a&amp;b\" ?><!-- x --><?xml-stylesheet href='2.css'?><x/>",
            [("/1.css?a&b", "E"), ("/2.css", "E")],
        ),
        (b"<?xml-stylesheet href='#x'?><?xml-stylesheet type='text/css'?><x/>", []),
        (b"<?xml-stylesheet href='/1.css'?><svg><image href='/2'/></svg>", [("/1.css", "E"), ("/2", "E")]),
        (b"<?xml-stylesheet href='/1.xsl'?>" + RSS, [("/1.xsl", "E"), ("/1", "M")]),
        (b"<?x <?xml-stylesheet href='/no'?><x><?xml-stylesheet href='/no'?></x>", []),
        # Others.
        (URLSET, [("/1", "M")]),
        (b"<page><a href='/no'/><img src='/no'/></page>", []),
        (b"<!-- <html> --><x/>", []),
        (b"", []),
        (b"<", []),
        (b"<!DOCTYPE html [", []),
    ],
)
def test_an_xml_document_is_read_by_its_root(body, expected) -> None:
    """Pages as HTML is read, sitemaps and feeds as these, and the style sheets of all."""
    found = read(Document(XML, body, "http://a.test/", "application/xml", "L"), ExtractOptions(sitemaps=True))
    assert [(link.url.removeprefix("http://a.test"), link.hop) for link in found.links] == expected


def test_xhtml_by_its_type_is_read_whatever_its_root() -> None:
    """Its style sheets and its own encoding count, too."""
    body = b"<?xml version='1.0' encoding='gb2312'?><?xml-stylesheet href='/1.css'?><a href='/%b'/>" % "\u65b0".encode(
        "gb2312"
    )
    found = read(Document(HTML, body, "http://a.test/", "application/xhtml+xml"), ExtractOptions())
    assert [link.url for link in found.links] == ["http://a.test/1.css", "http://a.test/%E6%96%B0"]


def test_a_packed_document_is_a_sitemap_or_nothing() -> None:
    """A page in an archive is a download."""
    page, sitemap = gzip.compress(b"<html><a href='/1'/></html>"), gzip.compress(URLSET)
    for kind in (GZIP, XML):
        assert read(Document(kind, page, "http://a.test/"), ExtractOptions(sitemaps=True)).links == []
        assert len(read(Document(kind, sitemap, "http://a.test/"), ExtractOptions(sitemaps=True)).links) == 1
        assert read(Document(kind, sitemap, "http://a.test/"), ExtractOptions()).links == []
    assert (
        read(Document(GZIP, b"<html><a href='/1'/></html>", "http://a.test/"), ExtractOptions(sitemaps=True)).links
        == []
    )
    assert len(read(Document(GZIP, URLSET, "http://a.test/"), ExtractOptions(sitemaps=True)).links) == 1
