"""`anabranch export` of real jobs: ended, running, killed, of several processes; what it makes is opened by its readers."""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import pytest
from warcio.archiveiterator import ArchiveIterator

from tests.acceptance import replay
from tests.acceptance.browser import ON_ONE_LOOP
from tests.acceptance.command import Ended, anabranch, crawl_log, ended, environment, kill_after, start, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.patience import HANG_S
from tests.site.page import Host, Page, file, redirect
from tests.site.server import SmallWeb

SEED = "http://pages.test/"
#: Paths of pages that name themselves: with a query, characters that are encoded, a type without links.
PATHS = [
    *(f"/page/{number}" for number in range(1, 31)),
    "/query?b=2&a=1",
    "/empty?",
    "/a%20b/%C3%A9",
    "/UPPER/Case.HTML",
    "/plain.txt",
]


def names_in(folder: Path) -> list[str]:
    """All that is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def own_page(path: str) -> Page:
    """A page whose text is its path."""
    return file("text/plain" if path.endswith(".txt") else "text/html", f"<title>t</title><p>This is {path} .".encode())


#: A site of pages that name themselves, and what is no page: a part, a redirect, a page that is missing.
WEB = {
    "pages.test": Host(
        pages={
            "/": file(
                "text/html",
                (
                    "<p>This is / ." + "".join(f'<a href="{path}">x</a>' for path in [*PATHS, "/moved", "/missing"])
                ).encode()
                + b"<img src=/i.png>",
            ),
            **{path: own_page(path) for path in PATHS},
            "/i.png": file("image/png", b"\x89PNG"),
            "/moved": redirect(301, "http://pages.test/page/1", "http://pages.test/page/1"),
        }
    )
}


async def crawled(tmp_path: Path, *more: str) -> Path:
    """A job of the site, in the folder."""
    async with SmallWeb(WEB) as web:
        order = write_order(tmp_path, web.hosts)
        run = await anabranch("crawl", SEED, "-c", order, "--job", tmp_path / "job", "--warc", *more, cwd=tmp_path)
    assert run.code == 0, run.err
    return tmp_path / "job"


async def exported(tmp_path: Path, to: str, *more: str | Path) -> Ended:
    return await anabranch("export", "job", "--to", to, *more, cwd=tmp_path)


def listed(package: Path) -> list[dict[str, Any]]:
    """All pages that a WACZ lists, seeds first."""
    with ZipFile(package) as opened:
        assert opened.testzip() is None
        files = [opened.read(f"pages/{name}.jsonl") for name in ("pages", "extraPages")]
    return [json.loads(line) for content in files for line in content.splitlines()[1:]]


def recorded(package: Path) -> set[str]:
    """The URLs of all answers in the WARC files of a WACZ, as warcio reads them; the index has the same."""
    with ZipFile(package) as opened:
        lines = gzip.decompress(opened.read("indexes/index.cdx.gz")).splitlines()
        index = [json.loads(line.split(b" ", 2)[2]) for line in lines]
        found = set()
        for name in opened.namelist():
            if name.startswith("archive/"):
                with opened.open(name) as warc:
                    for record in ArchiveIterator(warc, check_digests="raise"):
                        if record.rec_type in {"response", "revisit"}:
                            found.add(record.rec_headers.get_header("WARC-Target-URI"))
    assert {fields["url"] for fields in index} == found
    return found


async def test_each_format_has_what_the_job_has(tmp_path: Path) -> None:
    """In the current folder, under the job's name; one line says what was written."""
    job = await crawled(tmp_path, "--links")
    log = crawl_log(job)
    for to, name in (("wacz", "job.wacz"), ("sqlite", "job.sqlite"), ("csv", "job-csv"), ("files", "job-files")):
        run = await exported(tmp_path, to)
        assert (run.code, run.err) == (0, "")
        assert run.out.startswith(f"{name}: ")
        assert len(run.out.splitlines()) == 1
    assert {page["url"] for page in listed(tmp_path / "job.wacz")} == {
        f"http://pages.test{path}" for path in ["/", *PATHS]
    }
    assert recorded(tmp_path / "job.wacz") >= {url for url, status in log.items() if status > 0}
    database = sqlite3.connect(tmp_path / "job.sqlite")
    rows = database.execute("SELECT url, status FROM pages").fetchall()
    database.close()
    assert dict(rows) == {url: status for url, status in log.items() if status > 0}
    with (tmp_path / "job-csv" / "links.csv").open(newline="") as links:
        assert len(list(csv.DictReader(links))) == len(PATHS) + 4
    assert (tmp_path / "job-files" / "crawl.log").read_bytes() == (job / "logs" / "crawl.log").read_bytes()


