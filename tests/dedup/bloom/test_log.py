from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.bloom import log
from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.log import LeafLogs
from anabranch.dedup.errors import FormatMismatch, StoreFull
from anabranch.dedup.keys import Fingerprints, fingerprints

SHAPE = DsbfParameters(expected=100, false_positive=0.01, leaf_bits=1024)


def elements(*names: int) -> Fingerprints:
    return fingerprints([b"%d" % name for name in names])


@pytest.fixture
def logs(tmp_path: Path) -> LeafLogs:
    logs = LeafLogs(tmp_path, SHAPE)
    logs.create([1, 2])
    logs.append(np.array([2]), elements(1))
    logs.flush()
    return logs


def test_elements_are_read_back_from_their_leafs_log(logs: LeafLogs, tmp_path: Path) -> None:
    """A batch is divided among the logs, in the order of its making, by this and by a later reader."""
    logs.append(np.array([2, 1, 2]), elements(2, 3, 4))
    logs.append(np.array([1]), elements(5))
    logs.sync()
    assert np.array_equal(logs.read(1), elements(3, 5))
    assert np.array_equal(logs.read(2), elements(1, 2, 4))
    later = LeafLogs(tmp_path, SHAPE)
    assert np.array_equal(later.open(2), elements(1, 2, 4))
    assert logs.log_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_leaves_of_any_number_are_put_in_order() -> None:
    """Beyond 16 bits the order is the same, only slower."""
    for most in (1 << 10, 1 << 16, 1 << 40):
        leaves = np.random.default_rng(7).integers(0, most, 500)
        assert log._order(leaves).tolist() == np.argsort(leaves, kind="stable").tolist()


