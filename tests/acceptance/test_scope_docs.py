"""docs/how-to/scope.md is true: its table of rules, its example of user functions, and the output that it shows."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.scope.scope import open_scope
from tests.acceptance.archive import archived
from tests.acceptance.command import REPOSITORY, anabranch, crawl_log, ended, start, write_order
from tests.site.page import Host, Link, Page, Web, file, go
from tests.site.server import SmallWeb

TEXT = (REPOSITORY / "docs" / "how-to" / "scope.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The one fenced block of that language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return found


def urls_of(path: Path) -> set[str]:
    """The pages that a file of lines is about."""
    return {json.loads(line)["url"] for line in path.read_text().splitlines()}


def test_the_rules_stand_in_the_table_in_their_order() -> None:
    """By name, all that an order can ask for."""
    section = ScopeSection(
        include=("x",), exclude=("x",), accept=("a.test",), reject=("b.test",), ignore=("calendars",)
    )
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
    """The print version is left; the draft has its line, with its note, is kept nowhere else, and leads nowhere."""
    async with SmallWeb(WEB) as web:
        order = example(tmp_path, web)
        options = ("-c", order, "--job", "job", "--warc", "--links")
        run = await anabranch("crawl", "http://a.test/", *options, cwd=tmp_path)
        assert run.code == 0, run.err
        assert crawl_log(tmp_path / "job") == dict.fromkeys(
            ["http://a.test/", "http://a.test/a", "http://a.test/draft"], 200
        )
        (line,) = [
            line
            for line in (tmp_path / "job/logs/crawl.log").read_text().splitlines()
            if "http://a.test/draft " in line
        ]
        assert line.endswith(" stopped=ours:no_drafts,draft,round:1")
        kept = {name: urls_of(tmp_path / "job" / name) for name in ("pages.jsonl", "links.jsonl")}
        assert kept == {"pages.jsonl": {"http://a.test/", "http://a.test/a"}, "links.jsonl": {"http://a.test/"}}
        archive = archived(tmp_path / "job")
        assert (len(archive.of("http://a.test/a")), archive.of("http://a.test/draft")) == (1, [])
        said = (await anabranch("why", "job", "http://a.test/a?print=1", "-c", order, cwd=tmp_path)).out
        assert "(ours:no_prints)" in said
        assert "ours:no_prints rejects: the operator's own" in said
        validated = await anabranch("config", "validate", order, cwd=tmp_path)
        assert (validated.code, validated.err) == (0, "")


OWN = """
def queue(url): return "all"
def key(url): return url
def rule(target): return None
async def process(visit): visit.notes += ("seen",)
"""


@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.slow), "2"])
async def test_own_functions_are_found_beside_the_order_file_by_every_command(tmp_path: Path, processes: str) -> None:
    """Wherever it is run; later without the file, too, if the caller trusts the job: it keeps where they are."""
    conf, elsewhere = tmp_path / "conf", tmp_path / "elsewhere"
    conf.mkdir()
    elsewhere.mkdir()
    (conf / "beside.py").write_text(OWN)
    order = write_order(
        conf,
        {},
        frontier={"policy": "beside:queue"},
        urls={"canonicalization": ["beside:key"]},
        scope={"rules": ["beside:rule"]},
        job={"processors": ["beside:process"]},
        fetch={"allow_private": False},
    )
    job = ("--job", "job", "--processes", processes)
    seed = "http://127.0.0.1:9/"
    for command, code in [
        (("config", "validate", "../conf/order.toml"), 0),
        (("crawl", seed, "-c", "../conf/order.toml", *job), 5),
        (("crawl", f"{seed}x", *job), 2),
        (("crawl", f"{seed}x", *job, "--run-code"), 5),
        (("frontier", "ls", "job", "--run-code"), 0),
        (("why", "job", seed, "--run-code"), 0),
        (("report", "job", "--run-code"), 0),
        (("crawl", seed, "-c", order, *job), 5),
        (("frontier", "dump", "job", "-o", "dump", "--run-code"), 0),
        (("frontier", "load", "job", "dump", "--run-code"), 0),
    ]:
        run = await anabranch(*command, cwd=elsewhere)
        assert (run.code, "cannot be imported" in run.err) == (code, False), (command, run.err)


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


FAILING = """
from anabranch.crawler.visit import Step


def rule(target):
    if target.url.endswith("/no-rule"):
        raise SystemExit("not for us")


def key(url):
    return 1 / 0 if url.endswith("/no-key") else url


async def processor(visit):
    match visit.lease.url.rpartition("/")[2]:
        case "none":
            visit.notes = None
        case "gone":
            del visit.links
        case "closed":
            visit.response.body.close()
        case "lost":
            visit.lost.append("x")
        case "more":
            visit.response.body.append(b"MORE")
        case "exit":
            raise SystemExit(1)
        case "answer":
            return "yes"
