"""Notices of the end of a crawl, from the command that crawls."""

import asyncio
import json

import pytest

from anabranch.dedup.files.durable import checked_line
from tests.acceptance.command import anabranch, ended, start, write_order
from tests.acceptance.console_process import running_console
from tests.facts_schema import checked
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb
from tests.site.webhook import receiving

TABLE = {"a.test": Host(pages={"/": Page(links=go("/1", "/2")), "/1": Page(), "/2": Page()})}
SECRET = "correct horse battery staple"


@pytest.fixture
async def web():
    """Few pages."""
    async with SmallWeb(TABLE) as served:
        yield served


async def test_a_crawl_tells_a_command_and_a_webhook_of_its_end(tmp_path, web) -> None:
    """With the facts of `status --json`, as the job was left; a webhook that fails at first gets them later."""
    order = write_order(tmp_path, web.hosts, job={"name": "news"})
    told = ("--on-end-allow-private", "--on-end-command", "tee end.json")
    with receiving(500) as receiver:
        done = await anabranch(
            *("crawl", "-c", order, "http://a.test/", *told, "--on-end-webhook", receiver.address()),
            cwd=tmp_path,
            WEBHOOK_SECRET=SECRET,
        )
        assert (done.code, done.err) == (0, ""), done
        tries = [receiver.next() for _ in range(2)]
    assert tries[0].body == tries[1].body
    status = json.loads((await anabranch("status", "news", "--json", cwd=tmp_path)).out)
    for text in (tries[0].body, (tmp_path / "end.json").read_text()):
        facts = checked(json.loads(text)["data"])
        assert {**facts, "free_disk_bytes": 0} == {**status, "free_disk_bytes": 0}
        assert (facts["state"], facts["ended"]["why"]) == ("finished", "finished")


async def test_a_crawl_that_fails_tells_so_and_one_that_never_began_does_not(tmp_path, web) -> None:
    """The exit code is that of the crawl."""
    order = write_order(tmp_path, web.hosts, job={"name": "news"})
    told = ("--on-end-command", "tee end.json")
    done = await anabranch("crawl", "-c", order, "http://a.test/", *told, "-s", "crawl.workers=0", cwd=tmp_path)
    assert done.code == 2
    assert not (tmp_path / "end.json").exists()
    done = await anabranch("crawl", "-c", order, "http://a.test/", "--limit", "1", *told, cwd=tmp_path)
    assert json.loads((tmp_path / "end.json").read_text())["data"]["ended"]["why"] == "page_limit"
    assert done.code == 0


@pytest.mark.parametrize("where", ["file", "setting", "variable"])
async def test_an_order_cannot_say_what_runs_at_the_end(tmp_path, web, where) -> None:
    """One line, and where it belongs."""
    order = write_order(tmp_path, web.hosts, job={"on_end_command": "x"} if where == "file" else {})
    more = ("-s", "job.on_end_command=x") if where == "setting" else ()
    variables = {"ANABRANCH_JOB__ON_END_COMMAND": "x"} if where == "variable" else {}
    done = await anabranch("crawl", "-c", order, "http://a.test/", *more, cwd=tmp_path, **variables)
    assert done.code in {2, 4}
    assert "is unknown; what runs when a crawl ends is no part of an order: give --on-end-command to" in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "jobs").exists()


HOOKED = ("--on-end-allow-private", "--on-end-webhook")


async def test_a_console_tells_of_the_end_of_every_crawl_of_its_folder(tmp_path, web) -> None:
    """One that was started elsewhere and is killed is told, too; what was ended before is no news."""
    order = write_order(tmp_path, {**web.hosts, "slow.test": "127.0.0.1:1"}, job={"name": "news"})
    assert (await anabranch("crawl", "-c", order, "http://a.test/", "--name", "old", cwd=tmp_path)).code == 0
    with receiving(500, 500) as receiver:
        async with running_console(tmp_path, more=(*HOOKED, receiver.address()), WEBHOOK_SECRET=SECRET) as console:
            crawl = await start("crawl", "-c", order, "http://slow.test/", "--name", "news", cwd=tmp_path)
            while "news" not in {row["job"] for row in await console.get("jobs")}:
                await asyncio.sleep(0.05)
            await console.until("news", "running")
            await console.post("jobs/news/pause")  # and so the console looks at the job
            crawl.kill()
            await ended(crawl)
            first = await asyncio.to_thread(receiver.next)
            facts = checked(json.loads(first.body)["data"])
            assert (facts["job"], facts["state"], facts["ended"]["why"]) == ("news", "killed", "killed")
            while not (found := await console.get("jobs/news/notices"))[0]["tries"]:
                await asyncio.sleep(0.05)
            notice = checked(found[0], "Notice")
            assert (notice["to"], notice["tries"]) == ("webhook", 1)
            assert notice["error"].endswith("answered 500, no 2xx")
            assert 'anabranch_job_undelivered_notices{job="news"} 1.0' in (await console.client.get("/metrics")).text
        # The console was killed: the next one goes on with what was not delivered.
        (file,) = (tmp_path / "state" / "notices").glob("*.webhook.json")
        file.write_bytes(checked_line(file.read_bytes()[9:].strip().replace(b"%r" % notice["next_s"], b"0.0")))
        async with running_console(
            tmp_path, more=(*HOOKED, receiver.address()), token=console.token, WEBHOOK_SECRET=SECRET
        ) as console:
            assert (await asyncio.to_thread(receiver.next)).body == first.body
            while (await console.get("jobs/news/notices"))[0]["tries"] != 2:
                await asyncio.sleep(0.05)
            assert receiver.received.empty()


async def test_a_second_console_of_one_folder_delivers_nothing(tmp_path) -> None:
    """It does not start, and says which process does."""
    async with running_console(tmp_path, more=("--on-end-command", "true")) as console:
        done = await anabranch(
            *("console", "jobs", "--listen", "127.0.0.1:1", "--state", tmp_path / "state", "--on-end-command", "true"),
            cwd=tmp_path,
        )
        assert done.code == 2
        assert f"process {console.process.pid} delivers the notices of " in done.err
