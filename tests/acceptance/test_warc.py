"""Real crawls with --warc: what was answered is in the files, whatever happens to the crawl."""

import asyncio
import json
import random
import re
import shlex
import shutil
import signal
import subprocess
from dataclasses import replace

import pytest

from tests.acceptance.archive import archived
from tests.acceptance.command import REPOSITORY, anabranch, crawl_log, ended, kill_after, start, write_order
from tests.crawler.archive.exchanges import dictionary, read_by_warcio, unpacked, warcs
from tests.site.oracle import expected
from tests.site.page import Host, Page, file, go, redirect, versioned
from tests.site.pages import WEB
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"
WORKERS = 8


#: The small web, whose pages have versions.
TAGGED = {
    name: replace(host, pages={target: versioned(page) for target, page in host.pages.items()})
    for name, host in WEB.items()
}


def large_site(pages, size):
    """A page of links to files that nothing can pack, and that differ."""
    targets = [f"/{number}.bin" for number in range(pages)]
    bodies = {target: file("application/pdf", random.Random(target).randbytes(size)) for target in targets}
    return {"large.test": Host(pages={"/": Page(links=go(*targets)), **bodies})}


@pytest.fixture
async def slow_web():
    """The small web with versions, every answer late by 20 ms, so that a crawl can be caught in the middle."""
    async with SmallWeb(TAGGED, delay_s=0.02) as web:
        yield web


def crawl_of(tmp_path, web, *more, seed=SEED):
    order = write_order(tmp_path, web.hosts, politeness={"max_connections": 4}, crawl={"workers": WORKERS})
    return ("crawl", seed, "-c", order, "--job", tmp_path / "job", "--warc", *more)


def unchanged(statuses):
    """Return the statuses of a second crawl: 304 for every page that has a version."""
    return {url: 304 if status == 200 and is_tagged(url) else status for url, status in statuses.items()}


def is_tagged(url):
    host, _, target = url.removeprefix("http://").partition("/")
    return any(name == "ETag" for name, _ in TAGGED[host].pages[f"/{target}"].headers)


@pytest.fixture(params=[None, "zstd"])
def compressed(request, tmp_path):
    """The options of a compression: none for gzip, zstd with a dictionary."""
    if request.param is None:
        return ()
    (tmp_path / "dictionary").write_bytes(dictionary())
    return ("-s", "write.compression=zstd", "-s", f"write.zstd_dictionary={tmp_path / 'dictionary'}")


async def test_every_answer_of_a_crawl_is_in_its_warc_file(tmp_path, small_web, compressed):
    """Pages, redirects, errors, robots.txt: read by warcio and fastwarc, with request, metadata and a true index."""
    run = await anabranch(*crawl_of(tmp_path, small_web, "--links", *compressed), cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED])
    found = archived(tmp_path / "job")
    assert len(found.files) == 1
    assert found.kinds()["response"] > found.kinds()["identical-payload-digest"] > 0
    pages = [json.loads(line) for line in (tmp_path / "job" / "links.jsonl").read_text().splitlines()]
    assert {page["url"] for page in pages} <= {read.url for read in found.answers}
    again = await anabranch("index", tmp_path / "job", cwd=tmp_path)
    assert again.code == 0, again.err
    assert archived(tmp_path / "job") == found


ODD = {
    "/": Page(links=go("/charset", "/none", "/empty", "/moved", "/same", "/gone")),
    "/charset": Page(content_type="text/HTML ; charset=ütf"),
    "/none": Page(content_type=None, body=b"\r\nContent-Type: text/plain\r\n\r\n"),
    "/empty": Page(body=b""),
    "/moved": redirect(302, "/ü?a=%20b", "/%C3%BC?a=%20b"),
    "/same": Page(links=go("/charset", "/none", "/empty", "/moved", "/same", "/gone")),
    "/gone": Page(status=404),
    "/robots.txt": Page(body=b"User-agent: *\nAllow: /\n", content_type="text/plain"),
}


async def test_an_index_that_is_made_anew_is_the_one_that_the_crawl_wrote(tmp_path):
    """To the byte: answers, revisits of both kinds, redirects, errors, empty bodies, robots.txt, types oddly written."""
    site = {target: versioned(page) for target, page in ODD.items()}
    async with SmallWeb({"odd.test": Host(pages=site)}) as web:
        for more in ((), ("--again",)):
            run = await anabranch(*crawl_of(tmp_path, web, *more, seed="http://odd.test/"), cwd=tmp_path)
            assert run.code == 0, run.err
    kinds = archived(tmp_path / "job").kinds()
    assert min(kinds[kind] for kind in ("response", "identical-payload-digest", "server-not-modified")) > 0, kinds
    indexes = {path: path.read_bytes() for path in (tmp_path / "job" / "warc").glob("*.cdxj")}
    for path in indexes:
        path.unlink()
    again = await anabranch("index", tmp_path / "job", cwd=tmp_path)
    assert again.code == 0, again.err
    assert {path: path.read_bytes() for path in indexes} == indexes


