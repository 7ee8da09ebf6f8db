"""A filter keeps what was synced when a call is interrupted by Ctrl-C, or by a kill and a power loss after it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.dedup.bloom import restoring, splitting
from anabranch.dedup.bloom.filter import Dsbf
from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.log import LeafLogs
from anabranch.dedup.bloom.table import LeafTable
from anabranch.dedup.errors import FilterClosed
from tests.dedup.bloom.power import Disk

#: Leaves that hold six elements.
TINY = DsbfParameters(expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)
#: A leaf of some thousand elements: after its split began, no element moves before a hundred calls or so.
LARGE = DsbfParameters(expected=0, false_positive=0.001, leaf_bits=1 << 15)
SMALL = DsbfParameters(expected=300, false_positive=0.001, leaf_bits=2048)


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


def broken_off(*_: object) -> None:
    raise KeyboardInterrupt


def after(real: Callable[..., object]) -> Callable[..., object]:
    """Return a function that makes the real call and is interrupted right after it."""

    def call(*args: object) -> object:
        real(*args)
        raise KeyboardInterrupt

    return call


def assert_known_after_power_loss(disk: Disk, target: Path, shape: DsbfParameters, known: list[bytes]) -> None:
    for copy in disk.lose_power(target):
        with Dsbf.open(copy, shape) as dsbf:
            assert not dsbf.unseen(known).any()
            dsbf.check()


def killed(dsbf: Dsbf) -> None:
    """The process has ended: its lock is gone."""
    dsbf._lock.release()


def test_what_is_synced_after_a_kill_amid_the_start_of_a_split_outlasts_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill came between the manifest's rename and its sync; the next process fills logs that only it names."""
    disk, first = Disk(tmp_path / "d", monkeypatch), LARGE.split_above
    dsbf = Dsbf.open(tmp_path / "d", LARGE)
    dsbf.mark(keys(0, first))
    dsbf.sync()
    with monkeypatch.context() as patch:
        patch.setattr(splitting, "sync_folder", broken_off)
        with pytest.raises(KeyboardInterrupt):
            dsbf.mark(keys(first, first + 3))
    killed(dsbf)
    dsbf = Dsbf.open(tmp_path / "d", LARGE)
    assert dsbf.statistics().splitting == 1
    dsbf.mark(keys(10_000, 10_003))
    dsbf.sync()
    assert_known_after_power_loss(disk, tmp_path / "lost", LARGE, keys(0, first) + keys(10_000, 10_003))
    dsbf.close()
    disk.close()


def test_no_log_is_removed_after_a_kill_while_a_manifest_that_names_it_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill came when the manifest without the split was renamed, not yet synced."""
    disk = Disk(tmp_path / "d", monkeypatch)
    dsbf = Dsbf.open(tmp_path / "d", TINY)
    dsbf.mark(keys(0, 9))
    dsbf.mark(keys(9, 30))
    with monkeypatch.context() as patch:
        patch.setattr(splitting, "sync_folder", broken_off)
        with pytest.raises(KeyboardInterrupt):
            dsbf.sync()
    killed(dsbf)
    dsbf = Dsbf.open(tmp_path / "d", TINY)
    assert_known_after_power_loss(disk, tmp_path / "lost", TINY, keys(0, 9))
    dsbf.close()
    disk.close()


def test_a_filter_killed_while_it_was_made_survives_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest was renamed, not yet synced."""
    disk = Disk(tmp_path / "d", monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "sync_folder", broken_off)
        with pytest.raises(KeyboardInterrupt):
            Dsbf.open(tmp_path / "d", SMALL)
    dsbf = Dsbf.open(tmp_path / "d", SMALL)
    dsbf.mark(keys(0, 9))
    dsbf.sync()
    assert_known_after_power_loss(disk, tmp_path / "lost", SMALL, keys(0, 9))
    dsbf.close()
    disk.close()


@pytest.mark.parametrize("where", ["write_manifest", "sync_folder"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_a_clean_mark_that_could_not_be_taken_away_is_taken_away_by_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, failure: BaseException
) -> None:
    """Else a kill would leave mapped bits of keys without a log entry, and they would be taken for seen."""

    def fail(*_: object) -> None:
        raise failure

    with Dsbf.open(tmp_path / "d", SMALL, "mapped") as dsbf:
        dsbf.mark(keys(0, 50))
    with Dsbf.open(tmp_path / "d", SMALL, "mapped") as dsbf:
        with monkeypatch.context() as patch:
            patch.setattr(splitting, where, fail)
            with pytest.raises(type(failure)):
                dsbf.mark(keys(50, 60))
        assert dsbf._splitter.image is not None
        dsbf.mark(keys(100, 150))
        shutil.copytree(tmp_path / "d", tmp_path / "killed")
    with Dsbf.open(tmp_path / "killed", SMALL, "mapped") as dsbf:
        assert dsbf.unseen(keys(100, 150)).mean() > 0.9
        dsbf.check()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (LeafTable, "take"),
        (LeafLogs, "create"),
        (splitting.Splitter, "_replace_manifest"),
        (LeafTable, "begin_splits"),
        (splitting.Splitter, "_settle"),
    ],
)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_split_broken_off_at_its_start_loses_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, is_done: bool
) -> None:
    """Before or after any step. If memory and disk may differ the filter refuses to write; opened again, it knows all."""
    dsbf, batches = Dsbf.open(tmp_path / "d", TINY), [keys(0, 6), keys(6, 9), keys(9, 40)]
    dsbf.mark(batches[0])
    dsbf.sync()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, after(getattr(owner, name)) if is_done else broken_off)
        with pytest.raises(KeyboardInterrupt):
            dsbf.mark(batches[1])
    try:
        dsbf.mark(batches[2])
        dsbf.sync()
        known = keys(0, 6) + batches[2]
    except FilterClosed:
        known = keys(0, 6)
        with pytest.raises(FilterClosed, match="broken off while a split began"):
            dsbf.sync()
        with pytest.raises(FilterClosed, match="broken off while a split began"):
            dsbf.close()
    dsbf.close()
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        assert not dsbf.unseen(known).any()
        dsbf.check()
        dsbf.mark(keys(0, 60))
        assert not dsbf.unseen(keys(0, 60)).any()
        dsbf.check()
