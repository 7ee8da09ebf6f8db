"""The contract of `Leaves`: one suite for every place where a DSBF's bits may be.

Every place answers as a naive model does, a Python set of positions per slot. What a test cannot start here is a
visible skip.
"""

import atexit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.dedup.bloom.bits import LeafBits, MappedBits
from anabranch.dedup.bloom.redis import RedisServers
from anabranch.dedup.keys import BoolArray, Fingerprints, IntArray, fingerprint, fingerprints
from tests.redis_leaves import RedisLeaves
from tests.redis_server import redis_servers

M, K = 256, 3


class Leaves(Protocol):
    """Bit arrays of equal size, each named by a slot."""

    def take(self) -> int: ...
    def drop(self, slot: int) -> None: ...
    def unseen(self, slots: IntArray, elements: Fingerprints) -> BoolArray: ...
    def mark(self, slots: IntArray, elements: Fingerprints) -> BoolArray: ...


@contextmanager
def in_memory(folder: Path) -> Iterator[Leaves]:
    yield LeafBits(M, K)


@contextmanager
def in_a_mapped_file(folder: Path) -> Iterator[Leaves]:
    storage = MappedBits(folder / "BITS", M, K)
    storage.begin()
    yield LeafBits(M, K, storage=storage)
    storage.close()


@contextmanager
def in_redis(folder: Path) -> Iterator[Leaves]:
    servers = RedisServers([redis_url()])
    yield RedisLeaves.open(servers, folder.as_posix(), M, K)
    servers.close()


@cache
def redis_url() -> str:
    """One server for all tests of this process; each has a name of its own there."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="anabranch-redis-")))
        (server,) = stack.enter_context(redis_servers(folder, 1))
        atexit.register(stack.pop_all().close)
    return server.url


#: Every place that can hold leaves of M bits and K hashes; each call makes empty ones, in an empty folder.
PLACES: dict[str, Callable[[Path], AbstractContextManager[Leaves]]] = {
    "memory": in_memory,
    "mapped": in_a_mapped_file,
    "redis": in_redis,
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Callable[[Path], AbstractContextManager[Leaves]]:
    return PLACES[request.param]


@pytest.fixture
def leaves(place: Callable[[Path], AbstractContextManager[Leaves]], tmp_path: Path) -> Iterator[Leaves]:
    with place(tmp_path) as made:
        yield made


def elements(*names: object) -> Fingerprints:
    return fingerprints([str(name).encode() for name in names])


def at(slot: int, number: int = 1) -> IntArray:
    return np.full(number, slot, dtype=np.int64)


def positions(name: object) -> set[int]:
    """By the formula of double hashing: bits 0-39 and bits 40-79, made odd, of the fingerprint."""
    whole, mask = fingerprint(str(name).encode()), (1 << 40) - 1
    return {((whole & mask) + i * (whole >> 40 & mask | 1)) % M for i in range(K)}


@dataclass
class Naive:
    """Leaves as sets of positions."""

    bits: dict[int, set[int]] = field(default_factory=dict)

    def unseen(self, slots: list[int], names: list[int]) -> list[bool]:
        return [not positions(name) <= self.bits[slot] for slot, name in zip(slots, names, strict=True)]

    def mark(self, slots: list[int], names: list[int]) -> list[bool]:
        new = self.unseen(slots, names)
        for slot, name in zip(slots, names, strict=True):
            self.bits[slot] |= positions(name)
        return new


def test_a_taken_slot_is_clear(leaves: Leaves) -> None:
    """Every element is unseen there."""
    slot = leaves.take()
    assert leaves.unseen(at(slot, 50), elements(*range(50))).all()


def test_a_marked_element_is_known_and_was_new(leaves: Leaves) -> None:
    """The first mark answers True, the second False."""
    slot = leaves.take()
    assert leaves.mark(at(slot), elements("a")).tolist() == [True]
    assert leaves.unseen(at(slot), elements("a")).tolist() == [False]
    assert leaves.mark(at(slot), elements("a")).tolist() == [False]


def test_equal_elements_of_a_batch_are_all_new(leaves: Leaves) -> None:
    """Each is compared with the state before the batch; the caller knows which is the first."""
    slot = leaves.take()
    assert leaves.mark(at(slot, 3), elements("a", "b", "a")).tolist() == [True, True, True]
    assert leaves.unseen(at(slot, 3), elements("a", "b", "a")).tolist() == [False, False, False]


def test_a_batch_may_go_to_several_slots(leaves: Leaves) -> None:
    """Each element is looked up and marked in the slot at its index, in any order."""
    one, two = leaves.take(), leaves.take()
    leaves.mark(np.array([two, one, two]), elements("a", "b", "c"))
    assert leaves.unseen(np.array([two, one, two, one, one]), elements("a", "b", "c", "a", "c")).tolist() == [
        *(False, False, False),
        *(True, True),
    ]


def test_slots_do_not_touch_each_other(leaves: Leaves) -> None:
    """A slot with all bits set leaves its neighbours clear, to the last bit beyond its ends."""
    slots = [leaves.take() for _ in range(3)]
    crowd = elements(*range(3000))
    leaves.mark(at(slots[1], 3000), crowd)
    assert not leaves.unseen(at(slots[1], 3000), elements(*range(3000, 6000))).any()
    for neighbour in (slots[0], slots[2]):
        assert leaves.unseen(at(neighbour, 3000), crowd).all()


def test_a_dropped_slot_is_clear_when_it_is_taken_again(leaves: Leaves) -> None:
    """A drop forgets the bits; other slots keep theirs."""
    slots = [leaves.take() for _ in range(4)]
    for slot in slots:
        leaves.mark(at(slot, 2), elements("a", slot))
    leaves.drop(slots[1])
    leaves.drop(slots[2])
    for _ in range(3):
        slot = leaves.take()
        assert leaves.unseen(at(slot, 5), elements("a", *slots)).all()
        leaves.mark(at(slot), elements("b"))
    assert not leaves.unseen(np.array([slots[0], slots[3]]), elements("a", "a")).any()


def test_many_slots_keep_their_bits(leaves: Leaves) -> None:
    """However many are taken, none moves another's bits."""
    slots = []
    for number in range(40):
        slots.append(leaves.take())
        leaves.mark(at(slots[-1]), elements(number))
    assert len(set(slots)) == 40
    assert not leaves.unseen(np.array(slots), elements(*range(40))).any()
    assert leaves.unseen(np.array(slots), elements(*range(100, 140))).all()


