from __future__ import annotations

import errno
import json
import math
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.bloom.filter import Dsbf
from anabranch.dedup.bloom.formulas import MOVES_PER_KEY, DsbfParameters
from anabranch.dedup.bloom.log import LeafLogs
from anabranch.dedup.bloom.splitting import MANIFEST_FILE, MOVE_AT_LEAST, Manifest, read_manifest, write_manifest
from anabranch.dedup.bloom.tree import DEEPEST, Tree
from anabranch.dedup.errors import FormatMismatch, InvariantBroken
from anabranch.dedup.keys import fingerprints, to_bytes
from tests.acceptance.blocking import Process
from tests.acceptance.forkserver import DEDUP
from tests.dedup.bloom.power import Disk

SHAPE = DsbfParameters(expected=100, false_positive=0.01, leaf_bits=1024)


def test_the_tree_is_read_back(tmp_path: Path) -> None:
    """A written manifest gives the same tree, splits in their order, and image; a missing one gives None."""
    assert read_manifest(tmp_path, SHAPE) is None
    tree = Tree.rooted(3).split([2], 4).split([1], 4)
    write_manifest(tmp_path, SHAPE, Manifest(tree=tree, splitting=((2, 5), (1, 0)), image={"size": 3}))
    found = read_manifest(tmp_path, SHAPE)
    assert found is not None
    assert found.tree.leaves == tree.leaves == [3, *range(4, 12)]
    assert found.splitting == ((2, 5), (1, 0))
    assert found.image == {"size": 3}


def test_other_parameters_are_refused_by_name(tmp_path: Path) -> None:
    """The message names the one that differs."""
    write_manifest(tmp_path, SHAPE, Manifest(tree=Tree.rooted(3)))
    other = DsbfParameters(expected=100, false_positive=0.02, leaf_bits=1024)
    with pytest.raises(FormatMismatch, match=r"false_positive is 0.01 in the folder, 0.02 here$"):
        read_manifest(tmp_path, other)


def test_a_damaged_tree_is_refused_with_the_files_name(tmp_path: Path) -> None:
    """Lists that form no tree are damage of this file."""
    write_manifest(tmp_path, SHAPE, Manifest(tree=Tree.rooted(3)))
    record = json.loads((tmp_path / MANIFEST_FILE).read_text())
    (tmp_path / MANIFEST_FILE).write_text(json.dumps(record | {"fan_out": [3, 0, 0]}))
    with pytest.raises(FormatMismatch, match="MANIFEST: the tree is damaged"):
        read_manifest(tmp_path, SHAPE)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"splitting": None}, "list of splits"),
        ({"splitting": [[1, 0, 0]]}, "list of splits"),
        ({"splitting": [[1, "0"]]}, "list of splits"),
        ({"splitting": [[1, -1]]}, "list of splits"),
        ({"splitting": [[0, 0]]}, "list of splits"),
        ({"splitting": [[2, 0]]}, "list of splits"),
        ({"splitting": [[9, 0]]}, "list of splits"),
        ({"splitting": [[1, 0], [1, 2]]}, "names a node twice"),
        ({"image": []}, "record of the bits"),
    ],
)
def test_splits_and_images_that_are_none_are_refused(tmp_path: Path, damage: dict[str, object], message: str) -> None:
    """Only a node below the root that has children can be splitting, and only once."""
    write_manifest(tmp_path, SHAPE, Manifest(tree=Tree.rooted(3).split([1], 2), splitting=((1, 0),)))
    record = json.loads((tmp_path / MANIFEST_FILE).read_text())
    (tmp_path / MANIFEST_FILE).write_text(json.dumps(record | damage))
    with pytest.raises(FormatMismatch, match=f"MANIFEST: the .*{message}"):
        read_manifest(tmp_path, SHAPE)


