"""A job that several workers crawl, each from a folder of its own, is one job: nothing is missing, whoever goes or comes."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
from collections import ChainMap

import pytest

from anabranch.crawler.accounts.journal import JOURNAL_FILE, recorded_files
from tests.acceptance.archive import archived
from tests.acceptance.command import (
    PATIENCE_S,
    REPOSITORY,
    anabranch,
    crawl_log,
    ended,
    environment,
    start,
    write_order,
)
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.facts_schema import checked
from tests.postgres_server import server
from tests.site.oracle import expected

WEB = many_hosts()
WORKERS = 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def store():
    with server() as url:
        yield url.replace(":@", "@")


@pytest.fixture
def crawl(tmp_path, web, store):
    """The command of a worker, by its name; the first one names the seeds."""
    order = write_order(tmp_path, web.hosts, politeness={"max_connections": 1}, crawl={"workers": WORKERS})

    def command(name, *more, seeds=SEEDS, from_file=True):
        given = ("-c", order) if from_file else ()
        return ("crawl", *seeds, *given, "--store", store, "--job", tmp_path / name, "--worker", name, *more)

    return command


async def seen(web, count, *workers):
    """Wait until the web was asked so often; the workers must not end before."""
    while sum(web.ledger.counts().values()) < count:
        for worker in workers:
            assert worker.returncode is None, await ended(worker)
        await asyncio.sleep(0.005)


def logged(tmp_path, *names):
    """The last status of each URL in the logs of these workers."""
    return dict(
        ChainMap(*[crawl_log(tmp_path / name) for name in names if (tmp_path / name / "logs/crawl.log").exists()])
    )


def repeated(web):
    """Fetches beyond the first of each URL; those that were answered 503 come again by right."""
    return sum(
        count - 1 for url, count in web.ledger.counts().items() if "robots.txt" not in url and not url.endswith("/7")
    )


async def test_a_second_machine_joins_by_the_same_command_without_seeds(tmp_path, web, crawl, store):
    """It gets the order and the seeds from the database, and fetches what the first one does not."""
    first = await start(*crawl("a", "-s", "politeness.min_delay=30ms", "-s", "politeness.max_delay=30ms"), cwd=tmp_path)
    await seen(web, 10, first)
    joining = ("crawl", "--store", store, "--job", tmp_path / "b", "--worker", "b", "--workers", "3")
    second = await start(*joining, cwd=tmp_path)
    runs = [await ended(second), await ended(first)]
    assert [run.code for run in runs] == [0, 0], runs
    assert "worker b of the job in" in runs[0].out
    assert "others are at work" in runs[0].out
    assert logged(tmp_path, "a", "b") == expected(SEEDS, table=WEB)
    assert repeated(web) == 0
    summary = await anabranch("report", store, cwd=tmp_path)
    lines = [(tmp_path / name / "logs/crawl.log").read_text().splitlines() for name in "ab"]
    assert f"URIs Processed: {sum(map(len, lines))}\n" in summary.out
    assert (await anabranch("status", store, cwd=tmp_path)).out.startswith("finished: nothing is queued")


async def processed(tmp_path, store):
    """The lines that the report of the job counts, and those in the logs of its workers."""
    report = await anabranch("report", store, cwd=tmp_path)
    logs = [path.read_text().splitlines() for path in tmp_path.glob("?/logs/crawl.log")]
    return int(re.search(r"URIs Processed: (\d+)", report.out)[1]), sum(map(len, logs))


async def test_a_worker_is_killed_another_ends_its_work(tmp_path, web, crawl, store):
    """After its lease has ended; its own folder goes on later, or never. Its totals are there but for visits under way."""
    lease = ("-s", "frontier.worker_lease=1s", "-s", "politeness.min_delay=20ms", "-s", "politeness.max_delay=20ms")
    workers = [await start(*crawl(name, *lease), cwd=tmp_path) for name in "ab"]
    await seen(web, 30, *workers)
    workers[0].send_signal(signal.SIGKILL)
    await workers[0].communicate()
    run = await ended(workers[1])
    assert run.code == 0, run.err
    fetched = {url for url, count in web.ledger.counts().items() if count and "robots.txt" not in url}
    assert fetched == expected(SEEDS, table=WEB).keys()
    assert repeated(web) <= 2 * WORKERS
    counted, lines = await processed(tmp_path, store)
    assert 0 <= lines - counted <= WORKERS
    assert (await anabranch(*crawl("a"), cwd=tmp_path)).code == 0
    counted, lines = await processed(tmp_path, store)
    assert counted == lines


async def test_verbs_answer_from_anywhere(tmp_path, web, crawl, store):
    """By the URL of the database, or by the folder of a worker; running and stopped."""
    slow = ("-s", "politeness.min_delay=6s", "-s", "politeness.max_delay=6s")
    workers = [await start(*crawl(name, *slow), cwd=tmp_path) for name in "ab"]
    await seen(web, 14, *workers)

    async def asked(*arguments, code=0):
        run = await anabranch(*arguments, cwd=tmp_path)
        assert run.code == code, (run.out, run.err)
        return run.out or run.err

    listed = {line.split()[0]: line.split()[1] for line in (await asked("workers", store)).splitlines()[1:]}
    assert listed == {"a": "running", "b": "running"}
    assert (await asked("pause", tmp_path / "a")).startswith("paused: 2 workers")
    assert checked(json.loads(await asked("status", store, "--json")))["phase"] == "paused"
    queues = checked(json.loads(await asked("frontier", "ls", store, "--json")), "Queues")
    assert queues["totals"]["pending"] > 0
    assert len({queue["queue"] for queue in queues["queues"]}) == len(queues["queues"])
    for host in WEB:
        assert "in scope" in await asked("why", store, f"http://{host}/nowhere")
    assert "blocked" in await asked("frontier", "block", store, "h3.test")
    assert "blocked" not in await asked("frontier", "unblock", store, "h3.test")
    assert "new" in await asked("add", store, "http://h2.test/added")
    assert "CRAWLED" in await asked("report", store, "seeds")
    assert "stop that crawl first" in await asked("frontier", "dump", store, code=1)
    assert "worker a has left" in await asked("workers", store, "drain", "a")
    assert (await ended(workers[0])).code == 11
    assert "running: b" in await asked("workers", store, "drain", "a", code=2)
    assert "running" in await asked("resume", store)
    assert "not running" in await asked("stop", store, "--wait")
    assert (await ended(workers[1])).code == 11
    assert "not running" in await asked("status", store)
    assert "blocked" in await asked("frontier", "block", store, "h3.test")
    assert "blocked" not in await asked("frontier", "unblock", store, "h3.test")
    assert "new" in await asked("add", store, "http://h4.test/added-later")
    dumped = [json.loads(line) for line in (await asked("frontier", "dump", store)).splitlines()]
    assert {"http://h4.test/added-later", "http://h2.test/added"} <= {line.get("url") for line in dumped}
    assert "URIs Processed" in await asked("report", tmp_path / "a")
    fast = ("-s", "politeness.min_delay=0", "-s", "politeness.max_delay=0")
    # The added seed let the job run again; the worker that was drained stays away.
    assert "worker a was drained" in (await anabranch(*crawl("a", *fast, seeds=()), cwd=tmp_path)).err
    run = await anabranch(*crawl("b", *fast, seeds=()), cwd=tmp_path)
    assert run.code == 0, run.err
    fetched = logged(tmp_path, "a", "b")
    assert fetched.items() >= expected(SEEDS, table=WEB).items()
    assert {"http://h2.test/added", "http://h4.test/added-later"} <= fetched.keys()


async def supervised(command, cwd):
    """Restart a command on failure as a supervisor does, at most four runs, until one ends with 0. Returns the runs."""
    runs = []
    while not runs or (runs[-1].code and len(runs) < 4):
        runs.append(await anabranch(*command, cwd=cwd))
    return runs


async def test_a_stop_outlives_the_supervisors_of_the_workers(tmp_path, web, crawl, store):
    """A worker that is started again says why it stays away, and ends with 0; `resume` names who is to be started."""
    slow = ("-s", "politeness.min_delay=300ms", "-s", "politeness.max_delay=300ms")
    running = [asyncio.create_task(supervised(crawl(name, *slow), tmp_path)) for name in "ab"]
    await seen(web, 20)
    stopped = await anabranch("stop", store, cwd=tmp_path)
    assert stopped.code == 0, stopped.err
    for runs in await asyncio.gather(*running):
        assert [run.code for run in runs] == [11, 0], runs
        assert "the job is stopped, so this worker does not start; `anabranch resume postgresql://" in runs[1].err
        assert len((runs[1].out + runs[1].err).splitlines()) == 1
    fetched = sum(web.ledger.counts().values())
    by_hand = await anabranch("crawl", "--store", store, "--job", tmp_path / "c", "--worker", "c", cwd=tmp_path)
    assert (by_hand.code, "anabranch resume" in by_hand.err) == (0, True)
    assert not (tmp_path / "c").exists()
    status = checked(json.loads((await anabranch("status", store, "--json", cwd=tmp_path)).out))
    assert (status["desired_state"], status["phase"]) == ("stopped", "stopped")
    assert sum(web.ledger.counts().values()) == fetched
    resumed = await anabranch("resume", store, cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    assert "start a (" in resumed.out
    assert ", b (" in resumed.out
    fast = ("-s", "politeness.min_delay=0", "-s", "politeness.max_delay=0")
    ended_runs = await asyncio.gather(*[supervised(crawl(name, *fast), tmp_path) for name in "ab"])
    assert [runs[-1].code for runs in ended_runs] == [0, 0], ended_runs
    assert logged(tmp_path, "a", "b") == expected(SEEDS, table=WEB)
    again = await anabranch(*crawl("a", *fast), cwd=tmp_path)
    assert (again.code, "the job is finished" in again.err) == (0, True)
    stopped = await anabranch("stop", store, cwd=tmp_path)
    assert (stopped.code, "there is nothing to stop" in stopped.err) == (2, True)
    resumed = await anabranch("resume", store, cwd=tmp_path)
    assert (resumed.code, "start a (" in resumed.err) == (0, True)
    assert "the job is finished" not in (await anabranch(*crawl("a", *fast), cwd=tmp_path)).err
    added = await anabranch("add", store, "http://h2.test/added-later", cwd=tmp_path)
    assert added.code == 0, added.err
    assert "no worker of this job is running; start a (" in added.out
    assert (await anabranch(*crawl("a", *fast), cwd=tmp_path)).code == 0
    assert "http://h2.test/added-later" in logged(tmp_path, "a")
    another = await anabranch(*crawl("a", "--again", *fast), cwd=tmp_path)
    assert (another.code, "the job runs again; start b (" in another.out) == (0, True), another


async def test_a_stop_without_workers_keeps_those_away_that_start_later(tmp_path, web, crawl, store):
    """Also when all were killed, and their supervisors wait to start them again. Ctrl-C and SIGTERM of a worker stop no job."""
    lease = ("-s", "frontier.worker_lease=1s", "-s", "politeness.min_delay=300ms", "-s", "politeness.max_delay=300ms")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        worker = await start(*crawl("a", *lease), cwd=tmp_path)
        await seen(web, sum(web.ledger.counts().values()) + 5, worker)
        worker.send_signal(number)
        assert (await ended(worker)).code == (-9 if number == signal.SIGKILL else 11)
    stopped = await anabranch("stop", store, cwd=tmp_path)
    assert stopped.code == 0, stopped.err
    assert [run.code for run in await supervised(crawl("a", *lease), tmp_path)] == [0]
    refused = await anabranch("pause", store, cwd=tmp_path)
    assert refused.code in {1, 2}, refused.err  # 1: the killed one is silent, and may only hang
    assert json.loads((await anabranch("status", store, "--json", cwd=tmp_path)).out)["desired_state"] == "stopped"


async def test_a_drained_worker_stays_away_until_it_is_let_back(tmp_path, web, crawl, store):
    """The others go on without it; its WARC files are finished even if it was killed meanwhile, and hold what counts."""
    archive = ("--warc", "-s", f"write.upload=file://{tmp_path}/archive", "-s", "frontier.worker_lease=5s")
    slow = ("-s", "politeness.min_delay=2s", "-s", "politeness.max_delay=2s")
    workers = [await start(*crawl(name, *archive, *slow), cwd=tmp_path) for name in "ab"]

    def archived_to():
        recorded = recorded_files(tmp_path / "a/state" / JOURNAL_FILE) or {}
        return [(name, mark.size) for name, mark in recorded.items() if name.endswith(".warc.gz")]

    while not archived_to():
        await asyncio.sleep(0.02)
    workers[0].send_signal(signal.SIGKILL)
    await ended(workers[0])
    ((name, counted),) = archived_to()
    with (tmp_path / "a/warc" / f"{name}.open").open("ab") as torn:  # a group that the kill kept from being recorded
        torn.write((tmp_path / "a/warc" / f"{name}.open").read_bytes())
    assert (await anabranch("workers", store, "drain", "a", cwd=tmp_path)).code == 0
    away = await anabranch(*crawl("a", *archive, *slow), cwd=tmp_path)
    assert away.code == 0
    assert "worker a was drained and stays away; `anabranch resume postgresql://" in away.err
    (finished,) = (tmp_path / "archive/a").rglob("*.warc.gz")
    assert (finished.name, finished.stat().st_size) == (name, counted)
    assert not [*(tmp_path / "a/warc").glob("*.open")]

    async def states():
        listed = await anabranch("workers", store, "--json", cwd=tmp_path)
        return {checked(worker, "Worker")["name"]: worker["state"] for worker in json.loads(listed.out)}

    while (found := await states()).get("a") in {None, "late"}:  # until the other one has taken its shares over
        pass
    assert found == {"a": "drained", "b": "running"}
    unknown = await anabranch("resume", store, "--worker", "b", cwd=tmp_path)
    assert (unknown.code, "this worker is not drained; drained: a" in unknown.err) == (2, True)
    assert (await anabranch("resume", store, "--worker", "a", cwd=tmp_path)).code == 0
    back = await start(*crawl("a", *archive, *slow), cwd=tmp_path)
    while (await states()).get("a") != "running":  # a worker that joins a stopped job would stay away
        assert back.returncode is None, await ended(back)
    await anabranch("stop", store, "--wait", cwd=tmp_path)
    assert [(await ended(worker)).code for worker in (back, workers[1])] == [11, 11]


async def test_a_command_after_the_kill_of_the_last_worker_waits_for_its_lease(tmp_path, web, crawl, store):
    """Then it answers by itself."""
    slow = ("-s", "frontier.worker_lease=2s", "-s", "politeness.min_delay=6s", "-s", "politeness.max_delay=6s")
    worker = await start(*crawl("a", *slow), cwd=tmp_path)
    await seen(web, 5, worker)
    worker.send_signal(signal.SIGKILL)
    await worker.communicate()
    listed = await anabranch("frontier", "ls", store, "--json", cwd=tmp_path)
    assert listed.code == 0, listed.err
    assert json.loads(listed.out)["totals"]["pending"] > 0


async def test_a_limit_of_pages_holds_for_all_workers(tmp_path, web, crawl):
    """Not one page too many, whoever fetches, also after a kill; a higher limit goes on."""
    lease = ("-s", "frontier.worker_lease=1s", "-s", "politeness.min_delay=20ms", "-s", "politeness.max_delay=20ms")
    for limit in (23, 40):
        workers = [await start(*crawl(name, *lease, "--limit", str(limit)), cwd=tmp_path) for name in "abc"]
        if limit == 40:
            await seen(web, 35, *workers)
            workers[0].send_signal(signal.SIGKILL)
        runs = [await ended(worker) for worker in workers]
        assert {run.code for run in runs} <= {0, -9}, runs
        assert any("stopped by the page limit" in run.out for run in runs)
        done = await anabranch("frontier", "ls", tmp_path / "b", "--json", cwd=tmp_path)
        assert json.loads(done.out)["totals"]["done"] == limit


async def test_what_differs_is_named(tmp_path, web, crawl, store):
    """While others are at work, a worker with another order, or another's name, does not join."""
    first = await start(*crawl("a", "-s", "politeness.min_delay=6s", "-s", "politeness.max_delay=6s"), cwd=tmp_path)
    await seen(web, 5, first)
    for more, code, words in (
        (
            ("-s", "politeness.min_delay=7s", "-s", "politeness.max_delay=7s"),
            4,
            "[politeness] min_delay is '6s' there and '7s' here",
        ),
        (
            ("-s", "politeness.min_delay=6s", "-s", "politeness.max_delay=6s", "--worker", "a"),
            1,
            "a worker named a is at work",
        ),
        (
            ("--again", "-s", "politeness.min_delay=6s", "-s", "politeness.max_delay=6s"),
            2,
            "another round begins when they",
        ),
    ):
        run = await anabranch(*crawl("b", *more), cwd=tmp_path)
        assert run.code == code, run
        assert words in run.err
        assert len(run.err.splitlines()) == 1
        assert not (tmp_path / "b").exists()
    await anabranch("stop", store, "--wait", cwd=tmp_path)
    await ended(first)


