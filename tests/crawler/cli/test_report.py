"""`anabranch report` on a stopped job, and on one that runs."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from anabranch.crawler.cli.report import run_report
from anabranch.crawler.jobs.seeds import Seed, SeedBook
from anabranch.crawler.operating.control import Control
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.crawler.outcomes.failures import ConnectFailed
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.reporting.error_log import Failure, error_line
from tests.crawler.cli.test_frontier import URLS, make_job


class Logged(NamedTuple):
    """What a journal writes of a visit, as far as accounts care."""

    crawl_log: bytes | None


@pytest.fixture
def job(tmp_path: Path, monkeypatch) -> Path:
    """A job that was killed: lines were logged that the rows of its accounts do not count yet."""
    monkeypatch.chdir(tmp_path)
    directory = make_job(tmp_path / "jobs" / "news", URLS, fetched=1)
    lines = [
        CrawlLogEntry(logged_s=0.0, status=200, size_bytes=5, url=f"http://{host}.test/", mime="a/b", worker=1)
        for host in "aab"
    ]
    accounts = Accounts(directory / "state", directory / "logs" / "crawl.log", lambda: 0.0)
    accounts.append([Logged(crawl_log_line(line)) for line in lines])
    accounts.keep()
    with SeedBook(directory / "state" / "seeds.jsonl") as book:
        book.add(Seed(url=URLS[0], source="given"))
    return directory


def printed(capsys, *, name="crawl-summary", job="news", limit=1000, as_json=False, code=ExitCode.DONE) -> str:
    assert run_report(job, name, limit=limit, as_json=as_json) == code
    out, err = capsys.readouterr()
    assert (err == "") == (code == ExitCode.DONE)
    return out or err


def test_the_summary_of_a_stopped_job_is_of_all_its_runs(job, capsys) -> None:
    """Lines that a crash kept from being counted are in it."""
    text = printed(capsys)
    assert "Crawl Name: news\nCrawl Status: Stopped: 2 URLs are queued\n" in text
    assert "Total Seeds Crawled: 1\n" in text
    assert "URIs Crawled successfully: 3\n" in text
    assert printed(capsys) == text  # asking counts nothing


@pytest.mark.parametrize("log", ["logs", "shares/1/logs"])
def test_a_seed_that_failed_has_the_reason_that_was_logged(job, capsys, log) -> None:
    """Unless it was answered later."""
    (job / log).mkdir(parents=True, exist_ok=True)
    with SeedBook(job / "state" / "seeds.jsonl") as book:
        book.add(Seed(url=URLS[1], source="given"))
    failures = [
        Failure(time_s=0.0, url=url, status=-2, attempt=1, is_final=False, error=ConnectFailed(why))
        for url, why in ((URLS[0], "refused"), (URLS[1], "timed out"), (URLS[1], "refused"))
    ]
    (job / log / "errors.jsonl").write_bytes(b"".join(map(error_line, failures)))
    rows = [line.split(maxsplit=3) for line in printed(capsys, name="seeds").splitlines()[1:]]
    assert rows == [["0", "NOTCRAWLED", URLS[1], "refused"], ["200", "CRAWLED", URLS[0]]]


def test_only_reports_of_seeds_need_the_operators_own_key_function(job, capsys) -> None:
    """A module that is not there now keeps nobody from what the hosts have sent."""
    order = job / "order.toml"
    order.write_text(
        re.sub(r"canonicalization = \[[^]]*]", 'canonicalization = ["no_such_module:key"]', order.read_text())
    )
    assert "a.test" in printed(capsys, name="hosts")
    assert "no_such_module" in printed(capsys, name="seeds", code=ExitCode.BAD_ORDER)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("seeds", "   200 CRAWLED    http://a.test/0\n"),
        ("hosts", "2 10 a.test 0 2 2 10 0 0 0 0\n"),
        ("mimetypes", "3 15 a/b\n"),
        ("response-codes", "3 200\n"),
        ("frontier-summary", "URIs queued: 2\n"),
        ("frontier-nonempty", "\na.test "),
        ("processors", "fetch answers 3\n"),
    ],
)
def test_every_report_is_had_of_a_stopped_job(job, capsys, name, line) -> None:
    """By its name."""
    assert line in printed(capsys, name=name)


def test_a_seed_is_found_by_its_key_for_dedup(job, capsys) -> None:
    """Which is not the URL that was given, if the order's rules take something away: it was crawled all the same."""
    with SeedBook(job / "state" / "seeds.jsonl") as book:
        book.add(Seed(url=f"{URLS[0]};jsessionid=0123456789abcdef", source="given"))
    assert f"   200 CRAWLED    {URLS[0]};jsessionid=0123456789abcdef\n" in printed(capsys, name="seeds")


def test_json_is_for_programs(job, capsys) -> None:
    """Rows by their heads, as many as were asked for."""
    said = json.loads(printed(capsys, name="hosts", limit=1, as_json=True))
    assert said["more"] is True
    assert said["rows"][0]["host"] == "a.test"
    assert "… and more; --limit shows them" in printed(capsys, name="hosts", limit=1)


def test_an_unknown_name_is_one_line(job, capsys) -> None:
    """With the names there are."""
    line = printed(capsys, name="nosuch", code=ExitCode.USAGE)
    assert line.startswith("anabranch: there is no report 'nosuch'; choose one of crawl-summary, ")
    assert line.count("\n") == 1


def test_an_unknown_job_is_one_line(job, capsys) -> None:
    """As for every command."""
    assert "there is no such job" in printed(capsys, job="nosuch", code=ExitCode.USAGE)


async def test_a_running_crawl_is_asked(job, capsys) -> None:
    """Through its socket: the job is its own."""
    asked = []

    async def answer(verb, arguments):
        asked.append((verb, dict(arguments)))
        return {"heads": ["#urls", "rescode"], "rows": [{"#urls": 1, "rescode": 200}], "more": False, "widths": []}

    async with Control(job / "state", answer):
        code = await asyncio.to_thread(run_report, "news", "response-codes", limit=5, as_json=False)
    assert code == ExitCode.DONE
    assert capsys.readouterr().out == "[#urls] [rescode]\n1 200\n"
    assert asked == [("report", {"name": "response-codes", "limit": 5})]
