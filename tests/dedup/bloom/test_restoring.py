from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.bloom.bits import HEADER_BYTES, STORAGES, BitStorage, LeafBits
from anabranch.dedup.bloom.filter import Dsbf
from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.log import LeafLogs
from anabranch.dedup.bloom.restoring import Image, kept_leaves
from anabranch.dedup.bloom.splitting import Manifest, read_manifest, write_manifest
from anabranch.dedup.bloom.tree import Tree
from anabranch.dedup.errors import FormatMismatch, StoreFull
from anabranch.dedup.keys import fingerprints, to_bytes
from tests.rows import each_row

SHAPE = DsbfParameters(expected=0, false_positive=0.01, leaf_bits=1024)
STAMP = bytes(range(16))
KEYS = fingerprints([b"%d" % i for i in range(40)])


def image(size: int, checksum: int | None, stamp: bytes = STAMP) -> Image:
    return Image(stamp=stamp, size=size, checksum=checksum, slots=[-1, 0], counts=[0, 5], loads=[0, 0], lengths={1: 64})


def storage(folder: Path, where: str, parameters: DsbfParameters = SHAPE) -> BitStorage:
    return STORAGES[where](folder / "BITS", parameters.leaf_bits, parameters.hashes)


def loaded(folder: Path, where: str, image: Image, parameters: DsbfParameters = SHAPE) -> LeafBits | None:
    return kept_leaves(parameters, image, storage(folder, where, parameters))


def kept(folder: Path, where: str) -> Image:
    """The image of a folder with the keys in slot 1."""
    place = storage(folder, where)
    place.begin()
    leaves = LeafBits(SHAPE.leaf_bits, SHAPE.hashes, 3, place)
    slots = [leaves.take() for _ in range(2)]
    leaves.fill(slots[1], KEYS)
    checksum, size = place.save(STAMP), leaves.memory_bytes
    place.close()
    place.close()
    return image(size, checksum)


@pytest.mark.parametrize("there", STORAGES)
@pytest.mark.parametrize("here", STORAGES)
def test_bits_are_kept_from_either_place_for_either(tmp_path: Path, there: str, here: str) -> None:
    """The file is the same, whoever made it and whoever opens it."""
    found = loaded(tmp_path, here, kept(tmp_path, there))
    assert found is not None
    found.claim([0, 1])
    assert found.agrees(0, KEYS[:0])
    assert found.agrees(1, KEYS)
    assert not found.unseen(np.ones(40, dtype=np.int64), KEYS).any()
    assert found.take() == 2


@pytest.mark.parametrize("here", STORAGES)
def test_a_file_that_is_not_the_images_is_not_taken(tmp_path: Path, here: str) -> None:
    """Another stamp, another shape, another size, garbage, or none at all."""
    true, path = kept(tmp_path, "memory"), tmp_path / "BITS"
    assert loaded(tmp_path, here, image(true.size, true.checksum, stamp=bytes(16))) is None
    assert loaded(tmp_path, here, image(true.size - 128, true.checksum)) is None
    assert loaded(tmp_path, here, image(0, true.checksum)) is None
    assert loaded(tmp_path, here, image(-128, true.checksum)) is None
    other = DsbfParameters(expected=0, false_positive=0.01, leaf_bits=128)
    assert loaded(tmp_path, here, true, other) is None
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"\0", b"", b"x" * len(content)):
        path.write_bytes(wrong)
        assert loaded(tmp_path, here, true) is None
    path.unlink()
    assert loaded(tmp_path, here, true) is None


def test_what_is_read_must_have_its_checksum(tmp_path: Path) -> None:
    """One bit that turned over is found."""
    true, path = kept(tmp_path, "memory"), tmp_path / "BITS"
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 200] ^= 1
    path.write_bytes(content)
    assert loaded(tmp_path, "memory", true) is None


