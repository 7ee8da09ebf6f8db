import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.errors import BadParameters, FilterClosed, FilterInUse, FormatMismatch, InvariantBroken
from anabranch.dedup.exact.index import ExactIndex
from anabranch.dedup.exact.runs import SortedRun
from anabranch.dedup.exact.tail import TailLog
from anabranch.dedup.keys import fingerprints
from tests.acceptance.blocking import Process
from tests.acceptance.forkserver import DEDUP

ROOT = Path(__file__).resolve().parents[3]

MARKER = """
import sys
from pathlib import Path
from unittest.mock import patch
from anabranch.dedup.exact.index import ExactIndex
index = ExactIndex.open(Path(sys.argv[1]), tail_elements=64)
for start in range(int(sys.argv[2]), 10**9, 10):
    index.mark([b"%d" % i for i in range(start, start + 10)])
    if start % 200 == 190:
        index.sync()
        print(start + 10, flush=True)
"""


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


def elements(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array(pairs, dtype=np.uint64).reshape(-1, 2)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["mark", "add", "one", "sync", "reopen", "crash"]),
            st.lists(st.integers(0, 300), max_size=30),
        ),
        max_size=12,
    )
)
def test_the_index_is_the_set_of_what_was_marked(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]]
) -> None:
    """Against a Python set, with tails of four elements: runs and merges all the time, reopenings and crashes too."""
    folder = tmp_path_factory.mktemp("exact") / "0"
    index, model, synced = ExactIndex.open(folder, 4), set[int](), set[int]()
    for number, (action, numbers) in enumerate(steps):
        batch = [b"%d" % n for n in numbers]
        expected = [n not in model for n in numbers]
        assert index.unseen(batch).tolist() == expected
        assert [index.is_unseen(key) for key in batch] == expected
        if action == "mark":
            index.mark(batch)
            model |= set(numbers)
        elif action == "add":
            first = [n not in numbers[:place] for place, n in enumerate(numbers)]
            assert index.add(batch).tolist() == [new and f for new, f in zip(expected, first, strict=True)]
            model |= set(numbers)
        elif action == "one":
            for key in batch:
                index.mark_one(key)
            model |= set(numbers)
        elif action == "sync":
            index.sync()
            synced = set(model)
        elif action == "reopen":
            index.close()
            index, synced = ExactIndex.open(folder, 4), set(model)
        else:
            after = folder.with_name(str(number + 1))
            shutil.copytree(folder, after)
            index.close()
            folder, index = after, ExactIndex.open(after, 4)
            found = {n for n in range(301) if not index.is_unseen(b"%d" % n)}
            assert synced <= found <= model, "a check writes what was not synced"
            model, synced = found, set(found)
        assert len(index) == len(model)
        index.check()
    everything = range(301)
    assert index.unseen([b"%d" % n for n in everything]).tolist() == [n not in model for n in everything]
    index.close()
    shutil.rmtree(folder.parent)


HALF = st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(HALF, HALF), max_size=6), max_size=10))
def test_forged_elements_are_told_apart_by_both_halves(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, int]]]
) -> None:
    """Elements that share their high half, or their low one, in tail and runs, batchwise and one by one."""
    folder = tmp_path_factory.mktemp("exact") / "x"
    with ExactIndex.open(folder, 2) as index:
        model: set[tuple[int, int]] = set()
        for batch in batches:
            assert index.unseen_elements(elements(batch)).tolist() == [pair not in model for pair in batch]
            assert [index._is_unseen(h << 64 | low) for h, low in batch] == [pair not in model for pair in batch]
            if len(batch) == 1:
                with patch("anabranch.dedup.exact.index.fingerprint", return_value=batch[0][0] << 64 | batch[0][1]):
                    index.mark_one(b"")
            index.mark_elements(elements(batch), np.ones(len(batch), dtype=np.bool_))
            model |= set(batch)
            assert len(index) == len(model)
        index.check()
    shutil.rmtree(folder.parent)


