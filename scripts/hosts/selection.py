"""A pytest plugin for a host's suite: tests that cannot pass must fail, and all results are recorded.

`ANABRANCH_SUITE` names the suite, its variant and the host's version; `ANABRANCH_REPORT` is the file for the report.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.hosts import table

SUITE, REPORT = "ANABRANCH_SUITE", "ANABRANCH_REPORT"


class Selection:
    """The exemptions of one run, and the results of its tests."""

    def __init__(self, exemptions: Sequence[table.Exemption]) -> None:
        self._exemptions = exemptions
        self._known = {one.reason for one in exemptions}
        self._collected: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._failed: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Exempt tests must fail. (Their reruns and marks are switched off, because a failure is expected.)"""
        for item in items:
            one = next((one for one in self._exemptions if one.covers(item.nodeid)), None)
            if one is not None:
                item.own_markers = [mark for mark in item.own_markers if mark.name != "xfail"]
                item.add_marker(pytest.mark.xfail(reason=one.reason, run=not one.hangs, strict=True))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without xdist: the tests."""
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """With xdist: the tests of a worker."""
        self._collected.update(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported."""
        if report.failed:
            self._failed[report.nodeid] = report.longreprtext.strip().splitlines()[-1]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of a test's three phases."""
        reason = getattr(report, "wasxfail", None)
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # by pytest-rerunfailures
            return
        words = (reason or "").removeprefix("reason: ").removeprefix("[NOTRUN] ")
        if report.skipped and words in self._known:
            self._counts["not applicable"] += 1
            self._reasons[words] += 1
        elif report.failed:
            self._failed[report.nodeid] = (report.longreprtext.strip().splitlines() or ["?"])[-1]
        elif report.skipped:
            self._counts["skipped"] += 1
        elif report.when == "call":
            self._counts["passed"] += 1

    def pytest_sessionfinish(self) -> None:
        """Write the report; workers of xdist have sent theirs to the main process."""
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        report: dict[str, Any] = {
            "counts": dict(self._counts),
            "reasons": dict(self._reasons),
            "failed": self._failed,
            "unknown": table.unknown(self._exemptions, self._collected),
        }
        Path(os.environ[REPORT]).write_text(json.dumps(report, indent=1), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Register the `Selection` of the suite named in the environment; pytest calls this hook."""
    name, variant, version = os.environ[SUITE].split(" ")
    suite = table.read()[name]
    config.pluginmanager.register(Selection(suite.of(variant, table.numbers(version))), "anabranch-selection")
