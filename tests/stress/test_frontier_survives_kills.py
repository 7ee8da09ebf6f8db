"""The Frontier alone, without a crawler around it, survives `kill -9`."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from frontier.composition import open_frontier
from tests.stress import frontier_crawl
from tests.stress.frontier_crawl import ORDER, PAGES, SITE, examine

ROOT = Path(__file__).parents[2]
KILLS = 6
#: Seconds between two looks at the log.
LOOK_S = 0.001


@dataclass
class Owner:
    """What one run of the program has told: from its `open` to its death."""

    leased: list[str] = field(default_factory=list)
    finished: dict[str, int] = field(default_factory=dict)  #: by the number of the call
    durable: int = 0

    @property
    def excused(self) -> set[str]:
        """Leased, and out or not acknowledged at the end: these may be leased again."""
        return {url for url in self.leased if self.finished.get(url, self.durable + 1) > self.durable}


def read(log: Path) -> list[Owner]:
    """Every run in the log."""
    owners: list[Owner] = []
    for line in log.read_text().splitlines():
        match line.split():
            case ["open"]:
                owners.append(Owner())
            case ["lease", url]:
                owners[-1].leased.append(url)
            case ["finish", number, url]:
                owners[-1].finished[url] = int(number)
            case ["durable", number]:
                owners[-1].durable = int(number)
    return owners


def run(state: Path, log: Path, kill_at: int | None) -> int:
    """Run the program, to its end or until so many leases are in the log; its exit code."""
    command = [sys.executable, frontier_crawl.__file__, str(state), str(log)]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        while kill_at is not None and process.poll() is None:
            if log.exists() and log.read_bytes().count(b"lease ") >= kill_at:
                process.kill()
                break
            time.sleep(LOOK_S)
        return process.wait()


@pytest.mark.slow
def test_a_crawl_that_is_killed_again_and_again_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    """Every page once in `done`; a page is leased again only if it was out or unacknowledged at a kill."""
    state, log = tmp_path / "state", tmp_path / "log"
    dice = random.Random(6)
    for kill in range(KILLS):
        leases = round((kill + dice.random()) / (KILLS + 2) * PAGES) + 1
        assert run(state, log, leases) == -signal.SIGKILL
    assert run(state, log, None) == 0

    owners = read(log)
    assert len(owners) == KILLS + 1
    excused: set[str] = set()
    served: set[str] = set()
    for owner in owners:
        assert len(set(owner.leased)) == len(owner.leased), "one owner leases a page once"
        assert served.intersection(owner.leased) <= excused
        served.update(owner.leased)
        excused = (excused - set(owner.leased)) | owner.excused
    repeats = sum(len(owner.leased) for owner in owners) - PAGES
    assert 0 <= repeats <= sum(len(owner.excused) for owner in owners[:-1])

    with open_frontier(state, ORDER) as frontier:
        examine(frontier)
        assert frontier.is_done
        assert len(frontier.ended([url.encode() for url in SITE])) == PAGES
    with sqlite3.connect(state / "frontier.db") as store:
        done = Counter(url for (url,) in store.execute("SELECT url FROM done"))
    store.close()
    assert done == dict.fromkeys(SITE, 1)
