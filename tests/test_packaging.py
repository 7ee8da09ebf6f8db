"""The base of the package: what a program that embeds the Frontier or the filter installs, and nothing of a crawler's."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from anabranch import crawler
from anabranch.extras import install_command

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

#: Hides the libraries of the extra `crawl`, as if they were not installed.
HIDDEN = """
import importlib.machinery, sys
names = set(sys.argv.pop(1).split(","))
whole = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name.partition(".")[0] in names else whole(name, path, target)
)
"""
LINE = (
    "the crawler needs ada_url, aiodns, aiohttp, chardetng_py, cronsim, prometheus_client, pydantic, pydantic_settings, "
    "rich, selectolax, structlog, tomli_w, typer, webencodings"
)


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program without the libraries of a crawler."""
    return subprocess.run(
        [sys.executable, "-P", "-c", f"{HIDDEN}\n{program}", ",".join(crawler._LIBRARIES)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def modules(requirements: list[str]) -> set[str]:
    """The modules of these requirements."""
    return {re.split(r"[<>=\[]", one)[0].replace("-", "_") for one in requirements}


def test_the_crawler_names_the_libraries_of_its_extra() -> None:
    """The modules that it looks for are those of the extra `crawl`, but for isal: without it zlib makes the WARC files."""
    assert set(crawler._LIBRARIES) == modules(PROJECT["optional-dependencies"]["crawl"]) - {"isal"}


def test_the_rooms_of_the_base_import_its_libraries_alone() -> None:
    """The adapters import their host programs, and extras are imported by what needs them."""
    ours = modules(PROJECT["dependencies"]) | {"redis", "psycopg", "scrapy", "crawlee", "twisted", "yarl"}
    foreign = set[str]()
    for room in ("frontier", "dedup"):
        for path in (ROOT / room).rglob("*.py"):
            found = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
            foreign |= {name for name in found if name not in sys.stdlib_module_names | {"anabranch"}}
    assert foreign <= ours | {"base"}, "a word of a docstring at the beginning of a line is no import"


def test_a_frontier_and_a_filter_need_the_base_alone(tmp_path: Path) -> None:
    """In memory and on disk."""
    done = run(
        """
from pathlib import Path
from anabranch import Candidate, FrontierOrder, UniqFilter, open_frontier
for state in (None, Path("state")):
    with open_frontier(state, FrontierOrder(policy="bkdr:7")) as frontier:
        frontier.schedule([Candidate("http://a.test/")])
        while (lease := frontier.lease()) is None:
            frontier.flush()
        print(lease.url)
with UniqFilter.open(Path("seen")) as seen:
    print(seen.add([b"1", b"2", b"1"]).tolist())
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "http://a.test/\n" * 2 + "[True, True, False]\n", "")


def test_the_command_without_its_libraries_names_the_extra(tmp_path: Path) -> None:
    """In one line, whatever it was asked for."""
    done = run("sys.argv = ['anabranch', '--help']\nfrom anabranch.__main__ import main\nmain()", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"anabranch: {LINE}; install them: {install_command('crawl')}\n"


def test_the_crawler_in_a_program_names_the_extra_too(tmp_path: Path) -> None:
    """An ImportError, whose last line says what to do."""
    done = run("import anabranch.crawler.visit", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {LINE}; install them: {install_command('crawl')}"


@pytest.mark.parametrize("extra", ["scrapy", "crawlee", "redis", "postgres"])
def test_the_extras_of_the_frontier_bring_no_crawler(extra: str) -> None:
    """Scrapy and Crawlee fetch themselves."""
    assert not modules(PROJECT["optional-dependencies"][extra]) & set(crawler._LIBRARIES)