"""
SPOILT = {
    "none": "has spoilt visit.notes: it must be a tuple of texts",
    "gone": "has spoilt visit.links: it must be a list of links",
    "closed": "has spoilt visit.response.body: it may not be closed",
    "lost": "has spoilt visit.lost: it may not be changed",
    "more": "failed: ValueError: the body is complete, and takes no more bytes",
    "exit": "failed: SystemExit: 1",
    "answer": "answered 'yes'; it must be a Step or None",
}
LOST = {
    "no-rule": "rule ours:rule failed: SystemExit: not for us",
    "no-key": "key function ours:key failed: ZeroDivisionError: division by zero",
}
FAILING_WEB: Web = {
    "a.test": Host(
        pages={
            "/": Page(links=go("/a", *(f"/{name}" for name in (*SPOILT, *LOST)), "/z")),
            **{f"/{name}": Page() for name in ("a", "z", *SPOILT, *LOST)},
        }
    )
}


async def test_functions_that_fail_cost_their_url_or_link_and_not_the_crawl(tmp_path: Path) -> None:
    """Status -5 and the function's name, or a link less; the other pages are crawled, and archived."""
    (tmp_path / "ours.py").write_text(FAILING)
    async with SmallWeb(FAILING_WEB) as web:
        own = {
            "scope": {"rules": ["ours:rule"]},
            "job": {"processors": ["ours:processor"]},
            "urls": {"canonicalization": ["ours:key"]},
        }
        order = write_order(tmp_path, web.hosts, write={"warc": True, "links": True}, **own)
        run = await anabranch("crawl", "http://a.test/", "-c", order, "--job", "job", cwd=tmp_path)
        assert run.code == 6, run.err  # most have failed
        assert crawl_log(tmp_path / "job") == {
            **dict.fromkeys(["http://a.test/", "http://a.test/a", "http://a.test/z"], 200),
            **{f"http://a.test/{name}": -5 for name in SPOILT},
        }
        logged = (tmp_path / "job/logs/crawl.log").read_text().splitlines()
        assert [line.split()[11] for line in logged if line.split()[3] == "http://a.test/"] == ["fol:2,round:1"]
        assert sum("err=UserFunctionFailed,processor=ours:processor" in line for line in logged) == len(SPOILT)
        errors = [json.loads(line) for line in (tmp_path / "job/logs/errors.jsonl").read_text().splitlines()]
        assert {entry["url"].rpartition("/")[2]: entry["message"] for entry in errors} == LOST | {
            name: f"processor ours:processor {what}" for name, what in SPOILT.items()
        }
        assert all("in rule" in entry["traceback"][-1] for entry in errors if entry["url"].endswith("/no-rule"))
        seeded = await anabranch("crawl", "http://a.test/no-rule", "-c", order, "--job", "job", cwd=tmp_path)
        assert "Traceback" not in seeded.out
        assert crawl_log(tmp_path / "job")["http://a.test/no-rule"] == -5
        (line,) = [line for line in seeded.err.splitlines() if "http://a.test/no-rule" in line and "failed" in line]
        assert "rule failed" in line


LATE = """
async def late(target):
    return True


class Later:
    async def __call__(self, *given):
        return 1


later = Later()
"""


async def test_an_async_rule_or_key_is_refused_before_anything_begins(tmp_path: Path) -> None:
    """It would answer no link."""
    (tmp_path / "ours.py").write_text(LATE)
    for section, key, words in (
        ("scope", "rules", "a rule must answer at once; write `def late(target)`"),
        ("urls", "canonicalization", "a key function must answer at once; write `def late(url)`"),
    ):
        order = write_order(tmp_path, {}, **{section: {key: ["ours:late"]}})
        for command in (("config", "validate", order), ("crawl", "http://a.test/", "-c", order, "--job", "job")):
            run = await anabranch(*command, cwd=tmp_path)
            assert run.code == 4
            (line,) = run.err.splitlines()
            assert f"[{section}] {key} ours:late is async, and {words}" in line
    for section, key, what in (
        ("frontier", "policy", "policy"),
        ("frontier", "cost", "cost"),
        ("politeness", "group", "group"),
    ):
        order = write_order(tmp_path, {}, **{section: {key: "ours:later"}})
        for command in (("config", "validate", order), ("crawl", "http://a.test/", "-c", order, "--job", "job")):
            run = await anabranch(*command, cwd=tmp_path)
            assert (run.code, len(run.err.splitlines())) == (4, 1)
            assert f"{what} ours:later is async, and must answer at once" in run.err
    assert not (tmp_path / "job").exists()


