"""A program to be killed: a crawl of a made-up site by the Frontier alone. `python frontier_crawl.py STATE LOG`.

Every line is in the log before the program goes on, so a kill loses none: `open`, `lease URL`, `finish NUMBER URL` (the call
is acknowledged when that number is) and `durable NUMBER`. Numbers begin anew with each `open`. The state is examined
right after the opening: what is wrong ends the program with exit code 1.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from threading import Event

from frontier.composition import FrontierOrder, open_frontier
from frontier.core import Frontier
from frontier.gates import Politeness
from frontier.models import Candidate, Lease, Outcome, OutcomeKind

PAGES = 1500
HOSTS = 6
#: Leases that are out at a time.
WORKERS = 8
#: What the fetch of a page takes: long enough for a kill to hit the crawl on its way.
FETCH_S = 0.002

ORDER = FrontierOrder(
    policy="bkdr:17",
    politeness=Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=4),
    max_unacknowledged=WORKERS,
)


def url_of(page: int) -> str:
    return f"http://host{page % HOSTS}.test/page{page}"


SITE = {url_of(page): page for page in range(PAGES)}


def links_of(page: int) -> list[str]:
    """Three pages further down, one upwards, two anywhere: all are reached from page 0, by many ways."""
    dice = random.Random(page)
    down = range(3 * page + 1, min(3 * page + 4, PAGES))
    return [url_of(other) for other in (*down, page // 3, dice.randrange(PAGES), dice.randrange(PAGES))]


def examine(frontier: Frontier) -> None:
    """I1, I3, I5 and I8, whatever the last owner was doing when it died."""
    frontier.check()  # I1
    keys = [key.decode() for chunk in frontier._store.keys(1000) for key in chunk]
    known, ended = set(keys), frontier.ended([url.encode() for url in SITE])
    assert len(keys) == len(known), "I5: a URL is kept twice"
    for record in ended.values():
        assert known.issuperset(links_of(SITE[record.url])), f"I3: {record.url} is done, its links are not kept"
    strangers = sorted(SITE.keys() - known)
    assert all(frontier._seen.unseen([url.encode() for url in strangers])), "I8: the filter knows more than the store"


class Log:
    """Lines that survive the program."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def crawl(frontier: Frontier, changed: Event, log: Log) -> None:
    """Until nothing is left; the leases end in no order."""
    dice, held, durable = random.Random(), list[Lease](), 0
    frontier.schedule([Candidate(url=url_of(0))])
    while not frontier.is_done:
        changed.clear()
        lease = frontier.lease() if len(held) < WORKERS else None
        if frontier.durable > durable:
            durable = frontier.durable
            log.say("durable", durable)
        if lease is not None:
            log.say("lease", lease.url)
            held.append(lease)
        elif held:
            end(frontier, held.pop(dice.randrange(len(held))), log)
        else:
            changed.wait()


def end(frontier: Frontier, lease: Lease, log: Log) -> None:
    time.sleep(FETCH_S)
    links = [Candidate(url=url) for url in links_of(SITE[lease.url])]
    frontier.finish(lease, Outcome(kind=OutcomeKind.DONE, status=200), links)
    log.say("finish", frontier.said, lease.url)


def main() -> None:
    state, log = Path(sys.argv[1]), Log(Path(sys.argv[2]))
    changed = Event()
    with open_frontier(state, ORDER, on_change=changed.set) as frontier:
        examine(frontier)
        log.say("open")
        crawl(frontier, changed, log)


if __name__ == "__main__":
    main()