ROOT = Path(__file__).resolve().parents[3]
#: Leaves that hold six elements: splits happen all the time.
TINY = DsbfParameters(expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)
#: Leaves of 1,104 elements.
MIDDLE = DsbfParameters(expected=0, false_positive=0.001, leaf_bits=1 << 14)


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits last: one element is moved for each key, from the first on."""
    monkeypatch.setattr("anabranch.dedup.bloom.splitting.MOVES_PER_KEY", 1)
    monkeypatch.setattr("anabranch.dedup.bloom.splitting.MOVE_AT_LEAST", 1)


def start_a_split(dsbf: Dsbf) -> int:
    """Mark keys from 0 on until a leaf begins to split; answers their number."""
    done = 0
    while not dsbf.statistics().splitting:
        dsbf.mark(keys(done, done + 1))
        done += 1
    return done


def leaf_counts(dsbf: Dsbf) -> np.ndarray:
    return dsbf._table.nodes.counts[dsbf._table.tree.leaves]


def test_a_leaf_splits_above_its_threshold_and_not_before(tmp_path: Path) -> None:
    """The count of distinct elements decides; repeats do not fill a leaf."""
    shape = DsbfParameters(expected=0, false_positive=0.001, leaf_bits=4096)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        dsbf.mark(keys(0, shape.split_above) * 3)
        assert dsbf.statistics().splits == 0
        dsbf.mark(keys(shape.split_above, shape.split_above + 3))
        shown = dsbf.statistics()
        assert (shown.splits, shown.leaves, shown.height) == (1, 4, 2)
        dsbf.mark(keys(0, 50))
        assert dsbf.statistics().splitting == 0
        assert dsbf.statistics().memory_bytes <= 7 * 512


def test_a_call_moves_a_bounded_number_of_elements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than MOVE_AT_LEAST + MOVES_PER_KEY for each key, whatever is waiting; so no call is long."""
    moved: list[int] = []
    real = LeafLogs.read

    def read(self: LeafLogs, leaf: int, start: int = 0, stop: int | None = None) -> np.ndarray:
        part = real(self, leaf, start, stop)
        moved.append(len(part))
        return part

    shape = DsbfParameters(expected=60_000, false_positive=0.001, leaf_bits=1 << 16)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        monkeypatch.setattr(LeafLogs, "read", read)
        done, most = 0, 0
        while dsbf.statistics().splitting == 0:
            dsbf.mark(keys(done, done + 1000))
            done += 1000
        moved.clear()
        for size in (1, 64, 7, 300, 64, 1, 1000):
            for _ in range(30):
                dsbf.mark(keys(done, done + size)) if size > 1 else dsbf.mark_one(keys(done, done + 1)[0])
                done += size
                assert sum(moved) < MOVE_AT_LEAST + MOVES_PER_KEY * size
                most = max(most, sum(moved))
                moved.clear()
        assert most > 8000
        assert not dsbf.unseen(keys(0, done)).any()
        dsbf.check()


