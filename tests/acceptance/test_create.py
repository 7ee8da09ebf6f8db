"""`anabranch create`: a job with its seeds in the queue, and no fetch; a crawl goes on with it."""

import json
from pathlib import Path

import pytest

import anabranch as program
from anabranch.crawler.cluster.agreement import Applicant, Wanted, join
from anabranch.crawler.job.database import JobDatabase
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.order.loading import load_order
from tests.acceptance.command import anabranch, crawl_log, write_order
from tests.facts_schema import checked
from tests.postgres_server import server
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

SEED = "http://a.test/"
URLS = {SEED, "http://a.test/b", "http://a.test/c"}


@pytest.fixture
async def web():
    """One host with three pages."""
    pages = {"/": Page(links=go("/b", "/c")), "/b": Page(), "/c": Page()}
    async with SmallWeb({"a.test": Host(pages=pages)}) as served:
        yield served


async def status_of(place, cwd):
    return checked(json.loads((await anabranch("status", place, "--json", cwd=cwd)).out))


@pytest.mark.parametrize("more", [(), ("--processes", "2")], ids=["one worker", "several"])
async def test_a_job_is_created_without_a_fetch_and_crawled_later(tmp_path, web, more):
    """By its folder alone: it has its order and its seeds. A second `create` is refused, and changes nothing."""
    create = ("create", SEED, "-c", write_order(tmp_path, web.hosts), "--job", tmp_path / "job", *more)
    created = await anabranch(*create, cwd=tmp_path)
    assert created.code == 0, created.err
    assert (
        created.out
        == f"{tmp_path / 'job'}: created with 1 seed; `anabranch crawl --job {tmp_path / 'job'}` crawls it\n"
    )
    status = await status_of(tmp_path / "job", tmp_path)
    assert (status["phase"], status["totals"]["pending"], status["is_finished"]) == ("stopped", 1, False)
    assert not web.ledger.counts()
    again = await anabranch(*create, cwd=tmp_path)
    assert (again.code, "there is a job already; `anabranch add` adds seeds" in again.err) == (2, True)
    crawled = await anabranch("crawl", "--job", tmp_path / "job", cwd=tmp_path)
    assert crawled.code == 0, crawled.err
    assert crawl_log(tmp_path / "job").keys() >= URLS
    assert web.ledger.count(SEED) == 1


async def test_a_job_in_a_database_is_created_without_a_folder(tmp_path, web):
    """A worker joins by the URL, without seeds."""
    with server() as url:
        store = url.replace(":@", "@")
        created = await anabranch(
            "create", SEED, "-c", write_order(tmp_path, web.hosts), "--store", store, "--name", "news", cwd=tmp_path
        )
        assert created.code == 0, created.err
        assert not (tmp_path / "jobs").exists()
        assert (await status_of(store, tmp_path))["totals"]["pending"] == 1
        crawled = await anabranch("crawl", "--store", store, "--job", tmp_path / "worker", cwd=tmp_path)
        assert crawled.code == 0, crawled.err
    assert crawl_log(tmp_path / "worker").keys() >= URLS


async def test_a_command_that_was_killed_while_it_created_a_job_is_repeated(tmp_path, web):
    """The job has its order and its seeds, and no queue yet: commands on it say no more than that nothing runs."""
    with server() as url:
        store, file = url.replace(":@", "@"), write_order(tmp_path, web.hosts)
        order = load_order(file, {"store": store, "name": "news"}, ["frontier.shares=4"])
        with JobDatabase(store) as database:
            join(database, Wanted(order, [Seed(url=SEED, source="command line")]), Applicant("a", "", is_named=True))
        assert (await status_of(store, tmp_path))["phase"] == "stopped"
        assert "news" in (await anabranch("jobs", store, cwd=tmp_path)).out
        create = ("create", SEED, "-c", file, "--store", store, "--name", "news", "-s", "frontier.shares=4")
        for code in (0, 2):
            assert (await anabranch(*create, cwd=tmp_path)).code == code
        assert (await status_of(store, tmp_path))["totals"]["pending"] == 1


async def test_what_no_later_command_could_crawl_is_not_created(tmp_path):
    """A queue in memory; a job without a seed; nothing is left behind."""
    for arguments, words in (
        ((SEED, "-s", "frontier.store=memory"), "such a queue ends with its process"),
        ((), "there is no seed"),
        ((SEED, "--again"), "this command creates one"),
    ):
        run = await anabranch("create", *arguments, "--job", tmp_path / "job", cwd=tmp_path)
        assert (run.code, words in run.err) == (2, True), run
    assert not (tmp_path / "job").exists()


def test_a_program_creates_a_job(tmp_path: Path) -> None:
    """It needs a name or a folder for it."""
    folder = program.create(SEED, job=tmp_path / "job", limit=5, contact="a@b.test")
    assert (folder, (folder / "order.toml").exists()) == (tmp_path / "job", True)
    with pytest.raises(program.UsageError, match="there is a job already"):
        program.create(SEED, job=tmp_path / "job")
    with pytest.raises(program.UsageError, match="name the job that is to be created"):
        program.create(SEED)
