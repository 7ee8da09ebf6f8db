"""A job in several processes is one job: nothing is missing, nothing is fetched twice, whichever process is killed."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from anabranch.crawler.job.workerfolders import worker_folders
from tests.acceptance import command
from tests.acceptance.archive import archived
from tests.acceptance.command import Ended, anabranch, crawl_log, ended, kill_after, pages, start, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.facts_schema import checked
from tests.faults.agreement import disagreements
from tests.patience import HANG_S
from tests.site.oracle import expected
from tests.site.server import SmallWeb

WEB = many_hosts()
WORKERS = 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """Each command is three or four processes, which begin one after the other where there are few cores."""
    monkeypatch.setattr(command, "PATIENCE_S", 2 * HANG_S)


@pytest.fixture
async def web():
    """Many hosts, with every answer late by 20 ms, so that a crawl can be caught in the middle."""
    async with SmallWeb(WEB, delay_s=0.02) as served:
        yield served


def crawl_of(tmp_path, web, *more, processes=2):
    order = write_order(tmp_path, web.hosts, politeness={"max_connections": 1}, crawl={"workers": WORKERS})
    return ("crawl", *SEEDS, "-c", order, "--job", tmp_path / "job", "--processes", str(processes), *more)


async def seen(web, count):
    while sum(web.ledger.counts().values()) < count:
        await asyncio.sleep(0.005)


async def archived_by(job, worker):
    """A group of this worker counts: its log grew once more. A worker writes a group when the one before is recorded."""
    log = job / "workers" / worker / "logs" / "crawl.log"
    sizes = {0}
    while len(sizes) < 3:
        await asyncio.sleep(0.005)
        sizes.add(log.stat().st_size if log.exists() else 0)


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def workers(parent: int) -> list[int]:
    """The processes that crawl: they come from one that does nothing else."""
    return [worker for fork_server in children(parent) for worker in children(fork_server)]


def repeated(web) -> int:
    """Fetches beyond the first of each URL; those that were answered 503 come again by right."""
    return sum(
        count - 1 for url, count in web.ledger.counts().items() if "robots.txt" not in url and not url.endswith("/7")
    )


def check_whole(run: Ended, tmp_path):
    """Every URL has its status, and the totals are those of the lines, whoever was killed."""
    job = tmp_path / "job"
    assert run.code == 0, run.err
    assert crawl_log(job) == expected(SEEDS, table=WEB)
    report = " ".join((job / "reports/crawl-report.txt").read_text().split())
    assert f"URIs Processed: {len((job / 'logs/crawl.log').read_text().splitlines())} " in report


@pytest.mark.parametrize("processes", [2, 3])
async def test_several_processes_fetch_what_one_does(tmp_path, web, processes):
    """Every URL once; logs, pages and reports are the job's."""
    run = await anabranch(*crawl_of(tmp_path, web, processes=processes), cwd=tmp_path)
    check_whole(run, tmp_path)
    assert repeated(web) == 0
    job = tmp_path / "job"
    log = (job / "logs/crawl.log").read_text().splitlines()
    assert log == sorted(log, key=lambda line: line[:24])
    assert pages(job).keys() == {url for url, status in crawl_log(job).items() if status > 0}
    summary = (job / "reports/crawl-report.txt").read_text()
    assert f"URIs Crawled successfully: {len(log)}" in " ".join(summary.split())
    assert run.out.splitlines()[0].startswith("new job ")
    running, *_, ending, last, ended = (job / "logs/progress-statistics.log").read_text().splitlines()[1:]
    assert "CRAWL RUNNING" in running
    assert "CRAWL ENDING" in ending
    assert "CRAWL ENDED - finished: nothing is queued" in ended
    _, discovered, queued, downloaded, *_ = last.split()
    fetched = sum("/robots.txt " not in line for line in log)
    assert (int(discovered), queued, int(downloaded)) == (fetched, "0", fetched)


async def test_a_process_that_is_killed_is_started_again(tmp_path, web):
    """Whichever it is, however often: the crawl goes on, and fetches again no more than was under way."""
    process = await start(*crawl_of(tmp_path, web), cwd=tmp_path)
    for kill in range(3):
        await seen(web, 15 + kill * 25)
        victims = workers(process.pid)
        os.kill(victims[kill % len(victims)], signal.SIGKILL)
    run = await ended(process)
    check_whole(run, tmp_path)
    assert "has died; it is started again" in run.err
    assert repeated(web) <= 3 * 2 * WORKERS


