"""The plugin that holds a host's suite to the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.hosts.selection import REPORT, Selection
from scripts.hosts.table import Exemption

SUITE = """
import pytest

def test_passes(): pass
def test_fails(): assert 0
def test_cannot(): assert 0
@pytest.mark.parametrize("n", [1, 2])
def test_could(n): assert n == 1
def test_hangs(): raise SystemExit
def test_skips(): pytest.skip("not here")
@pytest.mark.xfail(reason="theirs", strict=True)
def test_theirs(): assert 0
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The report that a run of the suite above wrote."""
    with pytest.MonkeyPatch.context() as patched:
        yield reported(tmp_path_factory.mktemp("suite"), patched)


def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "test_x.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    monkeypatch.setenv(REPORT, str(tmp_path / "report.json"))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    exemptions = [
        Exemption("test_x.py::test_cannot", "why"),
        Exemption("test_x.py::test_could", "because"),
        Exemption("test_x.py::test_hangs", "it hangs", hangs=True),
        Exemption("test_x.py::test_gone", "why"),
    ]
    unused = ("no:cacheprovider", "no:asyncio", "no:schemathesis")  # the last one imports for a second
    options = ["-q", *(f"-p{name}" for name in unused), "--import-mode=importlib"]
    pytest.main([*options, "--rootdir", str(tmp_path), str(tmp_path)], plugins=[Selection(exemptions)])
    found: dict[str, Any] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    return found


def test_a_listed_test_that_fails_is_counted_with_its_reason(report: dict[str, Any]) -> None:
    """One that hangs is not run. The host's own marks are the host's."""
    assert report["counts"] == {"passed": 1, "not applicable": 3, "skipped": 2}
    assert report["reasons"] == {"why": 1, "because": 1, "it hangs": 1}


def test_a_listed_test_that_passes_is_a_failure(report: dict[str, Any]) -> None:
    """A test that fails and is not listed is a failure, too."""
    assert set(report["failed"]) == {"test_x.py::test_fails", "test_x.py::test_could[1]"}
    assert "XPASS" in report["failed"]["test_x.py::test_could[1]"]


def test_a_listed_test_that_is_gone_is_told(report: dict[str, Any]) -> None:
    """By its id."""
    assert report["unknown"] == ["test_x.py::test_gone"]
