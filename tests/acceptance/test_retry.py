"""An outage that ended URLs as failures: the crawl says so by its exit code, and `anabranch retry` brings them back."""

import asyncio
import json
from base64 import b64encode
from contextlib import nullcontext

import pytest

from anabranch.crawler.job.seeds import queued_again
from tests.acceptance.command import anabranch, crawl_log, ended, start, write_order
from tests.facts_schema import checked
from tests.postgres_server import server
from tests.site.page import Host, Page, failure, go
from tests.site.server import SmallWeb, table_finder

HOSTS = [f"h{number}.test" for number in range(3)]
FAILING = [f"/bad{number}" for number in range(3)]
SEED = "http://h0.test/"
WEB = {
    host: Host(
        pages={
            "/": Page(links=go("/good", *FAILING, f"http://{HOSTS[(place + 1) % len(HOSTS)]}/")),
            **{path: Page(links=go(f"{path}/next")) for path in FAILING},
            **{f"{path}/next": Page() for path in FAILING},
            "/good": Page(),
        }
    )
    for place, host in enumerate(HOSTS)
}
BAD = {f"http://{host}{path}" for host in HOSTS for path in FAILING}
ALL = {f"http://{host}{path}" for host, pages in WEB.items() for path in pages.pages}


class FailingWeb(SmallWeb):
    """A `SmallWeb` of WEB; while `is_down`, it answers the FAILING pages of each host with 503."""

    def __init__(self) -> None:
        super().__init__(WEB)
        self.is_down = True
        find = table_finder(WEB)
        self._find = lambda host, target, earlier: (
            failure(503) if self.is_down and target in FAILING else find(host, target, earlier)
        )


@pytest.fixture
async def web():
    async with FailingWeb() as served:
        yield served


def crawl_of(tmp_path, web, *more, **sections):
    order = write_order(tmp_path, web.hosts, **{"scope": {"scope": "any"}, "crawl": {"workers": 4}, **sections})
    return ("crawl", SEED, "-c", order, "--job", tmp_path / "job", *more)


async def told(tmp_path, verb, *more):
    run = await anabranch(verb, tmp_path / "job", *more, cwd=tmp_path)
    assert run.code == 0, run.err
    return run.out


async def test_a_crawl_that_mostly_failed_is_not_finished_until_a_retry_succeeds(tmp_path, web):
    """Exit code 6 and the reasons, in summary, reports, status and jobs; then 0, and the pages of a crawl without outage."""
    command = crawl_of(tmp_path, web)
    first = await anabranch(*command, cwd=tmp_path)
    assert first.code == 6, first.err
    assert "ended          most URLs failed; see to the reason, then `anabranch retry` queues them again\n" in first.out
    assert "reasons        9 × 503 Service Unavailable\n" in first.out
    report = " ".join((tmp_path / "job/reports/crawl-report.txt").read_text().split())
    assert "Crawl Status: most URLs failed;" in report
    assert "URIs Failed to Crawl: 9 503 Service Unavailable: 9" in report
    facts = checked(json.loads(await told(tmp_path, "status", "--json")))
    assert (facts["is_finished"], facts["line"][:16]) == (False, "most URLs failed")
    assert facts["failures"] == [{"status": 503, "words": "503 Service Unavailable", "count": 9}]
    (row,) = json.loads((await anabranch("jobs", tmp_path, "--json", cwd=tmp_path)).out)
    assert (row["is_finished"], row["failed"], row["line"][:16]) == (False, 9, "most URLs failed")
    again = await anabranch(*command, cwd=tmp_path)
    assert again.code == 6, "it is as it was: nothing was queued"

    assert "9 failures queued again\n" in await told(tmp_path, "retry", "--status", "5xx")
    facts = checked(json.loads(await told(tmp_path, "status", "--json")))
    assert (facts["totals"]["pending"], facts["totals"]["failed"], facts["failures"]) == (9, 0, [])
    assert facts["line"] == "not running; `anabranch crawl` resumes it"
    (row,) = json.loads((await anabranch("jobs", tmp_path, "--json", cwd=tmp_path)).out)
    assert (row["is_finished"], row["queued"], row["failed"]) == (False, 9, 0)
    web.is_down = False
    second = await anabranch(*command, cwd=tmp_path)
    assert second.code == 0, second.err
    assert "ended          finished: nothing is queued\n" in second.out
    assert "job so far     24 pages, 0 failed, 0 excluded\n" in second.out
    assert crawl_log(tmp_path / "job") == dict.fromkeys(ALL, 200)
    lines = (tmp_path / "job/logs/crawl.log").read_text()
    assert all(lines.count(f" {url} ") >= 2 for url in BAD), "both lines stay"
    report = " ".join((tmp_path / "job/reports/crawl-report.txt").read_text().split())
    assert "URIs Failed to Crawl: 9 of these queued again: 9" in report


