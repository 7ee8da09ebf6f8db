"""`anabranch frontier ls`, `show`, `why` on the job of a program that embeds the Frontier: while it runs, killed, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.records import Candidate
from tests.acceptance.command import Ended, anabranch, start
from tests.acceptance.scrapycrawl import crawl, frontier
from tests.acceptance.scrapycrawl import start as start_scrapy
from tests.acceptance.test_crawlee import a_site, a_task, crawled, printed, started, url
from tests.facts_schema import checked
from tests.site.page import Page, go
from tests.site.server import LoopbackServer

#: The first answer of /slow is awaited by nobody; /z stands behind it at the same gate.
PAGES = {
    "/": Page(links=go("/slow", "/z")),
    "/slow": Page(first=(Page(delay_s=1000),)),
    "/z": Page(),
}


async def until(holds: Callable[[], object]) -> None:
    """Return when it does."""
    while not holds():
        await asyncio.sleep(0.01)


async def told(folder: Path, *arguments: str) -> Ended:
    """A command that must go well."""
    run = await anabranch(*arguments, cwd=folder)
    assert run.code == 0, (arguments, run.err)
    return run


async def told_of_a_running_one(folder: Path, job: Path, at: Callable[[str], str], process: int) -> None:
    """/ is done, /slow in flight, /z waits for its gate, and nobody knows /b: by a snapshot, which is said."""
    listed = await told(folder, "frontier", "ls", str(job))
    assert listed.err.startswith(
        f"anabranch: {job}: process {process} runs it; this is a snapshot of what was durable at "
    )
    assert "1 URL queued (0 wait for a retry), 1 in flight, 0 in retired queues; 1 done" in listed.out
    assert "; queues: 1 in-flight\nnothing can be leased now: 1 gate that has URLs is closed" in listed.out
    (queue,) = checked(json.loads((await told(folder, "frontier", "ls", str(job), "--json")).out), "Queues")["queues"]
    assert (queue["state"], queue["in_flight"]) == ("in-flight", 1)
    shown = (await told(folder, "frontier", "show", str(job), queue["queue"])).out
    assert "its only slot is out" in shown
    for path, words in {
        "/": ": ended\n|it is done",
        "/slow": ": leased\n|it was leased ",
        "/z": ": queued\n|is closed: its only slot is out",
        "/b": ": never scheduled\n|it was never scheduled",
    }.items():
        said = (await told(folder, "why", str(job), at(path))).out
        assert all(word in said for word in words.split("|")), said
        assert "scope" not in said


async def told_of_a_killed_one(folder: Path, job: Path, at: Callable[[str], str]) -> None:
    """Check a killed job: URLs that were in flight are queued, and no process runs the job."""
    listed = await told(folder, "frontier", "ls", str(job))
    assert listed.err == ""
    assert "2 URLs queued (0 wait for a retry), 0 in flight" in listed.out
    assert "Not running. If started now: " in listed.out
    assert (await told(folder, "why", str(job), at("/slow"))).out.startswith(f"{at('/slow')}: queued\n")


async def told_of_an_ended_one(folder: Path, job: Path, at: Callable[[str], str]) -> None:
    """All is done."""
    assert "0 URLs queued (0 wait for a retry), 0 in flight" in (await told(folder, "frontier", "ls", str(job))).out
    for path in PAGES:
        said = (await told(folder, "frontier", "show", str(job), at(path))).out
        assert said.startswith(f"{at(path)}: ended\n"), said


async def test_the_job_of_a_scrapy_spider_is_looked_at(tmp_path: Path) -> None:
    """While it runs, after a kill, at its end: each request is found by its URL, whatever its fingerprint."""
    pytest.importorskip("scrapy")
    async with LoopbackServer(lambda _, target, earlier: PAGES[target].at(earlier)) as site:
        settings, job = frontier(max_connections=1, policy="bkdr:1"), tmp_path / "job"
        starts = [url(site, "/")]
        process = await start_scrapy(starts, settings, job=job)
        await until(lambda: site.ledger.count(url(site, "/slow")) or process.returncode is not None)
        await told_of_a_running_one(tmp_path, job / "frontier", lambda path: url(site, path), process.pid)
        process.kill()
        await process.communicate()
        await told_of_a_killed_one(tmp_path, job / "frontier", lambda path: url(site, path))
        again = await crawl(starts, settings, job=job)
        assert again.code == 0, again.err
        await told_of_an_ended_one(tmp_path, job / "frontier", lambda path: url(site, path))


async def test_the_job_of_a_crawlee_crawler_is_looked_at(tmp_path: Path) -> None:
    """While it runs, after a kill, at its end: each request is found by its unique_key, here its URL."""
    pytest.importorskip("crawlee")
    async with a_site(PAGES) as site:
        job = tmp_path / "job"
        task = a_task(site, job, settings={"min_delay": 0, "policy": "bkdr:1"})
        process = await started(task, tmp_path)
        await until(lambda: site.ledger.count(url(site, "/slow")) or process.returncode is not None)
        await told_of_a_running_one(tmp_path, job, lambda path: url(site, path), process.pid)
        process.kill()
        await printed(process)
        await told_of_a_killed_one(tmp_path, job, lambda path: url(site, path))
        await crawled(task, tmp_path)
        await told_of_an_ended_one(tmp_path, job, lambda path: url(site, path))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[EmbeddedJob]:
    """A host in this very process, with requests enough that a dump of them fills a pipe."""
    job = EmbeddedJob(tmp_path / "job", {"policy": "bkdr:2"})
    job.frontier.schedule([Candidate(f"http://a.test/{number}", payload=b"x" * 500) for number in range(2000)])
    twice = [Candidate("http://a.test/post", key=b"one"), Candidate("http://a.test/post", key=b"two")]
    job.frontier.schedule(twice)
    job.frontier.flush()
    yield job
    job.close()


async def test_requests_of_one_url_are_all_told(host: EmbeddedJob, tmp_path: Path) -> None:
    """They differ by what their program makes keys of, such as the method."""
    said = await told(tmp_path, "why", str(host.folder), "http://a.test/post", "--json")
    facts = checked(json.loads(said.out), "Explained")
    assert [each["state"] for each in (facts["explanation"], *facts["others"])] == ["queued", "queued"]
    text = (await told(tmp_path, "why", str(host.folder), "http://A.test/post")).out
    assert text.count("http://a.test/post: queued\n") == 2


@pytest.mark.parametrize(
    "order",
    [("pause", "bkdr:0"), ("resume", "bkdr:0"), ("retire", "bkdr:0"), ("set-budget", "bkdr:0", "9"), ("rm", "--url", "a"),
     ("block", "a.test"), ("unblock", "a.test")],
)  # fmt: skip
async def test_orders_wait_until_the_host_has_ended(host: EmbeddedJob, tmp_path: Path, order: tuple[str, ...]) -> None:
    """One line says who holds the job; then they are obeyed."""
    verb, *more = order
    command = ("frontier", verb, str(host.folder), *more, *(["--yes"] if verb == "rm" else []))
    refused = await anabranch(*command, cwd=tmp_path)
    assert refused.code == 1
    assert refused.err.startswith(f"anabranch: {host.folder}: in use by process {os.getpid()}; wait until it ends")
    assert refused.err.count("\n") == 1
    host.close()
    await told(tmp_path, *command)


@pytest.mark.parametrize("verb", ["crawl", "status", "pause", "resume", "stop", "add", "report"])
async def test_a_crawl_has_nothing_to_do_with_the_job_of_a_host(tmp_path: Path, verb: str) -> None:
    """One line says whose it is."""
    EmbeddedJob(tmp_path / "job", {}).close()
    command = {
        "crawl": ("crawl", "http://a.test/", "--job", str(tmp_path / "job")),
        "add": ("add", str(tmp_path / "job"), "http://a.test/"),
    }.get(verb, (verb, str(tmp_path / "job")))
    run = await anabranch(*command, cwd=tmp_path)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"anabranch: {tmp_path}/job: the job belongs to a program that embeds the Frontier; ")
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(("end", "code"), [("SIGTERM", 130), ("SIGINT", 130), ("pipe", 141)])
async def test_a_snapshot_is_gone_however_the_command_ends(
    host: EmbeddedJob, tmp_path: Path, end: str, code: int
) -> None:
    """Interrupted, or nobody reads on: no copy of the store stays."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = await start("frontier", "dump", str(host.folder), cwd=tmp_path, TMPDIR=str(scratch))
    assert command.stdout is not None
    await command.stdout.readline()
    assert list(scratch.iterdir()), "the rest of the dump waits in the pipe"
    if end == "pipe":
        command.stdout._transport.close()  # type: ignore[attr-defined]
    else:
        command.send_signal(getattr(signal, end))
    assert command.stderr is not None
    await command.stderr.read()
    assert await command.wait() == code
    assert not list(scratch.iterdir())


async def test_a_dump_of_a_running_job_is_whole(host: EmbeddedJob, tmp_path: Path) -> None:
    """It reads, so it is made of a snapshot; with it the requests go to a job of another policy."""
    lines = (await told(tmp_path, "frontier", "dump", str(host.folder), "-o", "all.jsonl")).out
    assert lines == ""
    assert json.loads((tmp_path / "all.jsonl").read_text().splitlines()[-1]) == {
        "end": True,
        "ended": 0,
        "queued": 2002,
    }
    EmbeddedJob(tmp_path / "other", {"policy": "host"}).close()
    loaded = await told(tmp_path, "frontier", "load", str(tmp_path / "other"), "all.jsonl")
    assert "loaded: 2,002 queued" in loaded.out
    other = EmbeddedJob(tmp_path / "other", {"policy": "host"})
    assert other.frontier.pending == 2002
    record = other.frontier.operations.get(b"one")
    assert record is not None
    other.close()
