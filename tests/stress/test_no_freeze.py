"""A host that is blocked stops only its own URLs, never the queues that hold them."""

from __future__ import annotations

import pytest

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.records import Candidate, GateKey
from anabranch.frontier.scheduling.gates import Politeness
from tests.frontier.builder import FakeClock
from tests.stress.virtual_crawl import VirtualCrawl

PORTALS = [GateKey(f"portal{number}.test") for number in range(5)]
PAGES = 400
HOUR_S = 3600.0


@pytest.mark.parametrize("gates", [2, 3, 10_000])
def test_one_blocked_portal_of_five_does_not_freeze_the_queues_that_it_shares(gates: int) -> None:
    """100 hash queues: all URLs of the other four portals are fetched within the hour, however few gates are in memory."""
    clock = FakeClock()
    politeness = Politeness(delay_factor=0.0, min_delay_s=1.0, max_delay_s=1.0)
    core = open_frontier(
        None, FrontierOrder(policy="bkdr:100", politeness=politeness, gates_in_memory=gates), clock=clock
    )
    urls = {host: {f"http://{host}/page{number}" for number in range(PAGES)} for host in PORTALS}
    blocked = PORTALS[2]
    core.block(blocked, clock() + HOUR_S)
    core.schedule([Candidate(url) for host in PORTALS for url in sorted(urls[host])])

    crawl = VirtualCrawl(core, clock, workers=50)
    opens_s = clock() + HOUR_S
    fetched = {lease.url for lease in crawl.run(until_s=opens_s - 1.0)}
    assert fetched == set().union(*(urls[host] for host in PORTALS if host != blocked))
    later = {lease.url for lease in crawl.run()}
    assert later == urls[blocked]
    assert clock() >= opens_s
    core.operations.check()
    core.close()


def test_a_gate_that_opens_outside_of_memory_is_read_though_memory_is_nearly_full_of_closed_ones() -> None:
    """One free place of twenty is enough, when nothing in memory is open."""
    clock = FakeClock()
    haste = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0)
    core = open_frontier(None, FrontierOrder(policy="host", politeness=haste, gates_in_memory=20), clock=clock)
    hosts = [GateKey(f"h{number}.test") for number in range(23)]
    begin_s = clock()
    core.schedule([Candidate(f"http://{host}/") for host in hosts[:22]])
    for number, host in enumerate(hosts[:22]):
        if number != 19:
            core.block(host, begin_s + (600.0 if number < 20 else 1200.0))
    core.schedule([Candidate(f"http://{hosts[22]}/")])
    crawl = VirtualCrawl(core, clock, workers=1)
    early = {lease.gate for lease in crawl.run(until_s=begin_s + 500.0)}
    assert early == {hosts[19], hosts[22]}
    in_memory = {line.gate.key for line in core._schedule.window if line.has_work}
    for host in in_memory:
        core.block(host, begin_s + 10 * HOUR_S)
    assert in_memory
    later = {lease.gate for lease in crawl.run(until_s=begin_s + HOUR_S)}
    assert later == set(hosts) - in_memory - early
    core.close()
