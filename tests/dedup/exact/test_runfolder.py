from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.errors import FormatMismatch, StoreFull
from anabranch.dedup.exact import runfolder
from anabranch.dedup.exact.runfolder import MANIFEST, MOST_RUNS, MOVES_PER_KEY, RunFolder, RunMerge
from anabranch.dedup.exact.runs import SortedRun, write_run
from anabranch.dedup.exact.tail import Seal
from anabranch.dedup.files import durable


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
    merged = merge.writer.finish()
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
        patch.setattr("anabranch.dedup.exact.runs.write_all", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(StoreFull):
            merge.step(20)
    assert merge.remaining == before
    while merge.remaining:
        merge.step(20)
    merged = merge.writer.finish()
    merged.check()
    assert elements_of(merged) == [(n, 0) for n in range(100)]


def test_an_abandoned_merge_leaves_its_sources_alone(tmp_path: Path) -> None:
    """Only the new file goes."""
    runs = [run_of(tmp_path, {(i, 0)}, i) for i in range(2)]
    RunMerge(runs, tmp_path / "merged", 9).writer.abandon()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r0", "r1"]


def opened(folder: Path, tail_elements: int = 4) -> RunFolder:
    folder.mkdir(exist_ok=True)
    return RunFolder(folder, tail_elements)


def fill(files: RunFolder, start: int, stop: int) -> None:
    """Take elements one by one; their high halves are scattered, their low halves count."""
    for number in range(start, stop):
        files.make_room(1)
        files.tail.take_one((number * 0x9E3779B97F4A7C15 & (1 << 64) - 1) << 64 | number)


def lows_of(files: RunFolder) -> list[int]:
    found = files.tail.columns()[1].tolist()
    for run in files.runs:
        found += run.part(0, run.count)[1].tolist()
    return sorted(found)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def settle(files: RunFolder) -> None:
    """Let no merge be under way, and none be due."""
    files.make_room(0)
    while files.merging:
        files.make_room(100)


@pytest.mark.parametrize("elements", [4, 36, 100, 500])
def test_each_run_is_larger_than_all_newer_ones_together(tmp_path: Path, elements: int) -> None:
    """Once no merge is due; so there are at most log2(n / tail) + 1 runs. Each element is in one place."""
    files = opened(tmp_path / "x")
    fill(files, 0, elements)
    settle(files)
    counts = [run.count for run in files.runs]
    assert all(count > sum(counts[place + 1 :]) for place, count in enumerate(counts))
    assert sum(counts) + len(files.tail) == elements
    assert lows_of(files) == list(range(elements))


def test_an_arriving_element_moves_a_bounded_number_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a merge add up to at most `MOVES_PER_KEY` for each element that arrived since it began."""
    moved: list[int] = []
    real = RunMerge.step
    monkeypatch.setattr(RunMerge, "step", lambda merge, n: (moved.append(real(merge, n)), moved[-1])[1])
    files = opened(tmp_path / "x", tail_elements=256)
    for number in range(8000):
        before = sum(moved)
        fill(files, number, number + 1)
        assert sum(moved) - before <= MOVES_PER_KEY + 64
    assert 0 < sum(moved) <= 8000 * 5, "each is moved at most log2(8,000 / 256) times"


def test_runs_that_pile_up_are_merged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If merges never get on, as in sessions that each end too soon, the number of runs is bounded all the same."""
    monkeypatch.setattr("anabranch.dedup.exact.runfolder.MOVES_PER_KEY", 0)
    files, most = opened(tmp_path / "x"), 0
    for number in range(300):
        fill(files, number, number + 1)
        most = max(most, len(files.runs))
    assert most == MOST_RUNS
    assert len(files.runs) < MOST_RUNS
    assert lows_of(files) == list(range(300))


def test_a_manifest_names_what_counts_and_the_rest_goes(tmp_path: Path) -> None:
    """After a sync the folder holds the named files alone, however many runs and logs there were before."""
    files = opened(tmp_path / "x")
    for start in range(0, 200, 25):
        fill(files, start, start + 25)
        files.sync()
    settle(files)
    files.sync()
    record = json.loads((tmp_path / "x" / MANIFEST).read_text())
    wanted = [f"run-{number:08d}.run" for number in record["runs"]] + [f"log-{record['log']:08d}.log", MANIFEST]
    assert names(tmp_path / "x") == sorted(wanted)


def test_runs_that_no_manifest_names_go_as_soon_as_they_are_merged(tmp_path: Path) -> None:
    """Without any sync the disk holds what counts, and at most a merge under way."""
    files = opened(tmp_path / "x")
    fill(files, 0, 800)
    written = sum(path.stat().st_size for path in (tmp_path / "x").glob("run-*"))
    assert written <= 2 * sum(run.file_bytes for run in files.runs)


@pytest.mark.parametrize("crash_at", range(1, 8))
def test_a_crash_while_syncing_leaves_the_last_sync_or_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    """The folder as it is after each step of a sync: nothing of the sync before is lost."""
    files = opened(tmp_path / "x")
    fill(files, 0, 50)
    files.sync()
    fill(files, 50, 130)
    steps = 0

    def counted(real: Callable[..., None]) -> Callable[..., None]:
        def call(*given: object, **more: object) -> None:
            nonlocal steps
            steps += 1
            if steps == crash_at:
                shutil.copytree(tmp_path / "x", tmp_path / "crashed")
            real(*given, **more)

        return call

    monkeypatch.setattr(runfolder, "sync_path", counted(runfolder.sync_path))
    monkeypatch.setattr(durable, "sync_folder", counted(durable.sync_folder))
    monkeypatch.setattr(Path, "replace", counted(Path.replace))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    files.sync()
    monkeypatch.undo()
    again = opened(tmp_path / "crashed")
    assert lows_of(again) in (list(range(50)), list(range(130)))
    again.sync()
    assert lows_of(opened(tmp_path / "crashed")) == lows_of(again)


def test_a_sync_that_fails_is_repeated_and_removes_nothing_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest cannot be written: the old files stay until one is."""
    files = opened(tmp_path / "x")
    fill(files, 0, 50)
    files.sync()
    named = set(names(tmp_path / "x"))
    fill(files, 50, 200)
    settle(files)
    with monkeypatch.context() as patch:
        patch.setattr(
            "anabranch.dedup.exact.runfolder.replace_file", lambda *_, **__: (_ for _ in ()).throw(OSError("broken"))
        )
        with pytest.raises(OSError, match="broken"):
            files.sync()
    assert named <= set(names(tmp_path / "x"))
    shutil.copytree(tmp_path / "x", tmp_path / "crashed")
    assert lows_of(opened(tmp_path / "crashed")) == list(range(50))
    files.sync()
    assert not named & set(names(tmp_path / "x")) - {MANIFEST}
    files.abandon()
    assert lows_of(opened(tmp_path / "x")) == list(range(200))


def test_a_sync_in_the_middle_of_which_marking_goes_on_counts_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tails turn and merges end while the files are synced: what the manifest then names is still there."""
    files = opened(tmp_path / "x")
    fill(files, 0, 100)
    real = RunFolder._write_manifest

    def meanwhile(folder: RunFolder, runs: list[int], log: int, seal: Seal) -> None:
        fill(files, 100, 300)
        real(folder, runs, log, seal)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "_write_manifest", meanwhile)
        files.sync()
    shutil.copytree(tmp_path / "x", tmp_path / "crashed")
    assert lows_of(opened(tmp_path / "crashed")) == list(range(100))
    files.sync()
    assert lows_of(opened(tmp_path / "x")) == list(range(300))


