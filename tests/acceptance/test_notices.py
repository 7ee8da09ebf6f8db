"""Notices of the end of a crawl, from the command that crawls."""

import json

import pytest

from tests.acceptance.command import anabranch, write_order
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