def test_appends_are_collected_until_they_are_many(logs: LeafLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written for a small batch; `make_room` writes once enough waits."""
    monkeypatch.setattr(log, "_FEWEST_WAITING", 2)
    monkeypatch.setattr(log, "_WAITING_PER_LEAF", 1)
    logs.append(np.array([1]), elements(3))
    logs.make_room()
    assert len(logs.read(1)) == 0
    logs.append(np.array([1]), elements(4))
    logs.make_room()
    assert np.array_equal(logs.read(1), elements(3, 4))


def test_many_small_parts_keep_their_order(logs: LeafLogs) -> None:
    """They are joined as they come; what is read is what was appended."""
    for name in range(1000):
        logs.append(np.array([1 + name % 2]), elements(name))
    logs.append(np.array([], dtype=np.int64), elements())
    assert len(logs._waiting) + len(logs._recent) < 300
    logs.flush()
    assert np.array_equal(logs.read(1), elements(*range(0, 1000, 2)))
    assert np.array_equal(logs.read(2), elements(1, *range(1, 1000, 2)))


def test_a_torn_tail_is_cut_off(logs: LeafLogs, tmp_path: Path) -> None:
    """Part of an element at the end is what a crash left of a write."""
    with logs.path(2).open("ab") as file:
        file.write(b"torn")
    later = LeafLogs(tmp_path, SHAPE)
    assert np.array_equal(later.open(2), elements(1))
    assert logs.path(2).stat().st_size == 64 + 16


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (b"ANALEAF\n", "damaged"),
        (b"x" * 80, "damaged"),
        (None, "missing"),
    ],
)
def test_a_log_that_is_none_is_refused(logs: LeafLogs, tmp_path: Path, content: bytes | None, message: str) -> None:
    """A log in the manifest had a synced header; without it something is lost."""
    logs.path(1).unlink()
    if content is not None:
        logs.path(1).write_bytes(content)
    with pytest.raises(FormatMismatch, match=message):
        LeafLogs(tmp_path, SHAPE).open(1)


def test_a_log_of_another_leaf_or_filter_is_refused(logs: LeafLogs, tmp_path: Path) -> None:
    """The header names leaf and parameters, and the message what differs."""
    logs.path(2).replace(logs.path(1))
    with pytest.raises(FormatMismatch, match=r"leaf is 2 instead of 1$"):
        LeafLogs(tmp_path, SHAPE).open(1)
    other = DsbfParameters(expected=101, false_positive=0.01, leaf_bits=1024)
    with pytest.raises(FormatMismatch, match="expected is 100 instead of 101; leaf is 2"):
        LeafLogs(tmp_path, other).open(1)


def test_a_full_disk_keeps_exactly_the_unwritten(logs: LeafLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaf 1 is written, leaf 2 half: repeating writes the rest once, over the half."""
    logs.append(np.array([2, 1, 2]), elements(2, 3, 4))
    whole, calls = os.pwrite, [0]

    def half(fd: int, data: bytes, offset: int) -> int:
        calls[0] += 1
        if calls[0] == 2:
            return whole(fd, bytes(data)[:7], offset)
        if calls[0] == 3:
            raise OSError(errno.ENOSPC, "full")
        return whole(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(StoreFull):
        logs.flush()
    assert np.array_equal(logs.read(1), elements(3))
    assert np.array_equal(logs.read(2), elements(1))
    logs.sync()
    assert np.array_equal(logs.read(2), elements(1, 2, 4))


def test_new_logs_are_made_all_or_none(logs: LeafLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second child's log does not fit, the first one's goes as well."""
    real = log.write_file

    def fail(path: Path, data: bytes) -> None:
        if path == logs.path(4):
            raise StoreFull(errno.ENOSPC, "full")
        real(path, data)

    monkeypatch.setattr(log, "write_file", fail)
    with pytest.raises(StoreFull):
        logs.create([3, 4])
    assert {path.name for path in tmp_path.iterdir()} == {"leaf-00000001.log", "leaf-00000002.log"}
    assert len(logs.lengths()) == 2


def test_a_sync_covers_touched_logs_and_repeats_after_a_failure(
    logs: LeafLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs without news are left alone; a log with a failed sync is synced again."""
    logs.append(np.array([2, 1]), elements(2, 3))
    synced: list[str] = []

    def sync(path: Path) -> None:
        synced.append(path.name[-5:])
        if len(synced) == 2:
            raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(log, "sync_path", sync)
    with pytest.raises(OSError, match="broken"):
        logs.sync()
    logs.sync()
    logs.sync()
    assert synced == ["1.log", "2.log", "2.log"]


def test_a_sync_that_was_broken_off_is_made_up_for(logs: LeafLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C amid a sync the next one covers the logs that were left."""
    logs.append(np.array([2, 1]), elements(2, 3))
    synced: list[str] = []

    def sync(path: Path) -> None:
        if not synced:
            synced.append("broken off")
            raise KeyboardInterrupt
        synced.append(path.name[-5:])

    monkeypatch.setattr(log, "sync_path", sync)
    with pytest.raises(KeyboardInterrupt):
        logs.sync()
    logs.sync()
    assert synced == ["broken off", "1.log", "2.log"]


def test_a_log_that_vanished_is_an_error(logs: LeafLogs) -> None:
    """Nobody but the filter removes logs; what is missing at a sync is lost."""
    logs.append(np.array([1]), elements(4))
    logs.flush()
    logs.path(1).unlink()
    with pytest.raises(FileNotFoundError):
        logs.sync()


def test_a_discarded_log_is_gone_from_disk_and_counts(logs: LeafLogs) -> None:
    """A split that ended, or never began, leaves no file; to discard twice is no error."""
    size = logs.log_bytes
    logs.discard([2])
    logs.discard([2, 9])
    assert not logs.path(2).exists()
    assert (len(logs.lengths()), logs.log_bytes) == (1, size - 64 - 16)
    logs.sync()


def test_a_part_of_a_log_is_read_by_its_places(logs: LeafLogs) -> None:
    """Splits read a log piece by piece; a log that was cut off behind our back is an error, not a shorter piece."""
    logs.append(np.array([2] * 4), elements(2, 3, 4, 5))
    logs.flush()
    assert logs.count(2) == 5
    assert np.array_equal(logs.read(2, 1, 3), elements(2, 3))
    assert np.array_equal(logs.read(2, 3), elements(4, 5))
    os.truncate(logs.path(2), 64 + 3 * 16)
    assert np.array_equal(logs.read(2, 1, 3), elements(2, 3))
    with pytest.raises(OSError, match="its end was cut off"):
        logs.read(2, 1, 4)


def test_a_long_log_is_read_in_several_reads(logs: LeafLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may give less than was asked for: at most 2 GiB on Linux."""
    logs.append(np.array([2] * 4), elements(2, 3, 4, 5))
    logs.flush()
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: whole(fd, min(length, 24), offset))
    assert np.array_equal(logs.read(2), elements(1, 2, 3, 4, 5))


def test_logs_are_adopted_unread_if_all_have_their_lengths(logs: LeafLogs, tmp_path: Path) -> None:
    """One byte too many or too few, and none is taken."""
    lengths = logs.lengths()
    assert lengths == {1: 64, 2: 80}
    later = LeafLogs(tmp_path, SHAPE)
    for wrong in ({1: 64, 2: 81}, {1: 64, 2: 79}):
        assert not later.adopt(wrong)
        assert not later.lengths()
    assert later.adopt(lengths)
    assert later.lengths() == lengths
    assert np.array_equal(later.read(2), elements(1))


def test_logs_of_no_leaf_are_removed(logs: LeafLogs, tmp_path: Path) -> None:
    """Debris of an interrupted split goes; other files stay."""
    for name in ("leaf-00000009.log", "leaf-00000001.log.new", "MANIFEST"):
        (tmp_path / name).touch()
    log.remove_strangers(tmp_path, logs)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"leaf-00000001.log", "leaf-00000002.log", "MANIFEST"}


def test_logs_are_required_to_be_as_long_as_they_were(logs: LeafLogs, tmp_path: Path) -> None:
    """Longer is well; shorter, gone or another leaf's is named, and nothing is changed."""
    lengths, later = logs.lengths(), LeafLogs(tmp_path, SHAPE)
    logs.append(np.array([1]), elements(7))
    logs.flush()
    later.require(lengths)
    later.require(logs.lengths())
    before = logs.path(1).read_bytes()
    with pytest.raises(FormatMismatch, match=r"leaf-00000001.log is shorter than it was"):
        later.require(lengths | {1: len(before) + 1})
    assert logs.path(1).read_bytes() == before
    logs.path(1).write_bytes(logs.path(2).read_bytes())
    with pytest.raises(FormatMismatch, match="leaf is 2 instead of 1"):
        later.require(lengths)
    logs.path(1).unlink()
    with pytest.raises(FormatMismatch, match=r"leaf-00000001.log is missing"):
        later.require(lengths)