async def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    """With the exit code of the reference; nothing is replaced, and nothing is written."""
    await crawled(tmp_path, "-s", "write.compression=zstd")
    (tmp_path / "there.csv").write_text("mine")
    (tmp_path / "folder").mkdir()
    for arguments, code, words in (
        (("nojob", "--to", "csv"), 2, "there is no such job"),
        (("job", "--to", "xml"), 2, "--to xml: is unknown; name wacz, parquet, sqlite, csv, files"),
        (("job", "--to", "\x1b[31m"), 2, "\\x1b[31m: is unknown"),
        (("job", "--to", "sqlite", "--out", "there.csv"), 2, "there.csv: exists; name another place with --out"),
        (("job", "--to", "csv", "--out", "there.csv", "--force"), 2, "exists, and a folder is to be written"),
        (("job", "--to", "csv", "--out", "job/x"), 2, "is in the folder of the job"),
        (("job", "--to", "csv", "--out", "no/x"), 1, "choose another --out"),
        (("job", "--to", "csv", "--warcs", "folder"), 2, "for --to wacz or files"),
        (("job", "--to", "wacz", "--warcs", "nofolder"), 2, "must be a folder of WARC files"),
        (("job", "--to", "wacz", "--warcs", "folder"), 2, "has no WARC files"),
        (("job", "--to", "wacz"), 2, "no reader of WACZ knows zstd; `anabranch archive convert job FOLDER`"),
        (("postgresql://h/d", "--to", "csv"), 2, "name the job folder of each worker"),
    ):
        run = await anabranch("export", *arguments, cwd=tmp_path)
        assert (run.code, run.out) == (code, ""), arguments
        assert words in run.err
        assert len(run.err.splitlines()) == 1
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert names_in(tmp_path) == ["folder", "job", "order.toml", "there.csv"]
    converted = await anabranch("archive", "convert", "job", "gzip", cwd=tmp_path)
    assert converted.code == 0
    run = await exported(tmp_path, "wacz", "--warcs", "gzip")
    assert (run.code, run.err) == (0, "")
    assert recorded(tmp_path / "job.wacz") >= {page["url"] for page in listed(tmp_path / "job.wacz")}


async def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    """With exit code 1; the others are exported."""
    job = await crawled(tmp_path)
    with (job / "pages.jsonl").open("ab") as pages:
        pages.write(b"damaged\n")
    run = await exported(tmp_path, "csv")
    assert run.code == 1
    assert run.err == "anabranch: job/pages.jsonl: 1 line that cannot be read, left out\n"
    assert run.out.startswith(f"job-csv: {len(PATHS) + 4} pages, ")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
async def test_a_running_job_is_exported_as_of_one_moment(tmp_path: Path, processes: int) -> None:
    """Each page has its records, again and again while the crawl goes on, which does not notice; the killed job, too."""
    async with SmallWeb(many_hosts(), delay_s=0.4) as web:
        await _exported_meanwhile(tmp_path, web, processes)


