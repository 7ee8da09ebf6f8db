from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.bloom import bits
from anabranch.dedup.bloom.bits import HEADER_BYTES, BlockedPositions, LeafBits, MappedBits, MemoryBits, bits_of
from anabranch.dedup.bloom.formulas import BLOCKED, CLASSIC, LEAF_KINDS
from anabranch.dedup.errors import StoreFull
from anabranch.dedup.keys import fingerprint, fingerprints


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "BITS"


def mapped_bits(path: Path, size: int) -> MappedBits:
    storage = MappedBits(path, 64, 3)
    storage.begin()
    storage.extend(size)
    return storage


@pytest.mark.parametrize("can_move", [True, False])
def test_memory_grows_and_keeps_its_bytes(path: Path, monkeypatch: pytest.MonkeyPatch, can_move: bool) -> None:
    """By moving the map where the kernel can, else by a copy; new bytes are 0."""
    if can_move and sys.platform != "linux":
        pytest.skip("this system does not move maps")
    monkeypatch.setattr(bits, "_CAN_MOVE", can_move)
    storage = MemoryBits(path, 64, 3)
    for size in (8, 24, 3 * mmap.PAGESIZE, 1 << 20):
        old = storage.data.size
        storage.extend(size)
        assert storage.data.size == size
        assert (storage.data[:old] == 7).all()
        assert not storage.data[old:].any()
        storage.data[:] = 7
        storage.secure(0, size)
    storage.close()
    storage.close()
    assert storage.data.size == 0


def test_memory_grows_while_another_array_refers_to_it(path: Path) -> None:
    """A kept traceback holds such an array. The map cannot move then, so the bytes are copied."""
    storage = MemoryBits(path, 64, 3)
    storage.extend(8)
    storage.data[:] = 7
    held = storage.data
    storage.extend(1 << 20)
    assert storage.data[:9].tolist() == [7] * 8 + [0]
    assert held.tolist() == [7] * 8


def test_a_file_grows_and_keeps_its_bytes(path: Path) -> None:
    """Bytes set in the map are in the file, after the header."""
    storage = mapped_bits(path, 8)
    storage.secure(0, 8)
    storage.data[:] = 7
    storage.extend(3 * mmap.PAGESIZE)
    assert storage.data[:8].tolist() == [7] * 8
    assert not storage.data[8:].any()
    storage.close()
    storage.close()
    assert path.read_bytes()[HEADER_BYTES:].startswith(bytes([7] * 8 + [0]))
    storage.save(b"s" * 16)
    again = MappedBits(path, 64, 3)
    assert again.load(3 * mmap.PAGESIZE, b"s" * 16, None)
    assert again.data[:9].tolist() == [7] * 8 + [0]


def test_a_new_file_forgets_the_old_one(path: Path) -> None:
    """Nothing of an earlier filter's bits is left."""
    storage = mapped_bits(path, 64)
    storage.data[:] = 7
    storage.close()
    again = mapped_bits(path, 64)
    assert not again.data.any()
    again.begin()
    assert again.data.size == 0


def test_only_a_secured_part_has_blocks(path: Path) -> None:
    """The file is sparse until a slot is taken; then its blocks are there before a bit is set."""
    storage = mapped_bits(path, 1 << 24)
    before = path.stat().st_blocks
    storage.secure(1 << 20, 1 << 20)
    assert before * 512 <= 1 << 16
    assert path.stat().st_blocks * 512 >= 1 << 20


