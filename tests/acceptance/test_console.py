"""`anabranch console`: jobs are made, steered and removed by its API, and outlive it."""

import asyncio
import json
import os
import shutil
import signal
import time
from contextlib import aclosing
from urllib.parse import quote

import httpx
import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.order.order import CrawlOrder, dump_order
from tests.acceptance.command import anabranch, crawl_log, ended, write_order
from tests.acceptance.console_process import running_console, token_of
from tests.facts_schema import checked
from tests.patience import HANG_S, patient
from tests.postgres_server import server
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

SEED = "http://a.test/"
LINKS = [f"/{number}" for number in range(60)]
LATE_S = 0.05
NASTY = "<script>alert(1)</script>\u202e\x1b[31m"


@pytest.fixture
async def web():
    """One host with 61 pages; each answer is late by `LATE_S`, so that a crawl can be steered on its way.

    Where nothing is steered, or not any more, tests set `delay_s` to 0.
    """
    pages = {"/": Page(links=go(*LINKS)), **{link: Page() for link in LINKS}}
    async with SmallWeb({"a.test": Host(pages=pages), "b.test": Host(pages={"/": Page()})}, delay_s=LATE_S) as served:
        yield served


async def seen(web, count):
    while sum(web.ledger.counts().values()) < count:
        await asyncio.sleep(0.005)


def new_job(tmp_path, web, name="news", seeds=SEED, **sections):
    """Return the body of the request that makes a job."""
    return {"name": name, "seeds": seeds, "order": write_order(tmp_path, web.hosts, **sections).read_text()}


async def test_a_crawl_outlives_its_console(tmp_path, web):
    """The console is killed with SIGKILL: the crawl goes on to its end, and the next console shows it."""
    async with running_console(tmp_path) as console:
        row = checked(await console.post("jobs", new_job(tmp_path, web), code=201), "JobRow")
        assert row["phase"] in {"starting", "running"}
        await seen(web, 5)
        console.process.kill()
        await console.process.communicate()
        web.delay_s = 0
        token = console.token
    await seen(web, 61)
    async with running_console(tmp_path, token=token) as console:
        row = checked(await console.until("news", "stopped"), "JobRow")
        assert (row["is_finished"], row["pages"]) == (True, 61)
        assert len(crawl_log(tmp_path / "jobs" / "news")) == 61
        console.process.send_signal(signal.SIGTERM)
        assert (await ended(console.process)).code == 0


async def test_the_verbs_of_a_crawl(tmp_path, web):
    """Pause, look, change, resume, stop, start, another round, remove: each answers as documented, and is audited."""
    async with running_console(tmp_path) as console:
        await console.post("jobs", new_job(tmp_path, web), code=201)
        await seen(web, 5)
        assert checked(await console.post("jobs/news/pause"))["phase"] == "paused"
        queues = checked(await console.get("jobs/news/queues", limit=5), "Queues")["queues"]
        name = queues[0]["queue"]
        assert checked(await console.get(f"jobs/news/queues/{name}"), "Explained")
        assert (
            "queued"
            in checked(await console.get("jobs/news/why", url="http://a.test/59"), "Explained")["explanation"]["state"]
        )
        added = await console.post("jobs/news/seeds", {"seeds": ["http://b.test/"]})
        assert checked(added, "Seeds")["running"]
        block = "jobs/news/hosts/b.test/block"
        assert checked(await console.post(block, {"for_s": 60}, "PUT"), "GateChanged")["gate"]["opens_in_s"] > 1
        checked(await console.post(block, method="DELETE"), "GateChanged")
        checked(await console.post(f"jobs/news/queues/{name}/budget", {"units": 1000}, "PUT"), "QueueChanged")
        checked(await console.post(f"jobs/news/queues/{name}/pause"), "QueueChanged")
        checked(await console.post(f"jobs/news/queues/{name}/resume"), "QueueChanged")
        changes = await console.post("jobs/news/order", {"limits.pages": "20"}, "PATCH")
        assert checked(changes, "Changes")["changes"][0]["now"] == 20
        assert checked(await console.get("jobs/news/order"), "Order")["order"]["limits"]["pages"] == 20
        checked(await console.get("jobs/news/reports/crawl-summary"), "Report")
        assert checked(await console.get("jobs/news/logs/crawl.log", contains="a.test"), "LogLines")["lines"]
        metrics = await console.client.get("/metrics")
        assert 'job="news"' in metrics.text
        again = await console.client.post("/api/v1/jobs/news/start", json={})
        assert (again.status_code, "crawled already" in again.text) == (409, True)
        assert checked(await console.post("jobs/news/resume"))["phase"] != "paused"
        assert not (await console.until("news", "stopped"))["is_finished"]  # the limit is reached
        await console.post("jobs/news/order", {"limits.pages": "0"}, "PATCH")
        web.delay_s = 0
        await console.post("jobs/news/start", {})
        assert (await console.until("news", "stopped"))["is_finished"]
        web.delay_s, before = LATE_S, sum(web.ledger.counts().values())
        await console.post("jobs/news/start", {"again": True})
        await seen(web, before + 5)
        await console.post("jobs/news/stop", {"now": True})
        assert not (await console.until("news", "stopped"))["is_finished"]
        moved = checked(await console.post("jobs/news", method="DELETE"), "Moved")["moved_to"]
        assert (tmp_path / "jobs" / moved / "logs" / "crawl.log").exists()
        assert [row["job"] for row in await console.get("jobs")] == []
    audit = [json.loads(line) for line in (tmp_path / "state" / "audit.jsonl").read_text().splitlines()]
    assert {entry["who"] for entry in audit} == {"operator"}
    assert [entry["action"] for entry in audit if "error" in entry] == ["start"]
    created, changed = (
        next(one["arguments"] for one in audit if one["action"] == action) for action in ("create", "set")
    )
    assert created["seeds"] > 0
    assert created["order"]["sha256"] != changed["order"]["sha256"]
    assert "pages = 20" in changed["order"]["toml"]
    assert {"create", "pause", "add", "block", "unblock", "set", "resume", "stop", "start", "remove"} <= {
        entry["action"] for entry in audit
    }