async def test_a_copy_of_a_workers_folder_is_refused(tmp_path, web, crawl, store):
    """While that worker is at work; it goes on as if nothing had happened. The folder of a dead one may be moved."""
    slow = ("-s", "politeness.min_delay=400ms", "-s", "politeness.max_delay=400ms", "-s", "frontier.worker_lease=2s")
    first = await start(*crawl("a", *slow), cwd=tmp_path)
    await seen(web, 20, first)
    shutil.copytree(tmp_path / "a", tmp_path / "copy", ignore=shutil.ignore_patterns("control"))
    copy = [tmp_path / "copy" if one == tmp_path / "a" else one for one in crawl("a", *slow)]
    refused = await anabranch(*copy, cwd=tmp_path)
    assert refused.code == 1, refused
    assert "worker a is at work from another folder, and the folder of this one is a copy of that" in refused.err
    assert first.returncode is None
    first.send_signal(signal.SIGKILL)
    await first.communicate()
    (tmp_path / "a").rename(tmp_path / "gone")
    shutil.copytree(tmp_path / "gone", tmp_path / "a")
    moved = await anabranch(*crawl("a", *slow), cwd=tmp_path)
    assert moved.code == 0, moved.err
    assert repeated(web) <= WORKERS


async def test_what_was_set_holds_for_workers_that_crash_and_come_back_by_the_same_command(tmp_path, web, crawl, store):
    """Beside others that are at work, and as the first one; the command names the value from before."""
    slow = ("-s", "politeness.min_delay=5s", "-s", "politeness.max_delay=5s", "-s", "frontier.worker_lease=1s")
    commands = {name: crawl(name, *slow) for name in "ab"}
    workers = {name: await start(*commands[name], cwd=tmp_path) for name in "ab"}
    await seen(web, 10, *workers.values())
    changed = await anabranch("set", store, "politeness.min_delay=7s", "politeness.max_delay=7s", cwd=tmp_path)
    assert changed.code == 0, changed.err
    for crashed in ("b", "ab"):
        for name in crashed:
            workers[name].send_signal(signal.SIGKILL)
            await workers[name].communicate()
        for name in crashed:
            workers[name] = await start(*commands[name], cwd=tmp_path)
        for name in crashed:
            await at_work(tmp_path, store, name, workers[name])
        assert [change["key"] for change in await set_again(tmp_path, store)] == []
    await anabranch("stop", store, "--wait", cwd=tmp_path)
    for name in "ab":
        run = await ended(workers[name])
        assert "politeness.min_delay: 5s -> 7s (`anabranch set`)" in run.err