def test_calls_that_failed_leave_no_long_call_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of a call holds after any number of others that could not move their share."""

    def unreadable(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    shape = DsbfParameters(expected=0, false_positive=0.001, leaf_bits=1 << 17)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        done = shape.split_above + 1
        dsbf.mark(keys(0, done))
        with monkeypatch.context() as patch:
            patch.setattr(LeafLogs, "read", unreadable)
            for _ in range(40):
                with pytest.raises(OSError, match="broken"):
                    dsbf.mark(keys(done, done + 64))
        (split,) = dsbf._splitter.splits
        before = split.moved
        dsbf.mark(keys(done, done + 64))
        assert 0 < split.moved - before < MOVE_AT_LEAST + MOVES_PER_KEY * 64


def test_a_split_ends_before_its_children_can_fill(tmp_path: Path) -> None:
    """All leaves split in one wave; when it is over the children hold a good quarter, and none has split."""
    shape = DsbfParameters(expected=60_000, false_positive=0.001, leaf_bits=1 << 16)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        done, waves = 0, []
        while not (waves and dsbf.statistics().splits == shape.first_leaves and not dsbf.statistics().splitting):
            dsbf.mark(keys(done, done + 64))
            done += 64
            waves.append(dsbf.statistics().splitting)
        shown = dsbf.statistics()
        assert shown.height == 2
        assert leaf_counts(dsbf).max() < shape.split_above / 2
        assert max(waves) > 1
        assert shown.elements == pytest.approx(done, rel=0.001)


def test_a_single_call_moves_nothing_until_enough_is_due(tmp_path: Path) -> None:
    """Calls of one key save up: to move a few elements costs as much as to move many."""
    shape = DsbfParameters(expected=0, false_positive=0.001, leaf_bits=1 << 16)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        dsbf.mark(keys(0, shape.split_above))
        done = shape.split_above
        moved = []
        while not dsbf._splitter.splits or dsbf._splitter.splits[0].moved <= MOVE_AT_LEAST:
            dsbf.mark_one(keys(done, done + 1)[0])
            done += 1
            moved += [split.moved for split in dsbf._splitter.splits]
        calls = MOVE_AT_LEAST // MOVES_PER_KEY
        assert [moved.count(number) for number in sorted(set(moved))] == [calls - 1, calls, 1]


@pytest.mark.parametrize("fan_out", [2, 4])
def test_the_rate_holds_while_leaves_split(tmp_path: Path, fan_out: int) -> None:
    """At moments with several leaves splitting: at most 1.05 f + 3 sigma of other keys are known, as stated."""
    f, asked = 0.01, 30_000
    shape = DsbfParameters(expected=20_000, false_positive=f, leaf_bits=1 << 14, split_fan_out=fan_out)
    sigma, others, looks = math.sqrt(f * (1 - f) / asked), keys(10**6, 10**6 + asked), 0
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        dsbf.mark(keys(0, 18_000))
        done = 18_000
        while looks < 12:
            dsbf.mark(keys(done, done + 16))
            done += 16
            shown = dsbf.statistics()
            if shown.splitting > 1:
                known = np.count_nonzero(~dsbf.unseen(others)) / asked
                assert known <= 1.05 * f + 3 * sigma
                assert known <= shown.mean_rate * 1.05 + 4 * sigma
                assert shown.mean_rate <= shown.worst_rate <= f
                looks += 1
        assert not dsbf.unseen(keys(0, done)).any()


def test_a_batch_of_any_size_never_overfills_a_leaf(tmp_path: Path) -> None:
    """It is taken in steps, with splits in between: 20,000 keys into one leaf of a thousand."""
    with Dsbf.open(tmp_path / "d", MIDDLE) as dsbf:
        fullest = 0

        def watched(nodes: list[int]) -> None:
            nonlocal fullest
            fullest = max([fullest, *dsbf._table.nodes.counts[nodes].tolist()])
            start(nodes)

        start = dsbf._splitter.start
        dsbf._splitter.start = watched
        dsbf.mark(keys(0, 20_000))
        assert MIDDLE.split_above < fullest <= MIDDLE.capacity
        assert dsbf.statistics().worst_rate <= MIDDLE.false_positive
        assert not dsbf.unseen(keys(0, 20_000)).any()


def test_keys_marked_one_by_one_split_leaves_as_a_batch_does(tmp_path: Path) -> None:
    """No leaf holds more than its threshold, and all keys are known after many splits, several levels deep."""
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        for key in keys(0, 300):
            dsbf.mark_one(key)
        shown = dsbf.statistics()
        assert shown.splits > 10
        assert shown.height > 5
        assert (leaf_counts(dsbf) <= TINY.split_above).all()
        assert not any(dsbf.is_unseen(key) for key in keys(0, 300))
        dsbf.check()


def test_a_child_may_split_before_its_parent_is_done(tmp_path: Path, slowly: None) -> None:
    """Elements of both go on down to the leaves; meanwhile all of the chain is asked."""
    deepest = 0
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        for start in range(0, 250, 5):
            dsbf.mark(keys(start, start + 5))
            splitting = {split.node for split in dsbf._splitter._moving}
            deepest += any(int(dsbf._table.tree.parent[node]) in splitting for node in splitting)
            assert not dsbf.unseen(keys(0, start + 5)).any()
            dsbf.check()
    assert deepest > 10


def test_the_bits_of_a_drained_node_go_at_once_and_its_log_at_the_next_sync(tmp_path: Path, slowly: None) -> None:
    """Between the two the manifest still calls it SPLITTING, since its children are not durable yet."""
    with Dsbf.open(tmp_path / "d", MIDDLE) as dsbf:
        done = start_a_split(dsbf)
        log = dsbf._logs.path(1)
        dsbf.mark(keys(2000, 2000 + done - 2))
        assert dsbf.statistics().splitting == 1
        dsbf.mark(keys(4000, 4001))
        assert dsbf.statistics().splitting == 0
        assert dsbf._table.nodes.slots[1] == -1
        manifest = read_manifest(tmp_path / "d", MIDDLE)
        assert manifest is not None
        assert manifest.splitting == ((1, 0),)
        assert log.exists()
        dsbf.sync()
        manifest = read_manifest(tmp_path / "d", MIDDLE)
        assert manifest is not None
        assert manifest.splitting == ()
        assert not log.exists()
        dsbf.check()


def test_a_split_goes_on_where_the_last_sync_recorded_it(tmp_path: Path, slowly: None) -> None:
    """After a kill what was moved since is moved again, and nothing before it."""
    dsbf = Dsbf.open(tmp_path / "d", MIDDLE)
    done = start_a_split(dsbf)
    dsbf.mark(keys(2000, 2300))
    dsbf.sync()
    dsbf.mark(keys(3000, 3100))
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    with Dsbf.open(tmp_path / "copy", MIDDLE) as copy:
        (split,) = copy._splitter.splits
        assert (split.node, split.moved, split.length) == (1, 301, done)
        assert copy.statistics().splitting == 1
        assert not copy.unseen(keys(0, done) + keys(2000, 2300)).any()
        assert len(copy) == pytest.approx(done + 300, abs=3)
        copy.check()
        copy.mark(keys(5000, 7000))
        assert copy.statistics().splitting == 0
        copy.check()
    dsbf.close()


def test_forged_elements_that_no_hash_divides_end_the_splitting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal LocHash bits at every level: the tree stops at its greatest depth instead of splitting for ever."""
    monkeypatch.setattr("anabranch.dedup.bloom.table.DEEPEST", 5)
    forged = fingerprints(keys(0, 30))
    forged[:, 0] &= np.uint64((1 << 16) - 1)
    with Dsbf.open(tmp_path / "d", TINY) as dsbf:
        for _ in range(2):
            dsbf.mark_elements(forged, np.ones(30, dtype=np.bool_))
        assert dsbf.statistics().height == 5
        assert not dsbf.unseen_elements(forged).any()
        dsbf.check()
    assert DEEPEST > 5


