"""The status of a run, as JSON has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from anabranch.crawler.operating.course import Cause, Course
from anabranch.crawler.operating.limits import DiskWatch
from anabranch.crawler.operating.status import Status
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.failures import ConnectFailed
from anabranch.crawler.reporting.statistics import CrawlStatistics
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.models import OutcomeKind
from anabranch.frontier.operating.statistics import FrontierStatistics
from tests.crawler.builder import memory_frontier, visit
from tests.status_schema import SCHEMA, checked


class Run:
    """What a status looks at."""

    def __init__(self, frontier: AsyncFrontier) -> None:
        self.frontier = frontier
        self.course = Course(lambda _: None)
        self.statistics = CrawlStatistics(started_s=0.0)
        disk = DiskWatch([], 0, self.course)
        self.status = Status(self.course, self.statistics, disk, CrawlOrder(), "job", frontier.core.now_s)
        self.looked: FrontierStatistics | None = None

    def open(self) -> None:
        self.status.look_at(self.frontier.core, lambda: self.looked)
        self.course.steer(self.frontier)

    def facts(self) -> dict[str, Any]:
        return checked(self.status.facts())


async def test_what_a_shared_filter_counts_stands_in_the_status() -> None:
    """As whole numbers, once a closer look was taken; without such a filter nothing is said of it."""
    async with memory_frontier("http://a.test/") as frontier:
        run = Run(frontier)
        run.open()
        run.looked = await frontier.statistics()
        facts = run.facts()
        assert (facts["shared_left"], facts["shared_twice"]) == (None, None)
        run.looked = run.looked._replace(seen={"keys": 1.0, "shared_left": 3.0, "shared_twice": 2.0})
        facts = run.facts()
    assert (facts["shared_left"], facts["shared_twice"]) == (3, 2)


async def test_the_status_has_one_shape_from_the_first_moment_to_the_last() -> None:
    """While the job is opened, before and after a closer look, after a failure, paused, draining."""
    async with memory_frontier("http://a.test/") as frontier:
        run = Run(frontier)
        shown = [run.facts()]
        run.open()
        shown.append(run.facts())
        run.looked = await frontier.statistics()
        shown.append(run.facts())
        failed = visit(failure=ConnectFailed("refused"))
        run.statistics.troubles.note(failed, OutcomeKind.RETRY, 1.0, 2.0)
        shown.append(run.facts())
        run.course.pause(Cause.OPERATOR)
        shown.append(run.facts())
        run.course.stop(WhyEnded.OPERATOR)
        shown.append(run.facts())
    assert [facts["phase"] for facts in shown] == ["starting", "running", "running", "running", "paused", "draining"]
    assert [facts["totals"] and facts["totals"]["pending"] for facts in shown] == [None, 1, 1, 1, 1, 1]
    assert [facts["line"] == "" for facts in shown] == [True, *[False] * 5]
    assert {tuple(facts) for facts in shown} == {tuple(shown[0])}


async def test_a_run_none_of_whose_seeds_has_answered_is_told_from_one_that_has_not_tried_them() -> None:
    """Each URL must have failed in this run."""
    async with memory_frontier("http://a.test/", "http://b.test/") as frontier:
        run = Run(frontier)
        run.open()
        for host, is_told in (("a", False), ("b", True)):
            failed = visit(url=f"http://{host}.test/", failure=ConnectFailed("refused"))
            run.statistics.troubles.note(failed, OutcomeKind.RETRY, 1.0, 2.0)
            assert run.facts()["no_seed_answered"] is is_told


def objects(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema, and all in it that describe an object of fixed fields."""
    if "properties" in schema:
        yield schema
        for inner in schema["properties"].values():
            yield from objects(inner)


def test_the_schema_names_every_field_and_lets_none_be_left_out_or_added() -> None:
    """Otherwise it would pass what it does not document."""
    Draft202012Validator.check_schema(SCHEMA)
    described = list(objects(SCHEMA))
    assert len(described) == 5
    for one in described:
        assert (one["additionalProperties"], one["required"]) == (False, list(one["properties"]))
    for facts in ({}, {"phase": "stopped", "is_finished": True, "totals": {}}):
        with pytest.raises(ValidationError):
            checked(facts)