def test_a_batch_longer_than_the_tail_is_taken_in_parts(tmp_path: Path) -> None:
    """The tail never holds more than two of its lengths."""
    with ExactIndex.open(tmp_path / "x", 100) as index:
        index.mark(keys(0, 5000) + keys(0, 10))
        shown = index.statistics()
        assert shown.tail <= 200
        assert shown.elements == len(index) == 5000
        assert index.unseen(keys(0, 6000)).tolist() == [False] * 5000 + [True] * 1000
        assert index.add(keys(4000, 6000) + keys(5900, 6001)).sum() == 1001
        index.check()


def test_a_part_is_asked_only_for_what_no_part_before_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail first, then the runs from the largest on: most keys are found before the small ones are asked."""
    asked: list[tuple[str, int]] = []

    def watch(kind: type[TailLog | SortedRun]) -> None:
        real = kind.knows

        def knows(self: TailLog | SortedRun, highs: np.ndarray, lows: np.ndarray) -> np.ndarray:
            asked.append((self.path.name[:3], len(highs)))
            return real(self, highs, lows)

        monkeypatch.setattr(kind, "knows", knows)

    with ExactIndex.open(tmp_path / "x", 100) as index:
        for size in (90, 40, 20):  # runs that need no merge
            index.mark(keys(1000 * size, 1000 * size + size))
            index._files._turn_tail()
        index.mark(keys(0, 5))
        watch(TailLog)
        watch(SortedRun)
        batch = [*keys(0, 5), *keys(90_000, 90_090), *keys(40_000, 40_040), *keys(20_000, 20_020), *keys(5, 8)]
        assert index.unseen(batch).tolist() == [False] * 155 + [True] * 3
        assert asked == [("log", 158), ("run", 153), ("run", 63), ("run", 23)]
        asked.clear()
        assert not index.unseen(keys(90_000, 90_005)).any()
        assert asked == [("log", 5), ("run", 5)]


def test_the_tails_length_is_no_part_of_the_format(tmp_path: Path) -> None:
    """A folder may be opened with another one each time."""
    with ExactIndex.open(tmp_path / "x", 4) as index:
        index.mark(keys(0, 100))
    with ExactIndex.open(tmp_path / "x", 1000) as index:
        index.mark(keys(100, 300))
    with ExactIndex.open(tmp_path / "x", 3) as index:
        index.mark_one(b"one")
        assert not index.unseen(keys(0, 300)).any()
        assert len(index) == 301
        index.check()
    with pytest.raises(BadParameters, match="tail_elements is 0"):
        ExactIndex.open(tmp_path / "x", 0)


def test_it_takes_16_bytes_an_element_on_disk(tmp_path: Path) -> None:
    """Headers and manifest aside, once merges are done and synced."""
    with ExactIndex.open(tmp_path / "x", 500) as index:
        index.mark(keys(0, 20_000))
        while index.statistics().merging:
            index.mark(keys(0, 100))
        index.sync()
        on_disk = sum(path.stat().st_size for path in (tmp_path / "x").iterdir())
        assert 16 * 20_000 <= index.statistics().file_bytes <= on_disk <= 16 * 20_000 + 2000


def test_reopening_reads_headers_and_the_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cost does not grow with the runs."""
    with ExactIndex.open(tmp_path / "x", 100) as index:
        index.mark(keys(0, 5000))
    read: list[int] = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, offset: (read.append(n), real(fd, n, offset))[1])
    with ExactIndex.open(tmp_path / "x", 100) as index:
        assert read == [64] * index.statistics().runs


def test_an_index_has_one_holder_and_an_end(tmp_path: Path) -> None:
    """Open twice is refused; a closed one answers nothing; a failed opening leaves the folder free."""
    index = ExactIndex.open(tmp_path / "x")
    with pytest.raises(FilterInUse):
        ExactIndex.open(tmp_path / "x")
    index.close()
    index.close()
    assert repr(index) == "<ExactIndex closed>"
    for call in (lambda: index.unseen([b"a"]), lambda: index.mark_one(b"a"), index.sync, index.check, index.statistics):
        with pytest.raises(FilterClosed):
            call()
    log = next((tmp_path / "x").glob("log-*"))
    content = log.read_bytes()
    log.write_bytes(b"")
    with pytest.raises(FormatMismatch):
        ExactIndex.open(tmp_path / "x")
    log.write_bytes(content)
    with ExactIndex.open(tmp_path / "x") as index:
        assert repr(index) == "<ExactIndex 0 elements in 0 runs and a tail>"


