"""`anabranch set`: limits, politeness and scope of a job change while it runs, and survive whatever ends it."""

import asyncio
import json
import os
import signal
from itertools import pairwise
from statistics import median

import pytest

from tests.acceptance.command import anabranch, crawl_log, ended, start, write_order
from tests.facts_schema import checked
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

SEED = "http://a.test/"
LINKS = [f"/{kind}/{number}" for number in range(30) for kind in ("a", "b")]


@pytest.fixture
async def web():
    """One host with 61 pages; each answer is late by 50 ms, so that a crawl can be changed on its way, until it was."""
    pages = {"/": Page(links=go(*LINKS)), **{link: Page() for link in LINKS}}
    async with SmallWeb({"a.test": Host(pages=pages)}, delay_s=0.05) as served:
        yield served


def crawl_of(tmp_path, web, *more, **sections):
    return ("crawl", SEED, "-c", write_order(tmp_path, web.hosts, **sections), "--job", tmp_path / "job", *more)


async def seen(web, count):
    while sum(web.ledger.counts().values()) < count:
        await asyncio.sleep(0.005)


async def changed(tmp_path, *settings):
    run = await anabranch("set", tmp_path / "job", *settings, cwd=tmp_path)
    assert run.code == 0, run.err
    return run.out


async def changed_on_its_way(tmp_path, web, *settings):
    """Change settings of a running crawl as `changed` does; from then on the web answers at once."""
    web.delay_s = 1.0  # however slow the command is, the crawl goes on when it comes
    said = await changed(tmp_path, *settings)
    assert sum(web.ledger.counts().values()) < 61, "the crawl has not ended before"
    web.delay_s = 0
    return said


async def test_an_exclude_ends_queued_urls_when_their_turn_comes(tmp_path, web):
    """With the disposition of a URL that is out of scope; `why` says so; the others are fetched."""
    process = await start(*crawl_of(tmp_path, web), cwd=tmp_path)
    await seen(web, 5)
    assert "scope.exclude: [] -> ['/b/']" in await changed_on_its_way(tmp_path, web, "scope.exclude+=/b/")
    assert (await ended(process)).code == 0
    statuses = crawl_log(tmp_path / "job")
    out = [url for url, status in statuses.items() if status == -5000]
    assert len(out) > 20
    assert all("/b/" in url for url in out)
    assert all(statuses[f"http://a.test/a/{number}"] == 200 for number in range(30))
    why = await anabranch("why", tmp_path / "job", out[0], cwd=tmp_path)
    assert "regex rejects" in why.out


async def test_a_limit_that_is_raised_survives_a_kill_and_the_same_command(tmp_path, web):
    """The crawl command with its old --limit continues to the new limit, and says so."""
    command = crawl_of(tmp_path, web, "--limit", "40")
    process = await start(*command, cwd=tmp_path)
    await seen(web, 4)
    assert await changed(tmp_path, "limits.pages=55") == "limits.pages: 40 -> 55\n"
    await seen(web, 45)
    process.kill()
    await process.communicate()
    again = await anabranch(*command, cwd=tmp_path)
    assert again.code == 0, again.err
    assert "limits.pages: 40 -> 55 (`anabranch set`)" in again.err
    assert sum(status == 200 for status in crawl_log(tmp_path / "job").values()) == 55


async def test_a_delay_that_is_lowered_speeds_the_crawl_up(tmp_path, web):
    """A crawl that rests after each page does so no more, but for the rest that has begun."""
    process = await start(*crawl_of(tmp_path, web, politeness={"min_delay": "1s", "max_delay": "1s"}), cwd=tmp_path)
    await seen(web, 2)
    assert web.ledger.shortest_rest("a.test") >= 1
    await changed_on_its_way(tmp_path, web, "politeness.min_delay=0", "politeness.max_delay=0")
    assert (await ended(process)).code == 0
    assert len(crawl_log(tmp_path / "job")) == 61
    visits = web.ledger.visits
    assert median(later.start_s - one.end_s for one, later in pairwise(visits)) < 1


async def test_a_stopped_job_is_changed_for_its_next_run(tmp_path, web):
    """The answer is JSON on request; what cannot be changed is refused by name, and nothing is."""
    assert (await anabranch(*crawl_of(tmp_path, web, "--limit", "3"), cwd=tmp_path)).code == 0
    run = await anabranch("set", tmp_path / "job", "limits.pages=5", "--json", cwd=tmp_path)
    assert checked(json.loads(run.out), "Changes")["changes"] == [
        {"key": "limits.pages", "was": 3, "now": 5, "line": "limits.pages: 3 -> 5"}
    ]
    ends = "limits.pages: 5 -> 2\n3 pages done already: the crawl ends at once when it is started\n"
    assert await changed(tmp_path, "limits.pages=2") == ends
    await changed(tmp_path, "limits.pages=5")
    refused = await anabranch("set", tmp_path / "job", "limits.pages=9", "frontier.policy=host", cwd=tmp_path)
    assert (refused.code, "frontier.policy: cannot be changed" in refused.err) == (2, True)
    assert (await anabranch("crawl", "--job", tmp_path / "job", cwd=tmp_path)).code == 0
    assert sum(status == 200 for status in crawl_log(tmp_path / "job").values()) == 5


async def test_all_workers_of_a_job_follow(tmp_path, web):
    """A limit for a job of two processes that had none is exact."""
    process = await start(*crawl_of(tmp_path, web, "--processes", "2"), cwd=tmp_path)
    await seen(web, 6)
    await changed(tmp_path, "limits.pages=25")  # answers stay late: the workers look for changes every 0.2 s
    run = await ended(process)
    assert run.code == 0, run.err
    status = await anabranch("status", tmp_path / "job", "--json", cwd=tmp_path)
    assert checked(json.loads(status.out))["totals"]["done"] == 25
    assert "limits.pages: 25 -> 61" in await changed(tmp_path, "limits.pages=61")
    assert (await anabranch("crawl", "--job", tmp_path / "job", cwd=tmp_path)).code == 0
    status = await anabranch("status", tmp_path / "job", "--json", cwd=tmp_path)
    assert checked(json.loads(status.out))["totals"]["done"] == 61


async def test_a_worker_that_is_started_again_follows_what_was_changed_before(tmp_path, web):
    """Its process begins by the order of the command, and takes the changes of the run from the job."""
    process = await start(*crawl_of(tmp_path, web, "--processes", "2"), cwd=tmp_path)
    await seen(web, 3)
    await changed(tmp_path, "limits.pages=25", "scope.exclude+=/nothing/")
    status = json.loads((await anabranch("status", tmp_path / "job", "--json", cwd=tmp_path)).out)
    os.kill(status["processes"]["1"], signal.SIGKILL)
    run = await ended(process)
    assert run.code == 0, run.err
    assert "it is started again" in run.err
    status = await anabranch("status", tmp_path / "job", "--json", cwd=tmp_path)
    assert checked(json.loads(status.out))["totals"]["done"] == 25


async def test_a_limit_that_is_reached_already_ends_the_crawl_and_says_so(tmp_path, web):
    """It is applied all the same."""
    process = await start(*crawl_of(tmp_path, web), cwd=tmp_path)
    await seen(web, 6)
    first, note = (await changed_on_its_way(tmp_path, web, "limits.pages=2")).splitlines()
    assert first == "limits.pages: 0 -> 2"
    assert note.endswith("pages done already: the crawl ends now")
    assert (await ended(process)).code == 0
    assert len(crawl_log(tmp_path / "job")) < 61
