"""Crawl a tree of real HTML files, kill the crawler on the way if asked, and compare with an independent reader.

    python tests/acceptance/tree_campaign.py ROOT [--start index.html] [--kills 5] [--delay 0.1] [--policy host] …

The tree is served by an ordinary static server in a process of its own, which counts what it serves. The i-th `kill -9` falls
when a random share between (i-1)/(kills+1) and i/(kills+1) of the pages has been served; each is followed by the same command.
Prints the facts, and exits with 1 if a page is missing, was fetched too much, or was served more often than a kill excuses.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
if __package__ in (None, ""):
    sys.path[0] = str(REPOSITORY)

from tests.site.ledger import Ledger
from tests.site.tree_oracle import tree_and_requisites

#: Seconds that one campaign may take before its crawler is ended.
TIME_LIMIT_S = 900.0
#: Seconds between two looks at the server's ledger.
LOOK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The tree to crawl, and the options of the crawl."""

    root: Path
    start: str = "index.html"
    kills: int = 0
    delay_s: float = 0.0
    workers: int = 64
    max_connections: int = 16
    policy: str | None = None
    seed: int = 1  #: of the random shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a campaign."""

    exit_codes: list[int]
    killed_at: list[int]  #: requests served at each kill
    missing: set[str]
    unexpected: set[str]
    expected: int
    served: int  #: answers with 200, robots.txt left out
    repeated: int  #: answers beyond the first, per URL
    max_in_service: int
    seconds: float

    def faults(self, campaign: Campaign) -> list[str]:
        """Return the faults in words; empty if all is well."""
        allowed = 2 * campaign.workers * campaign.kills
        found = []
        if self.exit_codes[-1] != 0:
            found.append(f"the last run exited with {self.exit_codes[-1]}")
        if self.missing:
            found.append(f"{len(self.missing)} pages are missing, as {min(self.missing)}")
        if self.unexpected:
            found.append(f"{len(self.unexpected)} pages are unexpected, as {min(self.unexpected)}")
        if self.repeated > allowed:
            found.append(f"{self.repeated} pages were served again, {allowed} are excused")
        if self.max_in_service > campaign.max_connections:
            found.append(f"{self.max_in_service} requests were in service at once")
        return found


def run(campaign: Campaign, work: Path) -> Result:
    """Run the campaign with its files in the folder `work`."""
    ledger_file = work / "ledger.jsonl"
    ledger_file.touch()
    with served(campaign, ledger_file) as port:
        base = f"http://127.0.0.1:{port}/"
        expected = tree_and_requisites(campaign.root, campaign.start, base)
        begun_s = time.monotonic()
        chance = random.Random(campaign.seed)
        codes, killed_at = [], []
        for number in range(1, campaign.kills + 2):
            crawler = start_crawl(campaign, base + campaign.start, work / "job")
            share = chance.uniform(number - 1, number) / (campaign.kills + 1)
            if number <= campaign.kills:
                killed_at.append(kill_at(crawler, ledger_file, int(share * len(expected))))
            codes.append(crawler.wait(TIME_LIMIT_S))
        seconds = time.monotonic() - begun_s
    ledger = Ledger.read(ledger_file)
    counts = {url: number for url, number in ledger.counts().items() if not url.endswith("/robots.txt")}
    got = fetched_pages(work / "job" / "pages.jsonl")
    return Result(
        exit_codes=codes,
        killed_at=killed_at,
        missing=expected - got,
        unexpected=got - expected,
        expected=len(expected),
        served=sum(counts.values()),
        repeated=sum(number - 1 for number in counts.values()),
        max_in_service=ledger.max_in_service(),
        seconds=seconds,
    )


@contextmanager
def served(campaign: Campaign, ledger_file: Path) -> Iterator[int]:
    """The static server in a process of its own; yields its port."""
    server = REPOSITORY / "tests" / "site" / "server.py"
    options = ["--root", str(campaign.root), "--delay", str(campaign.delay_s), "--ledger", str(ledger_file)]
    process = subprocess.Popen([sys.executable, str(server), *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def start_crawl(campaign: Campaign, url: str, job: Path) -> subprocess.Popen[bytes]:
    """The real command, in a process of its own."""
    options = {
        "--min-delay": "0",
        "--max-delay": "0",
        "--max-connections": str(campaign.max_connections),
        "--workers": str(campaign.workers),
        "--job": str(job),
    }
    if campaign.policy:
        options["--policy"] = campaign.policy
    flat = [word for pair in options.items() for word in pair]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "anabranch", "crawl", url, "--allow-private", *flat]
    log = job.parent / "crawl.out"
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, env=environment)


def kill_at(crawler: subprocess.Popen[bytes], ledger_file: Path, served_pages: int) -> int:
    """SIGKILL the crawler when so many requests have been served; answers how many had been."""
    while (count := ledger_file.read_bytes().count(b"\n")) < served_pages and crawler.poll() is None:
        time.sleep(LOOK_S)
    crawler.send_signal(signal.SIGKILL)
    return count


def fetched_pages(pages: Path) -> set[str]:
    """The URLs that `pages.jsonl` has with status 200."""
    lines = pages.read_text().splitlines()
    return {line["url"] for line in map(json.loads, lines) if line["status"] == 200}


def main(arguments: Sequence[str]) -> int:
    """Run one campaign and print what came out."""
    parser = argparse.ArgumentParser(description="Crawl a tree of HTML files and compare with an independent reader.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--start", default="index.html")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--max-connections", type=int, default=16)
    parser.add_argument("--policy")
    parser.add_argument("--seed", type=int, default=1)
    options = vars(parser.parse_args(arguments))
    options["delay_s"] = options.pop("delay")
    campaign = Campaign(**options)
    with tempfile.TemporaryDirectory() as work:
        result = run(campaign, Path(work))
        print((Path(work) / "crawl.out").read_text()[-3000:])
    for name in Result.__dataclass_fields__:
        value = getattr(result, name)
        print(f"{name:<16} {len(value) if isinstance(value, set) else value}")
    faults = result.faults(campaign)
    print("faults          ", "; ".join(faults) or "none")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
