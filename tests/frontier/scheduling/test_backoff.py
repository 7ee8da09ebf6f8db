"""How long a host in trouble is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.scheduling.backoff import Backoff

DAY_S = 86_400.0
EXACT = Backoff(jitter=0.0)


@pytest.mark.parametrize(
    ("troubles", "wait_s"), [(0, 0.0), (1, 60.0), (2, 120.0), (6, 1920.0), (7, 3600.0), (8, 3600.0), (10**6, 3600.0)]
)
def test_the_wait_doubles_with_each_trouble_up_to_the_cap(troubles: int, wait_s: float) -> None:
    """min(base × 2^(n-1), cap), for any n; nothing after none."""
    assert EXACT.interval_s(troubles) == wait_s
    assert EXACT.wait_s(troubles, 0.0, 1) == wait_s


@pytest.mark.parametrize(
    ("asked_s", "wait_s"),
    [
        (-5.0, 60.0),
        (1.0, 60.0),
        (61.0, 61.0),
        (DAY_S, DAY_S),
        (DAY_S + 1, DAY_S),
        (float("inf"), DAY_S),
        (float("nan"), 60.0),
    ],
)
def test_what_the_host_asks_for_is_kept_up_to_a_day(asked_s: float, wait_s: float) -> None:
    """Retry-After may lengthen the wait, never shorten it; nonsense is no reason to wait."""
    assert EXACT.wait_s(1, asked_s, 1) == wait_s


@given(troubles=st.integers(1, 200), gate_id=st.integers(-(2**63), 2**63 - 1))
def test_jitter_adds_up_to_its_share_and_can_be_repeated(troubles: int, gate_id: int) -> None:
    """Never shorter than without it; the same gate finds the same time after a restart."""
    backoff = Backoff(jitter=0.25)
    wait_s = backoff.wait_s(troubles, 0.0, gate_id)
    assert backoff.interval_s(troubles) <= wait_s <= 1.25 * backoff.interval_s(troubles)
    assert wait_s == Backoff(jitter=0.25).wait_s(troubles, 0.0, gate_id)


def test_hosts_that_failed_together_are_not_asked_together() -> None:
    """A thousand gates spread over the whole share of the jitter, and over another order at the next trouble."""
    gates = range(1000)
    first, second = ({gate: Backoff().wait_s(n, 0.0, gate) / Backoff().interval_s(n) for gate in gates} for n in (1, 2))
    for waits in (first, second):
        tenths = [sum(1.0 + tenth / 100 <= wait < 1.01 + tenth / 100 for wait in waits.values()) for tenth in range(10)]
        assert min(tenths) > 60
    assert sorted(gates, key=first.__getitem__) != sorted(gates, key=second.__getitem__)


def test_a_share_of_what_the_host_asked_for_is_not_added() -> None:
    """Jitter is for our own waits: the host named its time."""
    assert Backoff(jitter=1.0).wait_s(1, 500.0, 7) == 500.0
