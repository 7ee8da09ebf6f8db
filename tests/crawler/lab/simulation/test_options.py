"""What is to be simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.lab.policies.options import PolicyOptions
from anabranch.crawler.lab.simulation.options import SimulationOptions, as_compared, check, order_of, times, web_options
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier.policies.assignment import PolitenessScope


def test_times_are_those_of_real_crawls_unless_they_are_scaled_or_given() -> None:
    """Heritrix's 3 s and 30 s; `scale` divides what is not given."""
    assert times(SimulationOptions()) == (3.0, 30.0, 1.0)
    assert times(SimulationOptions(scale=60, latency_s=0.1)) == (0.05, 0.5, 0.1)
    assert times(SimulationOptions(min_delay_s=2.0, max_delay_s=2.0)) == (2.0, 2.0, 1.0)


def test_the_frontier_is_asked_for_as_by_a_live_crawl() -> None:
    """Policy, whom the delays are owed, slots, delays, and no backoff longer than these."""
    compared = as_compared(SimulationOptions(politeness="paper", connections=1, workers=77))
    order = order_of(compared, "bkdr:100")
    assert (order.policy, order.scope, order.max_unacknowledged) == ("bkdr:100", PolitenessScope.QUEUE, 77)
    assert (order.politeness.min_delay_s, order.politeness.max_delay_s) == (3.0, 30.0)
    assert order.backoff.cap_s == 0
    assert order_of(as_compared(SimulationOptions(connections=8)), "host").politeness.slots == 8


def test_each_repeat_has_another_web_and_a_live_one_its_own_links() -> None:
    """The same seed would give the same run again."""
    compared = PolicyOptions(seed=5)
    assert [web_options(compared, "portals", repeat=repeat).seed for repeat in range(3)] == [5, 6, 7]
    assert web_options(compared, "portals").links == 10
    assert web_options(compared, "portals", links=2).links == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (SimulationOptions(repeat=0), "--repeat must be 1 or more"),
        (SimulationOptions(links=-1), "--links must be from 0"),
        (SimulationOptions(kinds=("hosts", "hosts")), "names one of them twice"),
        (SimulationOptions(min_delay_s=40.0), "--max-delay (30s) is less than --min-delay (40s)"),
        (SimulationOptions(beside=Path("live.json"), seed=2), "leave out what sets seed"),
        (
            SimulationOptions(replay=Path("crawl.log"), links=5, seed=2),
            "--replay: --seed, --links would make another web",
        ),
        (SimulationOptions(politeness="rude"), "--politeness 'rude' is unknown"),
    ],
)
def test_what_makes_no_sense_is_refused(options: SimulationOptions, words: str) -> None:
    """Before anything is simulated."""
    with pytest.raises(UsageError) as raised:
        check(options)
    assert words in str(raised.value)