def test_large_files_are_kept_and_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum is that of the whole."""
    whole = kept(tmp_path, "memory")
    monkeypatch.setattr("anabranch.dedup.bloom.bits._COPIED_AT_ONCE", 100)
    assert kept(tmp_path, "memory").checksum == whole.checksum
    found = loaded(tmp_path, "memory", whole)
    assert found is not None
    assert found.agrees(1, KEYS)


def test_a_file_that_ends_while_it_is_read_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits that were mapped have no checksum."""
    true, whole = kept(tmp_path, "mapped"), os.preadv
    assert true.checksum is None
    monkeypatch.setattr(os, "preadv", lambda fd, parts, offset: whole(fd, [parts[0][:-1]], offset))
    assert loaded(tmp_path, "memory", true) is None


def test_bits_that_cannot_be_written_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at the end: a clear error, and nothing half-written."""
    place = storage(tmp_path, "memory")
    place.extend(3 * SHAPE.leaf_bits // 8)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFull):
        place.save(STAMP)
    assert list(tmp_path.iterdir()) == []


def test_a_record_gives_the_image_back() -> None:
    """Also through JSON, which makes lists of pairs."""
    for checksum in (None, 7):
        true = image(384, checksum)
        record = true.record() | {"lengths": [[1, 64]]}
        assert Image.of_record(record, 2) == true


@each_row(
    "damage",
    [
        {"stamp": None},
        {"stamp": "00"},
        {"stamp": "zz" * 16},
        {"size": "3"},
        {"checksum": "3"},
        {"slots": [0]},
        {"counts": [0, 0.5]},
        {"loads": [0, 0, 0]},
        {"loads": [0, 1 << 63]},
        {"slots": [0, -(10**30)]},
        {"lengths": [1, 2]},
        {"lengths": [[1, 2, 3]]},
        {"lengths": {}},
    ],
)
def test_a_record_that_is_none_gives_no_image(damage: dict[str, object]) -> None:
    """Then the logs are read, which is always right."""
    record = image(384, 7).record() | {"lengths": [[1, 64]]}
    assert Image.of_record(record, 2) is not None
    assert Image.of_record(record | damage, 2) is None
    assert Image.of_record({}, 2) is None
    assert Image.of_record(record, 3) is None


SMALL = DsbfParameters(expected=300, false_positive=0.001, leaf_bits=2048)


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The leaves with logs that are read."""
    found: list[int] = []
    real = LeafLogs.read

    def read(self: LeafLogs, leaf: int, start: int = 0, stop: int | None = None):
        found.append(leaf)
        return real(self, leaf, start, stop)

    monkeypatch.setattr(LeafLogs, "read", read)
    return found


def closed(folder: Path, stop: int = 100, leaves: str = "memory") -> Path:
    """A folder that knows the keys from 0 on and was closed well."""
    with Dsbf.open(folder, SMALL, leaves) as dsbf:
        dsbf.mark(keys(0, stop))
    return folder


def restored(folder: Path, reads: list[int], leaves: str = "memory", stop: int = 100) -> bool:
    """Open and check; True if the kept bits were taken, False if the logs were read."""
    reads.clear()
    with Dsbf.open(folder, SMALL, leaves) as dsbf:
        was_read = len(reads) > 0
        assert not dsbf.unseen(keys(0, stop)).any()
        assert dsbf.unseen(keys(1000, 1100)).mean() > 0.9
        assert len(dsbf) == stop
        dsbf.check()
    return not was_read


@pytest.mark.parametrize("there", STORAGES)
@pytest.mark.parametrize("here", STORAGES)
def test_after_a_clean_end_no_log_is_read(tmp_path: Path, reads: list[int], there: str, here: str) -> None:
    """The bits are there again, wherever they were; the next opening finds them too, changed or not."""
    closed(tmp_path / "d", leaves=there)
    assert restored(tmp_path / "d", reads, here)
    assert restored(tmp_path / "d", reads, there)
    with Dsbf.open(tmp_path / "d", SMALL, here) as dsbf:
        dsbf.mark(keys(100, 120))
        dsbf.mark_one(keys(120, 121)[0])
    assert restored(tmp_path / "d", reads, there, stop=121)