def test_an_empty_batch_is_answered_by_nothing(leaves: Leaves) -> None:
    """Neither call minds it."""
    leaves.take()
    for call in (leaves.unseen, leaves.mark):
        answer = call(at(0, 0), elements())
        assert (answer.dtype, answer.shape) == (np.bool_, (0,))


def test_a_large_batch_is_one_batch(leaves: Leaves) -> None:
    """However it is divided inside: equal elements far apart are both new."""
    slot = leaves.take()
    names = [*range(15), *(i % 15 for i in range(9000))]
    assert leaves.mark(at(slot, len(names)), elements(*names)).all()
    assert not leaves.unseen(at(slot, 15), elements(*range(15))).any()


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["mark", "mark", "unseen", "replace"]),
            st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=15),
        ),
        max_size=8,
    )
)
def test_every_place_answers_as_the_model_does(
    place: Callable[[Path], AbstractContextManager[Leaves]],
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, list[tuple[int, int]]]],
) -> None:
    """Batches over three slots, and slots dropped and taken: each answer is that of sets of positions."""
    with place(tmp_path_factory.mktemp("leaves")) as made:
        slots = [made.take() for _ in range(3)]
        naive = Naive({slot: set() for slot in slots})
        for action, batch in steps:
            if action == "replace":
                made.drop(slots[0])
                del naive.bits[slots[0]]
                slots[0] = made.take()
                naive.bits[slots[0]] = set()
                continue
            where, names = [slots[leaf] for leaf, _ in batch], [name for _, name in batch]
            answer = getattr(made, action)(np.array(where, dtype=np.int64), elements(*names))
            assert answer.tolist() == getattr(naive, action)(where, names)
