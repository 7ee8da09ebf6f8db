"""Scheduled runs by real processes: one of several starts a run, and a kill between claim and start loses none."""

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.crawler.job.scheduledruns import take_schedule_lock
from anabranch.dedup.files.durable import descriptor
from anabranch.dedup.files.locks import wait_lock
from tests.acceptance.command import REPOSITORY, anabranch, environment, write_order
from tests.acceptance.console_process import running_console
from tests.facts_schema import checked
from tests.patience import HANG_S
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

TABLE = {"a.test": Host(pages={"/": Page(links=go("/1", "/2")), "/1": Page(), "/2": Page()})}

#: Kills itself when it has claimed the run of a job; or, told to, when the crawl has been started.
KILLED_STARTER = """
import os, signal, sys, time
from pathlib import Path
from anabranch.crawler.console.launching import Launcher
from anabranch.crawler.operate.due import start_due
from anabranch.crawler.operate.finding import operated_folder
def start(directory, options, lock):
    if sys.argv[2] == "started":
        Launcher().start(directory, options, operated_folder(directory), lock)
    os.kill(os.getpid(), signal.SIGKILL)
start_due(Path(sys.argv[1]), time.time(), start, "killed")
"""


@pytest.fixture
async def web():
    """Few pages."""
    async with SmallWeb(TABLE) as served:
        yield served


async def due_job(folder: Path, web: SmallWeb) -> Path:
    """A finished job that has been due for 150 s, by a schedule of each minute."""
    order = write_order(folder, web.hosts, job={"name": "news", "schedule": "every 1m"})
    done = await anabranch("crawl", "-c", order, "http://a.test/", cwd=folder)
    assert done.code == 0, done
    assert (await anabranch("run-due", cwd=folder)).out == ""  # it is seen for the first time
    with closing(sqlite3.connect(folder / "jobs" / "news" / "state" / "job.db")) as rows, rows:
        rows.execute(
            "UPDATE job_fact SET value = json_replace(value, '$[2]', json_extract(value, '$[2]') - 150) WHERE name = 'schedule'"
        )
    return folder / "jobs" / "news"


def rounds(job: Path) -> int:
    """The number of the last round."""
    file = job / "state" / "round.json"
    return int(json.loads(file.read_text().partition(" ")[2])["number"]) if file.exists() else 1


async def runs_of(folder: Path) -> list[dict[str, object]]:
    """The runs that `run-due --list` shows."""
    listed = await anabranch("run-due", "--list", "--json", cwd=folder)
    return list(json.loads(listed.out)[0]["runs"])


async def test_two_that_look_at_once_start_a_run_once(tmp_path, web) -> None:
    """Another round of the finished job; what was missed is said."""
    job = await due_job(tmp_path, web)
    found = await asyncio.gather(*(anabranch("run-due", cwd=tmp_path) for _ in range(3)))
    assert [done.code for done in found] == [0, 0, 0]
    (line,) = [line for done in found for line in done.out.splitlines()]
    assert line.startswith("jobs/news: due ")
    assert line.endswith(": started; 1 earlier run missed")
    (run,) = await runs_of(tmp_path)
    assert (run["outcome"], run["missed"]) == ("started", 1)
    await anabranch("stop", "news", "--wait", cwd=tmp_path)
    assert rounds(job) == 2


@pytest.mark.parametrize("when", ["claimed", "started"])
async def test_a_starter_that_is_killed_loses_no_run_and_starts_none_twice(tmp_path, web, when) -> None:
    """Killed before the start, the next look starts the run; killed after it, it does not."""
    job = await due_job(tmp_path, web)
    web.delay_s = 1000.0  # its crawl waits for an answer
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED_STARTER, job, when, env=environment(), cwd=tmp_path
    )
    assert await asyncio.wait_for(starter.wait(), HANG_S) == -signal.SIGKILL
    if when == "claimed":
        assert (await runs_of(tmp_path))[0]["outcome"] == "starting"
        assert ": started; 1 earlier run missed" in (await anabranch("run-due", cwd=tmp_path)).out
    else:
        assert (await anabranch("run-due", cwd=tmp_path)).out == ""
    (run,) = await runs_of(tmp_path)
    assert run["outcome"] == "started"
    assert take_schedule_lock(job) is None  # the crawl has it
    await anabranch("stop", "news", "--now", "--wait", cwd=tmp_path)
    with descriptor(job / "state" / "schedule.lock", os.O_RDONLY) as lock:
        await asyncio.wait_for(asyncio.to_thread(wait_lock, lock), HANG_S)  # until its process has gone
    assert rounds(job) == 2


