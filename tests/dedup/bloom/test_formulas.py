from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.dedup.bloom.formulas import (
    MOVES_PER_KEY,
    DsbfParameters,
    best_blocked_hashes,
    best_hashes,
    block_rates,
    blocked_capacity,
    blocked_rates,
    capacity_with,
    false_positive_rates,
    last_within,
    leaves_for,
)
from anabranch.dedup.errors import BadParameters
from anabranch.dedup.keys import IntArray
from tests.rows import each_row


def test_the_defaults_give_the_published_shape() -> None:
    """10 million elements at 1e-3 in leaves of 2^23 bits: k = 10, c = 18."""
    shape = DsbfParameters()
    assert (shape.hashes, shape.first_leaves) == (10, 18)
    assert shape.capacity == math.floor(-(2**23 / 10) * math.log(1 - 0.001**0.1))


@each_row(("f", "k"), [(1e-2, 7), (1e-3, 10), (1e-4, 13), (0.5, 1), (0.3, 2)])
def test_the_best_whole_number_of_hashes(f: float, k: int) -> None:
    """Floor and ceiling of log2(1/f) are tried; the larger capacity wins."""
    assert best_hashes(1 << 23, f) == k


@given(st.floats(1e-6, 0.5), st.integers(6, 30))
def test_no_neighbour_of_the_best_number_holds_more(f: float, exponent: int) -> None:
    """The chosen k holds at least as much as one more or one less."""
    m = 1 << exponent
    k = best_hashes(m, f)
    assert capacity_with(m, k, f) >= max(capacity_with(m, other, f) for other in (max(1, k - 1), k + 1))


@given(st.floats(1e-6, 0.5), st.integers(10, 30))
def test_the_capacity_is_the_last_number_within_the_rate(f: float, exponent: int) -> None:
    """At u elements the rate is at most f, at u + 1 above it."""
    m = 1 << exponent
    k = best_hashes(m, f)
    u = capacity_with(m, k, f)
    at_most, above = false_positive_rates(m, k, np.array([u, u + 1]))
    assert at_most <= f * (1 + 1e-9)
    assert above > f * (1 - 1e-9)


def test_the_published_rates_of_a_classic_filter() -> None:
    """75,012 URLs in 8,000,000 bits: 9.3e-3 with one hash, 3.3e-11 with ten."""
    urls = np.array([75_012])
    assert false_positive_rates(8_000_000, 1, urls) == pytest.approx(9.3e-3, rel=0.01)
    assert false_positive_rates(8_000_000, 10, urls) == pytest.approx(3.3e-11, rel=0.05)
    assert false_positive_rates(80_000, 1, np.array([0, 75_012])).tolist() == pytest.approx([0, 0.61], abs=0.005)


def test_blocked_leaves_have_the_shape_of_their_own_formulas() -> None:
    """At 1e-3 in 2^23 bits: k = 9, u = 541,607, 15.5 bits an element, c = 19; a classic leaf's u would be a rate of 1.6e-3."""
    shape, classic = DsbfParameters(leaf_kind="blocked"), DsbfParameters()
    assert (shape.hashes, shape.capacity, shape.first_leaves) == (9, 541_607, 19)
    assert shape.leaf_bits / shape.capacity == pytest.approx(15.5, abs=0.05)
    at_classic = blocked_rates(1 << 23, classic.hashes, np.array([classic.capacity])).item()
    assert at_classic == pytest.approx(1.6e-3, rel=0.02)
    assert shape.planned_rate < shape.false_positive


@each_row(("f", "k", "u"), [(1e-2, 6, 847_685), (1e-4, 12, 382_795), (1e-6, 16, 217_812)])
def test_blocked_leaves_of_other_rates(f: float, k: int, u: int) -> None:
    """Fewer hashes than in a classic leaf, since a block that is loaded by chance fills up."""
    assert best_blocked_hashes(1 << 23, f) == k < best_hashes(1 << 23, f)
    assert blocked_capacity(1 << 23, k, f) == u


@given(st.floats(1, 300), st.integers(1, 20))
def test_the_rate_of_a_blocked_leaf_is_the_mean_over_the_loads_of_its_blocks(mean: float, k: int) -> None:
    """Against blocks that are loaded by chance: a sum over single loads. At usual rates it is above that of equal loads."""
    m, n = 1 << 20, mean * 2048
    logs = [-mean + i * math.log(mean) - math.lgamma(i + 1) for i in range(1000)]
    expected = sum(math.exp(log) * (1 - (511 / 512) ** (k * i)) ** k for i, log in enumerate(logs))
    (rate,) = blocked_rates(m, k, np.array([n]))
    assert rate == pytest.approx(expected, rel=1e-6)
    assert k == 1 or rate > 0.1 or rate >= block_rates(k, np.array([mean]))[0]


