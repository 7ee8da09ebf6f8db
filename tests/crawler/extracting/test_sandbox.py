"""The helper processes: what they read, what they may cost, and that nothing of them is left."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.crawler.extracting.links import Link
from anabranch.crawler.extracting.mediatypes import Kind
from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.extracting.reading import Document, read
from anabranch.crawler.extracting.sandbox import FAILED, TIMED_OUT, Sandbox
from tests.acceptance.command import REPOSITORY, environment

URL = "http://a.test/"
#: So long that a loaded machine does not matter.
PATIENT = ExtractOptions(timeout_s=50)
#: What takes a reader longer than any of these tests: every tag is one of two million.
ENDLESS = b"<a x=1>" * 2_300_000


@asynccontextmanager
async def sandboxed(**how):
    sandbox = Sandbox(**how)
    try:
        yield sandbox
    finally:
        await sandbox.close()


def page(kind=Kind.HTML, hops=""):
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
        if parent == pid and b"anabranch.crawler.extracting.helper" in command:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize(
    ("kind", "hops", "body"),
    [
        (
            Kind.HTML,
            "",
            b"<meta name=robots content=nofollow><link rel=canonical href=/c><a href=1><img srcset='2 1x, 3'>",
        ),
        (Kind.CSS, "", b"a{b:url(1)}"),
        (Kind.XML, "M", b"<urlset><url><loc>http://a.test/1</loc></url>"),
        (Kind.HTML, "", b""),
    ],
)
async def test_a_helper_finds_what_the_reader_finds(kind, hops, body) -> None:
    """Where a document is read changes nothing."""
    async with sandboxed() as sandbox:
        found = await sandbox.read(page(kind, hops), lambda: body, PATIENT)
    expected = read(Document(kind, body, url=URL, content_type="text/html", hops=hops), PATIENT)
    assert found == expected
    assert all(isinstance(link, Link) for link in found.links)


async def test_helpers_are_started_late_kept_and_at_most_two() -> None:
    """None before the first document; ten documents at once share two."""
    async with sandboxed() as sandbox:
        assert helpers_of(os.getpid()) == []
        await asyncio.gather(*(sandbox.read(page(), lambda: b"<a href=1>", PATIENT) for _ in range(10)))
        kept = helpers_of(os.getpid())
        assert len(kept) == 2
        await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)
        assert helpers_of(os.getpid()) == kept
    assert helpers_of(os.getpid()) == []


async def test_a_document_that_takes_too_long_is_given_up() -> None:
    """Its page has a note; the helper is gone, and the next document is read by another."""
    async with sandboxed() as sandbox:
        found = await sandbox.read(page(), lambda: ENDLESS, ExtractOptions(timeout_s=0.3))
        assert (found.links, found.notes) == ([], (TIMED_OUT,))
        assert (await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)).links[0].url == "http://a.test/1"


async def test_a_document_that_takes_too_much_memory_is_given_up() -> None:
    """The helper's limit holds, not the machine's."""
    async with sandboxed(memory_bytes=96 << 20) as sandbox:
        found = await sandbox.read(page(Kind.CSS), lambda: b"a{b:url(" + b"x" * (64 << 20) + b")}", PATIENT)
        assert (found.links, found.notes) == ([], (FAILED,))
        assert len((await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)).links) == 1


async def test_a_helper_that_is_killed_costs_one_document() -> None:
    """The next one starts another."""
    async with sandboxed() as sandbox:
        await sandbox.read(page(), lambda: b"", PATIENT)
        os.kill(helpers_of(os.getpid())[0], signal.SIGKILL)
        lost = await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)
        assert lost.notes == (FAILED,)
        assert len((await sandbox.read(page(), lambda: b"<a href=1>", PATIENT)).links) == 1


async def test_a_helper_that_cannot_start_costs_the_document(monkeypatch) -> None:
    """The crawl goes on."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    async with sandboxed() as sandbox:
        assert (await sandbox.read(page(), lambda: b"", PATIENT)).notes == (FAILED,)


@pytest.mark.parametrize("turns", [1, 3, 10, 1000])
async def test_a_cancelled_visit_takes_its_helper_with_it(turns) -> None:
    """At whatever point: no process, file or slot is left."""
    async with sandboxed(helpers=1) as sandbox:
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

    async with sandboxed(helpers=1) as sandbox:
        with pytest.raises(OSError, match="no disk"):
            await sandbox.read(page(), broken, PATIENT)
        assert (await sandbox.read(page(), lambda: b"", PATIENT)).notes == ()


CRAWL = """
import asyncio, os
from tests.crawler.extracting.test_sandbox import ENDLESS, PATIENT, helpers_of, page
from anabranch.crawler.extracting.sandbox import Sandbox

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