async def _exported_meanwhile(tmp_path: Path, web: SmallWeb, processes: int) -> None:
    order = write_order(tmp_path, web.hosts)
    options = ("--warc", "--links", "--processes", str(processes), "-s", "write.warc_size=1MiB")
    crawl = ("crawl", *SEEDS, "-c", order, "--job", tmp_path / "job", *options)
    process = await start(*crawl, cwd=tmp_path)
    seen = []
    while sum(web.ledger.counts().values()) < 60 and process.returncode is None:
        run = await exported(tmp_path, "wacz", "--force")
        if run.code == 2 and ("no WARC files" in run.err or "no such job" in run.err):
            await asyncio.sleep(0.05)
            continue
        assert run.code == 0, run.err
        pages = [page["url"] for page in listed(tmp_path / "job.wacz")]
        assert {*pages} <= recorded(tmp_path / "job.wacz")
        seen.append(len(pages))
    assert seen == sorted(seen) != []
    await kill_after(process, web, 80)
    run = await exported(tmp_path, "wacz", "--force")
    assert run.code == 0, run.err
    killed = {page["url"] for page in listed(tmp_path / "job.wacz")}
    assert killed <= recorded(tmp_path / "job.wacz")
    run = await ended(await start(*crawl, cwd=tmp_path))
    assert run.code == 0, run.err
    assert (await exported(tmp_path, "wacz", "--force")).code == 0
    assert (await exported(tmp_path, "files")).code == 0
    pages = [json.loads(line)["url"] for line in (tmp_path / "job-files" / "pages.jsonl").read_text().splitlines()]
    log = crawl_log(tmp_path / "job")
    assert {*pages} == {url for url, status in log.items() if status > 0}
    assert len(pages) <= len({*pages}) + 40  # what was under way at the kill comes again
    assert killed <= {*pages} <= recorded(tmp_path / "job.wacz")
    lines = (tmp_path / "job-files" / "crawl.log").read_text().splitlines()
    assert len(lines) == len((tmp_path / "job" / "logs" / "crawl.log").read_text().splitlines())


@pytest.mark.slow
async def test_wacz_validate_passes(tmp_path: Path) -> None:
    """The judge of the format's authors; it fails for a file that was changed."""
    judge = replay.program("wacz")
    await crawled(tmp_path)
    assert (await exported(tmp_path, "wacz")).code == 0

    def judged(package: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [judge, "validate", "-f", str(package)], check=False, capture_output=True, text=True, timeout=HANG_S
        )

    run = judged(tmp_path / "job.wacz")
    assert run.returncode == 0, run.stdout
    assert "Validation succeeded, the passed WACZ is valid" in run.stdout
    with ZipFile(tmp_path / "job.wacz") as package, ZipFile(tmp_path / "changed.wacz", "w") as changed:
        for name in package.namelist():
            changed.writestr(name, package.read(name) + b" " * name.endswith("pages.jsonl"))
    assert "Validation failed" in judged(tmp_path / "changed.wacz").stdout


@pytest.mark.slow
async def test_every_page_is_opened_by_pywb(tmp_path: Path) -> None:
    """By its URL and time, with its own content."""
    await crawled(tmp_path)
    assert (await exported(tmp_path, "wacz")).code == 0
    pages = listed(tmp_path / "job.wacz")
    with replay.wayback(tmp_path, tmp_path / "job.wacz") as address:
        for page in pages:
            text = await asyncio.to_thread(_opened, f"{address}/{stamp(page)}mp_/{page['url']}")
            assert f"This is {page['url'].removeprefix('http://pages.test')} ." in text
    assert len(pages) == len(PATHS) + 1


def _opened(url: str) -> str:
    """The text at a URL, when the server has started."""
    import time

    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=HANG_S) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url}: nobody answers")


def stamp(page: dict[str, Any]) -> str:
    return "".join(filter(str.isdigit, page["ts"]))[:14]


