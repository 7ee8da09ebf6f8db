import errno
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup import bitfiles, pagetable
from dedup.bitfiles import BitFiles
from dedup.errors import InvariantBroken, StoreFull
from dedup.fileindex import FileIndex

#: 256 files of 32 bytes, each in a page of its own in the mapped array.
SMALL = FileIndex((1, 1))
#: 256 files of 128 pages.
LARGE = FileIndex((1, 3))


def made(folder: Path, index: FileIndex = SMALL) -> BitFiles:
    folder.mkdir()
    BitFiles.create(folder, index)
    return BitFiles(folder, index)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, (1 << 16) - 1), max_size=8)), max_size=8))
def test_one_address_goes_the_same_way_as_a_batch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, list[int]]]
) -> None:
    """Bits set in batches or one by one are a set of addresses, asked in either way."""
    folder = tmp_path_factory.mktemp("bits")
    bits, model = made(folder / "b"), set[int]()
    for in_batch, addresses in steps:
        clear = [address not in model for address in addresses]
        assert bits.are_clear(np.array(addresses, dtype=np.int64)).tolist() == clear
        assert [bits.is_clear(address) for address in addresses] == clear
        new = set(addresses) - model
        if in_batch:
            bits.set(np.array(sorted(new), dtype=np.int64))
        else:
            for address in new:
                bits.set_one(address)
        model |= new
        assert bits.bits_set == len(model)
    bits.check()
    bits.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_bit_is_where_the_index_says(tmp_path: Path, *, one_by_one: bool) -> None:
    """The file of the index, and the rest of the address as offset; the most significant bit of a byte first."""
    bits, addresses = made(tmp_path / "b", LARGE), [0, 0x01FFFFFF, 0xFF000009]
    if one_by_one:
        for address in addresses:
            bits.set_one(address)
    else:
        bits.set(np.array(addresses))
    bits.close()
    for address in addresses:
        name, offset = LARGE.name(address // LARGE.file_bits), address % LARGE.file_bits
        content = (tmp_path / "b" / name).read_bytes()
        assert content[offset >> 3] == 128 >> (offset & 7)
        assert sum(content) == content[offset >> 3]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_full_disk_sets_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, one_by_one: bool) -> None:
    """A page is allocated before a bit in it is set, so that the map is never written where the disk has no room."""

    def fail(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    bits = made(tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr(pagetable, "_allocate", fail)
        with pytest.raises(StoreFull):
            bits.set_one(7) if one_by_one else bits.set(np.array([7]))
    assert bits.is_clear(7)
    assert bits.bits_set == 0
    bits.set_one(7)
    bits.check()
    bits.close()


@pytest.mark.parametrize("one_by_one", [False, True])
def test_each_touched_file_is_synced_once_after_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, one_by_one: bool
) -> None:
    """Two bits in one file, then none: one sync, then none."""
    bits, synced = made(tmp_path / "b"), list[str]()
    for addresses in ([0x0301, 0x0302], []):
        if one_by_one:
            for address in addresses:
                bits.set_one(address)
        else:
            bits.set(np.array(addresses, dtype=np.int64))
        with monkeypatch.context() as patch:
            patch.setattr(bitfiles, "sync_path", lambda path: synced.append(path.name))
            bits.sync()
    assert synced == ["03"]
    bits.close()


def test_a_wrong_count_is_found(tmp_path: Path) -> None:
    """The number kept in PAGES is compared with the bits."""
    bits = made(tmp_path / "b")
    bits.set(np.array([1, 2, 3]))
    bits.check()
    bits._pages.bits_set += 1
    with pytest.raises(InvariantBroken, match="3 bits are set, 4 were counted"):
        bits.check()
    bits.close()