def test_a_blocked_leaf_without_elements_and_one_far_too_full() -> None:
    """The rates are 0 and 1, whatever else is in the array; they grow with the load."""
    loads = np.array([0, 1, 1000, 10**5, 10**6, 10**9])
    rates = blocked_rates(1 << 20, 9, loads)
    assert rates[0] == 0
    assert rates[-1] == 1
    assert (np.diff(rates) > 0).all()


@given(st.floats(1e-6, 0.5), st.integers(9, 30))
def test_the_capacity_of_a_blocked_leaf_is_the_last_number_within_the_rate(f: float, exponent: int) -> None:
    """At u elements the rate is at most f, at u + 1 above it; one hash less or more holds no more."""
    m = 1 << exponent
    k = best_blocked_hashes(m, f)
    u = blocked_capacity(m, k, f)
    at_most, above = blocked_rates(m, k, np.array([u, u + 1]))
    assert at_most <= f < above
    assert u >= max(blocked_capacity(m, other, f) for other in (max(1, k - 1), k + 1))
    assert f > 0.1 or u <= capacity_with(m, best_hashes(m, f), f)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_leaves_are_the_least_with_headroom(n: int, capacity: int) -> None:
    """So many leaves have room for three standard deviations, one fewer have not."""
    if capacity < 5 and n > 10_000:
        n = 10_000

    def fits(c: int) -> bool:
        return n / c + 3 * math.sqrt(n / c) <= capacity

    c = leaves_for(n, capacity)
    assert fits(c)
    assert c == 1 or not fits(c - 1)


def test_no_expectation_needs_one_leaf() -> None:
    """A filter for unknown numbers starts with one leaf."""
    assert DsbfParameters(expected=0).first_leaves == leaves_for(0, 5) == 1


@given(st.floats(1e-5, 0.5), st.integers(10, 24))
def test_falsely_known_elements_cannot_push_a_leaf_over_its_capacity(f: float, exponent: int) -> None:
    """If at most f of the true number is not counted, the true number stays within u before a split."""
    shape = DsbfParameters(false_positive=f, leaf_bits=1 << exponent)
    assert shape.split_above / (1 - f) <= shape.capacity
    assert shape.split_above <= 0.97 * shape.capacity


@given(st.floats(1e-5, 0.5), st.integers(6, 24), st.integers(2, 64))
def test_a_leaf_and_its_fullest_child_stay_within_the_rate_together(f: float, exponent: int, fan_out: int) -> None:
    """While a leaf splits either may be wrong, so their rates add up; one element more would be too much."""
    shape = DsbfParameters(false_positive=f, leaf_bits=1 << exponent, split_fan_out=fan_out)
    s = shape.split_above

    def rate(load: int) -> float:
        child = load / fan_out + 3 * math.sqrt(load / fan_out) + 2 * load / MOVES_PER_KEY
        return float(false_positive_rates(shape.leaf_bits, shape.hashes, np.array([load, child])).sum())

    assert s == 1 or rate(s) <= f
    assert s >= math.floor(min(0.97, 1 - f) * shape.capacity) or rate(s + 1) > f


def test_the_usual_shapes_lose_nothing_to_splitting() -> None:
    """In large leaves with four children a child's rate is far below the leaf's: 0.97 u decides alone."""
    for f in (1e-2, 1e-3, 1e-4):
        shape = DsbfParameters(false_positive=f)
        assert shape.split_above == math.floor(min(0.97, 1 - f) * shape.capacity)


@each_row(
    "wrong",
    [
        {"expected": -1},
        {"false_positive": 0},
        {"false_positive": 0.6},
        {"leaf_bits": 1000},
        {"leaf_bits": 32},
        {"leaf_bits": 1 << 41},
        {"split_fan_out": 1},
        {"leaf_bits": 64, "false_positive": 1e-30},
    ],
)
def test_impossible_numbers_are_refused_by_name(wrong: dict[str, float]) -> None:
    """The message starts with the number's name."""
    with pytest.raises(BadParameters, match=f"^{next(iter(wrong))}"):
        DsbfParameters(**wrong)


@given(
    st.lists(st.integers(0, 400), max_size=500).map(sorted).map(np.array),
    st.integers(-1, 401),
)
def test_the_last_number_within_a_rate_is_that_of_a_search_one_by_one(rates: NDArray[np.float64], bound: int) -> None:
    """With equal rates, none and all of them within the bound, too."""
    asked = 0

    def rates_of(numbers: IntArray) -> NDArray[np.float64]:
        nonlocal asked
        asked += 1
        return rates[numbers]

    assert last_within(len(rates) - 1, bound, rates_of) == bisect_right(rates, bound) - 1
    assert asked <= 2