def test_a_full_disk_is_said_when_a_part_is_secured(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names the file, no SIGBUS later."""

    def full(*_: object) -> None:
        raise OSError(28, "full")

    storage = mapped_bits(path, 4096)
    monkeypatch.setattr("anabranch.dedup.files.mapped._allocate", full)
    with pytest.raises(StoreFull, match="BITS"):
        storage.secure(0, 4096)


def test_a_stamp_follows_the_bits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits are durable before the header names their manifest, and the header after that."""
    storage, order = mapped_bits(path, 64), []
    real_sync, real_write = os.fdatasync, os.pwrite
    monkeypatch.setattr(os, "fdatasync", lambda fd: (order.append("sync"), real_sync(fd))[1])
    monkeypatch.setattr(os, "pwrite", lambda *args: (order.append("write"), real_write(*args))[1])
    storage.save(b"s" * 16)
    assert order == ["sync", "write", "sync"]
    assert MappedBits(path, 64, 3).load(64, b"s" * 16, None)
    assert not MappedBits(path, 64, 4).load(64, b"s" * 16, None)
    assert not MappedBits(path, 128, 3).load(64, b"s" * 16, None)
    assert not MappedBits(path, 64, 3).load(64, b"t" * 16, None)


M, K = 1024, 3


def positions(key: bytes, kind: str) -> set[int]:
    whole = fingerprint(key)
    mask = (1 << 40) - 1
    if kind == CLASSIC:
        return {((whole & mask) + i * (whole >> 40 & mask | 1)) % M for i in range(K)}
    low = whole % 2**64
    return {low % (M // 512) * 512 + (low * 0x9E3779B97F4A7C15**i % 2**64 >> 55) for i in range(K)}


@settings(deadline=None)
@given(
    st.sampled_from(sorted(LEAF_KINDS)),
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=15), max_size=6),
)
def test_slots_are_bloom_filters_of_their_own(kind: str, batches: list[list[tuple[int, int]]]) -> None:
    """Against sets of positions by the formula of the kind of leaf: what is unseen, and what was new."""
    arena = LeafBits(M, K, kind=kind)
    slots = [arena.take() for _ in range(3)]
    model: list[set[int]] = [set(), set(), set()]
    members: list[list[bytes]] = [[], [], []]
    for batch in batches:
        keys = [b"%d" % number for _, number in batch]
        where = np.array([slots[leaf] for leaf, _ in batch], dtype=np.int64)
        new = [not positions(key, kind) <= model[leaf] for key, (leaf, _) in zip(keys, batch, strict=True)]
        assert arena.unseen(where, fingerprints(keys)).tolist() == new
        assert arena.mark(where, fingerprints(keys)).tolist() == new
        for key, (leaf, _) in zip(keys, batch, strict=True):
            model[leaf] |= positions(key, kind)
            members[leaf].append(key)
    for leaf, slot in enumerate(slots):
        assert arena.agrees(slot, fingerprints(members[leaf]))
        assert set(np.flatnonzero(bits_of(fingerprints(members[leaf]), M, K, kind)).tolist()) == model[leaf]


@settings(deadline=None)
@given(st.sampled_from(sorted(LEAF_KINDS)), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60)), max_size=60))
def test_one_element_goes_the_same_way_as_a_batch(kind: str, steps: list[tuple[int, int]]) -> None:
    """Asking and marking one by one, as numbers, gives the answers and bits of batches of one."""
    one, many = LeafBits(M, K, kind=kind), LeafBits(M, K, kind=kind)
    slots = [(one.take(), many.take()) for _ in range(2)]
    for leaf, number in steps:
        key = b"%d" % number
        slot, where = slots[leaf][0], np.array([slots[leaf][1]])
        assert [one.is_unseen(slot, fingerprint(key))] == many.unseen(where, fingerprints([key])).tolist()
        assert [one.mark_one(slot, fingerprint(key))] == many.mark(where, fingerprints([key])).tolist()
        assert not one.is_unseen(slot, fingerprint(key))
    for leaf, (slot, _) in enumerate(slots):
        assert one.agrees(slot, fingerprints([b"%d" % number for where, number in steps if where == leaf]))


def test_a_blocked_leaf_has_all_bits_of_an_element_in_one_cache_line() -> None:
    """512 bits, from a multiple of 64 bytes on; each block gets its share of the elements, and each bit of a block."""
    elements = fingerprints([b"%d" % number for number in range(50_000)])
    layout = BlockedPositions(1 << 15, 9)
    found = layout.of(elements)
    assert (found // 512 == layout.blocks(elements)).all()
    loads = np.bincount(layout.blocks(elements), minlength=64)
    assert abs(loads - 50_000 / 64).max() < 5 * (50_000 / 64) ** 0.5
    for row in found % 512:
        assert abs(np.bincount(row, minlength=512) - 50_000 / 512).max() < 6 * (50_000 / 512) ** 0.5


def test_the_bits_of_another_kind_of_leaf_are_not_taken(path: Path) -> None:
    """The version of the file says which kind its bits are of."""
    for kind, other in ((CLASSIC, BLOCKED), (BLOCKED, CLASSIC)):
        storage = MemoryBits(path, 512, 3, kind)
        storage.extend(64)
        checksum = storage.save(b"s" * 16)
        assert MemoryBits(path, 512, 3, kind).load(64, b"s" * 16, checksum)
        assert not MemoryBits(path, 512, 3, other).load(64, b"s" * 16, checksum)


def test_many_elements_with_bits_in_one_byte_are_all_set() -> None:
    """A batch stores many bits into each byte; none is lost."""
    arena = LeafBits(64, K)
    slot, crowd = arena.take(), fingerprints([b"%d" % number for number in range(200)])
    assert arena.mark(np.full(200, slot), crowd).all()
    assert not arena.unseen(np.full(200, slot), crowd).any()
    assert arena.agrees(slot, crowd)


def test_filling_a_slot_is_marking_its_elements() -> None:
    """`fill` gives exactly the bits that marks one by one give, whatever stood there before."""
    arena = LeafBits(M, K, slots=2)
    slot, other = arena.take(), arena.take()
    arena.fill(slot, fingerprints([b"old"]))
    arena.fill(slot, fingerprints([b"a", b"b"]))
    for key in (b"a", b"b"):
        arena.mark(np.array([other]), fingerprints([key]))
    assert arena.agrees(other, fingerprints([b"a", b"b"]))
    assert arena.agrees(slot, fingerprints([b"a", b"b"]))
    assert not arena.agrees(slot, fingerprints([b"a"]))


def test_a_dropped_slot_is_used_again_and_clear() -> None:
    """Splits give slots back, and the arena does not grow while one is free."""
    arena = LeafBits(M, K)
    slot = arena.take()
    arena.fill(slot, fingerprints([b"a"]))
    arena.drop(slot)
    assert arena.take() == slot
    assert arena.agrees(slot, fingerprints([]))
    assert arena.memory_bytes == M // 8


def test_growing_keeps_the_bits() -> None:
    """Taking slots beyond the arena's size moves the old ones unchanged."""
    arena = LeafBits(M, K)
    slots = []
    for number in range(40):
        slots.append(arena.take())
        arena.fill(slots[-1], fingerprints([b"%d" % number]))
    assert len(set(slots)) == 40
    assert all(arena.agrees(slot, fingerprints([b"%d" % number])) for number, slot in enumerate(slots))
    assert arena.memory_bytes <= 1.3 * 40 * M // 8