async def test_a_retry_takes_what_fits_and_tells_what_holds_it_back(tmp_path, web):
    """By status, host and time; a blocked host and a limit stay in force."""
    await anabranch(*crawl_of(tmp_path, web), cwd=tmp_path)
    assert "no failure that fits" in await told(tmp_path, "retry", "--status=-1,404")
    assert "no failure that fits" in await told(tmp_path, "retry", "--since", "2099-01-01")
    assert "no failure that fits" in await told(tmp_path, "retry", "--host", "test")
    await told(tmp_path, "set", "limits.pages=6")
    await anabranch("frontier", "block", tmp_path / "job", "h1.test", cwd=tmp_path)
    found = json.loads(await told(tmp_path, "retry", "--host", "H1.test", "--since", "2020-01-01", "--json"))
    dump = await anabranch("frontier", "dump", tmp_path / "job", cwd=tmp_path)
    queued = [line for line in map(json.loads, dump.out.splitlines()) if "queue" in line]
    assert {line["payload"] for line in queued} == {b64encode(queued_again(b"\0")).decode()}, "no rule skips them"
    checked(found, "Retried")
    assert (found["running"], found["queued"], found["blocked"], found["unknown_hops"]) == (False, 3, 3, 0)
    assert found["note"] == "6 pages done already: the crawl ends at once when it is started"
    why = (await anabranch("why", tmp_path / "job", "http://h1.test/bad1", cwd=tmp_path)).out
    assert "blocked until it is unblocked" in why
    assert "given up" in why, "what happened before is told, too"
    failed = (await anabranch("why", tmp_path / "job", "http://h2.test/bad1", cwd=tmp_path)).out
    assert "`anabranch retry` queues it again" in failed
    refused = await anabranch("retry", tmp_path / "job", "--status", "-1,no", cwd=tmp_path)
    assert (refused.code, "status 'no': write it as crawl.log has it" in refused.err) == (2, True)


@pytest.mark.parametrize("store", ["", "memory"])
async def test_a_running_crawl_takes_them_at_once(tmp_path, web, store):
    """Its queue may be in memory; it ends when they have ended."""
    web.delay_s = 0.05
    web.is_down = True
    more = ("--store", store) if store else ()
    process = await start(*crawl_of(tmp_path, web, *more, politeness={"max_connections": 1}), cwd=tmp_path)
    while sum(web.ledger.count(url) >= 5 for url in BAD) < 2:
        await asyncio.sleep(0.01)
    await told(tmp_path, "pause")
    while json.loads(await told(tmp_path, "status", "--json"))["active"]:  # fetches under way may end, and fail
        pass
    failed = [url for url in BAD if web.ledger.count(url) >= 5]
    status = checked(json.loads(await told(tmp_path, "status", "--json")))
    assert status["failures"] == [{"status": 503, "words": "503 Service Unavailable", "count": len(failed)}]
    web.is_down = False
    found = json.loads(await told(tmp_path, "retry", "--json"))
    assert (found["running"], found["queued"]) == (True, len(failed))
    await told(tmp_path, "resume")
    run = await ended(process)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == dict.fromkeys(ALL, 200)


@pytest.mark.slow
async def test_processes_end_with_the_same_code_and_their_failures_are_retried(tmp_path, web):
    """By the parent, from the job's rows; also while they run."""
    command = crawl_of(tmp_path, web, "--processes", "2")
    first = await anabranch(*command, cwd=tmp_path)
    assert first.code == 6, first.err
    assert "reasons        9 × 503 Service Unavailable\n" in first.out
    facts = checked(json.loads(await told(tmp_path, "status", "--json")))
    assert (facts["is_finished"], facts["failures"][0]["count"]) == (False, 9)
    assert "9 failures queued again\n" in await told(tmp_path, "retry")
    second = await anabranch(*command, cwd=tmp_path)
    assert second.code == 6, "they have failed again"
    assert "this run       0 pages, 9 failed" in second.out
    assert "9 failures queued again\n" in await told(tmp_path, "retry")
    web.is_down = False
    third = await anabranch(*command, cwd=tmp_path)
    assert third.code == 0, third.err
    assert crawl_log(tmp_path / "job") == dict.fromkeys(ALL, 200)
    assert "this run       18 pages, 0 failed" in third.out


