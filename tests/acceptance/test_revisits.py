"""Real crawls that do not write what other archives have: each revisit refers to a record that is there."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.acceptance import replay
from tests.acceptance.archive import archived
from tests.acceptance.command import anabranch, crawl_log, ended, start, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.acceptance.test_processes import workers
from tests.crawler.archive.exchanges import Read, read_by_warcio, warcs
from tests.patience import HANG_S
from tests.postgres_server import server
from tests.site.page import Host, Page
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"


def crawl_of(tmp_path: Path, web: SmallWeb, job: str, *more: str | Path, seed: str = SEED) -> tuple[str | Path, ...]:
    order = write_order(tmp_path, web.hosts, politeness={"max_connections": 4}, crawl={"workers": 8})
    return ("crawl", seed, "-c", order, "--job", tmp_path / job, "--warc", *more)


def records(job: Path) -> list[Read]:
    """The responses in the finished WARC files of a job."""
    return [read for path in warcs(job / "warc") for read in read_by_warcio(path) if read.kind == "response"]


def check_refers(revisit: Read, originals: list[Read]) -> None:
    """The record that a revisit names is there, with the payload that its digest is of."""
    assert revisit.fields["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
    found = [
        read
        for read in originals
        if read.url == revisit.fields["WARC-Refers-To-Target-URI"]
        and read.fields["WARC-Date"][:19] == revisit.fields["WARC-Refers-To-Date"][:19]
    ]
    assert {read.fields["WARC-Payload-Digest"] for read in found} == {revisit.fields["WARC-Payload-Digest"]}


async def test_what_an_earlier_job_has_is_not_written_again(tmp_path: Path, small_web: SmallWeb) -> None:
    """Each whole payload of the second job is a revisit of a record of the first; redirects and empty answers are written."""
    for job, more in (("first", ()), ("second", ("-s", f"write.revisit_of={tmp_path / 'first'}"))):
        run = await anabranch(*crawl_of(tmp_path, small_web, job, *more), cwd=tmp_path)
        assert run.code == 0, run.err
    originals, answers = records(tmp_path / "first"), archived(tmp_path / "second").answers
    revisits = [read for read in answers if read.kind == "revisit"]
    assert len(revisits) > len(answers) // 2
    for revisit in revisits:
        check_refers(revisit, originals)
    for read in answers:
        if read.kind == "response" and read.payload:
            assert read.http.get("Location")
    again = await anabranch("crawl", "--job", tmp_path / "second", "--again", cwd=tmp_path)
    assert again.code == 0, again.err
    assert "was read" not in again.err, "the index was read by the first run"


async def test_payloads_below_the_least_size_are_written_again(tmp_path: Path, small_web: SmallWeb) -> None:
    """Larger ones are not."""
    assert (await anabranch(*crawl_of(tmp_path, small_web, "first"), cwd=tmp_path)).code == 0
    sizes = {read.fields["WARC-Payload-Digest"]: len(read.payload) for read in records(tmp_path / "first")}
    least = sorted(sizes.values())[len(sizes) // 2]
    settings = ("-s", f"write.revisit_of={tmp_path / 'first'}", "-s", f"write.revisit_min_size={least}")
    assert (await anabranch(*crawl_of(tmp_path, small_web, "second", *settings), cwd=tmp_path)).code == 0
    answers = archived(tmp_path / "second").answers
    revisited = {sizes[read.fields["WARC-Payload-Digest"]] for read in answers if read.kind == "revisit"}
    assert min(sizes.values()) < least <= min(revisited)


async def test_an_earlier_job_without_an_index_is_refused_in_one_line(tmp_path: Path, small_web: SmallWeb) -> None:
    """Before anything is fetched; the line says what makes an index."""
    (tmp_path / "empty").mkdir()
    run = await anabranch(*crawl_of(tmp_path, small_web, "job", "-s", "write.revisit_of=empty"), cwd=tmp_path)
    assert run.code == 2
    (line,) = run.err.splitlines()
    assert "has no finished index" in line
    assert "anabranch index" in line
    assert not small_web.ledger.counts()


def opened(url: str) -> bytes:
    """The body at a URL, when its server has started."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=HANG_S) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url}: nobody answers")