async def test_a_crawl_that_dies_is_seen(tmp_path, web):
    """Killed while it should run: in the list, the status and the metrics, until it is resumed, or is to run no more."""
    async with running_console(tmp_path) as console:
        await console.post("jobs", new_job(tmp_path, web), code=201)
        await seen(web, 5)
        running = await console.get("jobs/news")
        assert (running["state"], running["desired_state"], running["ended"]) == ("running", "run", None)
        os.kill(running["pid"], signal.SIGKILL)
        await console.until("news", "stopped")
        for facts in (checked(await console.get("jobs/news")), checked((await console.get("jobs"))[0], "JobRow")):
            assert (facts["state"], facts["desired_state"], facts["ended"]["why"]) == ("killed", "run", "killed")
            assert abs(facts["ended"]["time_s"] - time.time()) < HANG_S
        metrics = (await console.client.get("/metrics")).text.splitlines()
        for line in (
            'up{job="news"} 0.0',
            'job_state{job="news",state="killed"} 1.0',
            'job_ended{job="news",why="killed"} 1.0',
        ):
            assert f"anabranch_{line}" in metrics
        stopped = checked(await console.post("jobs/news/stop"))
        assert (stopped["state"], stopped["desired_state"]) == ("stopped", "stopped")
        assert 'anabranch_up{job="news"}' not in (await console.client.get("/metrics")).text
        assert (await console.client.post("/api/v1/jobs/news/stop")).status_code == 400  # there is nothing to stop
        web.delay_s = 0
        assert checked(await console.post("jobs/news/start"), "JobRow")["ended"] is None
        row = await console.until("news", "stopped")
        assert (row["state"], row["desired_state"], row["ended"]["why"]) == ("finished", "finished", "finished")


async def test_streams_show_what_happens_until_the_token_is_revoked(tmp_path, web):
    """An event for each status and each new line of a log."""
    rest = {"min_delay": "100ms", "max_delay": "100ms"}
    async with running_console(tmp_path) as console:
        await console.post("jobs", new_job(tmp_path, web, politeness=rest), code=201)

        async def lines(path, found):
            async with console.client.stream("GET", f"/api/v1/jobs/news/{path}") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        found.append(json.loads(line.removeprefix("data: ")))

        statuses, logged = [], []
        following = [
            asyncio.create_task(lines("events?every_s=0.5", statuses)),
            asyncio.create_task(lines("logs/crawl.log/events", logged)),
        ]
        while len(statuses) < 2 or not logged:
            await asyncio.sleep(0.05)
        checked(statuses[0])
        assert "http://a.test/" in logged[0]["line"]
        await console.post("jobs/news/stop", {"now": True})
        revoked = await anabranch(
            "console", "token", "--revoke", "operator", "--state", tmp_path / "state", cwd=tmp_path
        )
        assert revoked.code == 0
        assert (await console.client.get("/api/v1/jobs")).status_code == 401
        await asyncio.gather(*following)


