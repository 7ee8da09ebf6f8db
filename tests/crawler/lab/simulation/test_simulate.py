"""The command's own work: webs, repeats, a live comparison beside."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from anabranch.crawler.lab.policies.comparison import Comparison
from anabranch.crawler.lab.policies.options import PolicyOptions
from anabranch.crawler.lab.policies.saved import COMPARISON, saved
from anabranch.crawler.lab.policies.series import Busy
from anabranch.crawler.lab.simulation.options import SimulationOptions
from anabranch.crawler.lab.simulation.processor import Speed
from anabranch.crawler.lab.simulation.simulate import run, speed_of
from anabranch.crawler.outcomes.errors import UsageError
from tests.crawler.lab.policies.runs import run_of, setting_of

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
    """The hosts of a made web have no addresses."""
    live = Comparison(setting=setting_of(), runs=(run_of("host"), run_of("ip")))
    options = PolicyOptions(policies=("host", "ip"), politeness="off")
    (tmp_path / "live.json").write_text(json.dumps(saved(COMPARISON, options, [live])))
    with pytest.raises(UsageError, match="ip, which cannot be simulated"):
        run(SimulationOptions(beside=tmp_path / "live.json"), silent)