async def test_a_page_whose_archived_answer_is_lost_waits_at_the_gate_before_it_is_asked_for_anew(tmp_path):
    """The server says 304, nobody has the page: between that and the second request the other host has its turn."""
    site = {"/robots.txt": Page(status=404), "/": versioned(Page(links=go("/leaf"))), "/leaf": Page()}
    order = {"politeness": {"min_delay": 0.05, "max_delay": 0.05}, "crawl": {"workers": 1}}
    async with SmallWeb({"a.test": Host(pages=site), "b.test": Host(pages=site)}) as web:
        crawl = ("crawl", "http://a.test/", "http://b.test/", "-c", write_order(tmp_path, web.hosts, **order))
        run = await anabranch(*crawl, "--job", tmp_path / "job", "--warc", cwd=tmp_path)
        assert run.code == 0, run.err
        for path in warcs(tmp_path / "job" / "warc"):
            path.write_bytes(bytes(path.stat().st_size))
        before = len(web.ledger.visits)
        run = await anabranch(*crawl, "--job", tmp_path / "job", "--warc", "--again", cwd=tmp_path)
        assert run.code == 0, run.err
    asked = [(visit.host, visit.status) for visit in web.ledger.visits[before:] if visit.path == "/"]
    assert asked == [("a.test", 304), ("b.test", 304), ("a.test", 200), ("b.test", 200)]
    statuses = [crawl_log(tmp_path / "job")[f"http://{host}/leaf"] for host in web.hosts]
    assert statuses == [200, 200]


async def test_files_are_finished_at_their_size(tmp_path):
    """--warc-size 1MiB: none is larger than that and one answer more; all but the last have reached it."""
    async with SmallWeb(large_site(12, 300_000)) as web:
        command = crawl_of(tmp_path, web, "--warc-size", "1MiB", seed="http://large.test/")
        run = await anabranch(*command, cwd=tmp_path)
    assert run.code == 0, run.err
    sizes = [path.stat().st_size for path in archived(tmp_path / "job").files]
    assert len(sizes) == 3
    assert all(size >= 1 << 20 for size in sizes[:-1])
    assert all(size <= (1 << 20) + 310_000 for size in sizes)


@pytest.mark.slow
async def test_after_kills_every_ended_url_has_its_record(tmp_path, slow_web, compressed):
    """Killed nine times, at random: the files are valid, nothing is missing, links behind a 304 are followed."""
    command = crawl_of(tmp_path, slow_web, *compressed)
    dice, served = random.Random(), 0
    for _ in range(9):
        served += dice.randrange(3, 25)
        await kill_after(await start(*command, cwd=tmp_path), slow_web, served)
        served = sum(slow_web.ledger.counts().values())
    run = await anabranch(*command, cwd=tmp_path)
    assert run.code == 0, run.err
    log, wanted = crawl_log(tmp_path / "job"), expected([SEED])
    assert log == {url: 304 if log.get(url) == 304 and is_tagged(url) else status for url, status in wanted.items()}
    assert len(archived(tmp_path / "job").files) > 1


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
async def test_a_signal_leaves_finished_files(tmp_path, slow_web, number):
    """The run drains with 11, its files are whole at once; the next run goes on in new ones."""
    command = crawl_of(tmp_path, slow_web)
    process = await start(*command, cwd=tmp_path)
    while sum(slow_web.ledger.counts().values()) < 30:
        await asyncio.sleep(0.005)
    process.send_signal(number)
    assert (await ended(process)).code == 11
    before = archived(tmp_path / "job")
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == expected([SEED])
    after = archived(tmp_path / "job")
    assert after.files[: len(before.files)] == before.files
    assert after.answers[: len(before.answers)] == before.answers


async def test_crawl_log_tells_where_each_record_stands(tmp_path, small_web):
    """[logs] extra_info: a thirteenth field with Heritrix's names; the accounts count the records by it."""
    command = crawl_of(tmp_path, small_web, "-s", "logs.extra_info=true")
    run = await anabranch(*command, cwd=tmp_path)
    assert run.code == 0, run.err
    lines = [line.split() for line in (tmp_path / "job" / "logs" / "crawl.log").read_text().splitlines()]
    assert all(len(line) == 13 for line in lines)
    places = indexed_places(tmp_path / "job")
    told = {(line[3], *place_in(line[12])) for line in lines if int(line[1]) > 0 and not line[3].startswith("dns:")}
    assert told == places
    report = await anabranch("report", tmp_path / "job", "processors", cwd=tmp_path)
    assert f"write records {len(places)}" in report.out.splitlines()


