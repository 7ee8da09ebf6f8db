"""Rounds of a job: every line says its own, and what the command says at the end is what its reports say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.command import anabranch, write_order
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

SEED = "http://a.test/"
TABLE = {"a.test": Host(pages={"/": Page(links=go("/1", "/2")), "/1": Page(), "/2": Page()})}


@pytest.fixture
async def job(tmp_path: Path) -> Path:
    """A job of three rounds: the folder that it is in; its command's last words are in `said`."""
    async with SmallWeb(TABLE) as web:
        command = ("crawl", SEED, "-c", write_order(tmp_path, web.hosts), "--job", "job")
        for more in ((), ("--again",), ("--again",)):
            run = await anabranch(*command, *more, cwd=tmp_path)
            assert run.code == 0, run.err
        (tmp_path / "said").write_text(run.out)
    return tmp_path


async def test_each_line_says_its_round(job: Path) -> None:
    """Lines of crawl.log have the round as their last note, robots.txt too; lines of pages.jsonl have it as a field."""
    lines = (job / "job" / "logs" / "crawl.log").read_text().splitlines()
    assert [line.split()[11].split(",")[-1] for line in lines] == [f"round:{n}" for n in (1, 2, 3) for _ in range(4)]
    pages = (job / "job" / "pages.jsonl").read_text().splitlines()
    assert [json.loads(page)["round"] for page in pages] == [n for n in (1, 2, 3) for _ in range(3)]


async def test_the_last_words_and_the_reports_count_alike(job: Path) -> None:
    """A round's pages, and those of all rounds, as the lines have them."""
    said = (job / "said").read_text()
    assert "round 3        3 pages, 0 failed, 0 excluded\n" in said
    assert "all rounds     9 pages, 0 failed, 0 excluded\n" in said
    report = (await anabranch("report", "job", "crawl-summary", cwd=job)).out
    assert "Round: 3\nURIs Processed in This Round: 4\n" in report
    assert "URIs Processed: 12\n" in report
    assert (job / "job" / "reports" / "crawl-report.txt").read_text().count("URIs Processed in This Round: 4\n") == 1


async def test_lines_of_before_rounds_were_noted_are_counted_with_the_others(job: Path) -> None:
    """A job of an older version goes on; `why` finds its lines."""
    log = job / "job" / "logs" / "crawl.log"
    log.write_text(log.read_text().replace("round:1", "-"))
    why = await anabranch("why", "job", f"{SEED}1", cwd=job)
    assert why.code == 0, why.err
    report = (await anabranch("report", "job", "crawl-summary", cwd=job)).out
    assert "URIs Processed: 12\n" in report
