"""Sitemaps and feeds: what they name, how they are known, what they cannot do."""

import gzip
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extract import sitemaps
from anabranch.crawler.extract.links import SITEMAP_BROKEN, Link, Reference
from anabranch.crawler.extract.sitemaps import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_URLS,
    begins_like_sitemap,
    is_sitemap,
    robots_links,
    sitemap_links,
    unpacked,
    xml_document,
)
from tests.rows import each_row

URLSET = (
    b'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml">'
    b"<url><loc> http://a.test/1?a&amp;b </loc><lastmod>2026-01-01</lastmod>"
    b'<xhtml:link rel="alternate" hreflang="de" href="http://a.test/de"/></url><url><loc>http://a.test/2</loc></url></urlset>'
)
INDEX = b"<sitemapindex><sitemap><loc>http://a.test/s.xml</loc></sitemap></sitemapindex>"
RSS = (
    b"<rss><channel><link>http://a.test/</link>"
    b"<item><link>http://a.test/1</link><enclosure url='http://a.test/1.mp3'/></item></channel></rss>"
)
ATOM = (
    b"<feed xmlns='http://www.w3.org/2005/Atom'><link href='http://a.test/'/>"
    b"<entry><link href='/1'/><title>no</title></entry></feed>"
)


def urls(body: bytes) -> list[tuple[str, str]]:
    return [(url.removeprefix("http://a.test"), hop) for url, hop, _ in read(body)[0]]


def read(body: bytes, content_type: str = "") -> tuple[list[Reference], tuple[str, ...]]:
    """The URLs and annotations of a sitemap."""
    return sitemap_links(xml_document(body, content_type), "http://a.test/dir/map.xml")


@each_row(
    ("body", "expected"),
    [
        (URLSET, [("/1?a&b", "M"), ("/de", "M"), ("/2", "M")]),
        (INDEX, [("/s.xml", "M")]),
        (RSS, [("/", "M"), ("/1", "M"), ("/1.mp3", "E")]),
        (ATOM, [("/", "M"), ("/1", "M")]),
        (b"\xef\xbb\xbfhttp://a.test/1\r\nno url\nHTTP://a.test/2", [("/1", "M"), ("HTTP://a.test/2", "M")]),
        (
            URLSET.decode().replace('<?xml version="1.0"?>', "").encode("utf-16"),
            [("/1?a&b", "M"), ("/de", "M"), ("/2", "M")],
        ),
        ("http://a.test/1\r\n\u3c00\nhttp://a.test/2".encode("utf-16"), [("/1", "M"), ("/2", "M")]),
        (b"\xfe\xff" + "\nhttp://a.test/1".encode("utf-16-be"), [("/1", "M")]),
        (b"<!--" + b" x" * 100_000 + b"--><!DOCTYPE x>" + INDEX, [("/s.xml", "M")]),
        (b"<urlset><loc>no</loc><url><title>no</title><image><loc>no</loc></image></url></urlset>", []),
    ],
)
def test_what_each_kind_names(body, expected) -> None:
    """Everything named has the hop M, what is played in a feed is embedded; a text is a URL only where it should be."""
    assert urls(body) == expected
    assert urls(gzip.compress(body)) == expected
    assert urls(gzip.compress(body[:9]) + gzip.compress(body[9:])) == expected


