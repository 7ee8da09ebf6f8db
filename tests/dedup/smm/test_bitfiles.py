import errno
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.errors import InvariantBroken, StoreFull
from anabranch.dedup.files import mapped
from anabranch.dedup.keys import IntArray
from anabranch.dedup.smm import bitfiles, mapping
from anabranch.dedup.smm.addresses import FileIndex
from anabranch.dedup.smm.bitfiles import BitFiles
from anabranch.dedup.smm.sharing import Sharing

#: 256 files of 32 bytes, each in a page of its own in the mapped array.
SMALL = FileIndex((1, 1))
#: 256 files of 128 pages.
LARGE = FileIndex((1, 3))


#: 65,536 files of 32 bytes in 256 folders, made and mapped on demand.
LAZY = FileIndex((1, 1, 1))


def opened(folder: Path, index: FileIndex = SMALL) -> BitFiles:
    return BitFiles(folder, index, Sharing(folder))


def made(folder: Path, index: FileIndex = SMALL) -> BitFiles:
    folder.mkdir()
    mapping.create_files(folder, index)
    return opened(folder, index)


def array(*addresses: int) -> IntArray:
    return np.array(addresses, dtype=np.int64)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([(SMALL, 1), (LAZY, 1), (LAZY, 2), (LAZY, 1024)]),
    st.lists(
        st.tuples(
            st.sampled_from(["add", "mark", "mark_one"]), st.booleans(), st.lists(st.integers(0, 1500), max_size=8)
        ),
        max_size=8,
    ),
)
def test_the_files_are_a_set_of_addresses(
    tmp_path_factory: pytest.TempPathFactory, kind: tuple[FileIndex, int], steps: list[tuple[str, bool, list[int]]]
) -> None:
    """Against a Python set, by two openings in turns, whole files or lazy ones with places for one, two or all of them."""
    index, most_open = kind
    folder = tmp_path_factory.mktemp("bits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapping, "_MOST_OPEN", most_open)
        writers = [made(folder / "b", index), opened(folder / "b", index)]
    model = set[int]()
    for action, by_other, numbers in steps:
        addresses = [number * 10_007 % 256**index.address_bytes for number in numbers]
        clear = [address not in model for address in addresses]
        for reader in writers:
            assert reader.are_clear(array(*addresses)).tolist() == clear
            assert [reader.is_clear(address) for address in addresses] == clear
        writer = writers[by_other]
        if action == "add":
            first = [address not in model and address not in addresses[:i] for i, address in enumerate(addresses)]
            assert writer.test_and_set(array(*addresses)).tolist() == first
        elif action == "mark":
            writer.set(array(*addresses))
        else:
            for address in addresses:
                writer.set_one(address)
        model |= set(addresses)
        assert writers[0].bits_set == writers[1].bits_set == len(model)
    writers[0].check()
    for writer in writers:
        writer.close()
    again = opened(folder / "b", index)
    assert not again.are_clear(array(*model)).any()
    again.check()
    again.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("index", [LARGE, FileIndex((1, 1, 3)), FileIndex((1, 1, 1, 3)), FileIndex((1, 5))])
def test_a_bit_is_where_the_index_says(tmp_path: Path, index: FileIndex, *, one_by_one: bool) -> None:
    """The file of the index, and the rest of the address as offset; the most significant bit of a byte first."""
    bits, last = made(tmp_path / "b", index), 256**index.address_bytes - 1
    addresses = [0, 0x01FFFFFF, 0xFF000009, last]
    if one_by_one:
        for address in addresses:
            bits.set_one(address)
    else:
        bits.set(array(*addresses))
    bits.close()
    for address in addresses:
        name, offset = index.name(address // index.file_bits), address % index.file_bits
        assert (tmp_path / "b" / name).stat().st_size == index.file_bytes
        with (tmp_path / "b" / name).open("rb") as file:
            file.seek(offset >> 3)
            assert file.read(1)[0] & 128 >> (offset & 7)
    assert sum(path.stat().st_blocks for path in (tmp_path / "b").rglob("*") if path.is_file()) < 512


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("index", [SMALL, LAZY])
def test_a_full_disk_sets_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: FileIndex, *, one_by_one: bool
) -> None:
    """A page is allocated before a bit in it is set, so that the map is never written where the disk has no room."""
    allocate, left = mapped._allocate, list(range(40))

    def limited(fd: int, offset: int, length: int) -> None:
        if not left:
            raise OSError(errno.ENOSPC, "full")
        left.pop()
        allocate(fd, offset, length)

    with monkeypatch.context() as patch:
        patch.setattr(mapping, "_MOST_OPEN", 7)
        bits = made(tmp_path / "b", index)
    addresses = np.arange(1, 60) * index.file_bits
    with monkeypatch.context() as patch:
        patch.setattr(mapped, "_allocate", limited)
        if one_by_one:
            left.clear()
            with pytest.raises(StoreFull):
                bits.set_one(7)
        for mark in (bits.set, bits.test_and_set):
            with pytest.raises(StoreFull):
                mark(addresses)
    assert bits.is_clear(7)
    assert bits.are_clear(addresses).all()
    assert bits.bits_set == 0
    bits.check()
    bits.set(addresses)
    bits.check()
    assert bits.bits_set == 59
    bits.close()


@pytest.mark.parametrize("one_by_one", [False, True])
def test_each_marked_file_is_synced_once_after_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, one_by_one: bool
) -> None:
    """Two bits in one file, then none: one sync, then none."""
    bits, synced = made(tmp_path / "b"), list[str]()
    for addresses in ([0x0301, 0x0302], []):
        if one_by_one:
            for address in addresses:
                bits.set_one(address)
        else:
            bits.set(array(*addresses))
        with monkeypatch.context() as patch:
            patch.setattr(bitfiles, "sync_path", lambda path: synced.append(path.name))
            bits.sync()
    assert synced == ["03"]
    bits.close()


