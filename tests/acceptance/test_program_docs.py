"""The programs of README.md and docs/how-to/program.md, run as they stand there, but for TLS."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent

from tests.acceptance.programs import blocks, printed
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

PAGES = {"/": Page(links=go("/1", "/2", "/missing")), "/1": Page(), "/2": Page(links=go("/1"))}
PATHS = {"/": 200, "/1": 200, "/2": 200, "/missing": 404}
WITH_TITLES = {
    f"{status} http://example.org{path} {'A page' if status == 200 else ''}" for path, status in PATHS.items()
}


async def printed_by(program: str, folder: Path) -> list[str]:
    """The lines that a program prints on a site of four URLs."""
    async with SmallWeb({"example.org": Host(pages=PAGES)}) as web:
        return (
            await printed(program.replace('"https://example.org/"', '"http://example.org/"'), folder, web.hosts)
        ).splitlines()


def readme_programs() -> list[str]:
    """The program of README.md, and what stands inside of one with asyncio."""
    return [block for block in blocks("README.md") if "anabranch.crawl(" in block]


async def test_the_readme_crawls_in_five_lines(tmp_path: Path) -> None:
    """Each answered URL is a line; nothing is kept."""
    program, _ = readme_programs()
    assert len(program.splitlines()) <= 5
    assert set(await printed_by(program, tmp_path)) == WITH_TITLES
    assert not (tmp_path / "jobs").exists()


async def test_the_readme_crawls_with_asyncio(tmp_path: Path) -> None:
    """Inside of a coroutine."""
    _, inner = readme_programs()
    program = f"import asyncio, anabranch\nasync def main():\n{indent(inner, '    ')}\nasyncio.run(main())\n"
    assert set(await printed_by(program, tmp_path)) == {f"http://example.org{path}" for path in PATHS}


async def test_the_program_with_asyncio(tmp_path: Path) -> None:
    """Its last lines are the summary."""
    lines = await printed_by(blocks("docs/how-to/program.md")[0], tmp_path)
    assert set(lines[:4]) == WITH_TITLES
    assert lines[4].startswith("job")


async def test_the_program_without_asyncio(tmp_path: Path) -> None:
    """The second crawl keeps a job, with WARC files."""
    (tmp_path / "seeds.txt").write_text("http://example.org/\n")
    lines = await printed_by("import anabranch\n" + blocks("docs/how-to/program.md")[1], tmp_path)
    assert sorted(lines[:4]) == sorted(f"http://example.org{path}" for path in PATHS)
    assert lines[4] == "4 finished: nothing is queued"
    pages = (tmp_path / "jobs/news/pages.jsonl").read_text().splitlines()
    assert {json.loads(line)["url"] for line in pages} == {f"http://example.org{path}" for path in PATHS}
    assert len([*(tmp_path / "jobs/news/warc").glob("*.warc.gz")]) == 1


async def test_the_program_with_a_function(tmp_path: Path) -> None:
    """It is a rule of the scope."""
    lines = await printed_by("import anabranch\n" + blocks("docs/how-to/program.md")[2], tmp_path)
    assert sorted(lines) == sorted(f"http://example.org{path}" for path in PATHS if path != "/2")
