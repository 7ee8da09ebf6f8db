"""The parts of `scripts/bench embed` that can be checked without timing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scrapy")

from scripts.benchmarks import __main__ as bench
from scripts.benchmarks.embed import GROUPS, speed
from scripts.benchmarks.embed.speed import Race, crawled
from scripts.benchmarks.rows import Setting
from scripts.benchmarks.site.pages import Site
from scripts.benchmarks.site.process import served


def test_the_subject_is_known_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong group is refused with the names of the right ones."""
    assert bench.main(["embed", "--only", "host"]) == 2
    told = capsys.readouterr().err
    assert all(group.name in told for group in GROUPS)


@pytest.mark.slow
def test_both_schedulers_crawl_the_site_and_the_ratio_is_of_their_speeds(tmp_path: Path) -> None:
    """One round: what is shown is what was measured."""
    race = Race(name="small", site=Site(pages=30), settings={}, ours={}, target=1.0, is_durable=True)
    setting = Setting(folder=tmp_path, is_quick=True, say=lambda _: None)
    stock, ours, ratio = speed._rows(race, setting)
    assert stock.measured
    assert ours.measured
    assert ratio.measured == pytest.approx(ours.measured / stock.measured)
    assert {place.name for place in tmp_path.iterdir()} == {"small-stock-0", "small-frontier-0"}
    assert (tmp_path / "small-frontier-0" / "frontier" / "state").is_dir()
    assert not (tmp_path / "small-stock-0" / "frontier").exists()


def test_a_crawl_that_fails_is_no_figure() -> None:
    """The error contains the spider's own message."""
    with served(Site(pages=3)) as seed, pytest.raises(RuntimeError, match="no_such_scheduler"):
        crawled(seed, {"SCHEDULER": "no_such_scheduler.Scheduler"})