@each_row("start", ["\n", "\ufeff\n", " \r\n\t", "\ufeff\ufeff", "\n\ufeff", " " * 3000])
@each_row("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_white_space_and_marks_before_the_declaration_are_ignored(start, encoding) -> None:
    """Templates write an empty line before `<?xml`, and a parser that is given it reads nothing."""
    text = URLSET.decode() if encoding == "utf-8" else URLSET.decode().replace('<?xml version="1.0"?>', "")
    body = (start + text).encode(encoding)
    if encoding != "utf-8":
        body = "\ufeff".encode(encoding) + body
    for form in (body, gzip.compress(body), gzip.compress(body[:1]) + gzip.compress(body[1:])):
        assert is_sitemap(xml_document(form, ""), "")
        assert urls(form) == [("/1?a&b", "M"), ("/de", "M"), ("/2", "M")]


@each_row(
    ("body", "hops", "expected"),
    [
        (URLSET, "", True),
        (INDEX, "M", True),
        (gzip.compress(RSS), "", True),
        (b"<!-- x --><s:urlset xmlns:s='x'>", "", True),
        (URLSET.decode().encode("utf-16"), "", True),
        (b"<html><body>", "M", False),
        (b"http://a.test/\n", "LM", True),
        (b"\nhttp://a.test/ \r\nhttp://b.test/\n", "M", True),
        (b"http://a.test/\n", "ML", False),
        (b"some words about http://a.test/", "M", False),
        (b"", "M", False),
        (URLSET, "M" * MAX_DEPTH, False),
        (URLSET, "M" * (MAX_DEPTH - 1), True),
        (URLSET, "M" * MAX_DEPTH + "L", True),
        (b"\x1f\x8bno gzip", "M", False),
        (b"<!--" + b" x" * 100_000 + b"--><!DOCTYPE urlset SYSTEM 'a.dtd'>" + INDEX, "", True),
        (b"<!-- <urlset> --><html/>", "", False),
        (b"\n" * 100_000 + INDEX, "", True),
        ((" " * 100_000 + INDEX.decode()).encode("utf-16"), "", True),
        ("http://a.test/\n".encode("utf-16"), "M", True),
        ("http://a.test/\n".encode("utf-16"), "", False),
        (b"# pages\r\n\n#\nhttp://a.test/\n", "M", True),
        (b"# pages\nnothing of http://a.test/\n", "M", False),
        (b"#\n" * 100_000 + b"http://a.test/\n", "M", False),
    ],
)
def test_a_sitemap_is_known_by_its_root_or_its_hops(body, hops, expected) -> None:
    """XML anywhere, a list of URLs only where one is expected, and no index leads down for ever."""
    assert is_sitemap(xml_document(body, ""), hops) is expected


def page(text: str) -> bytes:
    return (
        f"<urlset><url><loc>http://a.test/{text}</loc></url><url><loc>http://a.test/last</loc></url></urlset>".encode()
    )


@each_row(
    ("body", "expected", "faults"),
    [
        # References.
        (page("k?a=1&b=2"), ["/k?a=1&b=2"], "1references"),
        (page("k?a&amp;b&"), ["/k?a&b&"], "1references"),
        (page("a&copy=1"), ["/a&copy=1"], "1references"),
        (page("1&Acirc;&ordm;-t"), ["/1\u00c2\u00ba-t"], "2references"),
        (page("&eacute;&nbsp;x"), ["/\u00e9\u00a0x"], "2references"),
        (page("&#233;&#xE9;&lt;&gt;&quot;&apos;"), ["/\u00e9\u00e9<>\"'"], ""),
        (page("&#0;&#xD800;&#x110000;"), ["/&#0;&#xD800;&#x110000;"], "3references"),
        (page("&nonsense;"), ["/&nonsense;"], "1references"),
        (page("&#;&#x;&;"), ["/&#;&#x;&;"], "3references"),
        # Bytes and characters.
        (page("caf").replace(b"caf", b"caf\xe9"), ["/caf%E9"], "1bytes"),
        (page("\u00e9").replace(b"last", b"last"), ["/\u00e9"], ""),
        (page("x").replace(b"</url>", b"</url><!-- caf\xe9 \x00\x01 -->", 1), ["/x"], ""),
        (page("a\x01\x0bb\x1f"), ["/ab"], "3controls"),
        (page("x").replace(b"<loc>", b"<loc>\x00", 1), ["/x"], "1controls"),
        # Tags that are not closed, or closed wrongly.
        (page("x").replace(b"</loc>", b"</loc><lastmod>2020", 1), ["/x"], "1tags"),
        (page("x").replace(b"</url>", b"", 1), ["/x"], "1tags"),
        (page("x").replace(b"</loc></url>", b"", 1), ["/x"], "1tags"),
        (page("x").replace(b"</loc>", b"", 1), ["/x"], "1tags"),
        (page("x").replace(b"</loc>", b"<lastmod>2020</lastmod>", 1), ["/x"], "1tags"),
        (page("x").replace(b"</loc>", b"</loc", 1), ["/x"], "1tags"),
        (page("x").replace(b"</loc>", b"</lo>", 1), ["/x"], "2tags"),
        (page("x").replace(b"<url>", b"<url", 1), ["/x"], "1tags"),
        (page("x").replace(b"</url>", b"</url></url></sitemap>", 1), ["/x"], "2tags"),
        (page("x").replace(b"</url>", b"</urlset>", 1), ["/x"], "2tags"),
        (page("x").replace(b"</urlset>", b""), ["/x"], "1tags"),
        (
            page("x").replace(b"</url></urlset>", b"</url></urlset><urlset>" + page("y")[8:], 1),
            ["/x", "/last", "/y"],
            "",
        ),
        (page("x").replace(b"</url>", b"</url> < x <1>", 1), ["/x"], "2tags"),
        (page("x") + b"<script>1</script>", ["/x"], ""),
        (page("x").replace(b"</loc>", b"<!-- c --></loc>", 1), ["/x"], ""),
        (page("x").replace(b"</loc>", b"<![CDATA[&y]]>z</loc>", 1), ["/x&yz"], ""),
        (page("x").replace(b"http://a.test/x", b"<![CDATA[ http://a.test/x?a&b ]]>", 1), ["/x?a&b"], ""),
        (page("x").replace(b"</url>", b"</url><![CDATA[ x", 1), ["/x"], "1tags"),
        (page("x").replace(b"</url>", b"</url><!-- x", 1), ["/x"], "1tags"),
        (page("x").replace(b"</url>", b"</url><?x ", 1), ["/x"], "1tags"),
        (page("x").replace(b"</url>", b"</url><!ELEMENT a>", 1), ["/x"], "1tags"),
        # Attributes.
        (page("x").replace(b"<url>", b"<url a='1' a='2'>", 1), ["/x"], "1attributes"),
        (page("x").replace(b"<loc>", b"<loc a=1>", 1), ["/x"], "1attributes"),
        (page("x").replace(b"<loc>", b'<loc a="1>', 1), ["/x"], "1attributes"),
        (page("x").replace(b"<loc>", b"<loc a='<b>'>", 1), ["/x"], ""),
        (page("x").replace(b"<urlset>", b"<urlset a b='>' c=\">\">"), ["/x"], "1attributes"),
        # Names.
        (page("x").replace(b"loc>", b"LOC>"), ["/x"], ""),
        (page("x").replace(b"<", b"<s:").replace(b"<s:/", b"</s:"), ["/x"], ""),
        # What is before the document.
        (
            b"\n\n<br />\n<b>Warning</b>: x in /y.php on line 3<br />\n<?xml version='1.0'?>" + page("x"),
            ["/x"],
            "1before",
        ),
        (b"Notice: Undefined index\n" + page("x"), ["/x"], "1before"),
        (b"<?xml version='1.0'?><br/><p>Deprecated</p>" + page("x"), ["/x"], "1before"),
        (b"<script>console.log('<urlset>')</script>" + page("x"), ["/x"], "1before"),
        (b"<?xml version='1.0' encoding='utf-8'>" + page("x"), ["/x"], ""),
        (b"<?xml version='1.0'?><?xml version='1.0'?>" + page("x"), ["/x"], ""),
        (b"\0\0" + page("x"), ["/x"], ""),
        (b"<!DOCTYPE urlset SYSTEM 'a>b'>" + page("x"), ["/x"], ""),
        (b"<!DOCTYPE urlset [<!ELEMENT loc ']>'><!-- ]> ' -->\n] >" + page("x"), ["/x"], ""),
        (b"<!DOCTYPE urlset [<!ENTITY h 'http://a.test'>]>" + page("x") + b"<url><loc>&h;/y</loc></url>", ["/x"], None),
        # Encodings.
        (b"<?xml version='1.0' encoding='gb2312'?>" + page("\u65b0").decode().encode("gb2312"), ["/\u65b0"], ""),
        (b"<?xml version='1.0' encoding='EUC-JP'?>" + page("\u65e5").decode().encode("euc_jp"), ["/\u65e5"], ""),
        (b"<?xml version='1.0' encoding='Big5'?>" + page("\u4e2d").decode().encode("big5"), ["/\u4e2d"], ""),
        (b"<?xml version='1.0' encoding='Shift_JIS'?>" + page("\u8868").decode().encode("cp932"), ["/\u8868"], ""),
        (b"<?xml version='1.0' encoding='EUC-KR'?>" + page("\ud55c").decode().encode("cp949"), ["/\ud55c"], ""),
        (
            b"<?xml version='1.0' encoding='iso-2022-jp'?>" + page("\u65e5").decode().encode("iso2022_jp"),
            ["/\u65e5"],
            "",
        ),
        (b"<?xml version='1.0' encoding='gbk'?>" + page("x").replace(b"x<", b"x\xff<"), ["/x%FF"], "1bytes"),
        (
            b"<?xml version='1.0' encoding='big5'?>" + page("x").replace(b"</loc>", b"\x81</loc>", 1),
            ["/x%81"],
            "1bytes",
        ),
        (b"<?xml version='1.0' encoding='nonsense'?>" + page("x"), ["/x"], "1encoding"),
        (page("\u00e9").decode().encode("utf-16-le"), ["/\u00e9"], ""),
    ],
)
def test_what_can_be_read_is_read_and_the_faults_are_counted(body, expected, faults) -> None:
    """The URLs as they were meant, and each kind of fault in the annotation, from the log to the summary."""
    references, notes = read(body)
    found = [url.removeprefix("http://a.test") for url, _, _ in references]
    assert (found[: len(expected)], "/last" in found) == (expected, True)
    assert faults is None or notes == ((SITEMAP_BROKEN + faults,) if faults else ())
    assert is_sitemap(xml_document(body, ""), "M")
    assert begins_like_sitemap(body[:4096], "", "M")


def item(text: str) -> bytes:
    return f"<rss><channel><item>{text}</item></channel></rss>".encode()


@each_row(
    ("body", "expected"),
    [
        # Feeds: links, permalinks, media.
        (item("<guid>http://a.test/1</guid>"), [("/1", "M")]),
        (item("<guid isPermaLink='true'>/1</guid>"), [("/1", "M")]),
        (item('<guid isPermaLink="false">http://a.test/1</guid>'), []),
        (item("<guid>tag:a.test,2020:1</guid>"), []),
        (item("<guid ispermalink=TRUE><![CDATA[/1]]></guid>"), [("/1", "M")]),
        (item("<link><![CDATA[http://a.test/1?a&b]]></link>"), [("/1?a&b", "M")]),
        (item("<atom:link href='/1'/>"), [("/1", "M")]),
        (item("<title>a<link>/1</link>"), [("/1", "M")]),
        (item("<title>R&D &eacute; &nbsp; <b>x</title><link>/1</link>"), [("/1", "M")]),
        (item("<enclosure url='/1.mp3'><link>/1</link>"), [("/1.mp3", "E"), ("/1", "M")]),
        (
            item("<media:content url='/1.jpg'><media:thumbnail url='/2.jpg'/></media:content>"),
            [("/1.jpg", "E"), ("/2.jpg", "E")],
        ),
        (item("<media:group><media:content url='/1.mp4'/></media:group>"), [("/1.mp4", "E")]),
        (item("<itunes:image href='/1.png'/>"), [("/1.png", "E")]),
        (item("<description><![CDATA[<link>/no</link>]]></description><link>/1</link>"), [("/1", "M")]),
        (item("<description>a <br> b <hr> <img src=x> <p>c</description><link>/1</link>"), [("/1", "M")]),
        (
            item("<link>/1</link></item><item><link>/2</link><item><link>/3</link>"),
            [("/1", "M"), ("/2", "M"), ("/3", "M")],
        ),
        (b"<rss><channel><image><url>/1.png</url><link>/no</link></image></channel></rss>", [("/1.png", "E")]),
        (
            b"<rdf:RDF><channel><link>/0</link></channel><item rdf:about='/no'><link>/1</link></item></rdf:RDF>",
            [("/0", "M"), ("/1", "M")],
        ),
        (b"<feed><logo>/l.png</logo><icon>/i.ico</icon></feed>", [("/l.png", "E"), ("/i.ico", "E")]),
        (b"<feed><entry><content src='/1.mp4'/><content>text /no</content></entry></feed>", [("/1.mp4", "E")]),
        (b"<feed><entry><link href='/1'><title>x</title><link href='/2'></entry></feed>", [("/1", "M"), ("/2", "M")]),
        (
            b"<feed><entry><link href='/1?a&b&amp;c'/><entry><link href=/2></entry></feed>",
            [("/1?a&b&c", "M"), ("/2", "M")],
        ),
        # xml:base, which nests, and holds for its element only.
        (
            b"<feed xml:base='/b/'><link href='./'/><entry><link href='1'/></entry></feed>",
            [("/b/", "M"), ("/b/1", "M")],
        ),
        (
            b"<feed xml:base='b/'><entry xml:base='c/'><link href='1'/></entry><link href='2'/></feed>",
            [("/dir/b/c/1", "M"), ("/dir/b/2", "M")],
        ),
        (b"<feed><entry><link xml:base='/b/' href='1'/><link href='2'/></entry></feed>", [("/b/1", "M"), ("2", "M")]),
        (b"<feed><entry xml:base='/b/'><entry><link href='2'/></entry></feed>", [("2", "M")]),
        (b"<feed xml:base='mailto:x'><link href='/1'/></feed>", [("/1", "M")]),
        (b"<rss xml:base='http://a.test/b/'><channel><item><link>1</link></item></channel></rss>", [("/b/1", "M")]),
        # Images and videos of sitemaps, by their namespaces.
        (b"<urlset><url><image:image><image:loc>/1.jpg</image:loc></image:image></url></urlset>", [("/1.jpg", "E")]),
        (
            b"<urlset><url><i:image><i:loc>/1.jpg</i:loc><i:image><i:loc>/2.jpg</i:loc></url></urlset>",
            [("/1.jpg", "E"), ("/2.jpg", "E")],
        ),
        (
            b"<urlset><url><image xmlns='http://a.test/sitemap-image/1.1'><loc>/1.jpg</loc></image><loc>/1</loc></url></urlset>",
            [("/1.jpg", "E"), ("/1", "M")],
        ),
        (
            b"<urlset><url><v:video><v:title>x<v:content_loc>/v.mp4</v:content_loc><v:player_loc a='b'>/p?a&b</url>",
            [("/v.mp4", "E"), ("/p?a&b", "E")],
        ),
        (
            b"<sitemapindex><sitemap><loc>/1.xml</loc><sitemap><loc>/2.xml</loc></sitemapindex>",
            [("/1.xml", "M"), ("/2.xml", "M")],
        ),
    ],
)
def test_each_element_that_names_a_url_is_read(body, expected) -> None:
    """Pages have the hop M, what belongs to them is embedded; broken feeds are read as sitemaps are."""
    assert urls(body) == expected


@each_row(
    ("start", "hops", "expected"),
    [
        # Requested as a sitemap: its content decides, whatever the type.
        (b"<?xml version='1.0'?><urlset>", "M", True),
        (b"<urlset xmlns=", "LM", True),
        (b"\x1f\x8b\x08", "M", True),
        (b"Warning: x\n<?xml version='1.0'?><urlset>", "M", True),
        (b"<br/><b>Warning</b><sitemapindex>", "MR", True),
        (b"http://a.test/\n", "MRR", True),
        ("<urlset>".encode("utf-16"), "M", True),
        (b"<!doctype html><pre><urlset></pre>", "M", False),
        (b"\xef\xbb\xbf\n<html><rss>", "M", False),
        (b"<div>text</div><p>more</p>", "M", False),
        (b"<p>x</p><script>a = '<rss version=2.0>'</script>", "M", False),
        (b"<?xml version='1.0'?><html>", "M", False),
        (b"<?xml version='1.0'?><opml><rss/></opml>", "M", False),
        (b"some words <urlset>" + b" " * 10, "M", True),
        (b"x " * 10_000 + b"<urlset>", "M", False),
        (b"<urlset>", "MMMM", False),
        (b"<urlset>", "MRMRMRM", False),
        (b"", "M", False),
        # Found in another way: it begins with its root.
        (b"<rss version='2.0'>", "L", True),
        (b"\xef\xbb\xbf \n<?xml version='1.0'?><!-- x --><feed xmlns=", "L", True),
        (b"<!DOCTYPE rss><rdf:RDF>", "", True),
        (b"<!DOCTYPE rss [<!ENTITY nbsp '&#160;'>]><rss>", "L", True),
        (b"<?xml version='1.0'><?xml-stylesheet href='x'?><rss>", "L", True),
        (b"<?xml version='1.0'?><sitemapindex>", "", True),
        (b"<rssx>", "L", False),
        (b"x <rss>", "L", False),
        (b"<br/><rss>", "L", False),
        (b"<!-- <rss> --><p>", "L", False),
        (b"<!--" + b"<!-- <rss" * 1000, "L", False),
        (b"\x1f\x8b\x08", "L", False),
        (b"http://a.test/\n", "L", False),
        (b"<feed>", "MMMM", False),
    ],
)
def test_what_begins_like_a_sitemap_is_one_whatever_its_type(start, hops, expected) -> None:
    """A page that shows one in its text is none, and an index leads down only so far, also behind redirects."""
    assert begins_like_sitemap(start, "text/html", hops) is expected


@each_row(
    "name",
    [
        "title",
        "description",
        "pubDate",
        "category",
        "dc:creator",
        "dc:date",
        "content:encoded",
        "author",
        "comments",
        "slash:comments",
        "wfw:commentRss",
        "summary",
        "updated",
        "published",
        "id",
        "name",
        "lastBuildDate",
        "media:title",
        "media:description",
    ],
)
@each_row("parent", ["channel", "item", "entry", "feed", "x", "title"])
def test_a_whole_text_that_nobody_wants_changes_nothing(parent, name) -> None:
    """Several of a feed are passed over together, in whatever element."""
    text = f"<{name}>http://a.test/no</{name}>\n<{name}><![CDATA[</{name}><link>]]></{name}>"
    body = f"<rss><{parent}>{text}</{parent}><item>{text}<link>http://a.test/</link>{text}</item></rss>"
    assert read(body.encode()) == ([("http://a.test/", "M", "sitemap")], ())
    assert read(body.replace(f"</{name}>\n", "\n", 1).encode())[0] == [("http://a.test/", "M", "sitemap")]


def test_what_robots_txt_names_is_resolved() -> None:
    """Each once; what is no URL of the web is left out."""
    named = ["/s.xml", "http://b.test/s.xml", "s.xml", "ftp://a.test/s.xml"]
    assert robots_links(named, "http://a.test/robots.txt") == [
        Link("http://a.test/s.xml", "M", "robots.txt"),
        Link("http://b.test/s.xml", "M", "robots.txt"),
    ]


@each_row(
    "body",
    [
        URLSET[:-9],
        URLSET.replace(b"</url>", b"</no>", 1),
        URLSET + b"<more>",
        URLSET.replace(b'"1.0"?', b'"1.0" encoding="nonsense"?'),
        b"<!DOCTYPE a [<!ENTITY b 'c'>]>" + URLSET[21:],
        b"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>" + URLSET[21:],
        b"<a>" * 100,
        b"<",
    ],
)
def test_what_is_broken_has_a_note(body) -> None:
    """Entities of its own are broken, too, and never expanded: no billion laughs, no file from outside."""
    references, (note,) = read(body)
    assert note.startswith(SITEMAP_BROKEN)
    assert all(url.startswith("http://a.test/") for url, _, _ in references)


@pytest.mark.parametrize("form", [b"<url><loc>http://a.test/%d</loc></url>", b"http://a.test/%d\n"])
def test_the_protocols_limit_of_urls_holds(form) -> None:
    """50,000, and a note that there were more."""
    body = b"".join(form % number for number in range(MAX_URLS + 1))
    references, notes = read(b"<urlset>" + body + b"</urlset>" if b"<" in form else body)
    assert (len(references), notes) == (MAX_URLS, ("sitemapCut",))


@pytest.mark.parametrize("limit", [1 << 20, pytest.param(MAX_BYTES, marks=pytest.mark.slow)])
def test_the_protocols_limit_of_bytes_holds(limit, monkeypatch) -> None:
    """50 MiB unpacked; what lies behind is not read."""
    monkeypatch.setattr(sitemaps, "MAX_BYTES", limit)
    bomb = gzip.compress(b"<urlset>" + b" " * limit + b"<url><loc>http://a.test/</loc></url></urlset>", 1)
    assert read(bomb) == ([], ("sitemapCut",))


def test_a_loc_without_end_costs_no_memory() -> None:
    """A text too long for a URL is not collected."""
    references, _ = read(b"<urlset><url><loc>" + b"x" * 10_000_000)
    assert references == []


@pytest.mark.parametrize(("depth", "found"), [(60, 1), (70, 0)])
def test_a_document_that_is_nested_without_end_is_not_read_to_its_end(depth, found) -> None:
    """No sitemap has 64 levels; each would cost memory."""
    nested = b"<x>" * depth + b"</x>" * depth
    assert len(urls(b"<urlset>" + nested + b"<url><loc>http://a.test/1</loc></url></urlset>")) == found


def test_many_gzip_members_are_not_followed_for_ever() -> None:
    """A million empty members are no sitemap."""
    assert b"".join(unpacked(gzip.compress(b"") * 10_000)) == b""


#: What a hostile document repeats.
PIECES = """\
<
<a
</a>
<a "
<a '<a "
<a b="
<!--
<![CDATA[
<a><![CDATA[
<a><![CDATA[x]]>
<?
<!
<!"
<!DOCTYPE [
<!DOCTYPE a ["
<!ENTITY a '
&
&#1;
<url><loc>
<url><loc>x</loc>
<url><loc>x</loc><lastmod>
<item><guid a='
<x/>
<br>
<a b=1 b=2 />
<link xml:base='b/' href='c'/>
<e xml:base='b'>
<url><loc>é
]]>
<?xml a
<?xml-stylesheet href='a'?>
http://a.test/ a
<urlset a
="' x
<a b='<"
""".splitlines()


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("start", ["<urlset>", "", "<!DOCTYPE a [", "<!DOCTYPE a [<!ENTITY b '"])
def test_a_long_document_is_read_once(start, piece) -> None:
    """Its end is never read, nor its beginning searched (else this test does not end)."""
    body = start.encode() + piece.encode("latin1") * (25_000 // len(piece))
    assert len(read(body)[0]) <= MAX_URLS
    begins_like_sitemap(body, "", "M")
    begins_like_sitemap(body, "", "L")


def test_a_tag_of_many_attributes_is_not_read_to_its_end() -> None:
    """A megabyte of them would be a hundred in memory."""
    attributes = b" ".join(b'a%d=""' % number for number in range(10_000))
    references, notes = read(b"<feed><link href='/1' %b href='/no'/><link href='/2'/></feed>" % attributes)
    assert ([url for url, _, _ in references], notes) == (["/1", "/2"], ("sitemapBroken:1attributes",))


def test_a_long_base_makes_no_long_list() -> None:
    """A megabyte of short links below a base of 2,000 characters would be fifty."""
    links = b"<link href='x'/>" * 60_000
    references, (note,) = read(b"<feed xml:base='http://a.test/" + b"b" * 2_000 + b"/'>" + links + b"</feed>")
    assert sum(len(url) for url, _, _ in references) <= MAX_BYTES
    assert note.startswith(SITEMAP_BROKEN)


@pytest.mark.parametrize(
    "end", ["<url><loc>http://a.test/cu", "<url><loc><![CDATA[http://a.test/cu", "<url><loc>", "<url><lo"]
)
def test_a_url_in_which_the_document_ends_is_left_out(end) -> None:
    """A document that broke off would lead to a page that does not exist."""
    references, (note,) = read(page("x").removesuffix(b"</urlset>") + end.encode())
    assert [url for url, _, _ in references] == ["http://a.test/x", "http://a.test/last"]
    assert note.startswith(SITEMAP_BROKEN)


def test_no_entity_is_expanded() -> None:
    """A URL that may hold one is left out: a laugh stays one line, and no file is read."""
    laughs = b"".join(b"<!ENTITY l%d '%b'>" % (number + 1, b"&l%d;" % number * 10) for number in range(9))
    declared = b"<!DOCTYPE urlset [<!ENTITY l0 'ha'>%b<!ENTITY f SYSTEM 'file:///etc/passwd'>]>" % laughs
    references, notes = read(declared + page("&l9;") + page("&f;") + page("x"))
    assert {url for url, _, _ in references} == {"http://a.test/last", "http://a.test/x"}
    assert notes == ("sitemapBroken:1entities+2references+2urls",)


TEXTS = st.lists(st.sampled_from([*"ab<>&;'\"[]!-?/= \u00e9\u65b0\U0001f600", "]]>"]), max_size=12).map("".join)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from(["loc", "lastmod", "title"]), TEXTS), max_size=4), max_size=6),
    st.sampled_from(["utf-8", "utf-16", "iso-8859-1", "us-ascii"]),
)
def test_what_is_well_formed_is_read_as_a_parser_that_obeys_xml_reads_it(entries, encoding) -> None:
    """Whatever its texts, as the standard library writes them."""
    root = ET.Element("urlset", {"xmlns:x": "a>b"})
    for entry in entries:
        url = ET.SubElement(root, "url")
        for name, text in entry:
            ET.SubElement(url, name, {"a": text} if name == "title" else {}).text = text
    body = ET.tostring(root, encoding)
    expected = [loc.text.strip() for loc in ET.fromstring(body).iter("loc") if loc.text and loc.text.strip()]
    references, notes = read(body)
    assert ([url for url, _, _ in references], notes) == (expected, ())


@given(st.binary(max_size=200), st.booleans())
def test_no_body_raises(body, is_packed) -> None:
    """Whatever a server sends."""
    body = gzip.compress(body) if is_packed else body
    begins_like_sitemap(body, "", "M")
    assert isinstance(read(body)[0], list)
    assert isinstance(read(b"<urlset>" + body)[0], list)
