"""The command's own work: webs, repeats, a live comparison beside."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from crawler.lab.policies.series import Busy
from crawler.lab.simulation.options import SimulationOptions
from crawler.lab.simulation.processor import Speed
from crawler.lab.simulation.simulate import page_cost_s, run, speed_of
from crawler.outcomes.errors import UsageError
from tests.crawler.lab.policies.runs import run_of

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


def test_a_page_costs_what_it_did_in_the_busiest_live_run() -> None:
    """0.3 s a second for 20 URLs in 2 s; 0.2 s for as many. Nothing is known if nobody looked."""
    idle, busy = (run_of(active=(0, 10, 10), crawler=Busy(share, 0.0)) for share in (0.3, 0.2))
    assert page_cost_s([idle, busy]) == pytest.approx(0.02)
    assert page_cost_s([replace(idle, crawler=None)]) == 0.0


def test_a_simulated_crawler_waits_for_its_turns_as_the_live_one_did() -> None:
    """50 turns a second, each of 6 ms after 4 ms of waiting."""
    live = run_of(crawler=Busy(0.3, 0.0, waited=0.2, turns=50.0))
    assert astuple(speed_of(live, 0.02)) == pytest.approx((0.02, 0.004, 0.006))
    assert speed_of(replace(live, crawler=Busy(0.3, 0.0)), 0.02) == Speed(page_s=0.02)


def test_a_crawl_of_real_sites_cannot_be_simulated_beside(tmp_path: Path) -> None:
    """Nobody knows their web; a replay of the crawl.log does it."""
    report = run(SMALL, silent)
    assert report.data is not None
    data = dict(report.data)
    data["options"] = {**data["options"], "seeds": "seeds.txt"}
    (tmp_path / "live.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match="--replay"):
        run(SimulationOptions(beside=tmp_path / "live.json"), silent)