SOON = f"""
from functools import partial
from anabranch.__main__ import main
from anabranch.crawler.console import server
server.ConsoleJobs = partial(server.ConsoleJobs, patience_s={patient(5.0)}, listing_patience_s={patient(1.0)})
main()
"""


async def test_a_crawl_that_hangs_holds_up_nobody(tmp_path, web):
    """Its process is stopped: the others have their metrics and rows at once, and it is told to be silent.

    By a console that has the patience of a second with one of many jobs (by default 4 s), and of 5 s (15 s) with one alone.
    """
    (tmp_path / "soon.py").write_text(SOON)
    async with running_console(tmp_path, program=[str(tmp_path / "soon.py")]) as console:
        slow = {"min_delay": "1s", "max_delay": "1s"}
        await console.post("jobs", new_job(tmp_path, web, politeness=slow), code=201)
        await console.post("jobs", new_job(tmp_path, web, "hangs", politeness=slow), code=201)
        pid = (await console.until("hangs", "running"))["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            text = ""
            while 'anabranch_up{job="news"} 1.0' not in text:  # on a busy machine it may be late, too
                text = (await console.client.get("/metrics")).text
            assert 'anabranch_up{job="hangs"} 0.0' in text
            assert 'anabranch_pages_total{job="news"}' in text
            assert 'anabranch_pages_total{job="hangs"}' not in text
            rows = {row["job"]: row for row in await console.get("jobs")}
            assert "does not answer" in checked(rows["hangs"], "JobRow")["line"]
            assert rows["hangs"]["phase"] == "unknown"
            waiting = [asyncio.create_task(console.client.get("/api/v1/jobs/hangs")) for _ in range(50)]
            await console.get("jobs/news")
            assert not any(question.done() for question in waiting)
            await cancelled(waiting)
            events = console.client.stream("GET", "/api/v1/jobs/hangs/events")
            async with events as stream, aclosing(stream.aiter_lines()) as lines:
                assert await anext(lines) == "event: error"
                assert "the job does not answer" in await anext(lines)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (await console.until("hangs", "running"))["pid"] == pid
        for name in ("hangs", "news"):
            await console.post(f"jobs/{name}/stop", {"now": True})
            await console.until(name, "stopped")


async def cancelled(tasks):
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_crawl_that_ends_at_once_has_started(tmp_path, web):
    """Its seed may not be fetched: that is no failure of the start, and the row tells it."""
    job = new_job(tmp_path, web, seeds="http://127.0.0.1:9/\nftp://x/", fetch={"allow_private": False})
    async with running_console(tmp_path) as console:
        await console.post("jobs", {**job, "start": False}, code=201)
        await console.post("jobs/news/start", {})
        row = checked(await console.until("news", "stopped"), "JobRow")
        assert row["line"] == "finished, and no URL was answered: the report `seeds` says why"


async def test_a_crawl_of_a_damaged_job_does_not_start(tmp_path, web):
    """The answer has the line of the crawl, and its exit code."""
    async with running_console(tmp_path) as console:
        await console.post("jobs", {**new_job(tmp_path, web), "start": False}, code=201)
        (tmp_path / "jobs" / "news" / "state" / "round.json").write_text("no JSON")
        refused = await console.client.post("/api/v1/jobs/news/start", json={})
        assert (refused.status_code, refused.json()["code"]) == (400, 4)
        assert "round.json: damaged" in refused.json()["error"]


async def test_who_may_do_what(tmp_path, web):
    """A reader changes nothing; nobody gets in without a token, by another Host, or from a page of another site."""
    async with running_console(tmp_path) as console:
        await console.post("jobs", {**new_job(tmp_path, web), "start": False}, code=201)
        reader = await token_of(tmp_path, "reader", "--read-only")
        async with console.client_of(reader) as client:
            assert (await client.get("/api/v1/jobs/news/order")).status_code == 200
            for method, path in (("POST", "start"), ("DELETE", ""), ("PATCH", "order"), ("PUT", "hosts/a.test/block")):
                answer = await client.request(method, f"/api/v1/jobs/news/{path}".rstrip("/"), content=b"no JSON")
                assert answer.status_code == 403, answer.text
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {console.token}"}):
            async with httpx.AsyncClient(base_url=console.url, headers=headers) as client:
                for path in ("/api/v1/jobs", "/api/v1/jobs/news", "/metrics"):
                    assert (await client.get(path)).status_code == 401
                assert (await client.post("/api/v1/jobs", content=b"no JSON")).status_code == 401
        for headers in ({"Host": "evil.test"}, {"Origin": "http://evil.test"}, {"Origin": "null"}):
            async with console.client_of(console.token, **headers) as client:
                assert (await client.get("/api/v1/jobs")).status_code == 403


async def test_names_do_not_lead_out_of_the_folder(tmp_path, web):
    """Neither `..` nor slashes, escaped or not, nor links: a link is not shown, and a linked log not read."""
    outside = tmp_path / "outside"
    JobFolder.open(outside).close()
    async with running_console(tmp_path) as console:
        await console.post("jobs", {**new_job(tmp_path, web), "start": False}, code=201)
        (tmp_path / "jobs" / "link").symlink_to(outside)
        logs = tmp_path / "jobs" / "news" / "logs"
        logs.mkdir(exist_ok=True)
        (logs / "crawl.log").symlink_to("/etc/passwd")
        assert [row["job"] for row in await console.get("jobs")] == ["news"]
        names = (
            "..",
            "%2e%2e",
            "%2e%2e%2foutside",
            "..%2foutside",
            "link",
            "outside",
            "%00",
            "news%00",
            "news%2f..",
            "x" * 9999,
        )
        for name in names:
            for path in ("", "/order", "/logs/crawl.log", "/reports/crawl-summary"):
                target = f"/api/v1/jobs/{name}{path}".encode()
                answer = await console.client.get(httpx.URL(console.url).copy_with(raw_path=target))
                # What leads to a page, as `..` alone does, asks for a session.
                refused = {303, 404} if name == ".." else {404}
                assert answer.status_code in refused, (name, path, answer.text)
        assert (await console.client.get("/api/v1/jobs/news/logs/crawl.log")).status_code == 400
        assert (await console.client.get("/api/v1/jobs/news/logs/..%2fstate%2flock")).status_code in {400, 404}
        for name in (
            "..",
            "a/b",
            "a\0b",
            ".hidden",
            "",
            "x" * 200,
            NASTY,
            "news",
            "outside\n",
            "\ud800",
            "é" * 100 + "x",
        ):
            answer = await console.client.post(
                "/api/v1/jobs",
                content=json.dumps({"name": name, "seeds": SEED, "start": False}),
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code in {400, 409, 507}, (name, answer.status_code, answer.text)
        assert sorted(found.name for found in (tmp_path / "jobs").iterdir()) == ["link", "news"]


async def test_nasty_texts_are_data(tmp_path, web):
    """Markup, control characters, direction marks and a megabyte: answered as JSON, refused or taken, never a failure."""
    web.delay_s = 0
    async with running_console(tmp_path) as console:
        await console.post("jobs", {**new_job(tmp_path, web), "start": False}, code=201)
        await console.post("jobs/news/start", {})
        await console.until("news", "stopped")
        url = f"http://a.test/{NASTY}"
        await console.get("jobs/news/why", url=url)
        assert (await console.post("jobs/news/seeds", {"seeds": [url]}))["seeds"]
        refused = await console.post("jobs/news/seeds", {"seeds": [SEED + "?" + "x" * 1_000_000]}, code=400)
        assert "none was added" in refused["error"]
        assert len(refused["error"]) < 1000
        for path in ("queues/" + quote(NASTY, safe=""), "reports/" + quote(NASTY, safe="")):
            answer = await console.client.get(f"/api/v1/jobs/news/{path}")
            assert (answer.status_code, answer.headers["content-type"]) in {
                (404, "application/json"),
                (400, "application/json"),
            }
        assert (await console.client.get("/api/v1/jobs/news/logs/crawl.log", params={"contains": NASTY})).json() == {
            "lines": []
        }
        reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
        writer.write(b"GET /api/v1/jobs/news/why?url=" + b"x" * 1_000_000)
        assert b" 400 " in await reader.readline()  # before the request is whole
        writer.close()
        await console.get("version")


async def test_a_long_list_with_jobs_that_cannot_be_read(tmp_path):
    """A job of a newer format, a damaged one and a host program's are `unknown`, with the reason; the others are listed."""
    jobs = tmp_path / "jobs"
    with JobFolder.open(jobs / "job-000") as folder:
        folder.write_order(dump_order(CrawlOrder()))
    for number in range(1, 30):
        shutil.copytree(jobs / "job-000", jobs / f"job-{number:03}")
    mark = jobs / "job-007" / "state" / "format.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "version": 999}))
    (jobs / "job-008" / "order.toml").write_text("[")
    (jobs / "not-a-job").mkdir()
    async with running_console(tmp_path) as console:
        rows = [checked(row, "JobRow") for row in await console.get("jobs")]
        assert len(rows) == 30
        unknown = {row["job"]: row["line"] for row in rows if row["phase"] == "unknown"}
        assert set(unknown) == {"job-007", "job-008"}, unknown
        assert all(unknown.values())
        assert (await console.client.get("/metrics")).status_code == 200
        answer = await console.client.get("/api/v1/jobs/job-007")
        assert (answer.status_code, bool(answer.json()["error"])) == (400, True)


ORDERS = [
    {"job": {"processors": ["os:system"]}},
    {"scope": {"rules": ["os:system"]}},
    {"urls": {"canonicalization": ["os:system"]}},
    {"frontier": {"policy": "os:system"}},
    {"politeness": {"group": "os:system"}},
    {"dedup": {"filter": "os:system"}},
    {"write": {"upload": "file:///tmp/x"}},
    {"write": {"zstd_dictionary": "/tmp/x"}},
    {"logs": {"file": "/tmp/x"}},
    {"fetch": {"proxy": "http://me@evil.test:1", "proxy_password_env": "HOME"}},
    {"site": [{"surt": "evil.test", "user": "me", "password_env": "HOME"}]},
    {"job": {"modules": "/tmp"}},
    {"nosuch": {"key": 1}},
    {"limits": {"pages": "x"}},
]


async def test_an_order_names_neither_code_nor_files_of_the_machine(tmp_path):
    """Whoever has a token crawls, and runs nothing else; a wrong order is 400 with its faults, and makes no folder."""
    async with running_console(tmp_path) as console:
        for order in [*ORDERS, "[", "[limits]\npages = -1", {"job": {"seed_files": ["/etc/passwd"]}, "x": {}}]:
            answer = await console.client.post("/api/v1/jobs", json={"name": "a", "seeds": SEED, "order": order})
            assert (answer.status_code, bool(answer.json()["error"])) == (400, True), (order, answer.text)
        assert [*(tmp_path / "jobs").iterdir()] == []


async def test_a_job_without_a_contact_is_created_with_a_warning(tmp_path):
    """The warning is that of the command; a job with a contact has no warnings."""
    async with running_console(tmp_path) as console:
        for name, contact, count in (("a", "", 1), ("b", "https://example.org/bot", 0)):
            order = {"agent": {"contact": contact}}
            asked = {"name": name, "seeds": SEED, "order": order, "start": False}
            answer = await console.client.post("/api/v1/jobs", json=asked)
            assert answer.status_code == 201, answer.text
            assert len(checked(answer.json(), "JobRow")["warnings"]) == count


async def test_a_job_in_a_database(tmp_path, web):
    """Is shown by its name; it is steered, and neither made, started nor removed here."""
    web.delay_s = 0
    with server() as made:
        url = made.replace(":@", "@")
        order = write_order(tmp_path, web.hosts)
        crawled = await anabranch("crawl", SEED, "-c", order, "--store", url, "--job", tmp_path / "news", cwd=tmp_path)
        assert crawled.code == 0, crawled.err
        async with running_console(tmp_path, place=url) as console:
            (row,) = await console.get("jobs")
            name = checked(row, "JobRow")["job"]
            assert row["pages"] == 61
            checked(await console.get(f"jobs/{name}"))
            assert await console.get(f"jobs/{name}/workers") == []
            checked(await console.get(f"jobs/{name}/queues"), "Queues")
            checked(await console.get(f"jobs/{name}/reports/crawl-summary"), "Report")
            for method, path in (
                ("POST", f"jobs/{name}/start"),
                ("DELETE", f"jobs/{name}"),
                ("POST", f"jobs/{name}/pause"),
            ):
                answer = await console.client.request(method, f"/api/v1/{path}")
                assert answer.status_code in {400, 409, 503}, answer.text
            assert (await console.client.post("/api/v1/jobs", json={"name": "a", "seeds": SEED})).status_code == 400
            assert (await console.client.get("/api/v1/jobs/other")).status_code == 404
