"""The kind of a document, by its MIME type or by its first bytes."""

from __future__ import annotations

from anabranch.crawler.extract.content_type import DocumentKind, kind_named, kind_sniffed
from tests.rows import each_row

HTML, CSS, SCRIPT, JSON, XML, TEXT, GZIP = DocumentKind


@each_row(
    ("essence", "kind"),
    [
        ("text/html", HTML),
        ("application/xhtml+xml", HTML),
        ("text/css", CSS),
        ("text/plain", TEXT),
        ("text/xml", XML),
        ("application/rss+xml", XML),
        ("image/svg+xml", XML),
        ("application/mathml+xml", XML),
        ("application/x-gzip", GZIP),
        ("text/javascript", SCRIPT),
        ("application/x-ecmascript", SCRIPT),
        ("text/livescript", SCRIPT),
        ("application/ld+json", JSON),
        ("text/json", JSON),
        ("image/png", None),
        ("text/html2", None),
        ("application/xml-dtd", None),
        ("application/pdf", None),
    ],
)
def test_a_named_type_has_its_reader(essence, kind) -> None:
    """XML, JavaScript and JSON by the groups of the MIME Sniffing standard."""
    assert kind_named(essence) is kind


@each_row(
    ("start", "kind"),
    [
        (b"<!doctype html>", HTML),
        (b" \t\r\n\f<!DOCTYPE\nHTML PUBLIC", HTML),
        (b"\xef\xbb\xbf<html lang=en>", HTML),
        *((b"<%b x" % tag, HTML) for tag in b"head script iframe h1 div font table a style title b body br p".split()),
        (b"<!-- x --><meta>", HTML),
        (b"<!--", HTML),
        (b"<?xml version='1.0'?><urlset>", XML),
        (b"\n<?xml version", XML),
        (b"\x1f\x8b\x08", GZIP),
        (b"", TEXT),
        (b"<htmlx>", TEXT),
        (b"<!doctype htmlx>", TEXT),
        (b"<meta charset=utf-8>", TEXT),
        (b"<rss>", TEXT),
        (b"x <html>", TEXT),
        (b"caf\xe9 \x1b[0m", TEXT),
        (b"\xff\xfe<\0h\0", TEXT),
        (b"%PDF-1.7", None),
        (b"%!PS-Adobe-3.0", None),
        (b"\x89PNG\r\n\x1a\n", None),
        (b"\0", None),
        (b"text\x01", None),
    ],
)
def test_what_has_no_type_is_sniffed_as_the_standard_says(start, kind) -> None:
    """HTML and XML by their first tag; what has no byte of binary data is a text. nosniff leaves only texts."""
    assert kind_sniffed(start) is kind
    assert kind_sniffed(start, may_be_script=False) in (TEXT, None)


@each_row(
    ("start", "path", "kind"),
    [
        (b"a{background:url(x)}", "/d", CSS),
        (b"  /* (c) { */ .a > b:hover, #c\n{\n  --x: 1 }", "/d", CSS),
        (b"@charset 'utf-8';", "/d", CSS),
        (b'@import "x";', "/d", CSS),
        (b"*{margin:0}", "/d", CSS),
        (b"[x]{/* c */ color:red}", "/d", CSS),
        (b"anything", "/d.CSS", CSS),
        (b"var a={b:1}", "/d", TEXT),
        (b"(function(){a:1})()", "/d", TEXT),
        (b'{"a":1}', "/d", JSON),
        (b"// x\nfoo{}", "/d", TEXT),
        (b"plain words", "/d", TEXT),
        (b"<html>{a:b}", "/d.css", HTML),
        (b"\0asm", "/d.css", None),
    ],
)
def test_a_text_without_a_type_that_a_page_embeds_may_be_a_style_sheet(start, path, kind) -> None:
    """That is the default of `<link rel=stylesheet>`. A script is none, and what no page embeds is none."""
    assert kind_sniffed(start, is_embedded=True, path=path) is kind
    assert kind_sniffed(start, path=path) is not CSS