@pytest.mark.slow
@ON_ONE_LOOP
async def test_every_page_is_opened_by_the_component_of_replaywebpage(tmp_path: Path, browser: Any) -> None:
    """In Chromium, offline but for this machine, with its own content."""
    package = replay.component()
    await crawled(tmp_path)
    site = tmp_path / "site"
    (site / "replay").mkdir(parents=True)
    for name in ("ui.js", "sw.js"):
        (site / "replay" / name).symlink_to(package / name)
    (site / "index.html").write_text(
        '<!doctype html><script src="replay/ui.js"></script>'
        '<replay-web-page replayBase="/replay/" embed="replayonly" source="/job.wacz" style="display:block;height:90vh">'
    )
    assert (await exported(tmp_path, "wacz", "--out", "site/job.wacz")).code == 0
    pages = listed(site / "job.wacz")
    with replay.served(site) as address:
        context = await browser.new_context()
        elsewhere: list[str] = []
        context.on("request", lambda request: request.url.startswith(address) or elsewhere.append(request.url))
        page = await context.new_page()
        await page.goto(f"{address}/index.html")
        element = page.locator("replay-web-page")
        for one in pages:
            await element.evaluate(
                "(e, [url, ts]) => { e.setAttribute('url', url); e.setAttribute('ts', ts) }", [one["url"], stamp(one)]
            )
            expected = f"This is {one['url'].removeprefix('http://pages.test')} ."
            async with asyncio.timeout(HANG_S):
                while not await _is_shown(page, expected):
                    await asyncio.sleep(0.05)
        await context.close()
    assert len(pages) == len(PATHS) + 1
    assert elsewhere == []


async def _is_shown(page: Any, text: str) -> bool:
    """Whether the replayed page has the text."""
    from playwright.async_api import Error

    for frame in page.frames:
        if "mp_/" in frame.url:
            try:
                return text in await frame.locator("body").inner_text(timeout=1000)
            except Error:  # it is being replaced
                return False
    return False


#: The command, which says at its end how much memory it had at most. (What the kernel reports of a child counts the memory of
#: the process that has started it.)
_PEAK = """
import atexit, re, sys
atexit.register(lambda: sys.stderr.write(re.search("VmHWM.*", open("/proc/self/status").read())[0]))
from anabranch.crawler.cli import main
main()
"""


def memory_of_export(folder: Path) -> int:
    """Export the job of a folder as WACZ in a process of its own; the most memory that it had, in KiB."""
    command = [sys.executable, "-c", _PEAK, "export", "job", "--to", "wacz"]
    done = subprocess.run(command, cwd=folder, env=environment(), check=True, stderr=subprocess.PIPE, text=True)
    return int(done.stderr.split()[-2])


#: A file beyond 4 GiB, mostly of zeros.
_LARGE = (4 << 30) + (200 << 20)


@pytest.mark.slow
async def test_more_than_4_gib_are_exported_in_constant_memory() -> None:
    """By the zip64 fields; the last record is where the index says. (The file is sparse, the package is not.)"""
    with TemporaryDirectory(dir="/var/tmp") as folder:  # other temporary files may be in memory
        await _exported_large(Path(folder))


async def _exported_large(tmp_path: Path) -> None:
    job = await crawled(tmp_path)
    (warc,) = (job / "warc").glob("*.warc.gz")
    record = zlib.compressobj(wbits=31)
    content = b"WARC/1.1\r\nWARC-Type: response\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
    last = record.compress(content) + record.flush()
    with warc.open("r+b") as growing:
        growing.truncate(_LARGE)
        growing.seek(_LARGE)
        growing.write(last)
    fields = {"url": "http://z.test/", "offset": str(_LARGE), "length": str(len(last)), "filename": warc.name}
    with warc.with_name(warc.name.replace(".warc.gz", ".cdxj")).open("a") as index:
        index.write(f"test,z)/ 20260101000000 {json.dumps(fields)}\n")
    most_kib = await asyncio.to_thread(memory_of_export, tmp_path)
    print(f"at most {most_kib >> 10} MiB for {_LARGE >> 20} MiB")
    assert most_kib < 200 << 10
    with ZipFile(tmp_path / "job.wacz") as package:
        line = gzip.decompress(package.read("indexes/index.cdx.gz")).splitlines()[-1]
        place = json.loads(line.split(b" ", 2)[2])
        about = package.getinfo(f"archive/{warc.name}")
        assert about.file_size == _LARGE + len(last)
        with package.open(about) as archived:
            archived.seek(int(place["offset"]))
            assert zlib.decompress(archived.read(int(place["length"])), wbits=31) == content