def test_a_full_disk_stops_before_anything_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail that cannot become a run stays a tail, and becomes one once there is room."""
    files = opened(tmp_path / "x")
    fill(files, 0, 4)
    with monkeypatch.context() as patch:
        patch.setattr("anabranch.dedup.exact.runs.write_all", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(StoreFull):
            fill(files, 4, 5)
        assert lows_of(files) == [0, 1, 2, 3]
        assert files.runs == ()
    fill(files, 4, 100)
    assert lows_of(files) == list(range(100))


def test_an_abandoned_merge_leaves_no_file(tmp_path: Path) -> None:
    """At a clean end the folder holds what the manifest names; the merge begins anew after the next opening."""
    files, number = opened(tmp_path / "x", tail_elements=64), 0
    while not files.merging:
        fill(files, number, number + 1)
        number += 1
    files.sync()
    assert len(list((tmp_path / "x").glob("run-*"))) == len(files.runs) + 1
    files.abandon()
    assert len(list((tmp_path / "x").glob("run-*"))) == 2
    again = opened(tmp_path / "x", tail_elements=64)
    settle(again)
    assert len(again.runs) == 1
    assert lows_of(again) == list(range(number))


def test_what_was_under_way_is_removed_at_opening(tmp_path: Path) -> None:
    """Files that no manifest names mean nothing, whatever is in them."""
    files = opened(tmp_path / "x")
    fill(files, 0, 50)
    files.sync()
    before = names(tmp_path / "x")
    for name in ("run-00000099.run", "log-00000098.log", "log-00000098.log.new"):
        (tmp_path / "x" / name).write_bytes(b"rest")
    opened(tmp_path / "x")
    assert names(tmp_path / "x") == before


def test_a_folder_that_is_not_an_index_is_refused(tmp_path: Path) -> None:
    """Files without a manifest are somebody else's, or an index that lost it; an interrupted founding is neither."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine.txt").write_text("mine")
    with pytest.raises(FormatMismatch, match="has no MANIFEST"):
        opened(tmp_path / "x")
    files = opened(tmp_path / "y")
    (tmp_path / "y" / MANIFEST).rename(tmp_path / "y" / (MANIFEST + ".new"))
    assert lows_of(opened(tmp_path / "y")) == []
    files = opened(tmp_path / "y")
    fill(files, 0, 3)
    files.sync()
    (tmp_path / "y" / MANIFEST).unlink()
    with pytest.raises(FormatMismatch, match="has no MANIFEST"):
        opened(tmp_path / "y")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"magic": "other"}, "is not the file of an anabranch exact index"),
        ({"version": 2}, "version 2, this program reads 1"),
        ({"runs": 3}, "does not name runs and a log"),
        ({"runs": ["1"]}, "does not name runs and a log"),
        ({"runs": [-1]}, "does not name runs and a log"),
        ({"log": None}, "does not name runs and a log"),
        ({"seal": 7}, "its seal is not a length and a checksum"),
        ({"seal": [64, "7"]}, "its seal is not a length and a checksum"),
        ({"seal": [65, 7]}, "log-00000000.log is shorter than it was"),
        ({"seal": [64, 7]}, "log-00000000.log and its checksum disagree"),
        ({"log": 77}, "log-00000077.log is missing"),
        ({"runs": [77]}, "run-00000077.run is missing"),
    ],
)
def test_a_manifest_of_another_kind_or_with_other_files_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """The message says which file and why."""
    opened(tmp_path / "x")
    path = tmp_path / "x" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FormatMismatch, match=message):
        opened(tmp_path / "x")


