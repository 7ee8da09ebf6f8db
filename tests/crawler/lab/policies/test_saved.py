"""A comparison as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawler.lab.policies.comparison import Comparison
from crawler.lab.policies.options import PolicyOptions
from crawler.lab.policies.saved import load, saved
from crawler.lab.policies.series import Busy, HostSeen
from crawler.outcomes.errors import UsageError
from tests.crawler.lab.policies.runs import run_of, setting_of


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    """Records stay records, paths paths: a simulation can go on with it."""
    options = PolicyOptions(policies=("host", "bkdr:997"), replay=Path("crawl.log"))
    runs = (
        run_of(hosts=(HostSeen("a", 1, 1, None, 0.5),), server=Busy(0.1, 0.0)),
        run_of("bkdr:997", crawler=Busy(0.9, 0.1)),
    )
    comparison = Comparison(setting=setting_of(), runs=runs, simulated=(run_of(),))
    file = tmp_path / "live.json"
    file.write_text(json.dumps(saved(options, [comparison])))
    assert load(file) == (options, [comparison])


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