@pytest.mark.slow
async def test_what_pywb_has_is_not_written_again_and_is_replayed_by_it(tmp_path: Path, small_web: SmallWeb) -> None:
    """Each whole payload is a revisit of a record that pywb has; with both jobs in it, it shows each page as it was."""
    assert (await anabranch(*crawl_of(tmp_path, small_web, "first"), cwd=tmp_path)).code == 0
    (tmp_path / "pywb").mkdir()
    with replay.wayback(tmp_path / "pywb", *warcs(tmp_path / "first" / "warc")) as address:
        await asyncio.to_thread(opened, f"{address}/cdx?url={SEED}&output=json")
        run = await anabranch(
            *crawl_of(tmp_path, small_web, "second", "-s", f"write.revisit_of={address}/cdx"), cwd=tmp_path
        )
        assert run.code == 0, run.err
        assert "CDX" not in run.out + run.err, "it has answered each time"
        first, answers = records(tmp_path / "first"), archived(tmp_path / "second").answers
        originals = first + records(tmp_path / "second")
        payloads = {read.fields["WARC-Payload-Digest"]: read.payload for read in originals}
        revisits = [read for read in answers if read.kind == "revisit"]
        written = {
            read.url for read in answers if read.kind == "response" and read.payload and "Location" not in read.http
        }
        asked = {read.url for read in first if not read.url.endswith("/robots.txt")}
        assert not written & asked, "what pywb has under another URL only is written"
        assert len(revisits) > len(answers) // 2
        for revisit in revisits:
            check_refers(revisit, originals)
        replay.added(tmp_path / "pywb", *warcs(tmp_path / "second" / "warc"))
        statuses = crawl_log(tmp_path / "second")
        for revisit in revisits:
            if statuses[revisit.url] == 200 and "Content-Encoding" not in revisit.http:
                stamp = "".join(filter(str.isdigit, revisit.fields["WARC-Date"]))[:14]
                shown = await asyncio.to_thread(opened, f"{address}/{stamp}id_/{revisit.url}")
                assert shown == payloads[revisit.fields["WARC-Payload-Digest"]]


