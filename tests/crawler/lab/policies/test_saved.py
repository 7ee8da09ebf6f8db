"""A comparison as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.crawler.lab.policies.options import PolicyOptions
from anabranch.crawler.lab.policies.saved import COMPARISON, SIMULATION, load, saved
from anabranch.crawler.lab.policies.series import Busy, HostSeen, PolicyComparison
from anabranch.crawler.lab.simulation.simulate import SimulationOptions
from anabranch.crawler.outcomes.errors import UsageError
from tests.crawler.lab.policies.runs import run_of, setting_of


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    """Records stay records, paths paths: a simulation can go on with it."""
    log = tmp_path / "crawl.log"
    log.touch()
    options = PolicyOptions(policies=("host", "bkdr:997"), replay=log)
    runs = (
        run_of(hosts=(HostSeen("a", 1, 1, None, 0.5),), server=Busy(0.1, 0.0)),
        run_of("bkdr:997", crawler=Busy(0.9, 0.1)),
    )
    comparison = PolicyComparison(setting=setting_of(), runs=runs, simulated=(run_of(),))
    file = tmp_path / "live.json"
    file.write_text(json.dumps(saved(COMPARISON, options, [comparison])))
    assert load(file) == (options, [comparison])


def test_it_has_what_the_tables_have_by_name(tmp_path: Path) -> None:
    """A script need not know in which order fields stand, nor reckon means."""
    runs = (run_of(active=(0, 4, 4), server=Busy(0.1, 0.2)), run_of("surt", active=(0, 9)))
    value = json.loads(
        json.dumps(saved(COMPARISON, PolicyOptions(), [PolicyComparison(setting=setting_of(), runs=runs)]))
    )
    (comparison,) = value["comparisons"]
    assert comparison["compared_s"] == 1.0
    assert comparison["means"]["host"] == {"active": 4, "peak": 4, "urls_per_s": 4, "bytes_per_s": 4000}
    assert comparison["runs"][0]["server"]["share"] == 0.1
    assert comparison["runs"][0]["samples"][1][value["columns"].index("held_s")] == 4


def test_a_simulation_is_not_taken_for_a_live_comparison(tmp_path: Path) -> None:
    """Another simulation beside it would be of another web."""
    file = tmp_path / "simulated.json"
    file.write_text(json.dumps(saved(SIMULATION, SimulationOptions(), [])))
    with pytest.raises(UsageError, match="a simulation; name what `anabranch compare --json` wrote"):
        load(file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seconds": "x"}, "seconds"),
        ({"seeds": "seeds.txt"}, "a crawl of real sites.* --replay"),
        ({"seconds": 0}, "--seconds must be 1 or more"),
        ({"politeness": "foo"}, "--politeness 'foo' is unknown"),
        ({"policies": ["host", "nonsense"]}, "--policies"),
        ({"policies": ["surt", "bkdr:997"]}, "its runs are not those of its options"),
    ],
)
def test_a_file_that_somebody_changed_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    """Whatever makes no sense on the command line makes none in the file."""
    options = PolicyOptions(policies=("host", "bkdr:997"))
    comparison = PolicyComparison(setting=setting_of(), runs=(run_of(), run_of("bkdr:997")))
    value = json.loads(json.dumps(saved(COMPARISON, options, [comparison])))
    value["options"].update(change)
    file = tmp_path / "live.json"
    file.write_text(json.dumps(value))
    with pytest.raises(UsageError, match=said):
        load(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a comparison"),
        ('{"anabranch": "frontier", "version": 1}', "not a comparison"),
        ('{"anabranch": "comparison", "version": 9}', "not a comparison"),
        ('{"anabranch": "comparison", "version": 1, "options": {}}', "somebody changed"),
        (
            '{"anabranch": "comparison", "version": 1, "options": {"replay": null, "seeds": null}, "comparisons": [1]}',
            "changed",
        ),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    """It names the file and what to name in its place."""
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        load(file)
    assert str(refused.value).startswith(str(file))


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    """In one line."""
    with pytest.raises(UsageError, match="no such file"):
        load(tmp_path / "none.json")
