"""Which responses are read and where: on the event loop, or in a helper process with limits."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import select
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.extract.content_type import DocumentKind
from anabranch.crawler.extract.extractor import FAILED, TIMED_OUT, Extractor, Sandbox
from anabranch.crawler.extract.links import ExtractOptions, Link
from anabranch.crawler.extract.nesting import LIGHT_BYTES
from anabranch.crawler.extract.reading import Document, read
from tests.acceptance.command import REPOSITORY, environment

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
    """Return the links that an extractor finds, in a helper process if it needs one."""
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
    """A content type that names no type leaves the choice to the beginning of the body."""
    (found,) = await links(Answer(body, content_type), **options)
    assert found[1] == hop


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<meta charset='a b,c\n2t,robotExcluded'><a href=x>", "text/html; charset='stopped=x 5t'"),
        ("<p>日本語のテキスト<a href=x>".encode("shift_jis"), "text/html"),
        (b"<urlset>" + b"<loc>&x y,z;</b>\xff\0<a b=c>" * 1_000, "application/xml"),
        (b"<?xml version='1.0' encoding='5t,stopped=x'?><rss " + b"<x>" * 100, "application/rss+xml"),
        (b"{}", "5t,round:7 robotExcluded/x"),
    ],
)
async def test_no_server_writes_notes_of_its_own(body, content_type, status) -> None:
    """They are few, and of our own words: a line of crawl.log has one field of them."""
    fields = dict.fromkeys(("Location", "Refresh", "Content-Location"), "http://[ x,5t\udcff\tround:9")
    fields["Refresh"] = f"0; url={fields['Refresh']}"
    fields["Link"] = ", ".join(["<http://[ 5t,round:9>; rel='next\tstopped=x'", "<http://[5t>; rel=next"] * 1000)
    found = await Extractor(ExtractOptions(sitemaps=True), Unneeded())(
        Answer(body, content_type, status, **fields), URL
    )
    assert 1 < len(found.notes) < 8
    for note in found.notes:
        assert re.fullmatch(
            r"noURL:(Location|Refresh|Content-Location|Link)|charsetGuess:shift_jis|sitemapBroken:[0-9a-z+]+", note
        )
        assert len(note) < 120


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


@pytest.mark.parametrize(
    ("answer", "expected", "notes"),
    [
        (Answer(status=301, Location="/caf\udce9"), [("caf%E9", "R")], ()),
        (Answer(status=301, Location="mailto:x"), [], ("noURL:Location",)),
        (Answer(status=301, Location="http://[::1/"), [], ("noURL:Location",)),
        (
            Answer(Refresh="0; url=javascript:x", Content_Location="tel:1"),
            [],
            ("noURL:Refresh", "noURL:Content-Location"),
        ),
        (Answer(Link="</x>; rel=next, <mailto:x>; rel=next, <tel:1>; rel=icon"), [("x", "L")], ("noURL:Link",)),
        (Answer(Link="</x>; rel=next, </x>; rel=next"), [("x", "L")], ()),
    ],
)
async def test_a_header_field_is_bytes_and_leaves_a_note_if_it_names_no_url(answer, expected, notes) -> None:
    """One note for a field, however many of its texts are none. A URL that comes twice is no fault."""
    found = await Extractor(ExtractOptions(), Unneeded())(answer, URL)
    assert [(link.url.removeprefix(URL), link.hop) for link in found.links] == expected
    assert found.notes == notes


MANIFEST = b'{"icons": [{"src": "i.png"}], "start_url": "s"}'


@pytest.mark.parametrize(
    "content_type",
    [
        "application/manifest+json",
        "application/json; charset=utf-8",
        "text/json",
        "text/plain",
        "application/octet-stream",
        None,
    ],
)
@pytest.mark.parametrize("hops", ["E", "LLE", "LER"])
async def test_a_manifest_is_read_if_a_page_embeds_it(content_type, hops) -> None:
    """Whatever its type."""
    assert await links(Answer(MANIFEST, content_type), hops) == [("i.png", "E"), ("s", "L")]


async def test_json_that_is_no_part_of_a_page_is_not_read() -> None:
    """A link to an API's answer is no manifest; its strings are guesses."""
    answer = Answer(MANIFEST, "application/json")
    assert await links(answer, "L") == []
    assert answer.asked == []
    assert await links(answer, "L", speculative=True) == [("i.png", "X")]


async def test_the_orders_attributes_reach_a_helper() -> None:
    """Its options come as JSON."""
    body = b"<p data-zoom=x>" + b" " * LIGHT_BYTES
    found = await sandboxed(Answer(body), embed_attributes=("data-zoom",))
    assert [(link.url, link.context) for link in found.links] == [(URL + "x", "@data-zoom")]


async def test_css_can_be_left_out() -> None:
    """Then style sheets are not read."""
    assert await links(Answer(b"a{b:url(x)}", "text/css"), css=False) == []


async def test_a_body_that_is_not_read_is_not_asked_for() -> None:
    """An image of a gigabyte is not decoded to find out that it is an image."""
    answer = Answer(b"x", "image/png")
    await links(answer)
    assert answer.asked == []


