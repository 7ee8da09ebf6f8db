from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.errors import StoreFull
from anabranch.dedup.exact.runmerge import RunMerge
from anabranch.dedup.exact.sortedruns import SortedRun, write_run


def run_of(folder: Path, pairs: set[tuple[int, int]], number: int) -> SortedRun:
    array = np.array(sorted(pairs), dtype=np.uint64).reshape(-1, 2)
    return write_run(folder / f"r{number}", number, array[:, 0].copy(), array[:, 1].copy())


def elements_of(run: SortedRun) -> list[tuple[int, int]]:
    highs, lows = run.part(0, run.count)
    return list(zip(highs.tolist(), lows.tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 30)), st.integers(0, 3), min_size=1),
    st.integers(1, 12),
)
def test_the_merge_of_runs_is_their_union_in_order(
    tmp_path_factory: pytest.TempPathFactory, owners: dict[tuple[int, int], int], step: int
) -> None:
    """However small the steps are and however many elements share a high half."""
    folder = tmp_path_factory.mktemp("merge")
    parts = [{pair for pair, owner in owners.items() if owner == number} for number in range(4)]
    runs = [run_of(folder, part, number) for number, part in enumerate(parts) if part]
    merge, moved = RunMerge(runs, folder / "merged", 9), 0
    while merge.remaining:
        moved += merge.step(step)
        assert merge.remaining == len(owners) - moved
    merged = merge.finish()
    merged.check()
    assert elements_of(merged) == sorted(owners)


def test_a_step_moves_no_more_than_asked_for(tmp_path: Path) -> None:
    """Elements of different high halves: a step is bounded, and each but the last moves a good part of it."""
    numbers = np.random.default_rng(2).permutation(9000).tolist()
    runs = [run_of(tmp_path, {(n, 0) for n in numbers[i * 3000 : (i + 1) * 3000]}, i) for i in range(3)]
    merge = RunMerge(runs, tmp_path / "merged", 9)
    steps = []
    while merge.remaining:
        steps.append(merge.step(300))
    assert max(steps) <= 300
    assert min(steps[:-1]) >= 100


def test_a_step_that_fails_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk in the middle: nothing was moved, and the merge goes on where it was."""
    runs = [run_of(tmp_path, {(n, 0) for n in range(i, 100, 2)}, i) for i in range(2)]
    merge = RunMerge(runs, tmp_path / "merged", 9)
    merge.step(20)
    before = merge.remaining
    with monkeypatch.context() as patch:
        patch.setattr(
            "anabranch.dedup.exact.sortedruns.write_all", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
        )
        with pytest.raises(StoreFull):
            merge.step(20)
    assert merge.remaining == before
    while merge.remaining:
        merge.step(20)
    merged = merge.finish()
    merged.check()
    assert elements_of(merged) == [(n, 0) for n in range(100)]


def test_an_abandoned_merge_leaves_its_sources_alone(tmp_path: Path) -> None:
    """Only the new file goes."""
    runs = [run_of(tmp_path, {(i, 0)}, i) for i in range(2)]
    RunMerge(runs, tmp_path / "merged", 9).abandon()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r0", "r1"]
