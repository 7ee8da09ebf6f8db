import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dedup.bloom import DsbfParameters
from dedup.dsbf import Dsbf
from dedup.fingerprint import fingerprints, to_bytes
from dedup.tree import DEEPEST

#: Leaves that hold nine elements: splits happen all the time.
TINY = DsbfParameters(expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


def test_a_leaf_splits_above_its_threshold_and_not_before(tmp_path: Path) -> None:
    """The count of distinct elements decides; repeats do not fill a leaf."""
    shape = DsbfParameters(expected=0, false_positive=0.001, leaf_bits=4096)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        dsbf.mark(keys(0, shape.split_above) * 3)
        assert dsbf.statistics().splits == 0
        dsbf.mark(keys(shape.split_above, shape.split_above + 3))
        shown = dsbf.statistics()
        assert (shown.splits, shown.leaves, shown.height) == (1, 4, 2)
        assert shown.memory_bytes <= 5 * 512


def test_keys_marked_one_by_one_split_leaves_as_a_batch_does(tmp_path: Path) -> None:
    """No leaf holds more than its threshold, and all keys are known after many splits."""
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        for key in keys(0, 200):
            dsbf.mark_one(key)
        assert dsbf.statistics().splits > 10
        assert (dsbf._table._counts <= TINY.split_above).all()
        assert not any(dsbf.is_unseen(key) for key in keys(0, 200))
        dsbf.check()


def test_forged_elements_that_no_hash_divides_end_the_splitting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal LocHash bits at every level: the tree stops at its greatest depth instead of splitting for ever."""
    monkeypatch.setattr("dedup.leaves.table.DEEPEST", 5)
    forged = fingerprints(keys(0, 30))
    forged[:, 0] &= np.uint64((1 << 16) - 1)
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        for _ in range(2):
            dsbf._insert(forged, np.ones(30, dtype=np.bool_))
        assert dsbf.statistics().height == 5
        dsbf.check()
    assert DEEPEST > 5


def test_a_full_leaf_found_at_opening_is_split(tmp_path: Path) -> None:
    """A crash between a mark and its split leaves a log that is too long."""
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        path = dsbf._logs.path(1)
    with path.open("ab") as file:
        file.write(to_bytes(fingerprints(keys(0, 40))))
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        assert dsbf.statistics().splits > 3
        assert len(dsbf) == 40
        assert not dsbf.unseen(keys(0, 40)).any()
        dsbf.check()


class Killed(BaseException):
    """Stands for the end of the process."""


def at_call(number: int, failure: BaseException, patch: pytest.MonkeyPatch) -> list[str]:
    """Make the number-th call that changes the disk fail; answers the list of calls so far."""
    calls: list[str] = []

    def guarded(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            calls.append(name)
            if len(calls) == number:
                raise failure
            return real(*args, **options)

        return call

    for name in ("pwrite", "fdatasync", "fsync", "replace", "unlink"):
        patch.setattr(os, name, guarded(name, getattr(os, name)))
    return calls


def test_a_kill_at_any_step_of_a_split_forgets_nothing(tmp_path: Path) -> None:
    """The folder as it is before each write, sync, rename and removal: it opens, and knows all that was synced."""
    steps = 0
    while True:
        folder = tmp_path / f"d{steps}"
        dsbf = Dsbf.open(folder, TINY)
        dsbf.mark(keys(0, 9))
        dsbf.sync()
        with pytest.MonkeyPatch.context() as patch:
            calls = at_call(steps + 1, Killed(), patch)
            try:
                dsbf.mark(keys(9, 25))
                break
            except Killed:
                pass
        shutil.copytree(folder, tmp_path / f"copy{steps}")
        with Dsbf.open(tmp_path / f"copy{steps}", TINY) as copy:
            assert not copy.unseen(keys(0, 9)).any()
            copy.check()
            copy.mark(keys(0, 60))
            assert not copy.unseen(keys(0, 60)).any()
            names = {path.name for path in (tmp_path / f"copy{steps}").iterdir()} - {"MANIFEST"}
            assert len(names) == copy.statistics().leaves
        steps += 1
    assert {"pwrite", "fdatasync", "fsync", "replace", "unlink"} <= set(calls)
    assert steps > 10
    dsbf.close()


def test_a_full_disk_at_any_step_of_a_split_may_be_answered_by_repeating(tmp_path: Path) -> None:
    """After an error at any write, sync, rename or removal the filter is sound, and the same mark succeeds later."""
    steps = 0
    while True:
        dsbf = Dsbf.open(tmp_path / f"d{steps}", TINY)
        dsbf.mark(keys(0, 9))
        with pytest.MonkeyPatch.context() as patch:
            at_call(steps + 1, OSError(errno.ENOSPC, "full"), patch)
            try:
                dsbf.mark(keys(9, 25))
                break
            except OSError:
                pass
        assert not dsbf.unseen(keys(0, 9)).any()
        dsbf.check()
        assert len(dsbf._logs) == dsbf.statistics().leaves
        dsbf.mark(keys(9, 25))
        dsbf.check()
        dsbf.close()
        with Dsbf.open(tmp_path / f"d{steps}", TINY) as again:
            assert not again.unseen(keys(0, 25)).any()
            assert len(again) == 25
        steps += 1
    assert steps > 10
    dsbf.close()