@pytest.mark.parametrize("is_there", [False, True], ids=["away", "silent"])
async def test_a_cdx_server_without_an_answer_costs_a_bounded_time(
    tmp_path: Path, small_web: SmallWeb, is_there: bool
) -> None:
    """All pages are written; the server is named once in the log; the summary and the status say how many pages."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the crawl gives up
        writer.close()

    silent = await asyncio.start_server(wait, "127.0.0.1", 0)
    place = "{}:{}".format(*silent.sockets[0].getsockname())
    if not is_there:
        silent.close()
    settings = ("-s", f"write.revisit_of=http://{place}/cdx", "-s", "write.revisit_timeout=200ms")
    run = await anabranch(*crawl_of(tmp_path, small_web, "job", *settings), cwd=tmp_path)
    silent.close()
    assert run.code == 0, run.err
    assert run.err.count(f"http://{place}/cdx") == 1
    assert "gave no answer for" in run.out + run.err
    assert archived(tmp_path / "job").kinds()["response"] > 10


#: Hosts whose pages are the same, but for the last of each, which leads to the next host: one page after another.
CHAIN_HOSTS, CHAIN_PAGES = 8, 6


def linking(url: str) -> Page:
    """A page that has the same body on each host."""
    return Page(body=f"<p>{url}<p>{'text ' * 200}<a href={url}>next</a>".encode())


CHAIN = {
    f"h{host}.test": Host(
        pages={
            "/": linking("/1"),
            **{f"/{page}": linking(f"/{page + 1}") for page in range(1, CHAIN_PAGES)},
            f"/{CHAIN_PAGES}": linking(f"http://h{host + 1}.test/"),
        }
    )
    for host in range(CHAIN_HOSTS)
}


@asynccontextmanager
async def crawled_by_two(kind: str, tmp_path: Path, *more: str) -> AsyncIterator[list[Path]]:
    """The folders of two workers that have crawled the chain: processes of one command, or two commands on a server."""
    async with SmallWeb(CHAIN, delay_s=0.1) as web:  # a worker joins meanwhile
        with ExitStack() as opened:
            commands = [("crawl", "h0.test", "--job", tmp_path / "job", "--processes", "2")]
            if kind == "server":
                store = opened.enter_context(server()).replace(":@", "@")
                names = ("one", "two")
                commands = [
                    ("crawl", "h0.test", "--store", store, "--job", tmp_path / name, "--worker", name) for name in names
                ]
            order = write_order(
                tmp_path,
                web.hosts,
                crawl={"workers": 4},
                scope={"scope": "any", "max_hops": 100},
                frontier={"worker_lease": "3s"},
            )
            processes = [await start(*command, "-c", order, "--warc", *more, cwd=tmp_path) for command in commands]
            for process in processes:
                run = await ended(process)
                assert run.code == 0, run.err
            yield [command[command.index("--job") + 1] for command in commands]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["processes", "server"])
async def test_no_worker_of_a_job_writes_what_another_has(kind: str, tmp_path: Path) -> None:
    """Each payload is in one record of the job; the others are revisits of it, also of another worker's."""
    async with crawled_by_two(kind, tmp_path) as folders:
        assert len(by_worker(folders)) == 2, "both have fetched"
        originals = [read for folder in folders for read in records(folder)]
        digests = Counter(read.fields["WARC-Payload-Digest"] for read in originals if read.payload)
        assert {*digests.values()} == {1}
        revisits = [read for folder in folders for read in archived(folder).answers if read.kind == "revisit"]
        assert len(revisits) >= (CHAIN_HOSTS - 1) * CHAIN_PAGES
        for revisit in revisits:
            check_refers(revisit, originals)


def by_worker(folders: list[Path]) -> set[str]:
    """The workers that have written files; their names are in those of the files."""
    return {path.name.rpartition("-")[0].split("-")[1] for folder in folders for path in warcs(folder / "warc")}


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_workers_that_do_not_share_payloads_write_each_their_own(tmp_path: Path) -> None:
    """`revisit_shared = false`."""
    async with crawled_by_two("processes", tmp_path, "-s", "write.revisit_shared=false") as folders:
        assert len(by_worker(folders)) == 2, "both have fetched"
        digests = Counter(read.fields["WARC-Payload-Digest"] for folder in folders for read in records(folder))
        assert max(digests.values()) == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_kill_leaves_no_revisit_without_its_record(tmp_path: Path) -> None:
    """Processes are killed at any time; a payload may be twice in the job then."""
    async with SmallWeb(many_hosts(), delay_s=0.02) as web:
        order = write_order(tmp_path, web.hosts, politeness={"max_connections": 1}, crawl={"workers": 8})
        process = await start(
            "crawl", *SEEDS, "-c", order, "--job", tmp_path / "job", "--processes", "2", "--warc", cwd=tmp_path
        )
        for kill in range(4):
            while sum(web.ledger.counts().values()) < 15 + 20 * kill:
                await asyncio.sleep(0.005)
            victims = workers(process.pid)
            os.kill(victims[kill % len(victims)], signal.SIGKILL)
        run = await ended(process)
        assert run.code == 0, run.err
    originals = records(tmp_path / "job")
    revisits = [read for read in archived(tmp_path / "job").answers if read.kind == "revisit"]
    assert revisits
    for revisit in revisits:
        check_refers(revisit, originals)
