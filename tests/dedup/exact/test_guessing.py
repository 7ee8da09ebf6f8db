import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.exact.guessing import find

LARGEST = (1 << 64) - 1


def verify(ascending: np.ndarray, wanted: np.ndarray) -> None:
    places, found = find(ascending, wanted)
    assert (found == np.isin(wanted, ascending)).all()
    assert (places[found] == ascending.searchsorted(wanted[found])).all()


@pytest.mark.parametrize("count", [32, 33, 1000, 300_000])
def test_evenly_spread_values_are_found_at_their_first_place(count: int) -> None:
    """What is there, what is not, and the ends of the range."""
    chance = np.random.default_rng(3)
    ascending = np.sort(chance.integers(0, LARGEST, count, dtype=np.uint64, endpoint=True))
    others = chance.integers(0, LARGEST, 2000, dtype=np.uint64, endpoint=True)
    ends = np.array([0, 1, 1 << 63, LARGEST - 1, LARGEST], dtype=np.uint64)
    verify(ascending, np.concatenate((ascending[:2000], ascending[-2000:], others, ends)))
    verify(ascending, others[:0])


def test_most_values_are_in_the_window_that_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only few are searched for from the beginning: that is what the guess is for."""
    chance = np.random.default_rng(4)
    ascending = np.sort(chance.integers(0, LARGEST, 1_000_000, dtype=np.uint64))
    wanted = chance.integers(0, LARGEST, 20_000, dtype=np.uint64)
    searched: list[int] = []

    class Watched(np.ndarray):
        def searchsorted(self, values: np.ndarray) -> np.ndarray:  # type: ignore[override]
            searched.append(len(values))
            return np.asarray(self).searchsorted(np.asarray(values))

    find(ascending.view(Watched), wanted)
    assert sum(searched) < 200


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, 5, 1 << 32, 1 << 63, LARGEST - 1, LARGEST]), min_size=32, max_size=200),
    st.lists(st.sampled_from([0, 1, 2, 3, 5, 1 << 32, 1 << 63, LARGEST - 1, LARGEST]), min_size=1),
)
def test_unevenly_spread_values_are_found_too(held: list[int], wanted: list[int]) -> None:
    """Forged values, many of them equal, in a few places of the range."""
    verify(np.sort(np.array(held, dtype=np.uint64)), np.array(wanted, dtype=np.uint64))
