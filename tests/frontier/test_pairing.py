"""A filter is taken by the store that it was used with, in the state that it was used with, and by no other."""

from __future__ import annotations

import pytest

from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.pairing import Pair, next_pair


@pytest.mark.parametrize(
    ("noted", "kept", "openings"),
    [(None, None, 1), ("a-4", None, 5), ("a-4", "a-4", 5), ("a-4", "a-3", 5), ("a-4", "a-1", 5)],
)
def test_a_filter_may_be_new_or_behind(noted: str | None, kept: str | None, openings: int) -> None:
    """It is told what it lacks; from then on both have the same."""
    pair = next_pair(Pair.read(noted or ""), Pair.read(kept or ""))
    assert pair.openings == openings
    assert noted is None or pair.name == "a"
    assert Pair.read(str(pair)) == pair


def test_each_pair_has_a_name_of_its_own() -> None:
    """Or the filter of one job could stand in for another's."""
    assert next_pair(None, None).name != next_pair(None, None).name


@pytest.mark.parametrize(
    ("noted", "kept", "why"),
    [
        ("", "aaaabbbbcccc-1", "it is filter aaaabbbb, the store never saw it"),
        ("eeeeffff-9", "aaaabbbb-1", "it is filter aaaabbbb, the store belongs to filter eeeeffff"),
        ("a-4", "a-5", "it was opened 5 times, the store 4 times: that is an older copy"),
    ],
)
def test_a_filter_that_may_know_more_is_refused(noted: str, kept: str, why: str) -> None:
    """A URL that only the filter knows would never be crawled (I8). Both are named, and what to do."""
    with pytest.raises(FormatMismatch) as refused:
        next_pair(Pair.read(noted), Pair.read(kept))
    line = str(refused.value)
    assert why in line
    assert "restore store and filter from the same copy, or remove the filter" in line
    assert "\n" not in line


@pytest.mark.parametrize("text", ["a", "-3", "a-", "a-x"])
def test_a_damaged_text_is_no_pair(text: str) -> None:
    """And not a new filter's either."""
    with pytest.raises(ValueError, match=text):
        Pair.read(text)