def test_a_full_leaf_found_at_opening_starts_its_split_then(tmp_path: Path) -> None:
    """A crash between a mark and its split leaves a log that is too long; opening moves none of it."""
    with Dsbf.open(tmp_path / "d", MIDDLE) as dsbf:
        path = dsbf._logs.path(1)
    with path.open("ab") as file:
        file.write(to_bytes(fingerprints(keys(0, 3000))))
    with Dsbf.open(tmp_path / "d", MIDDLE) as dsbf:
        shown = dsbf.statistics()
        assert (shown.splits, shown.splitting, shown.elements) == (1, 1, 3000)
        assert dsbf._splitter.splits[0].moved == 0
        assert not dsbf.unseen(keys(0, 3000)).any()
        dsbf.mark(keys(0, 300))
        assert dsbf.statistics().splitting == 0
        assert len(dsbf) == pytest.approx(3000, abs=30)
        dsbf.check()


def test_debris_in_a_splitting_log_is_not_moved_into_other_leaves(tmp_path: Path, slowly: None) -> None:
    """Elements that lead elsewhere, as after a power loss, are counted as strays and left out."""
    shape = DsbfParameters(expected=20, false_positive=0.05, leaf_bits=64, split_fan_out=2)
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        done = 0
        while not dsbf._splitter._moving:
            dsbf.mark_one(keys(done, done + 1)[0])
            done += 1
        node = dsbf._splitter._moving[0].node
        others = fingerprints(keys(1000, 1100))
        others = others[~dsbf._table.tree.leads_through(node, others)]
        path = dsbf._logs.path(node)
    with path.open("ab") as file:
        file.write(to_bytes(others))
    with Dsbf.open(tmp_path / "d", shape) as dsbf:
        assert dsbf.statistics().strays == len(others) > 0
        dsbf.mark(keys(0, 300))
        assert node not in {split.node for split in dsbf._splitter._moving}
        assert not dsbf.unseen(keys(0, 300)).any()
        assert dsbf.unseen_elements(others).mean() > 0.8
        dsbf.check()