def place_in(extra):
    fields = json.loads(extra)
    assert fields["contentSize"] > 0
    return fields["warcFilename"], fields["warcFileOffset"]


def indexed_places(job):
    lines = [line for path in (job / "warc").glob("*.cdxj") for line in path.read_text().splitlines()]
    fields = [json.loads(line.split(" ", 2)[2]) for line in lines]
    return {(field["url"], field["filename"], int(field["offset"])) for field in fields}


# Further rounds


async def test_another_round_asks_what_has_changed_and_reaches_everything(tmp_path, slow_web, compressed):
    """--again: every page with a version is answered 304 and becomes a revisit, and its links are followed all the same."""
    command = crawl_of(tmp_path, slow_web, *compressed)
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    first, before = crawl_log(tmp_path / "job"), slow_web.ledger.counts()
    run = await anabranch(*command, "--again", cwd=tmp_path)
    assert run.code == 0, run.err
    assert run.out.startswith("round 2 of job ")
    assert crawl_log(tmp_path / "job") == unchanged(first)
    assert {url: count - before[url] for url, count in slow_web.ledger.counts().items()} == dict(before)
    kinds = archived(tmp_path / "job").kinds()
    assert kinds["server-not-modified"] == sum(is_tagged(url) for url in first)
    assert kinds["identical-payload-digest"] > 0


async def test_what_changed_between_two_rounds_is_fetched_and_followed(tmp_path):
    """One page is new, one has other links, one is gone; the others are revisits."""
    pages = {"/": versioned(Page(links=go("/a", "/b"))), "/a": versioned(Page(links=go("/c"))), "/b": versioned(Page())}
    pages |= {"/c": versioned(Page())}
    async with SmallWeb({"a.test": Host(pages=pages)}) as web:
        command = crawl_of(tmp_path, web, seed="http://a.test/")
        assert (await anabranch(*command, cwd=tmp_path)).code == 0
        pages["/a"] = versioned(Page(links=go("/c", "/new")))
        pages["/new"] = versioned(Page(links=go("/")))
        del pages["/b"]
        for statuses in ({"/": 304, "/a": 200, "/b": 404, "/c": 304, "/new": 200}, {"/a": 304, "/b": 404, "/new": 304}):
            run = await anabranch(*command, "--again", cwd=tmp_path)
            assert run.code == 0, run.err
            log = crawl_log(tmp_path / "job")
            assert {target: log[f"http://a.test{target}"] for target in statuses} == statuses
    found = archived(tmp_path / "job")
    assert [read.kind for read in found.of("http://a.test/a")] == ["response", "response", "revisit"]
    assert [read.kind for read in found.of("http://a.test/new")] == ["response", "revisit"]


@pytest.mark.slow
async def test_a_round_that_is_killed_is_gone_on_with(tmp_path, slow_web):
    """Killed at its very beginning and later: the same command without --again ends it, and nothing is missing."""
    command = crawl_of(tmp_path, slow_web)
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    first, served = crawl_log(tmp_path / "job"), sum(slow_web.ledger.counts().values())
    for number, more in enumerate([("--again",), (), ()]):
        await kill_after(await start(*command, *more, cwd=tmp_path), slow_web, served + 1 + 20 * number)
    run = await anabranch(*command, cwd=tmp_path)
    assert run.code == 0, run.err
    assert run.out.startswith("resuming job ")
    assert crawl_log(tmp_path / "job") == unchanged(first)
    archived(tmp_path / "job")


async def test_another_round_of_an_unfinished_job_needs_consent(tmp_path, slow_web):
    """Its queue would be lost: one line and 2; with --yes the round begins."""
    command = crawl_of(tmp_path, slow_web)
    assert (await anabranch(*command, "--limit", "10", cwd=tmp_path)).code == 0
    refused = await anabranch(*command, "--again", cwd=tmp_path)
    assert refused.code == 2
    assert "the job is unfinished" in refused.err
    meant = await anabranch(*command, "--again", "--yes", cwd=tmp_path)
    assert meant.code == 0, meant.err
    assert set(crawl_log(tmp_path / "job")) == set(expected([SEED]))


