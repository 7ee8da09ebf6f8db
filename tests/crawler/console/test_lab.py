"""Comparisons that a console starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.crawler.console.lab import LabRequest, LabRuns, live_points, means_of
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.files.locks import try_lock

NAME = "20260101-000000-000"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"policies": ()}, "policies: choose from 1 to 6"),
        ({"policies": ("host", "host")}, "each once"),
        ({"policies": ("os:system",)}, "is not a built-in policy"),
        ({"policies": ("--seeds",)}, "is not a built-in policy"),
        ({"politeness": "rude"}, "politeness: choose one of paper, polite, off"),
        ({"pages": 10**9}, "pages: must be from 100 to 50,000"),
        ({"seconds": 0}, "seconds: must be from 2 to 120"),
    ],
)
def test_what_is_out_of_bounds_is_refused(tmp_path: Path, given: dict[str, object], words: str) -> None:
    """In one line, before anything is made."""
    with pytest.raises(UsageError, match=words):
        LabRuns(tmp_path / "lab").start(LabRequest(**given))  # type: ignore[arg-type]
    assert not (tmp_path / "lab").exists()


def test_one_runs_at_a_time(tmp_path: Path) -> None:
    """Whoever started the other one, which holds the lock."""
    runs = LabRuns(tmp_path)
    with (tmp_path / "lock").open("wb") as other:
        assert try_lock(other.fileno())
        with pytest.raises(UsageError, match="a comparison is running; wait until it ends, or stop it"):
            runs.start(LabRequest())
    assert (runs.names, runs.running()) == ([], None)
    with pytest.raises(UsageError, match="no comparison is running"):
        runs.stop()


def test_a_comparison_is_read_from_its_folder(tmp_path: Path) -> None:
    """It has its request, samples and means. Damaged lines are left out, and other folders are no comparisons."""
    place = tmp_path / NAME
    place.mkdir()
    (tmp_path / "other").mkdir()
    sample = {"web": "w", "policy": "host", "repeat": 1, "at_s": 1.0, "active": 2.0, "urls_per_s": 3.0}
    (place / "asked.json").write_text(json.dumps({"policies": ["host", "elf:97"], "seconds": 2}))
    (place / "live.jsonl").write_text(f"{json.dumps(sample)}\n[]\n{{\n")
    (place / "output").write_text("first\nlast\n")
    runs = LabRuns(tmp_path)
    found = runs.run(NAME)
    assert runs.names == [NAME]
    assert (found.asked.policies, found.live, found.said) == (
        ("host", "elf:97"),
        {"host": [(1.0, 2.0, 3.0)]},
        ("first", "last"),
    )
    assert (found.is_running, found.means, found.done) == (False, {}, 0.25)
    for name in ("other", "..", f"{NAME}/../other"):
        with pytest.raises(UsageError, match="no such comparison"):
            runs.run(name)


def test_the_best_policy_is_the_first() -> None:
    """By active workers; what is no result has none."""
    means = {policy: {"active": active, "urls_per_s": 1.0} for policy, active in (("host", 2.0), ("elf:97", 5.0))}
    assert [*means_of({"comparisons": [{"means": means}]})] == ["elf:97", "host"]
    assert means_of(None) == means_of({"comparisons": []}) == {}
    assert live_points(["null", "1"]) == {}
