"""Crawls in virtual time, against what a sheet of paper says."""

from __future__ import annotations

import pytest

from anabranch.crawler.lab.policies.series import RunResult, Sample, rates
from anabranch.crawler.lab.simulation.running import Model, Series, simulate
from anabranch.crawler.lab.web.model import WebHost
from tests.crawler.lab.simulation.webs import HOST, SmallWeb, answer, model_of, one_host


def simulated(model: Model) -> RunResult:
    return simulate(model, lambda sample: None)


def test_one_slot_takes_a_page_each_time_its_rest_is_over() -> None:
    """robots.txt and 5 pages of a second each, with 3 s between them: 6 x 1 s + 5 x 3 s."""
    run = simulated(model_of(one_host(5)))
    assert run.duration_s == pytest.approx(21.0)
    assert run.is_drained
    assert run.samples[-1].urls == 5


def test_two_slots_of_one_queue_take_turns_in_one_page_at_a_time() -> None:
    """The queue of a host has one URL in flight: each page begins when the one before ends, until both slots rest.

    robots.txt 0-1 (slot A rests to 4), page 0 1-2 (B, to 5), then A 4-5 (to 8), B 5-6, A 8-9, B 9-10.
    """
    assert simulated(model_of(one_host(5), slots=2)).duration_s == pytest.approx(10.0)


def test_two_slots_are_both_filled_from_several_queues() -> None:
    """With a queue for each URL both slots work at once, as soon as the first page has told of the others.

    robots.txt 0-1 (A rests to 4), page 0 1-2 (B to 5), A 4-5 (to 8), B 5-6 (to 9), A 8-9, B 9-10: the first start decides.
    """
    run = simulated(model_of(one_host(5), slots=2, policy="bkdr:997"))
    assert run.duration_s == pytest.approx(10.0)
    assert max(sample.peak for sample in run.samples) == 1
    ten = simulated(model_of(one_host(11), slots=10, policy="bkdr:997"))
    # robots.txt 0-1, page 0 1-2, eight slots at once 2-3; the first slot rests to 4, the second to 5: 4-5 and 5-6.
    assert ten.duration_s == pytest.approx(6.0)


def test_a_crawl_delay_keeps_starts_apart() -> None:
    """One slot, which rests for the longer of both: 6 x 1 s + 5 x 9 s."""
    run = simulated(model_of(one_host(5, crawl_delay_s=9.0), slots=4))
    assert run.duration_s == pytest.approx(6 + 5 * 9)
    assert run.is_polite, run.verdict


def test_a_busy_host_is_asked_again_as_often_as_a_crawl_does() -> None:
    """A 503 five times, then it stands: 4 fetches more than the 3 pages have, 8 in all with robots.txt."""
    run = simulated(model_of(one_host(3, statuses={2: 503})))
    assert run.duration_s == pytest.approx(8 * 1 + 7 * 3)
    assert run.samples[-1].urls == 3
    assert run.hosts[0].requests == 8


def test_a_page_that_the_web_does_not_have_is_answered_404() -> None:
    """A link to nowhere takes the host's latency and a slot like any other."""
    web = one_host(1)
    web._pages = {**web._pages, f"http://{HOST}/0": answer(f"http://{HOST}/none")}
    run = simulated(model_of(web))
    assert run.samples[-1].urls == 2
    assert run.duration_s == pytest.approx(3 * 1 + 2 * 3)


def test_the_processor_has_one_page_at_a_time() -> None:
    """All 8 pages below the first are there at once and take 2 s of processor time each, behind 2 s + 2 s for the first two."""
    run = simulated(model_of(one_host(9), slots=100, policy="bkdr:997", page_cost_s=2.0))
    assert run.duration_s == pytest.approx((1 + 2) + (1 + 2) + (1 + 8 * 2))
    assert run.crawler is not None
    assert run.crawler.share == pytest.approx(20 / 23)


def test_a_slot_rests_from_the_end_of_the_fetch_while_the_page_waits_for_the_processor() -> None:
    """Rest and work go on at the same time: a page costs 1 s + max(3 s of rest, 2 s of work); the last its work alone."""
    assert simulated(model_of(one_host(5), page_cost_s=2.0)).duration_s == pytest.approx(5 * 4 + 1 + 2)


def test_it_ends_at_the_given_time_with_all_that_is_under_way() -> None:
    """WebPage 1 is under way from 8 s to 9 s: at 8.5 s one worker is active and one page has ended."""
    run = simulated(model_of(one_host(5), seconds=8.5))
    assert run.duration_s == 8.5
    assert not run.is_drained
    assert run.samples[-1] == Sample(8.5, 2.5, 1, 0, 0, 0, 1, 1000)


