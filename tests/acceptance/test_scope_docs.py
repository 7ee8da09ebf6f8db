"""What docs/scope.md says, held against what is there: the table of rules, the example of functions of one's own."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from crawler.orders.scope import ScopeSection
from crawler.scope.opening import open_scope
from tests.acceptance.command import REPOSITORY, anabranch, crawl_log, write_order
from tests.site.page import Host, Page, Web, file, go
from tests.site.server import SmallWeb

TEXT = (REPOSITORY / "docs" / "scope.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The one fenced block of that language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return found


def test_the_rules_stand_in_the_table_in_their_order() -> None:
    """By name, all that an order can ask for."""
    section = ScopeSection(include=("x",), exclude=("x",), accept=("a.test",), reject=("b.test",))
    named = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert named == [rule.name for rule in open_scope(section).rules]


WEB: Web = {
    "a.test": Host(
        pages={
            "/": Page(links=go("/a", "/a?print=1", "/draft")),
            "/a": Page(),
            "/draft": file("text/html", b'<p>DRAFT <a href="/from-draft">x</a>'),
            "/from-draft": Page(),
            "/broken": Page(),
        }
    )
}


def example(folder: Path, web: SmallWeb) -> Path:
    """The folder of somebody who has done what the page says: the module, and the order."""
    name, _, text = block("python").partition("\n")
    (folder / name.removeprefix("# ")).write_text(text)
    return write_order(folder, web.hosts, **tomllib.loads(block("toml")))


async def test_the_functions_of_the_example_do_what_they_say(tmp_path: Path) -> None:
    """The print version is left; the draft has its line, with its note, and leads nowhere."""
    async with SmallWeb(WEB) as web:
        order = example(tmp_path, web)
        run = await anabranch("crawl", "http://a.test/", "-c", order, "--job", "job", cwd=tmp_path)
        assert run.code == 0, run.err
        assert crawl_log(tmp_path / "job") == dict.fromkeys(
            ["http://a.test/", "http://a.test/a", "http://a.test/draft"], 200
        )
        (line,) = [
            line
            for line in (tmp_path / "job/logs/crawl.log").read_text().splitlines()
            if "http://a.test/draft " in line
        ]
        assert line.endswith(" draft")
        said = (await anabranch("why", "job", "http://a.test/a?print=1", cwd=tmp_path)).out
        assert "(ours:no_prints)" in said
        assert "ours:no_prints rejects: the operator's own" in said
        validated = await anabranch("config", "validate", order, cwd=tmp_path)
        assert (validated.code, validated.err) == (0, "")


async def test_a_function_that_is_not_there_is_one_line_before_anything_begins(tmp_path: Path) -> None:
    """By `config validate` all of them at once, by `crawl` the first; no folder is left behind."""
    (tmp_path / "ours.py").write_text("def plain(visit): ...\n")
    order = write_order(
        tmp_path,
        {},
        scope={"rules": ["ours:nothing"]},
        job={"processors": ["ours:plain", "nosuch.module:x"]},
        urls={"canonicalization": ["ours:missing"]},
    )
    validated = await anabranch("config", "validate", order, cwd=tmp_path)
    assert validated.code == 4
    wrong = validated.err.splitlines()
    assert len(wrong) == 4
    assert "[urls] canonicalization ours:missing cannot be imported" in wrong[0]
    assert "[scope] rules ours:nothing cannot be imported" in wrong[1]
    assert "[job] processors ours:plain is not async; write `async def plain(visit)`" in wrong[2]
    assert "[job] processors nosuch.module:x cannot be imported" in wrong[3]
    run = await anabranch("crawl", "http://a.test/", "-c", order, "--job", "job", cwd=tmp_path)
    assert (run.code, len(run.err.splitlines())) == (4, 1)
    assert not (tmp_path / "job").exists()


async def test_functions_that_fail_cost_their_url_and_not_the_crawl(tmp_path: Path) -> None:
    """Status -5 and a line in errors.jsonl; the other pages are crawled."""
    (tmp_path / "ours.py").write_text(
        "def rule(target):\n    return 1 / 0 if target.url.endswith('/broken') else None\n"
        "async def processor(visit):\n    return 'yes' if visit.lease.url.endswith('/a') else None\n"
    )
    async with SmallWeb(WEB) as web:
        own = {"scope": {"rules": ["ours:rule"]}, "job": {"processors": ["ours:processor"]}}
        order = write_order(tmp_path, web.hosts, **own)
        run = await anabranch("crawl", "http://a.test/", "-c", order, "--job", "job", cwd=tmp_path)
        assert run.code == 0, run.err
        assert crawl_log(tmp_path / "job")["http://a.test/a"] == -5
        assert crawl_log(tmp_path / "job")["http://a.test/draft"] == 200
        errors = (tmp_path / "job/logs/errors.jsonl").read_text()
        assert "ours:processor answered 'yes'; it must be a Step or None" in errors
        seeded = await anabranch("crawl", "http://a.test/broken", "-c", order, "--job", "job", cwd=tmp_path)
        assert "Traceback" not in seeded.out
        assert crawl_log(tmp_path / "job")["http://a.test/broken"] == -5


async def test_the_trace_that_the_page_shows_is_what_why_says(tmp_path: Path) -> None:
    """Line by line, but for the queue and what its gate allows, which are the job's own."""
    (shown,) = re.findall(r"^    \$ anabranch why example (\S+)\n((?:    .*\n)+)", TEXT, re.MULTILINE)
    url, lines = shown[0], [line.removeprefix("    ") for line in shown[1].splitlines()]
    async with SmallWeb({"www.example.org": Host(pages={"/": Page()})}) as web:
        order = write_order(tmp_path, web.hosts, scope={"max_path_repeats": 2})
        run = await anabranch("crawl", "http://www.example.org/", "-c", order, "--job", "jobs/example", cwd=tmp_path)
        assert run.code == 0, run.err
        said = (await anabranch("why", "example", url, cwd=tmp_path)).out.splitlines()
    assert len(said) == len(lines)
    assert [line for number, line in enumerate(said) if number not in (1, 3)] == [
        line for number, line in enumerate(lines) if number not in (1, 3)
    ]