async def test_pages_whose_files_were_taken_away_are_fetched_anew(tmp_path, slow_web):
    """An operator moves finished files; a 304 would then leave a page without links."""
    command = crawl_of(tmp_path, slow_web)
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    first = crawl_log(tmp_path / "job")
    for path in (tmp_path / "job" / "warc").iterdir():
        path.unlink()
    assert (await anabranch(*command, "--again", cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == first


async def test_pages_whose_records_are_spoilt_are_fetched_anew(tmp_path, slow_web):
    """The server says 304, the archive has nothing: the page is asked for once more, and its links are followed."""
    command = crawl_of(tmp_path, slow_web)
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    first = crawl_log(tmp_path / "job")
    for path in (tmp_path / "job" / "warc").glob("*.warc.gz"):
        path.write_bytes(bytes(path.stat().st_size))
    assert (await anabranch(*command, "--again", cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == first


async def test_the_commands_of_the_page_about_warc_files_do_what_it_says(tmp_path, small_web):
    """docs/how-to/archive.md, one after the other: a crawl, its index, another round."""
    text = (REPOSITORY / "docs" / "how-to" / "archive.md").read_text()
    commands = re.findall(r"^    anabranch (.+)$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["crawl", "index", "crawl"]
    order = write_order(tmp_path, small_web.hosts)
    for command in commands:
        arguments = shlex.split(command.replace("https://example.org/", SEED))
        more = ("-c", order) if SEED in arguments else ()  # the job keeps it
        run = await anabranch(*arguments, *more, cwd=tmp_path)
        assert run.code == 0, run.err
    found = archived(tmp_path / "jobs" / "example")
    assert len(found.files) == 2
    assert set(re.findall(r"`(identical-payload-digest|server-not-modified)`", text)) >= found.kinds().keys() - {
        "response"
    }


def _section(text: str, heading: str) -> str:
    """The part of a page from a heading up to the next one."""
    return text.partition(f"{heading}\n")[2].partition("\n## ")[0]


async def test_the_commands_about_zstd_do_what_the_page_says(tmp_path, small_web):
    """docs/how-to/archive.md: a dictionary of a first crawl, a second crawl with it, its files unpacked and converted."""
    text = (REPOSITORY / "docs" / "how-to" / "archive.md").read_text()
    convert, make, unpack = re.findall(r"```sh\n(.+?)```", _section(text, "## gzip or zstd"), re.DOTALL)
    order = write_order(tmp_path, small_web.hosts)
    first = f"crawl {SEED} --job jobs/example --warc -c {order}"
    second = (make.strip() + f" -c {order}").replace("https://example.org/", SEED).replace("anabranch ", "")
    convert = convert.replace("anabranch ", "").replace("jobs/example", "jobs/second")
    for command in (first, *second.splitlines(), convert):
        run = await anabranch(*shlex.split(command), cwd=tmp_path)
        assert run.code == 0, run.err
    (packed,) = archived(tmp_path / "jobs" / "second").files
    (converted,) = warcs(tmp_path / "converted")
    assert packed.suffix == ".zst"
    assert read_by_warcio(converted)[1:] == read_by_warcio(packed)[1:]
    if shutil.which("zstd"):
        script = ["bash", "-ec", unpack.replace("FILE.warc.zst", str(packed))]
        await asyncio.to_thread(subprocess.run, script, cwd=tmp_path, check=True, timeout=60)
        assert packed.with_suffix("").read_bytes() == unpacked(packed)


async def test_what_makes_no_sense_with_another_round_is_refused(tmp_path, small_web):
    """One line and 2: starting over, a shared filter, limits per host."""
    command = crawl_of(tmp_path, small_web, "--again")
    for more, word in (
        (("--fresh",), "--fresh"),
        (("-s", 'dedup.leaves=["redis://127.0.0.1:1/0"]'), "leaves"),
        (("-s", "limits.pages_per_host=9"), "per host"),
    ):
        run = await anabranch(*command, *more, cwd=tmp_path)
        assert run.code == 2, run.err
        assert word in run.err
        assert "Traceback" not in run.err
    assert not (tmp_path / "job").exists()


async def test_limits_are_those_of_a_round(tmp_path, small_web):
    """Pages and bytes of earlier rounds do not count."""
    command = crawl_of(tmp_path, small_web)
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    log = tmp_path / "job" / "logs" / "crawl.log"
    for number, (what, *limit) in enumerate((("page", "--limit", "12"), ("byte", "--size-limit", "2KB")), start=2):
        before = len(log.read_text().splitlines())
        run = await anabranch(*command, "--again", "--yes", *limit, cwd=tmp_path)
        assert run.code == 0, run.err
        assert run.out.startswith(f"round {number} of job ")
        assert f"stopped by the {what} limit" in run.out
        assert len(log.read_text().splitlines()) > before + 5
