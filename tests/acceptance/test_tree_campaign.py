"""The campaign on a small tree: complete without kills, complete and frugal with them."""

from dataclasses import replace

import pytest

from tests.acceptance.tree_campaign import Campaign, Result, run

PAGES = 80


@pytest.fixture
def tree(tmp_path):
    """A tree of files in three folders, each page linking to the next nine and to a picture: well within 20 hops."""
    root = tmp_path / "tree"
    for number in range(PAGES):
        folder = root / f"part{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        links = "".join(
            f'<a href="../part{other % 3}/{other}.html">x</a>' for other in range(number + 1, min(number + 10, PAGES))
        )
        (folder / f"{number}.html").write_text(f'<html><body>{links}<img src="{number}.png"></body></html>')
        (folder / f"{number}.png").write_bytes(b"\x89PNG")
    (root / "index.html").write_text('<a href="part0/0.html">begin</a> <a href="missing.html">nowhere</a>')
    return root


@pytest.fixture
def campaign(tree):
    return Campaign(root=tree, workers=8, max_connections=4)


@pytest.mark.parametrize("policy", [None, pytest.param("host", marks=pytest.mark.slow)])
def test_a_tree_is_fetched_exactly_as_an_independent_reader_finds_it(campaign, tmp_path, policy):
    """Every page and picture once, whatever the policy."""
    result = run(replace(campaign, policy=policy), tmp_path)
    assert result.expected == 2 * PAGES + 1
    assert result.faults(campaign) == []
    assert result.repeated == 0


@pytest.mark.slow
def test_three_kills_cost_a_few_repeats_and_no_page(campaign, tmp_path):
    """After each `kill -9` the same command goes on; no more connections than allowed."""
    killed = replace(campaign, kills=3, delay_s=0.03)
    result = run(killed, tmp_path)
    assert result.exit_codes[:-1] == [-9, -9, -9]
    assert result.faults(killed) == []


def test_what_is_missing_or_served_too_often_is_a_fault(campaign):
    """The campaign can fail: each fault has its words."""
    result = Result(
        exit_codes=[0],
        killed_at=[],
        missing=set(),
        unexpected=set(),
        expected=9,
        served=9,
        repeated=0,
        max_in_service=4,
        seconds=1.0,
    )
    assert result.faults(campaign) == []
    spoilt = replace(result, missing={"a"}, unexpected={"b"}, repeated=1, max_in_service=5, exit_codes=[1])
    assert len(spoilt.faults(campaign)) == 5
