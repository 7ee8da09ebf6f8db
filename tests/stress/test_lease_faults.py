"""A short campaign of faults on workers' leases; `docs/explanation/testing.md` has the command for a long one."""

from __future__ import annotations

import pytest

from tests.stress.lease_faults import TTL_S, campaign

FAULTS = 12


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_worker_that_lost_its_lease_commits_nothing() -> None:
    """Whatever happens to it: nothing is written for a share that another worker holds, and nothing is lost or done twice."""
    summary = campaign(FAULTS, seed=7)
    assert sum(summary.faults.values()) == FAULTS
    assert summary.stale == 0
    assert summary.pages > FAULTS
    assert summary.longest_s >= TTL_S / 2  # some shares were taken over