def test_an_opening_without_a_change_leaves_all_files_as_they_are(tmp_path: Path) -> None:
    """Asking writes nothing, and the end has nothing to keep anew."""
    folder = closed(tmp_path / "d")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    with Dsbf.open(folder, SMALL) as dsbf:
        dsbf.unseen(keys(0, 200))
        dsbf.mark([])
        dsbf.sync()
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == before


@pytest.mark.parametrize("leaves", STORAGES)
@pytest.mark.parametrize("change", ["mark", "mark_one", "add"])
def test_the_clean_mark_is_taken_away_before_the_first_change(
    tmp_path: Path, reads: list[int], leaves: str, change: str
) -> None:
    """A folder left by a kill right after the change is rebuilt from its logs."""
    folder = closed(tmp_path / "d", leaves=leaves)
    with Dsbf.open(folder, SMALL, leaves) as dsbf:
        batch = keys(100, 110)
        if change == "mark_one":
            dsbf.mark_one(batch[0])
        else:
            getattr(dsbf, change)(batch)
        shutil.copytree(folder, tmp_path / "killed")
    assert not restored(tmp_path / "killed", reads, leaves)
    assert restored(tmp_path / "killed", reads, leaves)


@pytest.mark.parametrize("leaves", STORAGES)
def test_an_older_image_with_newer_logs_is_not_trusted(tmp_path: Path, reads: list[int], leaves: str) -> None:
    """BITS restored from a backup alone has another stamp; with its MANIFEST, the logs have other lengths."""
    folder = closed(tmp_path / "d", leaves=leaves)
    shutil.copytree(folder, tmp_path / "backup")
    with Dsbf.open(folder, SMALL, leaves) as dsbf:
        dsbf.mark(keys(100, 130))
    shutil.copy(tmp_path / "backup" / "BITS", folder / "BITS")
    assert not restored(folder, reads, leaves, stop=130)
    for name in ("BITS", "MANIFEST"):
        shutil.copy(tmp_path / "backup" / name, folder / name)
    assert not restored(folder, reads, leaves, stop=130)
    assert restored(folder, reads, leaves, stop=130)


@pytest.mark.parametrize("leaves", STORAGES)
def test_a_damaged_image_is_not_trusted(tmp_path: Path, reads: list[int], leaves: str) -> None:
    """Cut off, foreign or missing: the logs are read, and the next end keeps true bits again."""
    folder = closed(tmp_path / "d")
    content = (folder / "BITS").read_bytes()
    for wrong in (content[:-1], b"", b"x" * len(content), None):
        (folder / "BITS").unlink()
        if wrong is not None:
            (folder / "BITS").write_bytes(wrong)
        assert not restored(folder, reads, leaves)
        with Dsbf.open(folder, SMALL, leaves) as dsbf:
            dsbf.mark([])
        assert restored(folder, reads, leaves)


def test_a_flipped_bit_is_found_when_the_bits_are_read(tmp_path: Path, reads: list[int]) -> None:
    """A bit that turned to 0 would forget a key: the checksum sees it."""
    folder = closed(tmp_path / "d")
    content = bytearray((folder / "BITS").read_bytes())
    place = next(i for i in range(HEADER_BYTES, len(content)) if content[i])
    content[place] &= content[place] - 1
    (folder / "BITS").write_bytes(content)
    assert not restored(folder, reads)


@pytest.mark.parametrize("leaves", STORAGES)
@pytest.mark.parametrize(
    "damage",
    [
        {"slots": "same"},
        {"slots": "none"},
        {"slots": "beyond"},
        {"lengths": "fewer"},
    ],
)
def test_a_record_that_does_not_fit_the_tree_is_not_trusted(
    tmp_path: Path, reads: list[int], damage: dict[str, str], leaves: str
) -> None:
    """Leaves that share a slot or have none, and logs that are not named, lead to the logs."""
    folder = closed(tmp_path / "d", leaves=leaves)
    manifest = read_manifest(folder, SMALL)
    assert manifest is not None
    assert manifest.image is not None
    record = dict(manifest.image)
    slots = record["slots"]
    wrong = {
        "same": [slots[0], *[slots[1]] * (len(slots) - 1)],
        "none": [-1] * len(slots),
        "beyond": [slots[0], *[slot + 100 for slot in slots[1:]]],
        "fewer": record["lengths"][1:],
    }
    record |= {name: wrong[value] for name, value in damage.items()}
    write_manifest(folder, SMALL, Manifest(tree=manifest.tree, image=record))
    assert not restored(folder, reads, leaves)
    assert restored(folder, reads, leaves)


