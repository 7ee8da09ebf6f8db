"""A crawl reports on itself: reports of running and stopped jobs, its logs, and their formats."""

import asyncio
import json
import signal
from collections import Counter

from anabranch.crawler.report.reports import REPORTS
from anabranch.crawler.run.control import ask
from tests.acceptance.command import anabranch, ended, start, write_order
from tests.facts_schema import checked
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

SEEDS = ("http://a.test/", "http://b.test/")


def site(name):
    """A start page, ten pages and one that is not there, for a host."""
    pages = {"/": Page(links=go(*[f"/{number}" for number in range(10)], "/missing"))}
    return Host(pages=pages | {f"/{number}": Page(links=go("/")) for number in range(10)})


def web_of(**more):
    return SmallWeb({"a.test": site("a"), "b.test": site("b")}, **more)


def crawl_of(tmp_path, web, *more, **sections):
    order = write_order(tmp_path, web.hosts, **sections)
    return ("crawl", *SEEDS, "-c", order, "--job", tmp_path / "job", *more)


async def reported(tmp_path, name, *more):
    """The report as JSON."""
    run = await anabranch("report", tmp_path / "job", name, "--json", *more, cwd=tmp_path)
    assert run.code == 0, run.err
    return checked(json.loads(run.out), "Report")


def lines(tmp_path, name):
    return (tmp_path / "job" / name).read_text().splitlines()


async def crawled(tmp_path, *more, **sections):
    async with web_of() as web:
        run = await anabranch(*crawl_of(tmp_path, web, *more, **sections), cwd=tmp_path)
    assert run.code == 0, run.err
    return run


async def test_a_finished_job_has_a_file_of_each_report_and_they_agree_with_its_log(tmp_path):
    """Two hosts of eleven pages and a missing one each; robots.txt beside them."""
    await crawled(tmp_path)
    folder = tmp_path / "job" / "reports"
    assert {kind.file for kind in REPORTS.values()} == {file.name for file in folder.iterdir()}
    log = [line.split() for line in lines(tmp_path, "logs/crawl.log")]
    statuses = Counter(int(fields[1]) for fields in log if not fields[3].startswith("dns:"))
    rows = (await reported(tmp_path, "response-codes"))["rows"]
    assert {row["rescode"]: row["#urls"] for row in rows if row["rescode"] != 1} == dict(statuses)
    hosts = {row["host"]: row["#urls"] for row in (await reported(tmp_path, "hosts"))["rows"]}
    assert hosts["a.test"] == hosts["b.test"] == 13
    assert "Crawl Status: finished: nothing is queued" in (folder / "crawl-report.txt").read_text()
    assert "URIs Failed to Crawl: 0" in (folder / "crawl-report.txt").read_text()


async def test_each_url_names_the_seed_that_led_to_it(tmp_path):
    """In the eleventh field of crawl.log and in the source report; not if the order says so."""
    await crawled(tmp_path)
    for fields in map(str.split, lines(tmp_path, "logs/crawl.log")):
        assert (
            fields[10] == f"http://{fields[3].split('/')[2] if '/' in fields[3] else fields[3].removeprefix('dns:')}/"
        )
    assert {(row["source"], row["host"]) for row in (await reported(tmp_path, "source"))["rows"]} >= {
        ("http://a.test/", "a.test"),
        ("http://b.test/", "b.test"),
    }


async def test_without_source_tags_no_seed_is_named(tmp_path):
    """[job] source_tags = false."""
    await crawled(tmp_path, "-s", "job.source_tags=false")
    assert {line.split()[10] for line in lines(tmp_path, "logs/crawl.log")} == {"-"}


async def test_a_running_crawl_answers_for_every_report_and_goes_on(tmp_path):
    """Paused in the middle, so that it does not end meanwhile."""
    async with web_of(delay_s=0.1) as web:
        process = await start(*crawl_of(tmp_path, web, politeness={"max_connections": 1}), cwd=tmp_path)
        while not web.ledger.counts().total():
            await asyncio.sleep(0.005)
        assert await asyncio.to_thread(ask, tmp_path / "job" / "state", "crawl-pause", {})
        facts = {name: await reported(tmp_path, name) for name in REPORTS}
        assert (await anabranch("resume", tmp_path / "job", cwd=tmp_path)).code == 0
        run = await ended(process)
    assert facts["crawl-summary"]["facts"]["Crawl Status"] == "paused by the operator"
    assert facts["response-codes"]["rows"]
    assert facts["frontier-nonempty"]["rows"]
    assert run.code == 0, run.err
    assert len(lines(tmp_path, "pages.jsonl")) == 24


async def test_the_progress_log_has_its_legend_its_lines_and_what_happened(tmp_path):
    """Heritrix's columns; RUNNING at the beginning, ENDED at the end."""
    await crawled(tmp_path, "-s", "report.statistics_interval=50ms")
    first, *others = lines(tmp_path, "logs/progress-statistics.log")
    assert first.split()[:4] == ["timestamp", "discovered", "queued", "downloaded"]
    events = [line.split()[2] for line in others if " CRAWL " in line]
    assert events == ["RUNNING", "ENDING", "ENDED"]
    last = [line.split() for line in others if " CRAWL " not in line][-1]
    assert last[1:4] == ["24", "0", "24"]


async def test_errors_have_a_line_for_each_try_that_failed(tmp_path):
    """With what went wrong, and whether the URL comes again."""
    async with web_of() as web:
        order = write_order(tmp_path, {**web.hosts, "b.test": "127.0.0.1:1"})
        process = await start("crawl", *SEEDS, "-c", order, "--job", tmp_path / "job", cwd=tmp_path)
        log = tmp_path / "job" / "logs" / "errors.jsonl"
        while not (log.exists() and log.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        run = await ended(process)
    failed = [json.loads(line) for line in lines(tmp_path, "logs/errors.jsonl")]
    assert {one["url"] for one in failed} == {"http://b.test/"}, run.err
    assert all(one["exception"] for one in failed)


async def test_events_are_json_in_a_file_if_the_order_says_so(tmp_path):
    """Nothing of them is left on standard error."""
    run = await crawled(tmp_path, "-s", "logs.format=json", "-s", "logs.file=events.jsonl", agent={"contact": ""})
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert "no contact is configured" in events[0]["event"]
    assert "no contact" not in run.err


async def test_links_are_written_if_the_order_says_so(tmp_path):
    """A line for each page that has some."""
    await crawled(tmp_path, "-s", "write.links=true", "-s", "write.pages=false")
    found = {line["url"]: len(line["links"]) for line in map(json.loads, lines(tmp_path, "links.jsonl"))}
    assert found["http://a.test/"] == 11
    assert not (tmp_path / "job" / "pages.jsonl").exists()


async def test_without_reports_none_is_written_at_the_end(tmp_path):
    """They can be asked for all the same."""
    await crawled(tmp_path, "-s", "report.reports=false")
    assert list((tmp_path / "job" / "reports").iterdir()) == []
    assert (await reported(tmp_path, "mimetypes"))["rows"]
