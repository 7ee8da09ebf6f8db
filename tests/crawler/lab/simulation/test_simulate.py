"""Tests of the options of a simulation, and of its comparison with live runs."""

from __future__ import annotations

import json
import math
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from anabranch.crawler.lab.policies.options import PolicyOptions
from anabranch.crawler.lab.policies.saved import COMPARISON, saved
from anabranch.crawler.lab.policies.series import Balance, Busy, PolicyComparison, RunResult, Sample
from anabranch.crawler.lab.simulation.simulate import (
    SimulationOptions,
    as_compared,
    check,
    deviation,
    deviation_table,
    deviation_words,
    order_of,
    run,
    speed_of,
    times,
    web_options,
)
from anabranch.crawler.lab.simulation.virtualtime import Speed
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier.policies.assignment import PolitenessScope
from tests.crawler.lab.policies.runs import run_of, setting_of
from tests.rows import each_row


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
    """With one seed, each repeat would be the same run."""
    compared = PolicyOptions(seed=5)
    assert [web_options(compared, "portals", repeat=repeat).seed for repeat in range(3)] == [5, 6, 7]
    assert web_options(compared, "portals").links == 10
    assert web_options(compared, "portals", links=2).links == 2


@each_row(
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


SMALL = SimulationOptions(pages=200, hosts=4, workers=10, policies=("host",))


def silent(done: int, total: int, what: str) -> None:
    """Nobody looks."""


def test_progress_counts_urls_up_to_all_of_them() -> None:
    """Each policy and each repeat crawls the whole web."""
    told: list[tuple[int, int]] = []
    run(replace(SMALL, repeat=2, policies=("host", "bkdr:97")), lambda done, total, what: told.append((done, total)))
    assert {total for _, total in told} == {800}
    assert [done for done, _ in told] == [0, 200, 400, 600]


def test_repeats_are_averaged_over_webs_of_their_own() -> None:
    """Two runs on two webs: their mean."""
    report = run(replace(SMALL, repeat=2), silent)
    assert report.tables[0].rows[0][-1] == "2 of 2"


def test_each_kind_is_a_comparison_of_its_own() -> None:
    """Their panels stand beside each other."""
    report = run(replace(SMALL, kinds=("hosts", "portals")), silent)
    assert len(report.panels) == 6
    assert report.data is not None
    assert len(report.data["comparisons"]) == 2


def test_the_live_runs_tell_what_a_page_and_a_turn_cost() -> None:
    """Idle: 0.1 s of the processor a page, busy: 0.02 s; nobody was faster than 100 a second, which leaves 0.01 s to one."""
    idle = run_of(active=(0, 5, 5), crawler=Busy(0.5, 0.0))
    busy = run_of(active=(0, *[100] * 5, *[0] * 5), crawler=Busy(0.9, 0.0, waited=0.1))
    assert astuple(speed_of([idle, busy])) == pytest.approx((0.01, 0.09))
    assert speed_of([replace(idle, crawler=None)]) == Speed()


def test_the_fastest_seconds_bound_no_page_of_a_crawler_that_was_idle() -> None:
    """Five pages a second at most do not make a page cost 0.2 s."""
    assert astuple(speed_of([run_of(active=(0, *[5] * 6), crawler=Busy(0.5, 0.0))])) == pytest.approx((0.1, 0.0))


def test_a_comparison_by_address_cannot_be_simulated_beside(tmp_path: Path) -> None:
    """The hosts of a generated web have no addresses."""
    live = PolicyComparison(setting=setting_of(), runs=(run_of("host"), run_of("ip")))
    options = PolicyOptions(policies=("host", "ip"), politeness="off")
    (tmp_path / "live.json").write_text(json.dumps(saved(COMPARISON, options, [live])))
    with pytest.raises(UsageError, match="ip, which cannot be simulated"):
        run(SimulationOptions(beside=tmp_path / "live.json"), silent)


def steady_run(active: float, urls_per_s: float, seconds: int = 10) -> RunResult:
    samples = tuple(Sample(at_s, at_s * active, active, 0, 0, 0, at_s * urls_per_s, 0) for at_s in range(seconds + 1))
    return RunResult(
        policy="host", samples=samples, duration_s=seconds, is_drained=True, queue_lengths=Balance(1, 1, 1)
    )


def test_a_run_does_not_deviate_from_itself() -> None:
    """The distance is 0 in both curves."""
    assert deviation(steady_run(5, 3), steady_run(5, 3))[3::3] == (0.0, 0.0)


def test_the_distance_is_told_as_a_share_of_the_live_mean() -> None:
    """8 against 10 workers is a fifth of the live run's 10, and 3 URLs/s against 2 a half."""
    found = deviation(steady_run(10, 2), steady_run(8, 3))
    assert found[1:4] == pytest.approx((10, 8, 0.2))
    assert found[4:] == pytest.approx((2, 3, 0.5))


def test_curves_that_cross_deviate_though_their_means_are_equal() -> None:
    """Distances do not cancel out."""
    live = steady_run(10, 2)
    ups = tuple(sample._replace(held_s=20 * min(sample.at_s, 5)) for sample in live.samples)
    found = deviation(live, replace(live, samples=ups))
    assert found.simulated_active == pytest.approx(10)
    assert found.active == pytest.approx(1.0)


def test_a_run_that_ends_earlier_deviates_until_the_other_ends() -> None:
    """Nobody is active after its end."""
    assert deviation(steady_run(10, 2, 10), steady_run(10, 2, 5)).active == pytest.approx(0.5, abs=0.1)


def test_nothing_live_to_compare_with_is_no_crash() -> None:
    """A live run in which nothing happened is infinitely far from one in which something did."""
    found = deviation(steady_run(0, 0), steady_run(1, 0))
    assert found.active == math.inf
    assert "beyond measure" in deviation_words("a web", [found])


def test_the_words_name_what_is_far_off() -> None:
    """And say so if nothing is; the table has percents."""
    near, far = deviation(steady_run(10, 2), steady_run(9, 2)), deviation(steady_run(10, 2), steady_run(4, 2))
    assert deviation_words("a web", [near]) == "a web: the simulation is within 20% of the live run under every policy."
    assert deviation_words("a web", [near, far]).endswith(
        "under 1 of 2 policies: host 60 % in active workers and 0 % in URLs/s."
    )
    assert deviation_table("a web", [far]).rows == (("host", 10.0, 4.0, pytest.approx(60.0), 2.0, 2.0, 0.0),)