def test_bits_that_are_read_must_have_the_recorded_checksum(tmp_path: Path, reads: list[int]) -> None:
    """Another number in the record is as bad as another bit in the file."""
    folder = closed(tmp_path / "d")
    manifest = read_manifest(folder, SMALL)
    assert manifest is not None
    assert manifest.image is not None
    write_manifest(folder, SMALL, Manifest(tree=manifest.tree, image=manifest.image | {"checksum": 1}))
    assert not restored(folder, reads)
    assert restored(folder, reads)


def test_an_image_that_is_not_trusted_is_taken_back_at_once(tmp_path: Path) -> None:
    """Reading the logs may write them anew, so that by chance their lengths might fit again after a crash."""
    folder = closed(tmp_path / "d")
    (folder / "BITS").unlink()
    with Dsbf.open(folder, SMALL):
        manifest = read_manifest(folder, SMALL)
        assert manifest is not None
        assert manifest.image is None


def test_after_a_rebuild_an_element_counts_in_the_deepest_node_that_knows_it(tmp_path: Path) -> None:
    """In a chain of splitting nodes each counts the elements of its log that no node below it knows."""
    tree, elements = Tree.rooted(1).split([1], 2).split([2], 2), fingerprints(keys(0, 60))
    both = elements[tree.leads_through(2, elements)]
    logs = LeafLogs(tmp_path, SMALL)
    logs.create([1, 2, *tree.leaves])
    logs.append(np.full(60, 1), elements)
    logs.append(np.full(len(both), 2), both)
    logs.append(tree.descend(elements[:5]), elements[:5])
    logs.sync()
    write_manifest(tmp_path, SMALL, Manifest(tree=tree, splitting=((1, 0), (2, 0))))
    with Dsbf.open(tmp_path, SMALL) as dsbf:
        in_leaves = tree.leads_through(2, elements[:5]).sum()
        assert dsbf._table.nodes.counts[2] == len(both) - in_leaves > 0
        assert dsbf._table.nodes.counts[1] == 60 - len(both) - (5 - in_leaves) > 0
        assert len(dsbf) == 60
        dsbf.check()


