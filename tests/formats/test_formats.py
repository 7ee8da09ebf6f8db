"""Jobs that programs of earlier formats wrote: today's program goes on with each, and nothing is missing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.frontier.jobfolder import FORMAT_FILE, VERSION
from anabranch.frontier.stores.totals import FORMAT
from tests.acceptance import forkserver
from tests.acceptance.command import environment
from tests.formats.make_jobs import unpack
from tests.formats.site import SEEDS, URLS, served

HERE = Path(__file__).parent
CRAWLED = [pytest.param(file, id=f"{file.parent.name}/{file.name}") for file in sorted(HERE.glob("*-*/*-*.tar.xz"))]
EMBEDDED = sorted(HERE.glob("*-*/embedded.tar.xz"))
DUMPS = sorted(HERE.glob("*-*/dump.jsonl"))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served() as port:
        yield port


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forkserver.run(["-m", "anabranch", *arguments], cwd=place, env=environment())


def succeeds(place: Path, *arguments: str) -> str:
    ended = run(place, *arguments)
    assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
    return ended.stdout


def pages(job: Path) -> list[str]:
    return [json.loads(line)["url"] for line in (job / "pages.jsonl").read_text().splitlines()]


def test_there_are_jobs_of_every_earlier_format() -> None:
    """Whoever raises a format keeps jobs of the one that it replaces."""
    kept = {int(folder.name.removeprefix("format-")) for folder in HERE.glob("format-*")}
    assert kept == set(range(1, VERSION))
    kept = {folder.name for folder in HERE.glob("store-*")}  # of the store's formats, in folders of today's format
    assert kept == {"store-4", "store-5", "store-6", "store-7"}
    kept = {folder.name for folder in HERE.glob("processes-*")}  # of other divisions among processes
    assert kept == {"processes-1"}
    assert FORMAT == "8", "keep jobs of the format that you replace, and add a step to frontier/stores/sql/schema.py"


@pytest.mark.slow
@pytest.mark.parametrize("archive", CRAWLED)
def test_a_job_of_an_older_format_is_looked_at_and_gone_on_with(archive: Path, port: int, tmp_path: Path) -> None:
    """Pages that it had fetched are still there, queued URLs are fetched, each once."""
    job = tmp_path / "job"
    unpack(archive, job, port)
    before = pages(job)
    if (job / "shares").exists():  # an earlier version divided it among processes
        refused = run(tmp_path, "status", "./job")
        assert (refused.returncode, "`anabranch divide job` completes it" in refused.stderr) == (2, True)
        succeeds(tmp_path, "divide", "./job")
        assert not (job / "shares").exists()
    succeeds(tmp_path, "status", "./job")
    succeeds(tmp_path, "report", "./job", "hosts")
    succeeds(tmp_path, "why", "./job", "http://a,b.test/9")
    dumped = succeeds(tmp_path, "frontier", "dump", "./job").splitlines()
    assert {line["url"] for line in map(json.loads, dumped) if "url" in line} == URLS
    succeeds(tmp_path, "crawl", "--job", "job", "--limit", "0", "-q")
    assert sorted(pages(job)) == sorted(URLS)
    assert pages(job)[: len(before)] == before
    assert json.loads((job / "state" / FORMAT_FILE).read_text())["version"] == VERSION


@pytest.mark.slow
@pytest.mark.parametrize("archive", EMBEDDED, ids=str)
def test_a_host_program_goes_on_with_its_job_of_an_older_format(archive: Path, tmp_path: Path) -> None:
    """The queues of hosts with a comma leave those that they shared."""
    from anabranch.frontier.hosts.embedding.job import EmbeddedJob

    unpack(archive, tmp_path / "job", 80)
    job = EmbeddedJob(tmp_path / "job", {"policy": "surt", "min_delay": 0, "max_delay": 0})
    with closing(job):
        frontier = job.frontier
        frontier.operations.check()
        assert frontier.counts().pending == 7
        keys = {view.key for view in frontier.operations.longest(10)}
    assert keys == {"test,c,", "test,a%2Cb,", "test,a,b,"}


@pytest.mark.slow
@pytest.mark.parametrize("dump", DUMPS, ids=str)
def test_a_dump_of_an_older_format_is_loaded(dump: Path, port: int, tmp_path: Path) -> None:
    """URLs that have ended in the dump are not fetched, the others are."""
    archive = HERE / "format-1" / "stopped-bkdr.tar.xz"
    unpack(archive, tmp_path / "other", port)
    order = tmp_path / "other" / "order.toml"
    succeeds(tmp_path, "crawl", *SEEDS, "-c", str(order), "--name", "new", "--limit", "1", "-q")
    succeeds(tmp_path, "frontier", "load", "new", str(dump))
    succeeds(tmp_path, "crawl", "--job", "jobs/new", "--limit", "0", "-q")
    ended = {line["url"] for line in map(json.loads, dump.read_text().splitlines()) if "outcome" in line}
    assert set(pages(tmp_path / "jobs" / "new")) | ended == URLS


def test_a_broken_off_migration_is_taken_again(port: int, tmp_path: Path) -> None:
    """The folder says that it has the new format when all steps are done."""
    job = tmp_path / "job"
    unpack(HERE / "format-1" / "stopped-bkdr.tar.xz", job, port)
    (job / "state" / "order.toml").write_text("half a co")
    JobFolder.open(job).close()
    assert json.loads((job / "state" / FORMAT_FILE).read_text())["version"] == VERSION
    assert (job / "state" / "order.toml").read_text().startswith((job / "order.toml").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("archive", [case for case in CRAWLED if "surt" in case.id])
def test_hosts_with_a_comma_leave_the_queue_that_they_shared(archive: Path, port: int, tmp_path: Path) -> None:
    """Under the policy surt; every row is in the queue of its host."""
    unpack(archive, tmp_path / "job", port)
    lines = succeeds(tmp_path, "frontier", "ls", "./job", "--json")
    keys = {queue["queue"] for queue in json.loads(lines)["queues"]}
    assert keys == {"test,c,", "test,a%2Cb,", "test,a,b,"}