def test_a_closing_that_cannot_sync_lets_go_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised; what was synced before is there."""
    index = ExactIndex.open(tmp_path / "x", 4)
    index.mark(keys(0, 50))
    index.sync()
    index.mark(keys(50, 100))
    with monkeypatch.context() as patch:
        patch.setattr(
            "anabranch.dedup.exact.runfolder.sync_path", lambda path: (_ for _ in ()).throw(OSError("broken"))
        )
        with pytest.raises(OSError, match="broken"):
            index.close()
    with ExactIndex.open(tmp_path / "x", 4) as again:
        assert again.unseen(keys(0, 100)).tolist() == [False] * 50 + [True] * 50
        again.check()


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("run-*", lambda content: content[:-16]),
        ("run-*", lambda content: b"ANATAIL\n" + content[8:]),
        ("run-*", lambda content: b""),
        ("log-*", lambda content: content[:10]),
        ("log-*", lambda content: b"\x1f\x8b" + content[2:]),
        ("MANIFEST", lambda content: content[:-9]),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, pattern: str, damage: Callable[[bytes], bytes]) -> None:
    """Truncated or foreign: FormatMismatch names the file, and the folder is free again."""
    with ExactIndex.open(tmp_path / "x", 4) as index:
        index.mark(keys(0, 50))
    path = min((tmp_path / "x").glob(pattern))
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    with pytest.raises(FormatMismatch, match=path.name):
        ExactIndex.open(tmp_path / "x")
    path.write_bytes(whole)
    ExactIndex.open(tmp_path / "x").close()


def test_an_element_in_two_places_is_found_by_a_check(tmp_path: Path) -> None:
    """The count would be wrong and a merge would hold it twice."""
    with ExactIndex.open(tmp_path / "x", 4) as index:
        index.mark(keys(0, 10))
        index.check()
        index._files.tail.take(fingerprints(keys(0, 1)))
        with pytest.raises(InvariantBroken, match="have an element in common"):
            index.check()


def test_what_was_synced_is_known_after_kill_9_and_nothing_else_is(tmp_path: Path) -> None:
    """A process that marks and syncs is killed, four times over one folder, amid merges: exact on both sides."""
    synced = 0
    for lines in (1, 4, 9, 16):
        command = ["-c", MARKER, str(tmp_path / "x"), str(synced)]
        with Process(command, cwd=ROOT, stderr=None, preload=DEDUP) as child:
            for _ in range(lines):
                synced = int(child.stdout.readline())
            child.kill()
            rest = child.stdout.read().split()
        synced = int(rest[-1]) if rest else synced
        with ExactIndex.open(tmp_path / "x", 64) as index:
            index.check()
            known = ~index.unseen([b"%d" % i for i in range(synced + 5000)])
            count = len(index)
            assert known[:synced].all()
            assert known[:count].all()
            assert not known[count:].any()
            synced = count
    assert synced >= 30 * 200


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[: len(content) // 2], "is shorter than it was"),
        (lambda content: content[:-16] + bytes(16), "and its checksum disagree"),
    ],
)
def test_a_log_damaged_after_a_clean_end_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    """However often the index is opened, and also if it was synced and closed without a change in between."""
    with ExactIndex.open(tmp_path / "x") as index:
        index.mark(keys(0, 101))
    with ExactIndex.open(tmp_path / "x") as index:
        index.sync()
    (path,) = (tmp_path / "x").glob("log-*.log")
    content = path.read_bytes()
    path.write_bytes(damage(content))
    for _ in range(2):
        with pytest.raises(FormatMismatch, match=rf"log-\d+\.log {message}"):
            ExactIndex.open(tmp_path / "x")
    path.write_bytes(content)
    with ExactIndex.open(tmp_path / "x") as index:
        assert len(index) == 101
