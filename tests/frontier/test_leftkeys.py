"""Keys that were left to other crawls: remembered within bounds, and never mistaken for this crawl's own."""

import pytest

from anabranch.frontier import leftkeys
from anabranch.frontier.leftkeys import LeftKeys
from anabranch.frontier.models import NORMAL, Row

A, B, C, D = (f"http://{name}.test/".encode() for name in "abcd")


def dead(*keys: bytes) -> list[Row]:
    return [Row(1, 1, NORMAL, 1, key.decode(), None, "", 0, 0, None, None) for key in keys]


def nothing() -> list[bytes]:
    return []


def test_what_died_is_left_and_stays_pending() -> None:
    """The rest is this crawl's, and known from now on."""
    assert LeftKeys().sort_out([A, B, C], dead(B), nothing) == ([A, C], {A, C})


def test_a_key_of_a_row_that_died_and_of_one_that_lives_is_own() -> None:
    """One of two rows with the key died: the other was forced."""
    left = LeftKeys()
    assert left.sort_out([A, B, A], dead(A), nothing) == ([A, B], {A, B})


def test_of_too_many_those_left_before_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are pending no more, so they are asked about again; those that died last stay."""
    monkeypatch.setattr(leftkeys, "REMEMBERED_KEYS", 2)
    left = LeftKeys()
    assert left.sort_out([A, B], dead(A, B), nothing) == ([], set())
    assert left.sort_out([C], dead(C), nothing) == ([], {A, B})
    assert left.sort_out([D], dead(D), nothing) == ([], set())


def test_a_key_that_is_under_way_again_stays_pending_when_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forced row of it is not durable yet."""
    monkeypatch.setattr(leftkeys, "REMEMBERED_KEYS", 1)
    left = LeftKeys()
    left.sort_out([A], dead(A), nothing)
    assert left.sort_out([B], dead(B), lambda: [A]) == ([], set())
    assert left.sort_out([A], [], nothing) == ([A], {A})


def test_a_key_that_is_own_by_now_is_not_left_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it take room."""
    monkeypatch.setattr(leftkeys, "REMEMBERED_KEYS", 1)
    left = LeftKeys()
    left.sort_out([A], dead(A), nothing)
    left.sort_out([A, C], [], nothing)
    assert left.sort_out([B], dead(B), nothing) == ([], set())