async def set_again(tmp_path, store):
    """Set the settings again and return the changes that this makes to the job's order."""
    same = ("politeness.min_delay=7s", "politeness.max_delay=7s", "--json")
    return json.loads((await anabranch("set", store, *same, cwd=tmp_path)).out)["changes"]


async def at_work(tmp_path, store, name, worker):
    """Wait until this process is at work as the worker of this name."""
    while True:
        assert worker.returncode is None, await ended(worker)
        listed = json.loads((await anabranch("workers", store, "--json", cwd=tmp_path)).out)
        if any(row["name"] == name and row["pid"] == worker.pid for row in listed):
            return


async def test_another_round_forgets_the_urls_at_every_worker(tmp_path, web, crawl):
    """Whoever begins it: the filter of a worker that joins it later does not know the round before."""
    for name in "ab":
        assert (await anabranch(*crawl(name), cwd=tmp_path)).code == 0
    once = sum(web.ledger.counts().values())
    unfinished = await anabranch(*crawl("a", "--again", "--limit", "5"), cwd=tmp_path)
    assert unfinished.code == 0, unfinished.err
    refused = await anabranch(*crawl("b", "--again"), cwd=tmp_path)
    assert refused.code == 2
    assert "the job is unfinished" in refused.err
    assert (await anabranch(*crawl("b", "--limit", "0"), cwd=tmp_path)).code == 0
    assert sum(web.ledger.counts().values()) > 1.8 * once
    assert "round:2" in (tmp_path / "b/logs/crawl.log").read_text()


