"""The status of a run, as JSON has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import LimitsSection, UsedLimits
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.failures import ConnectFailed
from anabranch.crawler.report.progress_log import ProgressLog
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.run.composition import RunContext
from anabranch.crawler.run.limits import DiskWatch, RunLimits
from anabranch.crawler.run.membership import SoleMembership, Surroundings
from anabranch.crawler.run.run_state import Cause, RunState
from anabranch.crawler.run.service_gates import ServiceGates
from anabranch.crawler.run.services import Services
from anabranch.crawler.run.status import ProgressReporter, RunStatus, opening_facts
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.records import OutcomeKind
from tests.crawler.builder import memory_frontier, visit
from tests.facts_schema import WHOLE, checked


class Run:
    """The parts of a run that a status is made from."""

    def __init__(self, frontier: AsyncFrontier, folder: Path) -> None:
        self.frontier = frontier
        self.run_state = RunState(lambda _: None)
        self.statistics = CrawlStatistics(started_s=0.0)
        with JobFolder.open(folder / "job") as job:
            self.context = RunContext(
                order=CrawlOrder(),
                job=job,
                clock=frontier.core.now_s,
                statistics=self.statistics,
                board=WorkerBoard(),
                run_state=self.run_state,
                member=SoleMembership(CrawlOrder(), job),
                outside=Surroundings(),
            )
        log = ProgressLog(folder / "progress-statistics.log", frontier.core.now_s)
        self.progress = ProgressReporter(frontier, self.statistics, log, 20.0, frontier.core.now_s)
        gates = ServiceGates(60.0, 86_400.0)
        self.services = Services(gates, frontier, self.run_state, {}, self.statistics)
        self.limits = RunLimits(LimitsSection(), self.run_state, self.statistics, UsedLimits(0, 0), lambda: None)
        disk = DiskWatch([], 0, self.run_state)
        self.status = RunStatus(self.context, disk, frontier.core, self.progress, self.services, self.limits)

    def open(self) -> None:
        self.run_state.begin(self.frontier)

    def facts(self) -> dict[str, Any]:
        return checked(self.status.facts())


async def test_the_display_follows_a_limit_that_was_changed(tmp_path: Path) -> None:
    """Its bar is of the limit that holds now."""
    async with memory_frontier("http://a.test/") as frontier:
        run = Run(frontier, tmp_path)
        run.open()
        assert run.status.snapshot().page_limit == 0
        run.limits.change(LimitsSection(pages=7))
        assert run.status.snapshot().page_limit == 7


async def test_what_a_shared_filter_counts_stands_in_the_status(tmp_path: Path) -> None:
    """They are whole numbers after a look at all queues, and None without such a filter."""
    async with memory_frontier("http://a.test/") as frontier:
        run = Run(frontier, tmp_path)
        run.open()
        run.progress.latest = await frontier.statistics()
        facts = run.facts()
        assert (facts["shared_left"], facts["shared_twice"]) == (None, None)
        run.progress.latest = run.progress.latest._replace(seen={"keys": 1.0, "shared_left": 3.0, "shared_twice": 2.0})
        facts = run.facts()
    assert (facts["shared_left"], facts["shared_twice"]) == (3, 2)


async def test_the_status_has_one_shape_from_the_first_moment_to_the_last(tmp_path: Path) -> None:
    """While the job is opened, before and after a closer look, after a failure, paused, draining."""
    async with memory_frontier("http://a.test/") as frontier:
        run = Run(frontier, tmp_path)
        shown = [checked(opening_facts(run.context))]
        run.open()
        shown.append(run.facts())
        run.progress.latest = await frontier.statistics()
        shown.append(run.facts())
        failed = visit(failure=ConnectFailed("refused"))
        run.statistics.troubles.record(failed, OutcomeKind.RETRY, 1.0, 2.0)
        shown.append(run.facts())
        run.run_state.pause(Cause.OPERATOR)
        shown.append(run.facts())
        run.run_state.stop(WhyEnded.OPERATOR)
        shown.append(run.facts())
    assert [facts["phase"] for facts in shown] == ["starting", "running", "running", "running", "paused", "draining"]
    assert [facts["totals"] and facts["totals"]["pending"] for facts in shown] == [None, 1, 1, 1, 1, 1]
    assert [facts["line"] == "" for facts in shown] == [True, *[False] * 5]
    assert {tuple(facts) for facts in shown} == {tuple(shown[0])}


async def test_a_run_none_of_whose_seeds_has_answered_is_told_from_one_that_has_not_tried_them(
    tmp_path: Path,
) -> None:
    """Each URL must have failed in this run."""
    async with memory_frontier("http://a.test/", "http://b.test/") as frontier:
        run = Run(frontier, tmp_path)
        run.open()
        for host, is_told in (("a", False), ("b", True)):
            failed = visit(url=f"http://{host}.test/", failure=ConnectFailed("refused"))
            run.statistics.troubles.record(failed, OutcomeKind.RETRY, 1.0, 2.0)
            assert run.facts()["no_seed_answered"] is is_told


#: What is known of some subjects only.
_WITH_OPTIONAL = {"Explained", "JobRow", "Schedule"}


def objects(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema, and all in it that describe an object of fixed fields."""
    if "properties" in schema:
        yield schema
        for inner in schema["properties"].values():
            yield from objects(inner)


def test_the_schema_names_every_field_and_lets_none_be_left_out_or_added() -> None:
    """Otherwise it would pass what it does not document."""
    Draft202012Validator.check_schema(WHOLE)
    for kind, schema in WHOLE["$defs"].items():
        for one in objects(schema):
            assert one["additionalProperties"] is False, kind
            assert kind in _WITH_OPTIONAL or one["required"] == list(one["properties"]), kind
    for facts in ({}, {"phase": "stopped", "is_finished": True, "totals": {}}):
        with pytest.raises(ValidationError):
            checked(facts)
