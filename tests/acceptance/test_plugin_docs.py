"""The programs of docs/how-to/plugins.md, run as they stand there, on a site that shows what each of them changes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from tests.acceptance.command import REPOSITORY, environment
from tests.acceptance.programs import blocks, printed
from tests.site.page import Host, Page, file, go
from tests.site.server import SmallWeb

TEXT = (REPOSITORY / "docs" / "how-to" / "plugins.md").read_text(encoding="utf-8")
PROGRAMS = {block.partition("\n")[0].removeprefix("# "): block for block in blocks("docs/how-to/plugins.md")}
SEED = "http://example.org/"
PAGES = {
    "/": Page(links=go("/news/1", "/news/1?print=1", "/news/1?utm_source=x", "/draft", "/film", "/feed")),
    "/news/1": Page(),
    "/news/1?print=1": Page(),
    "/news/1?utm_source=x": Page(),
    "/draft": file("text/html", b"DRAFT <a href=/from-draft>x</a>"),
    "/from-draft": Page(),
    "/film": file("video/mp4", b"x" * 100),
    "/feed": file("application/json", b'{"next": "feed?page=2"}'),
    "/feed?page=2": file("application/json", b"{}"),
}
PATHS = {*PAGES} - {"/feed?page=2"}


@pytest.mark.parametrize(
    ("name", "left_out", "more"),
    [
        ("scope_rule.py", {"/news/1?print=1"}, set()),
        ("body_rule.py", set(), set()),
        ("processor.py", {"/from-draft"}, set()),
        ("extractor.py", set(), {"/feed?page=2"}),
        ("service_away.py", set(), set()),
        ("queue_policy.py", set(), set()),
        ("canonicaliser.py", {"/news/1?utm_source=x"}, set()),
        ("seen_filter.py", set(), set()),
    ],
)
async def test_each_program_crawls_what_its_plug_in_lets_it(
    tmp_path: Path, name: str, left_out: set[str], more: set[str]
) -> None:
    """And nothing else."""
    async with SmallWeb({"example.org": Host(pages=PAGES)}) as web:
        said = await printed(PROGRAMS[name], tmp_path, web.hosts)
        fetched = {path for path in PAGES if web.ledger.counts().get(f"http://example.org{path}")}
    assert fetched == (PATHS - left_out) | more
    if name == "body_rule.py":
        assert f"{SEED}film video/mp4 0" in said.splitlines()
        assert f"{SEED}feed application/json 23" in said.splitlines()
    if name == "processor.py":
        assert f"{SEED}draft" not in said.splitlines()
    if name == "seen_filter.py":
        assert len((tmp_path / "job/state/seen/plugin/keys.txt").read_text().split()) == len(PATHS)


async def test_the_store_is_one_of_a_frontier(tmp_path: Path) -> None:
    """It is asked to keep both URLs."""
    assert await printed(PROGRAMS["store.py"], tmp_path, {}) == "2\n"


def test_each_plug_in_of_the_page_has_a_type_and_a_program() -> None:
    """The types are public names."""
    types = set(re.findall(r"^\| [^|]* \| `(\w+)` \|", TEXT, re.MULTILINE))
    assert len(types) == 8
    assert types <= set(anabranch.__all__)
    assert len(PROGRAMS) == 9


@pytest.mark.slow
def test_a_type_checker_accepts_the_programs(tmp_path: Path) -> None:
    """A user who checks types gets no complaint."""
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text(program)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--ignore-missing-imports",
        "--cache-dir",
        tmp_path / "cache",
    ]
    given = [*command, *(tmp_path / name for name in PROGRAMS)]
    run = subprocess.run(given, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
