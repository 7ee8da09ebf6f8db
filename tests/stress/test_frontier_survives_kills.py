"""The Frontier alone, without a crawler around it, survives `kill -9`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.frontier_crawl import Campaign

#: `python -m tests.stress.frontier_crawl --kills 200` is the whole campaign.
KILLS = 14


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["smm", "both"])
def test_a_crawl_that_is_killed_again_and_again_ends_as_if_nothing_had_been(tmp_path: Path, mode: str) -> None:
    """I1, I3, I5 and I8 after each kill; in the end each page is done once, and none was leased again without a reason."""
    summary = Campaign(tmp_path, KILLS, seed=6, mode=mode).run()
    assert summary.kills == KILLS
