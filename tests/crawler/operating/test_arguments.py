"""What verbs are told is checked before anything is done."""

from __future__ import annotations

import math

import pytest

from anabranch.crawler.operating.arguments import number, state_named, text, whole
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier.scheduling.lifecycle import QueueState


def test_values_are_taken_as_json_holds_them() -> None:
    """A number may be whole or not."""
    given = {"url": "http://a.test/", "for_s": 3, "units": -1}
    assert text(given, "url") == "http://a.test/"
    assert number(given, "for_s") == 3.0
    assert whole(given, "units", least=-1) == -1
    assert state_named("ready") is QueueState.READY


@pytest.mark.parametrize("value", ["", None, 5, "\ud800"])
def test_text_is_neither_empty_nor_something_else(value: object) -> None:
    """What is no UTF-8 could not be logged."""
    with pytest.raises(UsageError, match="url"):
        text({"url": value}, "url")


@pytest.mark.parametrize("value", [None, "5", True, math.inf, math.nan])
def test_a_number_is_finite(value: object) -> None:
    """JSON has no truth among its numbers; Python has."""
    with pytest.raises(UsageError, match="for_s must be a number"):
        number({"for_s": value}, "for_s")


@pytest.mark.parametrize("value", [None, 1.5, True, -2, 1 << 53])
def test_a_whole_number_is_one_that_every_store_holds(value: object) -> None:
    """And not below the least."""
    with pytest.raises(UsageError, match="units must be a whole number from -1"):
        whole({"units": value}, "units", least=-1)


@pytest.mark.parametrize("name", ["none", None])
def test_a_state_that_is_none_is_refused_with_those_that_are(name: object) -> None:
    """Empty queues are not listed, so their state is not offered."""
    with pytest.raises(UsageError, match=r"is unknown; choose one of (?!.*empty)"):
        state_named(name)