def test_a_failed_mark_leaves_no_clean_mark(tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits may then be set without a log entry; the next opening makes them anew."""

    def broken_off(*_: object) -> None:
        raise KeyboardInterrupt

    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        dsbf.mark(keys(0, 100))
        with monkeypatch.context() as patch:
            patch.setattr(LeafLogs, "append", broken_off)
            with pytest.raises(KeyboardInterrupt):
                dsbf.mark(keys(100, 110))
    assert not restored(tmp_path / "d", reads)


def test_splits_under_way_go_on_after_a_clean_end(tmp_path: Path, reads: list[int], monkeypatch) -> None:
    """No log is read at the opening; the next marks read on where the last ones stopped."""
    monkeypatch.setattr("anabranch.dedup.bloom.splitting.MOVES_PER_KEY", 1)
    monkeypatch.setattr("anabranch.dedup.bloom.splitting.MOVE_AT_LEAST", 1)
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        stop = 0
        while dsbf.statistics().splitting < 2:
            dsbf.mark(keys(stop, stop + 1))
            stop += 1
        dsbf.mark(keys(stop, stop + 20))
        before, moved = dsbf.statistics(), [split.moved for split in dsbf._splitter._moving]
    reads.clear()
    with Dsbf.open(tmp_path / "d", SMALL, "mapped") as dsbf:
        assert reads == []
        shown = dsbf.statistics()
        assert (shown.splitting, shown.elements, shown.worst_rate) == (
            before.splitting,
            before.elements,
            before.worst_rate,
        )
        assert [split.moved for split in dsbf._splitter._moving] == moved
        dsbf.check()
        dsbf.mark(keys(stop + 20, stop + 400))
        assert not dsbf.unseen(keys(0, stop + 400)).any()
        dsbf.check()


def test_a_record_without_the_bits_of_a_splitting_node_is_not_trusted(tmp_path: Path, monkeypatch) -> None:
    """Its elements that were not moved yet would be forgotten."""
    monkeypatch.setattr("anabranch.dedup.bloom.splitting.MOVES_PER_KEY", 1)
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        stop = 0
        while not dsbf.statistics().splitting:
            dsbf.mark(keys(stop, stop + 1))
            stop += 1
        node = dsbf._splitter.splits[0].node
    manifest = read_manifest(tmp_path / "d", SMALL)
    assert manifest is not None
    assert manifest.image is not None
    manifest.image["slots"][node] = -1
    write_manifest(tmp_path / "d", SMALL, manifest)
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        assert not dsbf.unseen(keys(0, stop)).any()
        dsbf.check()


def test_a_splitting_log_shorter_than_what_was_moved_is_damage(tmp_path: Path, monkeypatch) -> None:
    """It was synced before that was recorded, so something removed its end; also if no image has its length."""
    monkeypatch.setattr("anabranch.dedup.bloom.splitting.MOVES_PER_KEY", 1)
    monkeypatch.setattr("anabranch.dedup.bloom.splitting.MOVE_AT_LEAST", 1)
    with Dsbf.open(tmp_path / "d", SMALL) as dsbf:
        stop = 0
        while not dsbf.statistics().splitting:
            dsbf.mark(keys(stop, stop + 1))
            stop += 1
        dsbf.mark(keys(stop, stop + 20))
        path = dsbf._logs.path(dsbf._splitter.splits[0].node)
    with path.open("r+b") as file:
        file.truncate(64 + 10 * 16)
    with pytest.raises(FormatMismatch, match="shorter than it was"):
        Dsbf.open(tmp_path / "d", SMALL)
    manifest = read_manifest(tmp_path / "d", SMALL)
    assert manifest is not None
    write_manifest(tmp_path / "d", SMALL, replace(manifest, image=None))
    with pytest.raises(FormatMismatch, match="holds fewer elements than were moved"):
        Dsbf.open(tmp_path / "d", SMALL)


def test_a_log_that_grew_behind_the_image_is_read(tmp_path: Path, reads: list[int]) -> None:
    """Lengths that disagree mean that the bits are not all."""
    folder = closed(tmp_path / "d")
    more = fingerprints(keys(100, 101))
    with Dsbf.open(folder, SMALL) as dsbf:
        path = dsbf._logs.path(int(dsbf._table.tree.descend(more)[0]))
    with path.open("ab") as file:
        file.write(to_bytes(more))
    assert not restored(folder, reads, stop=101)


@pytest.mark.parametrize("leaves", STORAGES)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: os.truncate(path, 64 + 3 * 16), r"leaf-.*log is shorter than it was .*: it is damaged; restore"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), r"leaf-.*log is shorter than it was"),
        (lambda path: os.truncate(path, 0), r"leaf-.*log is damaged: it does not start as a leaf's log"),
        (lambda path: path.unlink(), r"leaf-.*log is missing"),
        (lambda path: path.write_bytes(b"ANALEAF\n" + bytes(4000)), r"leaf-.*log does not belong to this filter"),
    ],
)
def test_a_log_damaged_after_a_clean_end_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], message: str, leaves: str
) -> None:
    """However often the filter is opened; with the log restored from a copy it is whole again."""
    folder = closed(tmp_path / "d", leaves=leaves)
    path = max(folder.glob("leaf-*.log"), key=lambda log: log.stat().st_size)
    content = path.read_bytes()
    assert len(content) > 64 + 3 * 16
    damage(path)
    for _ in range(2):
        with pytest.raises(FormatMismatch, match=message):
            Dsbf.open(folder, SMALL, leaves)
    path.write_bytes(content)
    with Dsbf.open(folder, SMALL, leaves) as dsbf:
        assert not dsbf.unseen(keys(0, 100)).any()
