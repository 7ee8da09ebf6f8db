"""From an answer to its links: which reader, where, and what no answer can do to the crawl."""

import gzip

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.extracting.dispatch import Extractor
from anabranch.crawler.extracting.nesting import LIGHT_BYTES
from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.extracting.sandbox import Sandbox

URL = "http://a.test/"


class Answer:
    """An answer with a whole body."""

    def __init__(self, body=b"", content_type="text/html", status=200, **headers):
        named = CIMultiDict((name.replace("_", "-"), value) for name, value in headers.items())
        if content_type is not None:
            named["Content-Type"] = content_type
        self.headers = CIMultiDictProxy(named)
        self.status = status
        self.body = body
        self.asked = []

    def content(self, limit):
        self.asked.append(limit)
        return self.body[:limit], len(self.body) > limit


class Unneeded(Sandbox):
    """A sandbox that nobody may ask."""

    async def read(self, document, load, options):
        raise AssertionError("the document was not read at once")


async def links(answer, hops="", **options):
    found = await Extractor(ExtractOptions(**options), Unneeded())(answer, URL, hops)
    return [(link.url.removeprefix(URL), link.hop) for link in found.links]


async def sandboxed(answer, hops="", **options):
    """What is found, in a helper if need be."""
    sandbox = Sandbox()
    try:
        return await Extractor(ExtractOptions(timeout_s=55, **options), sandbox)(answer, URL, hops)
    finally:
        await sandbox.close()


@pytest.mark.parametrize(
    ("content_type", "body", "options", "hop"),
    [
        ("text/html", b"<a href=x>", {}, "L"),
        (" TEXT/HTML ; charset=utf-8", b"<a href=x>", {}, "L"),
        ("application/xhtml+xml", b"<a href='x'/>", {}, "L"),
        ("text/css", b"a{b:url(x)}", {}, "E"),
        ("application/json", b'{"a": "/x.html"}', {"speculative": True}, "X"),
        ("text/javascript", b"a = '/x.html'", {"speculative": True}, "X"),
        ("application/xml", b"<urlset><url><loc>http://a.test/x.html</loc></url></urlset>", {"sitemaps": True}, "M"),
        (None, b"<!doctype html><a href=x>", {}, "L"),
        ("application/octet-stream", b"\n<HTML><a href=x>", {}, "L"),
        (
            "*/*",
            b"<?xml version='1.0'?><urlset><url><loc>http://a.test/x</loc></url></urlset>",
            {"sitemaps": True},
            "M",
        ),
    ],
)
async def test_the_media_type_chooses_the_reader(content_type, body, options, hop) -> None:
    """What names no type is known by its beginning."""
    (found,) = await links(Answer(body, content_type), **options)
    assert found[1] == hop


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"<!doctype html><a href=x>", "text/plain"),
        Answer(b"<!doctype html><a href=x>", "image/png"),
        Answer(b"<!doctype html><a href=x>", "text/html2"),
        Answer(b"<a href=x>", "image/svg+xml"),
        Answer(b"<!doctype html><a href=x>", None, X_Content_Type_Options="NoSniff"),
        Answer(b"some text <a href=x>", None),
        Answer(b"a='/x.html'", "text/javascript"),
        Answer(b"<urlset><url><loc>http://a.test/x</loc></url></urlset>", "application/xml"),
        Answer(b"<a href=x>", status=404),
        Answer(b"<a href=x>", status=301),
    ],
)
async def test_what_is_no_document_to_read_has_no_links(answer) -> None:
    """HTML as plain text is text, as in a browser; guessing and sitemaps are off by default."""
    assert await links(answer) == []


async def test_css_can_be_left_out() -> None:
    """Then style sheets are not read."""
    assert await links(Answer(b"a{b:url(x)}", "text/css"), css=False) == []


async def test_a_body_that_is_not_read_is_not_asked_for() -> None:
    """An image of a gigabyte is not decoded to find out that it is an image."""
    answer = Answer(b"x", "image/png")
    await links(answer)
    assert answer.asked == []


@pytest.mark.parametrize(("hops", "expected"), [("LM", [("x", "M")]), ("L", []), ("MMMM", [])])
async def test_a_list_of_urls_is_a_sitemap_where_one_is_expected(hops, expected) -> None:
    """After a hop M, but not after too many of them."""
    assert await links(Answer(b"http://a.test/x\n", "text/plain"), hops, sitemaps=True) == expected


async def test_the_header_has_links_before_the_body() -> None:
    """The first of two spellings counts; a redirect has its header alone."""
    answer = Answer(b"<a href=n><a href=x>", Link="</n>; rel=prefetch", Refresh="0; url=r", Content_Location="/c")
    assert await links(answer) == [("r", "R"), ("c", "I"), ("n", "E"), ("x", "L")]
    assert await links(Answer(b"<a href=x>", status=302, Location="/l", Link="</n>; rel=next")) == [("l", "R")]


async def test_a_long_page_is_read_beside_the_crawl() -> None:
    """Its links are the same as those of a short one."""
    body = b"<a href=1>" + b" " * LIGHT_BYTES + b"<a href=2>"
    assert [link.url for link in (await sandboxed(Answer(body))).links] == [URL + "1", URL + "2"]
    with pytest.raises(AssertionError, match="not read at once"):
        await links(Answer(body))


async def test_only_so_much_of_a_body_is_read() -> None:
    """`max_content` is the end of the document."""
    body = b"<a href=1>" + b" " * (2 * LIGHT_BYTES) + b"<a href=2>"
    assert len((await sandboxed(Answer(body), max_content_bytes=len(body) - 1)).links) == 1
    assert await links(Answer(body), max_content_bytes=1000) == [("1", "L")]


MILLION = 1_000_000


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (lambda: b"<a href=first>" + b"<div>" * (10 << 20), 1),
        (lambda: b"<a href=first>" + b"".join(b"<b id=%d><p>" % number for number in range(MILLION)), 1),
        (lambda: b"<a href=first>" + b"".join(b"<b id=%d><p>" % i for i in range(500)) + b"<p>" * MILLION, 1),
        (lambda: b"".join(b"<a href=/%d>x</a>" % number for number in range(MILLION)), 6000),
        (lambda: b"<style>" + b"".join(b"a{b:url(/%d)}" % number for number in range(MILLION)), 6000),
        (lambda: b"<img srcset='" + b"x 1x," * (2 * MILLION) + b"'>", 1),
        (lambda: b"<a " + b" ".join(b"x%d" % number for number in range(MILLION)) + b"><a href=last>", 1),
    ],
    ids=["50 MB nested", "b p", "b p p", "a million links", "a million url()", "srcset", "attributes"],
)
async def test_no_page_is_too_much(body, kept) -> None:
    """Whatever its size and nesting, it is read within the limits of time and memory."""
    found = await sandboxed(Answer(body()))
    assert (len(found.links), found.notes) == (kept, ())
    assert (found.dropped > 0) == (kept == 6000)


async def test_a_sitemap_that_unpacks_to_gigabytes_is_cut() -> None:
    """It is not even tried on the event loop."""
    start = b"<urlset><url><loc>http://a.test/x</loc></url>"
    bomb = gzip.compress(start + b" " * (56 << 20), 9)
    assert len(bomb) < LIGHT_BYTES
    found = await sandboxed(Answer(bomb, "application/gzip"), sitemaps=True)
    assert ([link.url for link in found.links], found.notes) == ([URL + "x"], ("sitemapCut",))