def test_files_and_folders_that_lost_their_place_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one place, all three files of a batch are synced, and every folder on the way to them, up to the store's."""
    with monkeypatch.context() as patch:
        patch.setattr(mapping, "_MOST_OPEN", 1)
        bits = made(tmp_path / "b", LAZY)
    bits.set(array(0x010203, 0x010303, 0x020304))
    synced = list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(bitfiles, "sync_path", lambda path: synced.append(path.relative_to(tmp_path).as_posix()))
        patch.setattr(mapping, "sync_folder", lambda path: synced.append(path.relative_to(tmp_path).as_posix()))
        bits.sync()
    assert synced[:3] == ["b/01/02", "b/01/03", "b/02/03"]
    assert sorted(synced[3:]) == ["b", "b/01", "b/02"]
    bits.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_many_files_are_synced_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool) -> None:
    """257 files: the file system as a whole, or each of them where the system has no such call."""
    bits, synced = made(tmp_path / "b", LAZY), list[str]()
    bits.set(np.arange(257) << 8)
    with monkeypatch.context() as patch:
        patch.setattr(bitfiles, "sync_path", lambda path: synced.append(path.name))
        patch.setattr(bitfiles, "sync_file_system", lambda folder: synced.append(folder.name) or is_there)
        bits.sync()
        bits.sync()
    assert synced[0] == "b"
    assert len(synced) == (1 if is_there else 258)
    bits.close()


@pytest.mark.parametrize("one_by_one", [False, True])
def test_what_another_set_is_synced_by_who_marks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, one_by_one: bool
) -> None:
    """Marked is marked, whoever set the bit: the sync of each that marked covers it."""
    one, other, synced = made(tmp_path / "b"), opened(tmp_path / "b"), list[str]()
    one.set_one(0x0301)
    if one_by_one:
        other.set_one(0x0301)
    else:
        other.set(array(0x0301))
    with monkeypatch.context() as patch:
        patch.setattr(bitfiles, "sync_path", lambda path: synced.append(path.name))
        other.sync()
    assert synced == ["03"]
    one.close()
    other.close()


@pytest.mark.parametrize("index", [SMALL, LAZY])
def test_an_address_twice_in_a_batch_is_new_once(tmp_path: Path, index: FileIndex) -> None:
    """The first of them is new; the bit counts once."""
    bits = made(tmp_path / "b", index)
    assert bits.test_and_set(array(5, 600, 5, 5)).tolist() == [True, True, False, False]
    bits.check()
    bits.close()


def test_bits_are_seen_in_pages_that_were_allocated_before_their_file_lost_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One place, three files in a batch: the file mapped last is asked while it is still there, then the others."""
    monkeypatch.setattr(mapping, "_MOST_OPEN", 1)
    bits = made(tmp_path / "b", FileIndex((1, 1, 3)))
    addresses = [0x010100FFFF, 0x0202F00000, 0x0303800000]
    assert bits.test_and_set(array(*addresses)).all()
    for address in reversed(addresses):
        assert not bits.is_clear(address)
    bits.close()


def test_a_wrong_count_is_found(tmp_path: Path) -> None:
    """The number kept in PAGES is compared with the bits."""
    bits = made(tmp_path / "b")
    bits.set(array(1, 2, 3))
    bits.check()
    bits._ledger.end_batch(1)
    with pytest.raises(InvariantBroken, match="3 bits are set, 4 were counted"):
        bits.check()
    bits.close()


@pytest.mark.parametrize("index", [SMALL, LAZY])
def test_after_a_crash_a_check_syncs_all_files_and_corrects_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: FileIndex
) -> None:
    """A dead writer's bits may not be on the disk yet, so a check syncs them before their count is exact."""
    bits, synced = made(tmp_path / "b", index), list[str]()
    bits.set(array(0x0300, 0x0400))
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    bits.close()
    copy = opened(tmp_path / "copy", index)
    copy._ledger._header[3] = 77
    with monkeypatch.context() as patch:
        patch.setattr(bitfiles, "sync_path", lambda path: synced.append(path.name))
        patch.setattr(bitfiles, "sync_file_system", lambda folder: synced.append(folder.name) or True)
        copy.check()
        copy.check()
    assert synced == ([f"{file:02X}" for file in range(256)] if index is SMALL else ["copy"])
    assert copy.bits_set == 2
    copy.close()
    again = opened(tmp_path / "copy", index)
    assert not again._ledger.count_is_rough
    again.close()


def test_a_sync_returns_only_when_one_under_way_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has taken over the files; if it fails, the second one syncs them."""
    bits, synced, is_under_way, may_go_on = made(tmp_path / "b"), list[str](), threading.Event(), threading.Event()
    bits.set(np.array([3]))

    def failing(path: Path) -> None:
        if not is_under_way.is_set():
            is_under_way.set()
            may_go_on.wait()
            raise OSError(errno.EIO, "lost")
        synced.append(path.name)

    monkeypatch.setattr(bitfiles, "sync_path", failing)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(bits.sync)
        is_under_way.wait()
        second = pool.submit(bits.sync)
        may_go_on.set()
        with pytest.raises(OSError, match="lost"):
            first.result()
        second.result()
    assert len(synced) == 1
    bits.close()


def test_an_interrupted_sync_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the disk is waited for: the next sync does all of it."""
    bits, synced = made(tmp_path / "b"), list[str]()
    bits.set(np.array([3]))

    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bitfiles, "sync_path", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bits.sync()
        patch.setattr(bitfiles, "sync_path", lambda path: synced.append(path.name))
        bits.sync()
    assert len(synced) == 1
    bits.close()
