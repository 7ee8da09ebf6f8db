"""Sitemaps and feeds: what they name, how they are known, what they cannot do."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extract.links import Link
from anabranch.crawler.extract.sitemaps import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_URLS,
    is_sitemap,
    robots_links,
    sitemap_links,
    unpacked,
)

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
    return [(url.removeprefix("http://a.test"), hop) for url, hop, _ in sitemap_links(body)[0]]


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("start", ["\n", "\ufeff\n", " \r\n\t", "\ufeff\ufeff", "\n\ufeff", " " * 3000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_white_space_and_marks_before_the_declaration_are_ignored(start, encoding) -> None:
    """Templates write an empty line before `<?xml`, and a parser that is given it reads nothing."""
    text = URLSET.decode() if encoding == "utf-8" else URLSET.decode().replace('<?xml version="1.0"?>', "")
    body = (start + text).encode(encoding)
    if encoding != "utf-8":
        body = "\ufeff".encode(encoding) + body
    for form in (body, gzip.compress(body), gzip.compress(body[:1]) + gzip.compress(body[1:])):
        assert is_sitemap(form, "")
        assert urls(form) == [("/1?a&b", "M"), ("/de", "M"), ("/2", "M")]


@pytest.mark.parametrize(
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
    ],
)
def test_a_sitemap_is_known_by_its_root_or_its_hops(body, hops, expected) -> None:
    """XML anywhere, a list of URLs only where one is expected, and no index leads down for ever."""
    assert is_sitemap(body, hops) is expected


def test_what_robots_txt_names_is_resolved() -> None:
    """Each once; what is no URL of the web is left out."""
    named = ["/s.xml", "http://b.test/s.xml", "s.xml", "ftp://a.test/s.xml"]
    assert robots_links(named, "http://a.test/robots.txt") == [
        Link("http://a.test/s.xml", "M", "robots.txt"),
        Link("http://b.test/s.xml", "M", "robots.txt"),
    ]


@pytest.mark.parametrize(
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
def test_what_is_broken_is_read_up_to_there(body) -> None:
    """With a note. Entities of its own are broken, too: no billion laughs, no file from outside."""
    references, notes = sitemap_links(body)
    assert notes == ("sitemapBroken",)
    assert all(url.startswith("http://a.test/") for url, _, _ in references)


@pytest.mark.parametrize("form", [b"<url><loc>http://a.test/%d</loc></url>", b"http://a.test/%d\n"])
def test_the_protocols_limit_of_urls_holds(form) -> None:
    """50,000, and a note that there were more."""
    body = b"".join(form % number for number in range(MAX_URLS + 1))
    references, notes = sitemap_links(b"<urlset>" + body + b"</urlset>" if b"<" in form else body)
    assert (len(references), notes) == (MAX_URLS, ("sitemapCut",))


def test_the_protocols_limit_of_bytes_holds() -> None:
    """50 MiB unpacked; what lies behind is not read."""
    bomb = gzip.compress(b"<urlset>" + b" " * MAX_BYTES + b"<url><loc>http://a.test/</loc></url></urlset>", 1)
    assert sitemap_links(bomb) == ([], ("sitemapCut",))


def test_a_loc_without_end_costs_no_memory() -> None:
    """What is too long to be a URL is not collected."""
    references, _ = sitemap_links(b"<urlset><url><loc>" + b"x" * 10_000_000)
    assert references == []


@pytest.mark.parametrize(("depth", "found"), [(60, 1), (70, 0)])
def test_a_document_that_is_nested_without_end_is_not_read_to_its_end(depth, found) -> None:
    """No sitemap has 64 levels; each would cost memory."""
    nested = b"<x>" * depth + b"</x>" * depth
    assert len(urls(b"<urlset>" + nested + b"<url><loc>http://a.test/1</loc></url></urlset>")) == found


def test_many_gzip_members_are_not_followed_for_ever() -> None:
    """A million empty members are no sitemap."""
    assert b"".join(unpacked(gzip.compress(b"") * 10_000, MAX_BYTES)) == b""


@given(st.binary(max_size=200), st.booleans())
def test_no_body_raises(body, is_packed) -> None:
    """Whatever a server sends."""
    body = gzip.compress(body) if is_packed else body
    is_sitemap(body, "M")
    assert isinstance(sitemap_links(body)[0], list)
    assert isinstance(sitemap_links(b"<urlset>" + body)[0], list)