async def test_what_the_page_shows_is_what_why_says(tmp_path: Path) -> None:
    """Line by line, of a job with the default politeness."""
    shown = re.findall(r"^    \$ anabranch why example (\S+)\n((?:    .*\n)+)", TEXT, re.MULTILINE)
    assert len(shown) == 2
    politeness = {"min_delay": 3, "max_delay": 30}
    async with SmallWeb({"www.example.org": Host(pages={"/": Page()})}) as web:
        alone = {"robots": {"robots": "ignore"}, "scope": {"max_path_repeats": 2}}  # one fetch, nothing to wait for
        order = write_order(tmp_path, web.hosts, politeness=politeness, **alone)
        run = await anabranch("crawl", "http://www.example.org/", "-c", order, "--job", "jobs/example", cwd=tmp_path)
        assert run.code == 0, run.err
    for url, text in shown:
        said = (await anabranch("why", "example", url, cwd=tmp_path)).out.splitlines()
        assert said == [line.removeprefix("    ") for line in text.splitlines()]


async def test_why_says_of_a_robots_txt_what_the_job_knows(tmp_path: Path) -> None:
    """Beside the crawl what it has in mind, after it what stands in its log; it has no queue and no scope."""
    page = file("text/plain", b"User-agent: *\nDisallow: /x\n")
    url = "http://a.test/robots.txt"
    async with SmallWeb({"a.test": Host(pages={"/": Page(links=go("/1")), "/1": Page(), "/robots.txt": page})}) as web:
        order = write_order(tmp_path, web.hosts, limits={"pages": 1, "on_limit": "pause"})
        crawl = await start("crawl", "http://a.test/", "-c", order, "--job", "job", cwd=tmp_path)
        while "paused" not in (await anabranch("status", "job", cwd=tmp_path)).out:
            assert crawl.returncode is None
        said = (await anabranch("why", "job", url, cwd=tmp_path)).out
        assert said.startswith(f"{url}: precondition\n  gate a.test\n  it is no page")
        assert re.search(r"its rules for \* apply for another (1d|23h 59m)", said), said
        await anabranch("stop", "job", "--wait", cwd=tmp_path)
        await ended(crawl)
        said = (await anabranch("why", "job", url, cwd=tmp_path)).out
        assert "it was answered with 200 OK; the crawl that goes on asks for it again" in said
        assert "crawl.log has no answer of it" in (await anabranch("why", "job", f"https{url[4:]}", cwd=tmp_path)).out


async def test_the_rules_before_the_body_do_what_they_say(tmp_path: Path) -> None:
    """The example of the page, on a host with films; `why` names the rules before and after."""
    section = TEXT.partition("## Before the body")[2].partition("\n## ")[0]
    entries = textwrap.dedent("\n".join(re.findall(r"^    (?:\[\[body.*|\w+ = .*)$", section, re.MULTILINE)))
    host = "http://films.example.org"
    film = file("video/mp4", b"x" * 1000)
    pages = {"/": Page(links=(*go("/1.mp4", "/page"), Link("/2.mp4", "/2.mp4", tag="img", hop="E"))), "/page": Page()}
    web = {"films.example.org": Host(pages={**pages, "/1.mp4": film, "/2.mp4": film})}
    async with SmallWeb(web) as served:
        order = write_order(tmp_path, served.hosts, job={"seeds": [f"{host}/"]}, write={"warc": True})
        order.write_text(order.read_text() + entries)
        await ended(await start("crawl", "-c", order, "--job", "job", "--limit", "1", cwd=tmp_path))
        before = await anabranch("why", "job", f"{host}/1.mp4", cwd=tmp_path)
        assert (
            "body: of the answer, by the last rule that decides:\n    1 body leaves it unread: media type" in before.out
        )
        await ended(await start("crawl", "-c", order, "--job", "job", "--limit", "0", cwd=tmp_path))
    lines = {line.split()[3]: line.split() for line in (tmp_path / "job/logs/crawl.log").read_text().splitlines()}
    assert (lines[f"{host}/1.mp4"][1:3], lines[f"{host}/1.mp4"][11]) == (
        ["200", "0"],
        "midFetchAbort,bodyRule:1,round:1",
    )
    assert lines[f"{host}/2.mp4"][2] == "1000"
    kept = archived(tmp_path / "job")
    assert (list(kept.of(f"{host}/1.mp4")), len(list(kept.of(f"{host}/2.mp4")))) == ([], 1)
    after = await anabranch("why", "job", f"{host}/1.mp4", cwd=tmp_path)
    assert "body: left unread by rule 1 (body): media type video/* or audio/*" in after.out