def test_a_run_that_is_drained_before_its_time_lasts_as_long_as_it_took() -> None:
    """The limit is none of its length."""
    assert simulated(model_of(one_host(5), seconds=1000.0)).duration_s == pytest.approx(21.0)


def test_samples_are_a_second_apart_and_true_to_the_moment() -> None:
    """robots.txt is under way from 0 s, page 0 from 4 s, page 1 from 8 s; each for a second."""
    run = simulated(model_of(one_host(3)))
    assert [sample.at_s for sample in run.samples] == pytest.approx([*range(13), 13.0])
    assert [rate.active for rate in rates(run)] == pytest.approx([0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1])
    assert [sample.peak for sample in run.samples] == [0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert [sample.urls for sample in run.samples][4:9] == [0, 1, 1, 1, 1]


def test_the_same_model_gives_the_same_run() -> None:
    """Nothing in it depends on the machine or the moment."""
    assert simulated(model_of(one_host(30), slots=3, policy="elf:7")) == simulated(
        model_of(one_host(30), slots=3, policy="elf:7")
    )


def test_queue_lengths_count_what_ended_and_what_is_left() -> None:
    """A run that is cut short has found as many URLs as one that is not."""
    whole = simulated(model_of(one_host(50), policy="bkdr:7"))
    cut = simulated(model_of(one_host(50), policy="bkdr:7", seconds=30.0))
    assert cut.samples[-1].urls < 10
    assert cut.queue_lengths == whole.queue_lengths
    assert whole.queue_lengths.urls == 50


@pytest.mark.parametrize("name", ["[::1]:8080", "[::1]", "a.test:8080"])
def test_a_host_may_have_a_port_or_be_an_ipv6_address(name: str) -> None:
    """Its site is found without the port."""
    urls = [f"http://{name}/{number}" for number in range(2)]
    site = WebHost(name.removesuffix(":8080"), 2, 1.0, 1e6, None)
    run = simulated(model_of(SmallWeb({urls[0]: answer(urls[1]), urls[1]: answer()}, [site], urls[:1])))
    assert [(host.host, host.requests) for host in run.hosts] == [(site.host, 3)]


@pytest.mark.parametrize("policy", ["host", "bkdr:97", "parallel:8"])
def test_the_ledger_of_virtual_time_is_clean(policy: str) -> None:
    """However many queues: never more than k at once, and no slot taken before it has rested.

    When the first page has told of the others, at 2 s, two of four slots are free; the other two open at 4 s and 5 s: so two
    are in use at once for ever, if there are queues enough.
    """
    run = simulated(model_of(one_host(60), slots=4, policy=policy))
    assert run.is_polite, run.verdict
    assert run.hosts[0].most_at_once == (1 if policy == "host" else 2)
    assert run.hosts[0].shortest_gap_s == pytest.approx(3.0)


def look(passed: Sample) -> Sample:
    return passed._replace(urls=2 * passed.at_s)


def times(samples: list[Sample]) -> list[float]:
    return [sample.at_s for sample in samples]


def test_a_long_run_is_sampled_less_often_and_evenly() -> None:
    """Samples stay at the multiples of one interval, never more than so many."""
    series = Series(look, most=8)
    for second in range(1, 1001):
        series.go_on(second + 0.5, 3)
        assert len(series.samples) <= 8
        assert times(series.samples) == [number * series.each_s for number in range(len(series.samples))]
    assert series.each_s == 128.0


def test_workers_are_counted_between_the_samples() -> None:
    """Seven of them for a tenth of a second between two samples are in the mean and in the peak."""
    series = Series(look)
    for at_s, active in ((0.5, 2), (0.6, 7), (1.5, 0), (2.25, 1)):
        series.go_on(at_s, active)
    samples = series.close()
    assert [(sample.at_s, round(sample.held_s, 9), sample.peak) for sample in samples] == [
        (0.0, 0, 0),
        (1.0, 1.7, 7),
        (2.0, 2.2, 1),
        (2.25, 2.45, 1),
    ]


def test_a_peak_outlives_the_sample_that_is_left_out() -> None:
    """However many times the interval is doubled, the most active workers of the run stand somewhere."""
    series = Series(look, most=8)
    series.go_on(2.5, 1)
    series.go_on(2.6, 99)
    series.go_on(500.0, 1)
    samples = series.close()
    assert max(sample.peak for sample in samples) == 99
    assert samples[-1].held_s == 500 + 98 * (2.6 - 2.5)


def test_the_end_is_sampled_once() -> None:
    """Whether or not it falls on a sample's time."""
    series = Series(look)
    series.go_on(1.0, 1)
    assert times(list(series.close())) == [0.0, 1.0]
    assert times(list(series.close())) == [0.0, 1.0]
    series.go_on(1.5, 1)
    assert times(list(series.close())) == [0.0, 1.0, 1.5]