async def test_a_process_that_is_stopped_is_replaced(tmp_path, web):
    """When its lease has ended: it may hold the lock of the job's file."""
    process = await start(*crawl_of(tmp_path, web, "-s", "frontier.worker_lease=1s"), cwd=tmp_path)
    await seen(web, 20)
    os.kill(workers(process.pid)[0], signal.SIGSTOP)
    run = await ended(process)
    check_whole(run, tmp_path)
    assert "does not answer; it is killed" in run.err
    assert repeated(web) <= 2 * WORKERS


async def test_a_job_whose_parent_is_killed_goes_on_by_the_same_command(tmp_path, web):
    """Its shares end by themselves; nothing is missing afterwards."""
    crawl = crawl_of(tmp_path, web)
    for kill in (1, 2):
        await kill_after(await start(*crawl, cwd=tmp_path), web, kill * 30)  # its shares hold its output, too
    check_whole(await anabranch(*crawl, cwd=tmp_path), tmp_path)
    assert repeated(web) <= 2 * 2 * WORKERS


async def test_all_processes_are_killed_at_once(tmp_path, web):
    """The kill is like a power cut: acknowledged pages are kept, the rest is fetched again, and all files agree."""
    crawl = crawl_of(tmp_path, web, "--warc", processes=3)
    for kill in (1, 2):
        process = await start(*crawl, cwd=tmp_path)
        await seen(web, kill * 30)
        for pid in [*workers(process.pid), *children(process.pid), process.pid]:
            os.kill(pid, signal.SIGKILL)
        await process.communicate()
    check_whole(await anabranch(*crawl, cwd=tmp_path), tmp_path)
    assert repeated(web) <= 2 * 2 * WORKERS
    assert disagreements(tmp_path / "job", workers=worker_folders(tmp_path / "job")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_drains_all(tmp_path, web, number):
    """Pages under way are finished, the exit code is 11, and no page is fetched twice after resuming."""
    crawl = crawl_of(tmp_path, web)
    process = await start(*crawl, cwd=tmp_path)
    await seen(web, 40)
    process.send_signal(number)
    run = await ended(process)
    assert run.code == 11, run.err
    again = await anabranch(*crawl, cwd=tmp_path)
    check_whole(again, tmp_path)
    assert again.out.startswith("resuming job ")
    assert repeated(web) == 0


async def test_a_limit_of_pages_holds_for_the_job(tmp_path, web):
    """Not one page too many, whoever fetches; a higher limit goes on."""
    for limit in (23, 40):
        run = await anabranch(*crawl_of(tmp_path, web), "--limit", str(limit), cwd=tmp_path)
        assert run.code == 0, run.err
        assert len(crawl_log(tmp_path / "job")) == limit
        assert "stopped by the page limit" in run.out
        left = await anabranch("status", tmp_path / "job", cwd=tmp_path)
        assert left.out.startswith("stopped by the page limit, which the job keeps; a higher limit continues it")


async def test_a_limit_of_time_ends_all(tmp_path, web):
    """And the job goes on for as long again."""
    run = await anabranch(*crawl_of(tmp_path, web), "--time-limit", "100ms", cwd=tmp_path)  # no crawl is that fast
    assert run.code == 0, run.err
    assert "stopped by the time limit" in run.out
    check_whole(await anabranch(*crawl_of(tmp_path, web), cwd=tmp_path), tmp_path)


async def test_another_number_of_processes_goes_on(tmp_path, web):
    """Shares are fixed for a job, the processes that divide them among each other are not."""
    for processes, limit in ((2, 10), (3, 30), (1, 40)):
        run = await anabranch(*crawl_of(tmp_path, web, processes=processes), "--limit", str(limit), cwd=tmp_path)
        assert run.code == 0, run.err
        assert len(crawl_log(tmp_path / "job")) == limit
    run = await anabranch("crawl", "--job", "job", "--processes", "2", "--limit", "0", cwd=tmp_path)
    check_whole(run, tmp_path)
    assert repeated(web) == 0


async def test_a_job_of_one_process_is_divided_first(tmp_path, web):
    """One line names the command; nothing is fetched again after it."""
    await anabranch(*crawl_of(tmp_path, web, processes=1), "--limit", "25", cwd=tmp_path)
    refused = await anabranch(*crawl_of(tmp_path, web), cwd=tmp_path)
    assert refused.code == 4
    assert "begun for one process; `anabranch divide job` divides it" in refused.err.replace(f"{tmp_path}/", "")
    assert len(refused.err.splitlines()) == 1
    divided = await anabranch("divide", "job", "--shares", "8", cwd=tmp_path)
    assert divided.code == 0, divided.err
    assert "divided among 8 shares" in divided.out
    again = await anabranch("divide", "job", cwd=tmp_path)
    assert (again.code, "several shares already" in again.out) == (0, True)
    check_whole(await anabranch(*crawl_of(tmp_path, web), "--limit", "0", cwd=tmp_path), tmp_path)
    assert repeated(web) == 0


async def test_a_verb_that_comes_too_late_harms_nothing(tmp_path, web):
    """A write to the file of a stopped job does not count as damage."""
    crawl, job = crawl_of(tmp_path, web), tmp_path / "job"
    await anabranch(*crawl, "--limit", "20", cwd=tmp_path)
    for verb in (("stop", job), ("pause", job)):
        refused = await anabranch(*verb, cwd=tmp_path)
        assert "no worker of this job is at work" in refused.err
    assert (await anabranch("frontier", "block", job, "h3.test", cwd=tmp_path)).code == 0
    assert (await anabranch("frontier", "unblock", job, "h3.test", cwd=tmp_path)).code == 0
    check_whole(await anabranch(*crawl, "--limit", "0", cwd=tmp_path), tmp_path)


async def test_a_worker_that_is_drained_leaves_the_rest_to_the_others(tmp_path, web):
    """The run ends as theirs does."""
    process = await start(*crawl_of(tmp_path, web), cwd=tmp_path)
    await seen(web, 20)
    drained = await anabranch("workers", tmp_path / "job", "drain", "2", cwd=tmp_path)
    assert "worker 2 has left" in drained.out, drained.err
    check_whole(await ended(process), tmp_path)


async def test_processes_start_over_where_one_has_crawled(tmp_path, web):
    """With --fresh the old job is moved aside, whatever it was."""
    await anabranch(*crawl_of(tmp_path, web, processes=1), "--limit", "5", cwd=tmp_path)
    check_whole(await anabranch(*crawl_of(tmp_path, web), "--fresh", cwd=tmp_path), tmp_path)


async def test_another_round_fetches_all_again(tmp_path, web):
    """The seeds stay; an unfinished round is not thrown away without consent."""
    await anabranch(*crawl_of(tmp_path, web), "--limit", "20", cwd=tmp_path)
    refused = await anabranch(*crawl_of(tmp_path, web), "--again", cwd=tmp_path)
    assert (refused.code, "the job is unfinished" in refused.err) == (2, True), refused.err
    check_whole(await anabranch(*crawl_of(tmp_path, web), "--limit", "0", cwd=tmp_path), tmp_path)
    once = web.ledger.counts()
    again = await anabranch(*crawl_of(tmp_path, web), "--limit", "0", "--again", cwd=tmp_path)
    assert again.code == 0, again.err
    assert "round 2 of job" in again.out
    assert all(web.ledger.counts()[url] > count for url, count in once.items() if "robots.txt" not in url)


async def test_dumps_are_those_of_the_whole_job(tmp_path, web):
    """A dump has the URLs of all processes; URLs loaded into a finished job are fetched by the next crawl."""
    crawl, job = crawl_of(tmp_path, web, "--limit", "0"), tmp_path / "job"
    check_whole(await anabranch(*crawl, cwd=tmp_path), tmp_path)
    mark = job / "state/finished"
    dumped = await anabranch("frontier", "dump", job, cwd=tmp_path)
    assert (dumped.code, mark.exists()) == (0, True), dumped.err
    assert len(dumped.out.splitlines()) == len(crawl_log(job)) + 2
    lines = [{"anabranch": "frontier", "version": 1}, {"url": "http://h2.test/loaded"}, {"end": True}]
    (tmp_path / "dump").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    loaded = await anabranch("frontier", "load", job, "dump", cwd=tmp_path)
    assert loaded.out == "loaded: 1 queued\n", loaded.err
    assert not mark.exists()
    assert (await anabranch(*crawl, cwd=tmp_path)).code == 0
    assert "http://h2.test/loaded" in crawl_log(job)


async def test_a_host_is_fetched_by_one_process_at_its_own_pace(tmp_path, web):
    """Politeness is owed to the host, whoever crawls: the server sees no two requests at once, and each rest kept."""
    order = write_order(
        tmp_path,
        web.hosts,
        politeness={"max_connections": 1, "min_delay": 0.15, "max_delay": 0.15},
        crawl={"workers": WORKERS},
    )
    crawl = ("crawl", *SEEDS, "-c", order, "--job", tmp_path / "job", "--processes", "2")
    process = await start(*crawl, cwd=tmp_path)
    await seen(web, 40)
    os.kill(workers(process.pid)[0], signal.SIGKILL)
    check_whole(await ended(process), tmp_path)
    for host in WEB:
        assert web.ledger.max_in_service(host) == 1
        assert web.ledger.shortest_rest(host) >= 0.149


async def test_verbs_find_the_worker_that_knows(tmp_path, web):
    """While the job runs, and when it is stopped: one job answers."""
    crawl = crawl_of(tmp_path, web, "-s", "politeness.min_delay=6s", "-s", "politeness.max_delay=6s")
    process = await start(*crawl, cwd=tmp_path)
    await seen(web, 14)
    job = tmp_path / "job"

    async def asked(*arguments):
        run = await anabranch(*arguments, cwd=tmp_path)
        assert run.code == 0, run.err
        return run.out

    assert "paused by the operator" in await asked("pause", job)
    status = checked(json.loads(await asked("status", job, "--json")))
    assert (status["phase"], len(status["processes"])) == ("paused", 2)
    listed = checked(json.loads(await asked("frontier", "ls", job, "--json")), "Queues")
    assert listed["totals"]["pending"] > 0
    assert len({queue["queue"] for queue in listed["queues"]}) == len(listed["queues"])
    for host in WEB:
        assert "never" in await asked("why", job, f"http://{host}/nowhere")
    assert "h3.test" in await asked("frontier", "block", job, "h3.test")
    assert "new" in await asked("add", job, "http://h2.test/added")
    codes = checked(json.loads(await asked("report", job, "response-codes", "--json")), "Report")
    assert sum(row["#urls"] for row in codes["rows"]) >= 9
    assert "Crawl Name: job" in await asked("report", job, "crawl-summary")
    refused = await anabranch("frontier", "dump", job, cwd=tmp_path)
    assert refused.code == 1
    assert "crawl it; stop that crawl first" in refused.err
    await asked("stop", job, "--wait")
    assert (await ended(process)).code == 11
    assert "stopped by the operator" in await asked("status", job)
    assert checked(json.loads(await asked("frontier", "ls", job, "--json")), "Queues")["totals"]["pending"] > 0
    assert "h3.test" in await asked("frontier", "unblock", job, "h3.test")
    assert "new" in await asked("add", job, "http://h4.test/added-later")
    summary = await asked("report", job, "crawl-summary")
    assert "URIs Processed" in summary
    for verb in (
        ("add", job / "workers/1", "http://h5.test/"),
        ("crawl", "http://h5.test/", "--job", job / "workers/1"),
    ):
        refused = await anabranch(*verb, cwd=tmp_path)
        assert refused.code == 2
        assert "is the folder of a worker; name its job" in refused.err
    resumed = await anabranch(*crawl_of(tmp_path, web), cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    fetched = crawl_log(job)
    assert fetched.items() >= expected(SEEDS, table=WEB).items()
    assert {"http://h2.test/added", "http://h4.test/added-later"} <= fetched.keys()


async def test_the_process_that_starts_the_others_may_be_killed_too(tmp_path, web):
    """Those that crawl go on; one that dies later is started in another way."""
    process = await start(*crawl_of(tmp_path, web), cwd=tmp_path)
    await seen(web, 15)
    victims = workers(process.pid)
    (fork_server,) = children(process.pid)
    os.kill(fork_server, signal.SIGKILL)
    await seen(web, 25)
    os.kill(victims[0], signal.SIGKILL)
    check_whole(await ended(process), tmp_path)


async def test_the_archive_of_several_processes_is_one_folder(tmp_path, web):
    """Each writes files of its own, and mends its own after a kill, while the others write."""
    web.delay_s = 0.2
    process = await start(*crawl_of(tmp_path, web, "--warc"), cwd=tmp_path)
    killed = set()
    for worker in ("1", "2"):
        await archived_by(tmp_path / "job", worker)
        victim = next(
            pid for pid in workers(process.pid) if pid not in killed
        )  # the oldest: who replaces one comes last
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)
    check_whole(await ended(process), tmp_path)
    archive = archived(tmp_path / "job")
    assert {name.name.split("-")[1] for name in archive.files} == {"1", "2"}
    assert {read.url for read in archive.answers} >= expected(SEEDS, table=WEB).keys()
    assert disagreements(tmp_path / "job", workers=worker_folders(tmp_path / "job")) == []