async def test_a_job_that_cannot_be_started_is_said(tmp_path, web) -> None:
    """The line names the job and the fault."""
    job = await due_job(tmp_path, web)
    order = job / "order.toml"
    order.write_text(order.read_text().replace("workers = 20", "workers = 0"))
    done = await anabranch("run-due", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "jobs/news: " in done.err
    assert "[crawl] workers must be" in done.err
    assert done.err.endswith("1 job could not be started, or not be read; the lines above say why\n")


async def until_run(console, job: str) -> dict[str, object]:
    """The last run of a job, when there is one that was started."""
    while True:
        facts = checked(await console.get(f"jobs/{job}/schedule"), "Schedule")
        if facts["runs"] and facts["runs"][0]["outcome"] != "starting":
            return facts
        await asyncio.sleep(0.05)


async def test_a_console_starts_what_is_due_and_shows_it(tmp_path, web) -> None:
    """Also what was due before it was there; `run-due` then finds nothing to do."""
    job = await due_job(tmp_path, web)
    async with running_console(tmp_path) as console:
        facts = await until_run(console, "news")
        assert (facts["missed"], facts["runs"][0]["outcome"]) == (1, "started")
        assert facts["next_s"] > facts["runs"][0]["due_s"]
        assert (await anabranch("run-due", cwd=tmp_path)).out == ""
        numbers = (await console.client.get("/metrics")).text
        assert 'anabranch_job_missed_runs{job="news"} 1.0' in numbers
        (next_s,) = re.findall(r'anabranch_job_next_run_seconds{job="news"} (\S+)', numbers)
        assert float(next_s) == facts["next_s"]
        await console.until("news", "stopped")
    assert rounds(job) == 2


async def test_a_schedule_that_is_changed_in_the_console_counts_at_once(tmp_path, web) -> None:
    """The API takes the keys of the schedule, and none that says what runs at the end."""
    write_order(tmp_path, web.hosts)
    async with running_console(tmp_path) as console:
        asked = {"name": "olds", "seeds": ["http://a.test/"], "order": '[job]\nschedule = "every 1h"\n'}
        await console.post("jobs", asked, code=201)
        while (await console.get("jobs/olds/schedule"))["next_s"] is None:
            await asyncio.sleep(0.05)
        refused = await console.post("jobs", {**asked, "name": "b", "order": "[job]\non_end_command = 'x'"}, code=400)
        assert "is no part of an order: give --on-end-command to" in refused["error"]
        await console.post("jobs/olds/order", {"job.schedule": ""}, method="PATCH")
        assert (await console.get("jobs/olds/schedule"))["schedule"] == ""


def test_the_examples_of_cron_and_systemd_are_sound(tmp_path) -> None:
    """Systemd finds nothing wrong, and both run the command; its crawls outlive the unit."""
    folder = REPOSITORY / "conf" / "schedule"
    service, timer, cron = (
        (folder / name).read_text()
        for name in ("anabranch-run-due.service", "anabranch-run-due.timer", "anabranch.cron")
    )
    (command,) = re.findall(r"^ExecStart=(.*)$", service, re.MULTILINE)
    assert command == "/opt/anabranch/bin/anabranch run-due jobs"
    assert "\nKillMode=process\n" in service
    (line,) = [line for line in cron.splitlines() if not line.startswith("#")]
    assert line == f"* * * * *  anabranch  cd /var/lib/anabranch && {command}"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    program = shutil.which("true")
    assert program is not None
    service = service.replace("/opt/anabranch/bin/anabranch", program).replace("User=anabranch", "User=root")
    (tmp_path / "anabranch-run-due.service").write_text(service)
    (tmp_path / "anabranch-run-due.timer").write_text(timer)
    for file in (tmp_path / "anabranch-run-due.timer", tmp_path / "anabranch-run-due.service"):
        verified = subprocess.run(
            ["systemd-analyze", "verify", file], check=False, capture_output=True, text=True, timeout=HANG_S
        )
        assert (verified.returncode, verified.stderr) == (0, "")
