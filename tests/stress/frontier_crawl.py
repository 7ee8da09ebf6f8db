"""The crash campaign: a crawl that is killed again and again ends as if nothing had been.

`python -m tests.stress.frontier_crawl --kills 200` prints one line, and fails if an invariant does not hold. Each owner is
killed with SIGKILL: a part of them while it opens, a part between commit and mark or right after it, the others at any moment
of its crawl. Each next one examines what it finds (`killable_crawl.examine`).
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from anabranch.frontier.composition import open_frontier
from tests.patience import HANG_S
from tests.stress import killable_crawl
from tests.stress.killable_crawl import Site, examine, order

#: Pages of the site for each kill: more than an owner can fetch before it dies.
PAGES_PER_KILL = 40
#: An owner lives at most so long after its opening.
LIFE_S = 0.06
#: An opening with its examination mostly takes longer than this.
OPENING_S = 0.1
#: No opening with its examination takes so long, and no owner does nothing for so long.
PATIENCE_S = HANG_S


@dataclass
class Owner:
    """Everything that one owner reported, from its `open` to its death."""

    leased: list[str] = field(default_factory=list)
    finished: dict[str, int] = field(default_factory=dict)  #: by the number of the call
    durable: int = 0

    @property
    def excused(self) -> set[str]:
        """Leased, and out or not acknowledged at the end: these may be leased again."""
        return {url for url in self.leased if self.finished.get(url, self.durable + 1) > self.durable}


class Summary(NamedTuple):
    """The result of a campaign."""

    kills: int
    opening: int  #: of these, before the crawl went on
    between: int  #: of these, between commit and mark
    pages: int
    repeats: int  #: pages that were leased again after a kill
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.kills} kills ({self.opening} while opening, {self.between} between commit and mark): "
            f"I1, I3, I5, I8 held after each; {self.pages} of {self.pages} accepted pages done, each once; "
            f"{self.repeats} leased again, all out or unacknowledged at a kill; {self.seconds:.0f} s"
        )


class Campaign:
    """Owners of one state folder, one after the other."""

    def __init__(self, folder: Path, kills: int, seed: int | None, mode: str) -> None:
        self._mode = mode
        self.state, self.log = folder / "state", folder / "log"
        self.site = Site(kills * PAGES_PER_KILL)
        self._kills = kills
        self._dice = random.Random(seed)
        # Owners are forked off a process that has imported all: an owner's life is short.
        self._processes = get_context("forkserver")
        self._processes.set_forkserver_preload([killable_crawl.__name__])
        self._opening = self._between = 0

    def run(self) -> Summary:
        """Kill so many owners and let the last one end the crawl."""
        since_s = time.monotonic()
        for _ in range(self._kills):
            assert self._killed_owner() == -signal.SIGKILL, "an owner ended before it was killed: look at its traceback"
        last, _ = self._start(die_at_mark=0)
        last.join()
        assert last.exitcode == 0
        repeats = self._repeats(self._owners())
        self._examine_the_end()
        taken_s = time.monotonic() - since_s
        return Summary(self._kills, self._opening, self._between, self.site.pages, repeats, taken_s)

    def _killed_owner(self) -> int | None:
        """One owner, until it is dead; its exit code."""
        kind = self._dice.random()
        die_at_mark = self._dice.choice([-1, 1]) * self._dice.randrange(1, 12) if kind < 0.4 else 0
        owner, opened = self._start(die_at_mark)
        is_opening = kind > 0.85
        if is_opening:
            owner.join(self._dice.uniform(0.0, OPENING_S))
        else:
            opened.poll(PATIENCE_S)
            owner.join(PATIENCE_S if die_at_mark else self._dice.uniform(0.0, LIFE_S))
        owner.kill()
        owner.join()
        self._opening += is_opening
        self._between += die_at_mark > 0
        return owner.exitcode

    def _start(self, die_at_mark: int) -> tuple[BaseProcess, Connection]:
        here, there = self._processes.Pipe(duplex=False)
        arguments = (self.state, self.log, self._mode, self.site, die_at_mark, there)
        owner: BaseProcess = self._processes.Process(target=killable_crawl.crawl, args=arguments, daemon=True)
        owner.start()
        there.close()
        return owner, here

    def _owners(self) -> list[Owner]:
        """Every owner in the log that came to crawl."""
        owners: list[Owner] = []
        for line in self.log.read_text().splitlines():
            match line.split():
                case ["open"]:
                    owners.append(Owner())
                case ["lease", url]:
                    owners[-1].leased.append(url)
                case ["retry", url]:
                    owners[-1].leased.remove(url)
                case ["finish", number, url]:
                    owners[-1].finished[url] = int(number)
                case ["durable", number]:
                    owners[-1].durable = int(number)
        return owners

    def _repeats(self, owners: list[Owner]) -> int:
        """I4: a page is leased again only if it was out or unacknowledged at a kill."""
        excused: set[str] = set()
        served: set[str] = set()
        for owner in owners:
            assert len(set(owner.leased)) == len(owner.leased), "one owner leases a page once"
            assert served.intersection(owner.leased) <= excused, "I4: what was acknowledged is fetched again"
            served.update(owner.leased)
            excused = (excused - set(owner.leased)) | owner.excused
        return sum(len(owner.leased) for owner in owners) - self.site.pages

    def _examine_the_end(self) -> None:
        """Check that every accepted page has ended, each once."""
        with open_frontier(self.state, order(self._mode)) as frontier:
            examine(frontier, self.site)
            assert frontier.is_done
            assert frontier.operations.statistics().accepted == self.site.pages
        with sqlite3.connect(self.state / "frontier.db") as store:
            done = Counter(url for (url,) in store.execute("SELECT url FROM done"))
        store.close()
        assert done == dict.fromkeys(self.site.urls(), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="kill a crawl again and again and see it end")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="of the moments; they are never quite the same")
    parser.add_argument("--mode", default="both", help="of the filter")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(Campaign(Path(folder), options.kills, options.seed, options.mode).run())


if __name__ == "__main__":
    main()
