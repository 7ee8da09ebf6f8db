"""Shares of queues of equal precedence.

`python -m tests.stress.fairness --queues 100000` prints one line for each shape and delay (it takes minutes).

A queue is a host with a gate of its own, or a folder of the one host. After `ROUNDS` leases per queue on average, in sessions
of one URL, every queue has had `LEAST` to `MOST`, whatever the delay.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from itertools import islice

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.records import Candidate, Lease
from anabranch.frontier.scheduling.gates import Politeness
from tests.frontier.builder import FakeClock
from tests.stress.virtual_crawl import VirtualCrawl

WORKERS = 200
ROUNDS, LEAST, MOST = 10, 8, 12
#: URLs that a queue holds at any time: it never runs dry.
STOCK = 2
SHAPES = ["own gates", "one gate"]
DELAYS_S = [0.0, 3.0]


def url(shape: str, queue: int, page: int) -> str:
    return f"http://q{queue}.test/{page}" if shape == "own gates" else f"http://portal.test/q{queue}/{page}"


def opened(shape: str, session: int, delay_s: float, clock: FakeClock, gates: int = 10_000) -> Frontier:
    """A Frontier in memory whose gates have one slot."""
    order = FrontierOrder(
        policy="host" if shape == "own gates" else "tests.stress.virtual_crawl:by_first_folder",
        politeness=Politeness(delay_factor=0.0, min_delay_s=delay_s, max_delay_s=delay_s),
        budgets=Budgets(balance_replenish=session),
        gates_in_memory=gates,
    )
    return open_frontier(None, order, clock=clock)


def schedule(core: Frontier, urls: list[str]) -> None:
    for first in range(0, len(urls), 1000):
        core.schedule([Candidate(each) for each in urls[first : first + 1000]])


def shares(shape: str, queues: int, delay_s: float, gates: int = 10_000) -> Counter[str]:
    """Leases by queue; each page has one link to a new page of its queue."""
    clock = FakeClock()
    core = opened(shape, 1, delay_s, clock, gates)
    pages = iter(range(STOCK, 1 << 60))

    def next_page(lease: Lease) -> list[Candidate]:
        return [Candidate(f"{lease.url.rpartition('/')[0]}/{next(pages)}")]

    schedule(core, [url(shape, queue, page) for page in range(STOCK) for queue in range(queues)])
    crawl = VirtualCrawl(core, clock, WORKERS, links=next_page)
    served: Counter[str] = Counter(lease.queue for lease in islice(crawl.run(), ROUNDS * queues))
    core.close()
    return served


def main() -> None:
    parser = argparse.ArgumentParser(description="measure the shares of queues of equal precedence")
    parser.add_argument("--queues", type=int, default=100_000)
    options = parser.parse_args()
    for shape in SHAPES:
        for delay_s in DELAYS_S:
            since_s = time.monotonic()
            served = shares(shape, options.queues, delay_s)
            least, most = min(served.values()), max(served.values())
            assert len(served) == options.queues, "a queue was never served"
            assert least >= LEAST, f"{shape}, delay {delay_s:g} s: {least} is too few"
            assert most <= MOST, f"{shape}, delay {delay_s:g} s: {most} is too many"
            print(
                f"{options.queues} queues, {shape}, delay {delay_s:g} s: {ROUNDS} leases on average, "
                f"{least} to {most}; {time.monotonic() - since_s:.0f} s"
            )


if __name__ == "__main__":
    main()
