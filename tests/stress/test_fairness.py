"""Queues of equal precedence get equal shares, whatever the delay."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.frontier.builder import FakeClock
from tests.stress.fairness import DELAYS_S, LEAST, MOST, ROUNDS, SHAPES, opened, schedule, shares, url
from tests.stress.virtual_crawl import VirtualCrawl

#: `python -m tests.stress.fairness --queues 100000` takes minutes.
QUEUES = 2000
#: Half of the gates fit into memory, so that they must take turns, too.
GATES = 1000
#: The default of `balance_replenish`.
SESSION = 3000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("delay_s", DELAYS_S)
@pytest.mark.parametrize("shape", SHAPES)
def test_many_queues_get_equal_shares(shape: str, delay_s: float) -> None:
    """In sessions of one URL every queue has 8 to 12 of 10 leases on average."""
    served = shares(shape, QUEUES, delay_s, GATES)
    assert served.total() == ROUNDS * QUEUES
    assert len(served) == QUEUES
    assert min(served.values()) >= LEAST
    assert max(served.values()) <= MOST


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("delay_s", DELAYS_S)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_queue_goes_on_after_its_session_while_an_equal_one_waits(shape: str, delay_s: float) -> None:
    """A queue begins a session only when every other one that has URLs has begun as many, less one."""
    queues, gates = 6, 2
    pages = 2 * SESSION + 100
    clock = FakeClock()
    core = opened(shape, SESSION, delay_s, clock, gates)
    schedule(core, [url(shape, queue, page) for queue in range(queues) for page in range(pages)])
    served: Counter[str] = Counter()

    for lease in VirtualCrawl(core, clock, 3).run():
        served[lease.queue] += 1
        session = (served[lease.queue] - 1) // SESSION  # those before it are over
        if served[lease.queue] % SESSION == 1 and session:
            behind = [count for count in served.values() if count <= (session - 1) * SESSION]
            assert len(served) == queues, "an equal queue still waits for its first session"
            assert not behind, f"{lease.queue} begins session {session + 1}: {served}"
    assert served.total() == queues * pages
    core.close()