async def test_what_is_lost_with_a_machine_is_fetched_again(tmp_path, web, crawl, store):
    """But for what had been uploaded: the archives together are whole."""
    archive = ("--warc", "-s", f"write.upload=file://{tmp_path}/archive", "-s", "frontier.worker_lease=1s")
    slow = ("-s", "politeness.min_delay=20ms", "-s", "politeness.max_delay=20ms")
    workers = [await start(*crawl(name, *archive, *slow), cwd=tmp_path) for name in "ab"]
    await seen(web, 40, *workers)
    workers[0].send_signal(signal.SIGKILL)
    await workers[0].communicate()
    shutil.rmtree(tmp_path / "a")
    assert (await ended(workers[1])).code == 0
    run = await anabranch("requeue", store, "--lost", "a", cwd=tmp_path)
    assert run.code == 0, run.err
    assert "queued again" in run.out
    assert (await anabranch(*crawl("b", *archive, *slow), cwd=tmp_path)).code == 0
    local, uploaded = archived(tmp_path / "b"), list((tmp_path / "archive").rglob("*.warc.gz"))
    assert {read.url for read in local.answers} >= expected(SEEDS, table=WEB).keys()
    assert {file.name for file in local.files} == {file.name for file in uploaded}
    assert all(file.name.startswith("anabranch-b-") for file in uploaded)
    nothing = await anabranch("requeue", store, "--lost", "b", cwd=tmp_path)
    assert nothing.out == "0 pages of b queued again\n"


async def test_the_filter_of_a_worker_can_be_begun_anew(tmp_path, crawl):
    """It needs no URLs: what it lacks, the database answers."""
    assert (await anabranch(*crawl("a"), cwd=tmp_path)).code == 0
    run = await anabranch("frontier", "rebuild-filter", tmp_path / "a", "-s", "dedup.filter=exact", cwd=tmp_path)
    assert (run.code, "the next crawl refills them" in run.out) == (0, True), run.err
    assert (await anabranch(*crawl("a", "--again"), cwd=tmp_path)).code == 0
    shown = await anabranch("report", tmp_path / "a", "response-codes", "--json", cwd=tmp_path)
    assert shown.code == 0, shown.err


def test_the_demonstration_runs_to_its_end():
    """A database, a web, two workers; it ends when the job is done."""
    command = [sys.executable, "-m", "scripts.cluster_demo", "2", "--pages", "200", "--hosts", "10", "--lease", "2s"]
    run = subprocess.run(
        command, cwd=REPOSITORY, env=environment(), check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert run.returncode == 0, run.stderr
    assert "the job: postgresql://" in run.stdout
    assert "finished: nothing is queued" in run.stdout