async def test_several_content_types_are_one_list() -> None:
    """The last valid one counts."""
    answer = Answer(b"<a href=x>", None)
    fields = [("Content-Type", "text/plain"), ("Content-Type", "text/html; charset=utf-8"), ("Content-Type", "html")]
    answer.headers = CIMultiDictProxy(CIMultiDict(fields))
    assert await links(answer) == [("x", "L")]


async def test_a_page_in_xml_with_many_tags_is_read_beside_the_crawl() -> None:
    """A tree of it may take long; a sitemap of as many tags is read at once, and a packed one is not."""
    tags = b"<p/>" * 4_000
    page = b"<html><a href='x'/>%b</html>" % (tags * 2)
    with pytest.raises(AssertionError, match="not read at once"):
        await links(Answer(page, "application/xml"), sitemaps=True)
    assert [link.url for link in (await sandboxed(Answer(page, "application/xml"))).links] == [URL + "x"]
    urlset = b"<urlset><url><loc>x</loc></url>%b</urlset>" % (tags * 2)
    assert await links(Answer(urlset, "application/xml"), sitemaps=True) == [("x", "M")]
    packed = Answer(gzip.compress(urlset), "binary/octet-stream")
    with pytest.raises(AssertionError, match="not read at once"):
        await links(packed, "M", sitemaps=True)
    assert [link.url for link in (await sandboxed(packed, "M", sitemaps=True)).links] == [URL + "x"]