@pytest.mark.slow
@pytest.mark.parametrize("is_in_database", [False, True], ids=["processes", "database"])
async def test_workers_queue_by_force_what_has_ended(tmp_path, web, is_in_database):
    """Whoever holds the host's share, at work or not. A queued URL stays one; without force all are known."""
    web.is_down = False
    with server() if is_in_database else nullcontext() as url:
        job = tmp_path / "job" if url is None else url.replace(":@", "@")

        async def crawled():
            order = write_order(tmp_path, web.hosts, scope={"scope": "any"}, crawl={"workers": 4})
            command = ("crawl", SEED, "-c", order)
            if url is None:
                return [await start(*command, "--job", job, "--processes", "2", cwd=tmp_path)]
            more = [("--store", job, "--job", tmp_path / name, "--worker", name) for name in "ab"]
            return [await start(*command, *one, cwd=tmp_path) for one in more]

        async def added(*words):
            run = await anabranch("add", job, *words, cwd=tmp_path)
            assert run.code == 0, run.err
            return [line.split(maxsplit=2) for line in run.out.splitlines()[: len(HOSTS)]]

        assert [(await ended(process)).code for process in await crawled()] == [0] * (1 + is_in_database)
        again = [f"http://{host}/good" for host in HOSTS]
        assert await added(*again) == [["known", one, "(done with 200 OK)"] for one in again]
        assert await added("--force", *again) == [["new", one] for one in again]
        assert await added("--force", *again) == [["known", one, "(queued)"] for one in again]
        web.delay_s = 0.5
        running = await crawled()
        while not any(web.ledger.count(one) > 1 for one in again):
            await asyncio.sleep(0.01)
        third = [f"http://{host}/bad0" for host in HOSTS]
        assert await added("--force", *third) == [["new", one] for one in third]
        assert [(await ended(process)).code for process in running] == [0] * len(running)
        assert {one: web.ledger.count(one) for one in ALL} == {one: 1 + (one in {*again, *third}) for one in ALL}


@pytest.mark.slow
async def test_workers_of_a_database_retry_what_others_failed(tmp_path, web):
    """One worker takes it for all of them, or the operator's command if none is at work."""
    with server() as url:
        store = url.replace(":@", "@")
        order = write_order(tmp_path, web.hosts, scope={"scope": "any"}, crawl={"workers": 4})

        def worker(name):
            return ("crawl", SEED, "-c", order, "--store", store, "--job", tmp_path / name, "--worker", name)

        codes = {(await ended(process)).code for process in [await start(*worker(n), cwd=tmp_path) for n in "ab"]}
        assert codes == {6}
        stopped = await anabranch("retry", store, "--host", "h0.test", cwd=tmp_path)
        assert (stopped.code, stopped.out.splitlines()[0]) == (0, "3 failures queued again"), stopped.err
        assert "no worker of this job is running; start a (" in stopped.out
        assert (await anabranch("stop", store, cwd=tmp_path)).code == 0
        nothing = await anabranch("retry", store, "--host", "h9.test", "--json", cwd=tmp_path)
        assert (nothing.code, json.loads(nothing.out)["start"]) == (0, "")
        assert "the job is stopped" in (await anabranch(*worker("a"), cwd=tmp_path)).err
        assert "start a (" in (await anabranch("retry", store, "--host", "h1.test", cwd=tmp_path)).out
        web.delay_s, web.is_down = 0.3, False
        running = [await start(*worker(name), cwd=tmp_path) for name in "ab"]
        while web.ledger.count("http://h0.test/bad0") < 6:
            await asyncio.sleep(0.01)
        before = checked(json.loads((await anabranch("status", store, "--json", cwd=tmp_path)).out))
        taken = await anabranch("retry", store, "--json", cwd=tmp_path)
        found = checked(json.loads(taken.out), "Retried")
        assert (found["running"], found["queued"]) == (True, 3)
        assert before["failures"] == [{"status": 503, "words": "503 Service Unavailable", "count": 3}]
        assert [(await ended(process)).code for process in running] == [0, 0]
        facts = json.loads((await anabranch("status", store, "--json", cwd=tmp_path)).out)
        assert (facts["totals"]["done"], facts["totals"]["failed"], facts["is_finished"]) == (len(ALL), 0, True)


@pytest.mark.slow
async def test_a_job_of_workers_whose_seeds_were_all_refused_is_not_finished(tmp_path):
    """Its status says so, as that of a job of one worker."""
    async with SmallWeb({"h0.test": Host(pages={"/": failure(403)})}) as web:
        order = write_order(tmp_path, web.hosts)
        for name, more in (("one", ()), ("two", ("--processes", "2"))):
            run = await anabranch("crawl", SEED, "-c", order, "--job", tmp_path / name, *more, cwd=tmp_path)
            facts = json.loads((await anabranch("status", tmp_path / name, "--json", cwd=tmp_path)).out)
            assert (run.code, facts["is_finished"], facts["line"][:24]) == (6, False, "every seed refused access"[:24])
