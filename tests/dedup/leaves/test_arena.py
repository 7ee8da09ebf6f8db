import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dedup.fingerprint import fingerprint, fingerprints
from anabranch.dedup.leaves.arena import ArenaLeaves

M, K = 256, 3


def positions(key: bytes) -> set[int]:
    whole = fingerprint(key)
    mask = (1 << 40) - 1
    return {((whole & mask) + i * (whole >> 40 & mask | 1)) % M for i in range(K)}


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=15), max_size=6))
def test_slots_are_bloom_filters_of_their_own(batches: list[list[tuple[int, int]]]) -> None:
    """Against sets of positions by the formula of double hashing: what is unseen, and what was new."""
    arena = ArenaLeaves(M, K)
    slots = [arena.take() for _ in range(3)]
    model: list[set[int]] = [set(), set(), set()]
    members: list[list[bytes]] = [[], [], []]
    for batch in batches:
        keys = [b"%d" % number for _, number in batch]
        where = np.array([slots[leaf] for leaf, _ in batch], dtype=np.int64)
        new = [not positions(key) <= model[leaf] for key, (leaf, _) in zip(keys, batch, strict=True)]
        assert arena.unseen(where, fingerprints(keys)).tolist() == new
        assert arena.mark(where, fingerprints(keys)).tolist() == new
        for key, (leaf, _) in zip(keys, batch, strict=True):
            model[leaf] |= positions(key)
            members[leaf].append(key)
    for leaf, slot in enumerate(slots):
        assert arena.agrees(slot, fingerprints(members[leaf]))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60)), max_size=60))
def test_one_element_goes_the_same_way_as_a_batch(steps: list[tuple[int, int]]) -> None:
    """Asking and marking one by one, as numbers, gives the answers and bits of batches of one."""
    one, many = ArenaLeaves(M, K), ArenaLeaves(M, K)
    slots = [(one.take(), many.take()) for _ in range(2)]
    for leaf, number in steps:
        key = b"%d" % number
        slot, where = slots[leaf][0], np.array([slots[leaf][1]])
        assert [one.is_unseen(slot, fingerprint(key))] == many.unseen(where, fingerprints([key])).tolist()
        assert [one.mark_one(slot, fingerprint(key))] == many.mark(where, fingerprints([key])).tolist()
        assert not one.is_unseen(slot, fingerprint(key))
    for leaf, (slot, _) in enumerate(slots):
        assert one.agrees(slot, fingerprints([b"%d" % number for where, number in steps if where == leaf]))


def test_many_elements_with_bits_in_one_byte_are_all_set() -> None:
    """A batch stores many bits into each byte; none is lost."""
    arena = ArenaLeaves(64, K)
    slot, crowd = arena.take(), fingerprints([b"%d" % number for number in range(200)])
    assert arena.mark(np.full(200, slot), crowd).all()
    assert not arena.unseen(np.full(200, slot), crowd).any()
    assert arena.agrees(slot, crowd)


def test_filling_a_slot_is_marking_its_elements() -> None:
    """`fill` gives exactly the bits that marks one by one give, whatever stood there before."""
    arena = ArenaLeaves(M, K, slots=2)
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
    arena = ArenaLeaves(M, K)
    slot = arena.take()
    arena.fill(slot, fingerprints([b"a"]))
    arena.drop(slot)
    assert arena.take() == slot
    assert arena.agrees(slot, fingerprints([]))
    assert arena.memory_bytes == M // 8


def test_growing_keeps_the_bits() -> None:
    """Taking slots beyond the arena's size moves the old ones unchanged."""
    arena = ArenaLeaves(M, K)
    slots = []
    for number in range(40):
        slots.append(arena.take())
        arena.fill(slots[-1], fingerprints([b"%d" % number]))
    assert len(set(slots)) == 40
    assert all(arena.agrees(slot, fingerprints([b"%d" % number])) for number, slot in enumerate(slots))
    assert arena.memory_bytes <= 1.3 * 40 * M // 8
