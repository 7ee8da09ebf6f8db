"""A crawl of a made-up site by the Frontier alone, to be killed.

Every line is in the log before the crawl goes on, so a kill loses none: `open`, `lease URL`, `retry URL`, `finish NUMBER URL`
(the call is acknowledged when that number is) and `durable NUMBER`. Numbers begin anew with each `open`. The state is examined
right after the opening; what is wrong ends the process with another exit code than 0.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import NamedTuple

from anabranch.dedup.uniq import UniqParameters
from anabranch.frontier import filters
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate, Lease, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness

HOSTS = 6
#: Leases that are out at a time.
WORKERS = 8
#: What the fetch of a page takes: long enough for a kill to hit the crawl on its way.
FETCH_S = 0.002


def order(mode: str) -> FrontierOrder:
    """With a filter of this mode. That of "smm" has its marks in mapped files: what is marked too early survives the kill."""
    return FrontierOrder(
        policy="bkdr:17",
        politeness=Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=4),
        max_unacknowledged=WORKERS,
        checkpoint_s=0.05,  # so that many kills hit one
        gates_in_memory=4,
        uniq=UniqParameters(mode=mode, expected=10_000),
    )


class Site(NamedTuple):
    """Pages by number; all are reached from page 0, by many ways."""

    pages: int

    def url(self, page: int) -> str:
        return f"http://host{page % HOSTS}.test/page{page}"

    def urls(self) -> list[str]:
        return [self.url(page) for page in range(self.pages)]

    def links(self, url: str) -> list[str]:
        """Three pages further down, one upwards, two anywhere."""
        page = int(url.rpartition("page")[2])
        dice = random.Random(page)
        down = range(3 * page + 1, min(3 * page + 4, self.pages))
        return [self.url(to) for to in (*down, page // 3, dice.randrange(self.pages), dice.randrange(self.pages))]


class Log:
    """Lines that survive the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def examine(frontier: Frontier, site: Site) -> None:
    """I1, I3, I5 and I8, whatever the last owner was doing when it died."""
    frontier.operations.check()  # I1
    keys = [key.decode() for chunk in frontier._store.keys(1000) for key in chunk]
    known, urls = set(keys), site.urls()
    assert len(keys) == len(known), "I5: a URL is kept twice"
    assert known.issubset(urls), "a URL is kept that nobody scheduled"
    for record in frontier.operations.ended([url.encode() for url in urls]).values():
        assert known.issuperset(site.links(record.url)), f"I3: {record.url} is done, its links are not kept"
    strangers = [url.encode() for url in urls if url not in known]
    assert not strangers or all(frontier._seen.unseen(strangers)), "I8: the filter knows more than the store"
    kept = [key.encode() for key in keys]
    assert not kept or not any(frontier._seen.unseen(kept)), "the filter was not told all"


def crawl(state: Path, log_path: Path, mode: str, site: Site, die_at_mark: int, opened: Connection) -> None:
    """One owner: until nothing is left, or until it is killed; the leases end in no order.

    `die_at_mark` n: the owner kills itself when the filter is to be told for the nth time, between commit and mark; -n: right
    after it was told; 0: never.
    """
    log, changed = Log(log_path), Event()
    if die_at_mark:
        die_beside_mark(die_at_mark)
    with open_frontier(state, order(mode), on_change=changed.set) as frontier:
        examine(frontier, site)
        log.say("open")
        opened.send(True)
        frontier.schedule([Candidate(url=site.url(0))])
        work(frontier, changed, log, site)


def work(frontier: Frontier, changed: Event, log: Log, site: Site) -> None:
    dice, held, durable = random.Random(), list[Lease](), 0
    while not frontier.is_done:
        changed.clear()
        lease = frontier.lease() if len(held) < WORKERS else None
        if frontier.unacknowledged.durable > durable:
            durable = frontier.unacknowledged.durable
            log.say("durable", durable)
        if lease is not None:
            log.say("lease", lease.url)
            held.append(lease)
        elif held:
            time.sleep(FETCH_S * len(held))
            dice.shuffle(held)
            while held:  # all at once, so that the store lags behind
                end(frontier, held.pop(), log, site)
        else:
            changed.wait(0.01)  # a retry may be due without a change


def end(frontier: Frontier, lease: Lease, log: Log, site: Site) -> None:
    if not lease.attempts and hash_of(lease.url) % 10 == 0:
        frontier.finish(lease, Outcome(OutcomeKind.RETRY, -2, after_s=0.005))
        log.say("retry", lease.url)
        return
    links = [Candidate(url=url) for url in site.links(lease.url)]
    frontier.finish(lease, Outcome(OutcomeKind.DONE, 200), links)
    log.say("finish", frontier.unacknowledged.last, lease.url)


def hash_of(url: str) -> int:
    return sum(url.encode())


def die_beside_mark(number: int) -> None:
    """Make every filter of this process deadly; `mark` is called for rows that are committed."""
    mark, calls = filters.DedupFilter.mark, 0

    def deadly(self: filters.DedupFilter, keys: Sequence[bytes]) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        mark(self, keys)
        if calls == -number:
            os.kill(os.getpid(), signal.SIGKILL)

    filters.DedupFilter.mark = deadly  # type: ignore[method-assign]