def test_a_check_finds_splits_that_contradict_their_logs(tmp_path: Path, slowly: None) -> None:
    """`moved` beyond what the leaves know, bits that are not the log's, and a log that was cut."""
    with Dsbf.open(tmp_path / "d", MIDDLE) as dsbf:
        start_a_split(dsbf)
        split = dsbf._splitter.splits[0]
        dsbf.check()
        split.moved += 100
        with pytest.raises(InvariantBroken, match="100 of the elements recorded as moved are not known below"):
            dsbf.check()
        split.moved -= 100
        split.recorded = split.moved + 1
        with pytest.raises(InvariantBroken, match="are recorded as moved"):
            dsbf.check()
        split.recorded = 0
        dsbf._table.leaves.mark(dsbf._table.nodes.slots[[1]], fingerprints([b"stranger"]))
        with pytest.raises(InvariantBroken, match="bits of its leaf disagree"):
            dsbf.check()


class Killed(BaseException):
    """Stands for the end of the process."""


def at_call(
    number: int, failure: BaseException, patch: pytest.MonkeyPatch, syncs: Callable[[int], None] | None = None
) -> list[str]:
    """Make the number-th call that changes the disk fail; answers the list of calls so far. Syncs do nothing else."""
    calls: list[str] = []

    def guarded(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            calls.append(name)
            if len(calls) == number:
                raise failure
            return real(*args, **options)

        return call

    for name in ("pwrite", "replace", "unlink", "posix_fallocate", "ftruncate"):
        patch.setattr(os, name, guarded(name, getattr(os, name)))
    for name in ("fdatasync", "fsync"):
        patch.setattr(os, name, guarded(name, syncs or (lambda fd: None)))
    return calls


def split_twice_and_sync(dsbf: Dsbf) -> None:
    """Several splits begin and go on; the first sync records some as moved, the second ends some."""
    dsbf.mark(keys(9, 14))
    dsbf.sync()
    dsbf.mark(keys(14, 20))
    dsbf.sync()


def attempts(tmp_path: Path, failure: BaseException, leaves: str) -> Iterator[tuple[Dsbf, Path]]:
    """One filter for each call that changes the disk, broken off there; it knows nine synced keys."""
    for step in range(1, 10**6):
        dsbf = Dsbf.open(tmp_path / f"d{step}", TINY, leaves=leaves)
        dsbf.mark(keys(0, 9))
        dsbf.sync()
        with pytest.MonkeyPatch.context() as patch:
            calls = at_call(step, failure, patch)
            try:
                split_twice_and_sync(dsbf)
            except type(failure):
                pass
            else:
                break
        yield dsbf, tmp_path / f"d{step}"
    dsbf.close()
    assert {"pwrite", "fdatasync", "fsync", "replace", "unlink"} <= set(calls)
    assert step > 30


def test_a_kill_at_any_step_of_a_split_forgets_nothing(tmp_path: Path, slowly: None) -> None:
    """The folder as it is before each write, sync, rename and removal: it opens, and knows all that was synced."""
    for _, folder in attempts(tmp_path, Killed(), "memory"):
        copied = tmp_path / "copy" / folder.name
        shutil.copytree(folder, copied)
        with Dsbf.open(copied, TINY) as copy:
            assert not copy.unseen(keys(0, 9)).any()
            copy.check()
            copy.mark(keys(0, 30))
            copy.sync()
            assert not copy.unseen(keys(0, 30)).any()
            names = {path.name for path in copied.iterdir()} - {"MANIFEST"}
            assert len(names) == copy.statistics().leaves + copy.statistics().splitting


@pytest.mark.parametrize("leaves", ["memory", "mapped"])
def test_a_full_disk_at_any_step_of_a_split_may_be_answered_by_repeating(
    tmp_path: Path, slowly: None, leaves: str
) -> None:
    """After an error at any write, sync, rename or removal the filter is sound, and the same calls succeed later."""
    for dsbf, folder in attempts(tmp_path, OSError(errno.ENOSPC, "full"), leaves):
        assert not dsbf.unseen(keys(0, 9)).any()
        dsbf.check()
        split_twice_and_sync(dsbf)
        dsbf.check()
        assert len(dsbf._logs.lengths()) == dsbf.statistics().leaves + dsbf.statistics().splitting
        dsbf.close()
        with Dsbf.open(folder, TINY) as again:
            assert not again.unseen(keys(0, 20)).any()
            again.check()


@pytest.mark.parametrize("leaves", ["memory", "mapped"])
def test_a_power_loss_at_any_step_forgets_nothing_synced(tmp_path: Path, slowly: None, leaves: str) -> None:
    """Bytes count from their sync on, names from the folder's: at every step both worst cases open and know all."""
    judged = set[tuple[int, frozenset[tuple[str, bytes]]]]()
    for step in range(1, 10**6):
        folder, calls = tmp_path / f"d{step}", []
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(folder, patch)
            dsbf = Dsbf.open(folder, TINY, leaves=leaves)
            synced = 0
            with pytest.MonkeyPatch.context() as deadly:
                calls = at_call(step, Killed(), deadly, disk.sync)
                try:
                    for stop in (8, 13, 20):
                        dsbf.mark(keys(synced, stop))
                        dsbf.sync()
                        synced = stop
                    dsbf.close()
                except Killed:
                    pass
            is_done = len(calls) < step
            copies = disk.lose_power(tmp_path / f"lost{step}")
            disk.close()
            dsbf._lock.release()
        for copy in copies:
            left = synced, frozenset((path.name, path.read_bytes()) for path in copy.iterdir())
            if left in judged:
                continue
            judged.add(left)
            with Dsbf.open(copy, TINY, leaves=leaves) as again:
                assert not again.unseen(keys(0, synced)).any()
                again.check()
        if is_done:
            break
    assert step > 50
    assert len(judged) > 50


def test_what_children_got_is_durable_before_the_first_element_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync has no manifest to write then; the one that names the children must have lasted already."""
    disk, shape = Disk(tmp_path / "d", monkeypatch), DsbfParameters(expected=0, leaf_bits=1 << 16)
    dsbf = Dsbf.open(tmp_path / "d", shape)
    done = start_a_split(dsbf)
    dsbf.mark(keys(done, done + 5))
    dsbf.sync()
    assert dsbf._splitter.splits[0].moved == 0
    for copy in disk.lose_power(tmp_path / "lost"):
        with Dsbf.open(copy, shape) as again:
            assert not again.unseen(keys(0, done + 5)).any()
            assert again.statistics().splitting == 1
            again.check()
    dsbf.close()
    disk.close()


def test_an_element_that_was_logged_often_moves_once(tmp_path: Path) -> None:
    """`mark` logs whatever the bits say; the children count and log such an element once for each step at most."""
    with Dsbf.open(tmp_path / "d", MIDDLE) as dsbf:
        dsbf.mark(keys(0, 1000) + keys(0, 50) * 20)
        done = 1000
        while not dsbf.statistics().splits:
            dsbf.mark(keys(done, done + 1))
            done += 1
        dsbf.mark(keys(5000, 5100))
        assert dsbf.statistics().splitting == 0
        dsbf.sync()
        assert len(dsbf) == pytest.approx(done + 100, abs=3)
        assert leaf_counts(dsbf).sum() == len(dsbf)
        assert sum(dsbf._logs.count(leaf) for leaf in dsbf._table.tree.leaves) <= done + 200
        dsbf.check()


def test_a_split_that_starts_amid_a_sync_is_no_hole_in_it(
    tmp_path: Path, slowly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks between the sync's look at the splits and its manifest begin splits, move and drain: all survives."""
    folder = tmp_path / "d"
    disk = Disk(folder, monkeypatch)
    dsbf = Dsbf.open(folder, TINY)
    real, done = LeafLogs.sync, 40
    dsbf.mark(keys(0, done))

    def sync(self: LeafLogs) -> None:
        dsbf.mark(keys(done, done + 13))
        real(self)
        dsbf.mark(keys(done + 13, done + 30))

    for number in range(6):
        with monkeypatch.context() as patch:
            patch.setattr(LeafLogs, "sync", sync)
            dsbf.sync()
        for copy in disk.lose_power(tmp_path / f"lost{number}"):
            with Dsbf.open(copy, TINY) as again:
                assert not again.unseen(keys(0, done)).any()
                again.check()
        dsbf.check()
        done += 30
    dsbf.close()
    disk.close()


def test_marking_and_syncing_go_on_at_once(tmp_path: Path, slowly: None) -> None:
    """Another thread syncs all the time while leaves split all the time; nothing is lost and all fits together."""
    with Dsbf.open(tmp_path / "d", MIDDLE) as dsbf:
        is_over, syncs = threading.Event(), []

        def sync() -> None:
            while not is_over.is_set():
                dsbf.sync()
                syncs.append(dsbf._table.tree.splits)
                assert dsbf.rates()[1] < 1

        thread = threading.Thread(target=sync)
        thread.start()
        marked = 0
        try:
            # However slow the disk is: marking goes on until the syncs have met the tree in several states.
            while thread.is_alive() and (marked < 30_000 or len(set(syncs)) <= 5):
                dsbf.mark(keys(marked, marked + 50))
                marked += 50
        finally:
            is_over.set()
            thread.join()
        assert len(set(syncs)) > 5
        dsbf.check()
        dsbf.sync()
        assert not dsbf.unseen(keys(0, marked)).any()
    (tmp_path / "d" / "BITS").unlink()
    with Dsbf.open(tmp_path / "d", MIDDLE) as dsbf:
        assert not dsbf.unseen(keys(0, marked)).any()
        dsbf.check()


MOVER = """
import sys
from pathlib import Path
import anabranch.dedup.bloom.splitting
from anabranch.dedup import Dsbf, DsbfParameters
anabranch.dedup.bloom.splitting.MOVES_PER_KEY = 2
anabranch.dedup.bloom.splitting.MOVE_AT_LEAST = 10
shape = DsbfParameters(expected=4000, false_positive=0.01, leaf_bits=4096)
dsbf = Dsbf.open(Path(sys.argv[1]), shape, leaves=sys.argv[2])
for start in range(int(sys.argv[3]), 10**9, 50):
    dsbf.mark([b"%d" % i for i in range(start, start + 50)])
    if start % 250 == 200:
        dsbf.sync()
        print(start + 50, dsbf.statistics().splitting, flush=True)
"""


@pytest.mark.parametrize("leaves", ["memory", "mapped"])
def test_kill_9_amid_migrations_loses_nothing_synced(tmp_path: Path, leaves: str) -> None:
    """A real process is killed three times over one folder while several leaves are being split."""
    synced, shape = 0, DsbfParameters(expected=4000, false_positive=0.01, leaf_bits=4096)
    for _ in range(3):
        command = ["-c", MOVER, str(tmp_path / "d"), leaves, str(synced)]
        with Process(command, cwd=ROOT, stderr=None, preload=DEDUP) as child:
            splitting = 0
            while splitting < 2:
                synced, splitting = map(int, child.stdout.readline().split())
            child.kill()
        with Dsbf.open(tmp_path / "d", shape, leaves=leaves) as dsbf:
            shown = dsbf.statistics()
            assert shown.splitting > 0
            assert shown.strays == 0
            assert not dsbf.unseen([b"%d" % i for i in range(synced)]).any()
            dsbf.check()
            dsbf._is_torn = True  # the next process, too, is to begin with the logs
    assert synced > 3000
