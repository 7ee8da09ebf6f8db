"""A crawl of a real documentation tree fetches exactly what is linked, stylesheets and images included.

    python -m tests.stress.tree_crawl ROOT [--start book/index.html] [--workers 64] [--job DIR] [--show 20]

ROOT is a folder of HTML files, as `share/doc/rust/html` of a Rust toolchain, a Sphinx build, or a small one of the tests. It is
served by `tests/site/server.py` in a process of its own. Two sets must be equal: the URLs answered with 200 in the crawl's
`pages.jsonl`, and those that an independent reader finds (`tests/site/tree_oracle.py`). Also: no URL was asked for twice, and
`crawl.log` has a line for each. Prints one summary line; the exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.acceptance.command import environment, write_order
from tests.acceptance.hostile import read_lines
from tests.acceptance.tree_campaign import Campaign, fetched_pages, served
from tests.site.ledger import Ledger
from tests.site.tree_oracle import tree_and_requisites

TIME_LIMIT_S = 3600.0
#: Deep enough for any chain of pages: what the tree links must be found, however far away.
MAX_HOPS = 10_000
#: The largest index of Rust's library links 7,000 pages; by default a page's first 6,000 are read, as in Heritrix.
MAX_OUTLINKS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of the crawl."""

    code: int
    seconds: float
    expected: set[str]
    fetched: set[str]
    asked: Counter[str]  #: URL -> requests, robots.txt aside
    logged: set[str]

    def faults(self) -> list[str]:
        """List the broken rules in words."""
        missing, unexpected = self.expected - self.fetched, self.fetched - self.expected
        repeated = [url for url, count in self.asked.items() if count > 1]
        unlogged = set(self.asked) - self.logged
        rules = {
            f"the crawl exited with {self.code}": self.code != 0,
            f"{len(missing)} are missing": bool(missing),
            f"{len(unexpected)} are unexpected": bool(unexpected),
            f"{len(repeated)} were asked for twice": bool(repeated),
            f"{len(unlogged)} have no line in crawl.log": bool(unlogged),
        }
        return [words for words, is_so in rules.items() if is_so]

    def __str__(self) -> str:
        kinds = Counter(PurePosixPath(urlsplit(url).path).suffix or "/" for url in self.expected)
        return (
            f"{len(self.fetched)} of {len(self.expected)} fetched in {self.seconds:.0f} s "
            f"({len(self.fetched) / self.seconds:.0f}/s); {sum(self.asked.values())} requests; {dict(kinds.most_common(12))}"
        )


def run(root: Path, start: str, work: Path, workers: int = 64) -> Result:
    """Serve the tree, read it, crawl it; files go into the folder `work`."""
    ledger_file = work / "ledger.jsonl"
    ledger_file.touch()
    with served(Campaign(root=root), ledger_file) as port:
        base = f"http://127.0.0.1:{port}/"
        expected = tree_and_requisites(root, start, base)
        order = write_order(
            work,
            {},
            crawl={"workers": workers},
            scope={"max_hops": MAX_HOPS},
            politeness={"max_connections": 16},
            extract={"max_outlinks": MAX_OUTLINKS},
        )
        command = [
            sys.executable,
            "-m",
            "anabranch",
            "crawl",
            base + start,
            "-c",
            str(order),
            "--job",
            str(work / "job"),
            "-q",
        ]
        begun_s = time.monotonic()
        code = subprocess.run(command, env=environment(), check=False, timeout=TIME_LIMIT_S).returncode
        seconds = time.monotonic() - begun_s
    counts = Ledger.read(ledger_file).counts()
    return Result(
        code=code,
        seconds=seconds,
        expected=expected,
        fetched=fetched_pages(work / "job" / "pages.jsonl"),
        asked=Counter({url: count for url, count in counts.items() if not url.endswith("/robots.txt")}),
        logged={line.url for line in read_lines(work / "job" / "logs" / "crawl.log")},
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Crawl a tree of real documents and compare with an independent reader."
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("--start", default="", help="where the crawl begins, below the root")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--job", type=Path, help="keep the job and the ledger in this folder")
    parser.add_argument("--show", type=int, default=20, help="URLs shown of each difference")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.job or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        result = run(options.root, options.start, work, options.workers)
    print(result)
    for sign, urls in (("-", result.expected - result.fetched), ("+", result.fetched - result.expected)):
        print(*(f"{sign} {url}" for url in sorted(urls)[: options.show]), sep="\n", end="\n" if urls else "")
    faults = result.faults()
    print("faults:", "; ".join(faults) or "none")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
