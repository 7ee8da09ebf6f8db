"""The kind of a document, what is remembered of texts that sites choose, and the encoding of XML."""

from __future__ import annotations

from codecs import lookup

import pytest

from anabranch.crawler.extract.content_type import (
    SHORT_CHARS,
    DocumentKind,
    kind_named,
    kind_sniffed,
    remembered,
)
from anabranch.crawler.extract.encoding import xml_codec

HTML, CSS, SCRIPT, JSON, XML, TEXT, GZIP = DocumentKind


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("start", "content_type", "codec", "is_known"),
    [
        (b"<a/>", "", "utf-8", True),
        (b"<?xml version='1.0' encoding='gb2312'?>", "", "gb18030", True),
        (b'<?xml encoding = "EUC-JP" ?>', "text/xml", "euc_jp", True),
        (b"<?xml encoding=big5?>", "", "big5hkscs", True),
        (b"PHP\n<?xml version='1.0' encoding='windows-1251'?>", "", "cp1251", True),
        (b"<?xml encoding='big5'?>", "text/xml; charset=euc-kr", "cp949", True),
        (b"<?xml encoding='big5'?>", "text/xml; charset=nonsense", "big5hkscs", True),
        (b"<?xml encoding='nonsense'?>", "", "utf-8", False),
        (b"<?xml encoding='utf-16'?>", "", "utf-8", True),
        (b"<a/>", "text/xml; charset=utf-16", "utf-8", True),
        (b"\xef\xbb\xbf<?xml encoding='big5'?>", "text/xml; charset=big5", "utf-8", True),
        (b"\xff\xfe<\0a\0", "text/xml; charset=big5", "utf-16-le", True),
        (b"\xfe\xff\0<\0a", "", "utf-16-be", True),
        (b"<\0?\0x\0", "", "utf-16-le", True),
        (b"\0\n\0<\0a", "", "utf-16-be", True),
        (b"<html><meta charset=gbk>", "application/xhtml+xml", "gb18030", True),
    ],
)
def test_the_encoding_of_xml_is_that_of_its_mark_then_the_header_then_the_declaration(
    start, content_type, codec, is_known
) -> None:
    """RFC 7303. UTF-16 is seen, and never believed of a document that is readable as ASCII."""
    found, _, is_found_known = xml_codec(start, content_type)
    assert (lookup(found).name, is_found_known) == (lookup(codec).name, is_known)