async def test_what_was_requested_as_a_sitemap_is_looked_at_whatever_its_type() -> None:
    """An image that is none of a sitemap costs a look at its beginning."""
    urlset = b"<urlset><url><loc>/x</loc></url></urlset>"
    assert await links(Answer(urlset, "image/png"), "M", sitemaps=True) == [("x", "M")]
    assert await links(Answer(urlset, "image/png"), "L", sitemaps=True) == []
    assert await links(Answer(urlset, "image/png"), "M") == []


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
        (lambda many: b"<a href=first>" + b"<div>" * (10 * many), 1),
        (lambda many: b"<a href=first>" + b"".join(b"<b id=%d><p>" % number for number in range(many)), 1),
        (lambda many: b"<a href=first>" + b"".join(b"<b id=%d><p>" % i for i in range(500)) + b"<p>" * many, 1),
        (lambda many: b"".join(b"<a href=/%d>x</a>" % number for number in range(many)), 6000),
        (lambda many: b"<style>" + b"".join(b"a{b:url(/%d)}" % number for number in range(many)), 6000),
        (lambda many: b"<img srcset='" + b"x 1x," * (2 * many) + b"'>", 1),
        (lambda many: b"<a " + b" ".join(b"x%d" % number for number in range(many)) + b"><a href=last>", 1),
    ],
    ids=["nested", "b p", "b p p", "links", "url()", "srcset", "attributes"],
)
@pytest.mark.parametrize("many", [MILLION // 20, pytest.param(MILLION, marks=pytest.mark.slow)])
async def test_no_page_is_too_much(body, kept, many) -> None:
    """Whatever its size and nesting, it is read within the limits of time and memory."""
    found = await sandboxed(Answer(body(many)))
    assert (len(found.links), found.notes) == (kept, ())
    assert (found.dropped > 0) == (kept == 6000)


@pytest.mark.slow
async def test_a_sitemap_that_unpacks_to_gigabytes_is_cut() -> None:
    """It is not even tried on the event loop."""
    start = b"<urlset><url><loc>http://a.test/x</loc></url>"
    bomb = gzip.compress(start + b" " * (56 << 20), 9)
    assert len(bomb) < LIGHT_BYTES
    found = await sandboxed(Answer(bomb, "application/gzip"), sitemaps=True)
    assert ([link.url for link in found.links], found.notes) == ([URL + "x"], ("sitemapCut",))


#: So long that a loaded machine does not matter.
PATIENT = ExtractOptions(timeout_s=50)
#: What takes a reader longer than any of these tests: every tag is one of two million.
ENDLESS = b"<a x=1>" * 2_300_000


@asynccontextmanager
async def opened_sandbox(**how):
    sandbox = Sandbox(**how)
    try:
        yield sandbox
    finally:
        await sandbox.close()


def page(kind=DocumentKind.HTML, hops=""):
    return Document(kind, b"", url=URL, content_type="text/html", hops=hops)


def helpers_of(pid: int) -> list[int]:
    """The helpers that are children of the process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == pid and b"anabranch.crawler.extract.helper" in command:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize(
    ("kind", "hops", "body"),
    [
        (
            DocumentKind.HTML,
            "",
            b"<meta name=robots content=nofollow><link rel=canonical href=/c><a href=1><img srcset='2 1x, 3'>",
        ),
        (DocumentKind.CSS, "", b"a{b:url(1)}"),
        (DocumentKind.XML, "M", b"<urlset><url><loc>http://a.test/1</loc></url>"),
        (DocumentKind.HTML, "", b""),
    ],
)
async def test_a_helper_finds_what_the_reader_finds(kind, hops, body) -> None:
    """The place where a document is read does not change its links."""
    async with opened_sandbox() as sandbox:
        found = await sandbox.read(page(kind, hops), lambda: body, PATIENT)
    expected = read(Document(kind, body, url=URL, content_type="text/html", hops=hops), PATIENT)
    assert found == expected
    assert all(isinstance(link, Link) for link in found.links)


async def test_helpers_are_started_late_kept_and_at_most_two() -> None:
    """None before the first document; ten documents at once share two."""
    async with opened_sandbox() as sandbox:
        assert helpers_of(os.getpid()) == []
        await asyncio.gather(*(sandbox.read(page(), lambda: b"<a href=1>", PATIENT) for _ in range(10)))
        kept = helpers_of(os.getpid())
        assert len(kept) == 2
        await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)
        assert helpers_of(os.getpid()) == kept
    assert helpers_of(os.getpid()) == []


async def test_a_helper_ends_after_a_large_document() -> None:
    """It would keep the memory."""
    async with opened_sandbox() as sandbox:
        await sandbox.read(page(DocumentKind.CSS), lambda: b" " * (2 << 20), PATIENT)
        (small,) = helpers_of(os.getpid())
        await sandbox.read(page(DocumentKind.CSS), lambda: b" " * (3 << 20), PATIENT)
        assert not sandbox._idle
        await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)
        assert small not in helpers_of(os.getpid())


async def test_a_document_that_takes_too_long_is_given_up() -> None:
    """Its page has a note; the helper is gone, and the next document is read by another."""
    async with opened_sandbox() as sandbox:
        found = await sandbox.read(page(), lambda: ENDLESS, ExtractOptions(timeout_s=0.3))
        assert (found.links, found.notes) == ([], (TIMED_OUT,))
        assert (await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)).links[0].url == "http://a.test/1"


async def test_a_document_that_takes_too_much_memory_is_given_up() -> None:
    """The helper's limit holds, not the machine's."""
    async with opened_sandbox(memory_bytes=96 << 20) as sandbox:
        found = await sandbox.read(page(DocumentKind.CSS), lambda: b"a{b:url(" + b"x" * (64 << 20) + b")}", PATIENT)
        assert (found.links, found.notes) == ([], (FAILED,))
        assert len((await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)).links) == 1


async def test_a_helper_that_is_killed_costs_one_document() -> None:
    """The next one starts another."""
    async with opened_sandbox() as sandbox:
        await sandbox.read(page(), lambda: b"", PATIENT)
        os.kill(helpers_of(os.getpid())[0], signal.SIGKILL)
        lost = await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)
        assert lost.notes == (FAILED,)
        assert len((await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)).links) == 1


async def test_a_helper_that_cannot_start_costs_the_document(monkeypatch) -> None:
    """The crawl goes on."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    async with opened_sandbox() as sandbox:
        assert (await sandbox.read(page(), lambda: b"", PATIENT)).notes == (FAILED,)


@pytest.mark.parametrize("turns", [1, 3, 10, 1000])
async def test_a_cancelled_visit_takes_its_helper_with_it(turns) -> None:
    """At whatever point: no process, file or slot is left."""
    async with opened_sandbox(helpers=1) as sandbox:
        reading = asyncio.create_task(sandbox.read(page(), lambda: ENDLESS[: 1 << 20], PATIENT))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert len((await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)).links) == 1
    assert helpers_of(os.getpid()) == []


async def test_what_the_loading_raises_is_the_callers() -> None:
    """A disk that fails is not the page's fault; the sandbox is as before."""

    def broken():
        raise OSError("no disk")

    async with opened_sandbox(helpers=1) as sandbox:
        with pytest.raises(OSError, match="no disk"):
            await sandbox.read(page(), broken, PATIENT)
        assert (await sandbox.read(page(), lambda: b"", PATIENT)).notes == ()


CRAWL = """
import asyncio, os
from tests.crawler.extract.test_extractor import ENDLESS, PATIENT, helpers_of, page
from anabranch.crawler.extract.extractor import Sandbox

async def crawl():
    sandbox = Sandbox()
    await sandbox.read(page(), lambda: b"", PATIENT)
    reading = asyncio.create_task(sandbox.read(page(), lambda: ENDLESS * 5, PATIENT))
    while not reading.done():
        await asyncio.sleep(0)
        if sandbox._slots.locked() or not sandbox._idle:
            break
    print(*helpers_of(os.getpid()), flush=True)
    await reading

asyncio.run(crawl())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
def test_a_helper_does_not_outlive_a_killed_crawl() -> None:
    """Not even while it reads: SIGKILL of the crawl ends it."""
    with subprocess.Popen(
        [sys.executable, "-c", CRAWL], cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, text=True
    ) as crawl:
        assert crawl.stdout is not None
        (helper,) = (int(pid) for pid in crawl.stdout.readline().split())
        watched = os.pidfd_open(helper)
        crawl.kill()
    try:
        assert select.select([watched], [], [], 20)[0] == [watched]
    finally:
        os.close(watched)