def test_a_manifest_that_is_not_json_is_refused(tmp_path: Path) -> None:
    """One clear line, no traceback of a parser."""
    opened(tmp_path / "x")
    (tmp_path / "x" / MANIFEST).write_bytes(b"\x00\x01")
    with pytest.raises(FormatMismatch, match="is not JSON"):
        opened(tmp_path / "x")


def test_numbers_are_not_used_twice(tmp_path: Path) -> None:
    """After a reopening new files get numbers beyond all that are named."""
    files = opened(tmp_path / "x")
    fill(files, 0, 200)
    files.sync()
    files.abandon()
    again = opened(tmp_path / "x")
    fill(again, 200, 300)
    numbers = [run.number for run in again.runs] + [again.tail.number]
    assert len(numbers) == len(set(numbers))
    assert lows_of(again) == list(range(300))
    assert np.array_equal(np.unique(lows_of(again)), np.arange(300))


def test_an_end_seals_the_log_and_a_sync_does_so_only_with_other_files(tmp_path: Path) -> None:
    """A manifest costs three syncs: one that only has a newer seal is written once, at the end."""
    files, path = opened(tmp_path / "x", tail_elements=64), tmp_path / "x" / MANIFEST
    before = path.stat().st_ino
    fill(files, 0, 10)
    files.sync()
    assert path.stat().st_ino == before
    files.sync(at_end=True)
    sealed = path.stat().st_ino
    assert sealed != before
    assert json.loads(path.read_text())["seal"] == [*files.tail.seal]
    again = opened(tmp_path / "x", tail_elements=64)
    again.sync(at_end=True)
    assert path.stat().st_ino == sealed
    fill(again, 10, 70)
    again.sync()
    assert json.loads(path.read_text())["seal"] == [*again.tail.seal]


def test_a_log_that_grew_since_it_was_sealed_is_taken(tmp_path: Path) -> None:
    """After a crash it holds more than the manifest says; a manifest without a seal says nothing of its length."""
    files, path = opened(tmp_path / "x", tail_elements=64), tmp_path / "x" / MANIFEST
    fill(files, 0, 10)
    files.sync(at_end=True)
    fill(files, 10, 20)
    files.sync()
    assert lows_of(opened(tmp_path / "x", tail_elements=64)) == list(range(20))
    found = json.loads(path.read_text())
    del found["seal"]
    path.write_text(json.dumps(found))
    assert lows_of(opened(tmp_path / "x", tail_elements=64)) == list(range(20))
