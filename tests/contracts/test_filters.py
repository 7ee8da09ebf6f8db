"""Rules that every filter of the room `dedup` keeps: one row of `FILTERS` each."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import pytest

from anabranch.dedup.bloom.filter import Dsbf
from anabranch.dedup.errors import FilterClosed
from anabranch.dedup.exact.index import ExactIndex
from anabranch.dedup.smm.store import Smm
from anabranch.dedup.uniq import UniqFilter, UniqParameters


class Filter(Protocol):
    """The face that the filters share."""

    def unseen(self, keys: Sequence[bytes]) -> np.ndarray: ...

    def mark(self, keys: Sequence[bytes]) -> None: ...

    def add(self, keys: Sequence[bytes]) -> np.ndarray: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


Open = Callable[[Path], Filter]

#: So sized that none errs about the keys below, and that the DSBFs split all the time.
SHAPE = UniqParameters(levels=(1, 2), expected=0, false_positive=1e-5, leaf_bits=1 << 12, split_fan_out=2)


CLASSIC = replace(SHAPE, leaf_kind="classic")


def in_mode(mode: str, leaves: str = "memory", shape: UniqParameters = SHAPE) -> Open:
    return lambda folder: UniqFilter.open(folder, replace(shape, mode=mode), leaves)


FILTERS: dict[str, Open] = {
    "smm": lambda folder: Smm.open(folder, levels=(1, 2)),
    "smm of three levels": lambda folder: Smm.open(folder, "md5", (1, 1, 3)),
    "dsbf of blocked leaves": lambda folder: Dsbf.open(folder, SHAPE.dsbf),
    "dsbf of blocked leaves, mapped": lambda folder: Dsbf.open(folder, SHAPE.dsbf, "mapped"),
    "dsbf of classic leaves": lambda folder: Dsbf.open(folder, CLASSIC.dsbf),
    "dsbf of classic leaves, mapped": lambda folder: Dsbf.open(folder, CLASSIC.dsbf, "mapped"),
    "exact index": lambda folder: ExactIndex.open(folder, tail_elements=8),
    "uniq, mode smm": in_mode("smm"),
    "uniq, mode dsbf": in_mode("dsbf"),
    "uniq, mode both": in_mode("both"),
    "uniq, mode both, leaves mapped": in_mode("both", "mapped"),
    "uniq, mode both, classic leaves": in_mode("both", shape=CLASSIC),
    "uniq, mode exact": in_mode("exact"),
    "uniq, mode both, pages given back": in_mode("both", "mapped", replace(SHAPE, mapped_limit_bytes=1)),
    "uniq, mode exact, pages given back": in_mode("exact", shape=replace(SHAPE, mapped_limit_bytes=1)),
}


def keys(start: int, stop: int) -> list[bytes]:
    return [b"http://a.example/%d" % i for i in range(start, stop)]


@pytest.fixture(params=FILTERS)
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Filter]]:
    """Opens one filter's folder, again and again if need be; what is left open is closed."""
    opened: list[Filter] = []

    def again() -> Filter:
        opened.append(FILTERS[request.param](tmp_path / "filter"))
        return opened[-1]

    yield again
    for each in opened:
        each.close()


@pytest.fixture
def seen(opening: Callable[[], Filter]) -> Filter:
    """A new filter."""
    return opening()


def test_a_new_filter_knows_nothing(seen: Filter) -> None:
    """Every key is new, one by one and in a batch, and asking does not change that."""
    for _ in range(2):
        assert seen.unseen(keys(0, 100)).all()
        assert all(seen.unseen([key])[0] for key in keys(0, 100))


def test_answers_are_arrays_of_booleans_in_the_order_of_the_keys(seen: Filter) -> None:
    """An answer is as long as its batch, for any batch, also an empty one."""
    seen.mark(keys(3, 5))
    assert seen.unseen(keys(0, 8)).tolist() == [True] * 3 + [False] * 2 + [True] * 3
    for batch in ([], keys(0, 1), keys(0, 2), keys(3, 4) * 3):
        for answer in (seen.unseen(batch), seen.add(batch)):
            assert answer.dtype == np.bool_
            assert answer.shape == (len(batch),)
    seen.mark([])


def test_what_was_marked_is_known(seen: Filter) -> None:
    """Marking twice, in one batch or in two, is harmless."""
    seen.mark(keys(0, 50) + keys(0, 50))
    seen.mark(keys(25, 75))
    seen.mark(keys(80, 81))
    assert not seen.unseen(keys(0, 75) + keys(80, 81)).any()
    assert seen.unseen(keys(75, 80)).all()


def test_a_new_key_twice_in_a_batch_is_new_twice_to_unseen_and_once_to_add(seen: Filter) -> None:
    """`unseen` changes nothing, `add` is test and set."""
    batch = [b"a", b"b", b"a"]
    assert seen.unseen(batch).tolist() == [True, True, True]
    assert seen.add(batch).tolist() == [True, True, False]
    assert seen.add(batch).tolist() == [False, False, False]


def test_keys_are_bytes_of_any_kind(seen: Filter) -> None:
    """Empty, with zeros, no UTF-8, very long; keys that begin alike are different."""
    strange = [b"", b"\0", b"\0\0", b"\xff\xfe", "ü".encode(), b"x" * 100_000, b"x" * 100_001]
    assert seen.add(strange).all()
    assert not seen.unseen(strange).any()
    assert not any(seen.unseen([key])[0] for key in strange)


def test_the_filter_is_a_set(opening: Callable[[], Filter]) -> None:
    """Against a Python set, in random order and batches of all sizes, with syncs and reopenings between."""
    chance, model, seen = random.Random(7), set[bytes](), opening()
    for _ in range(80):
        batch = [b"%d" % chance.randrange(400) for _ in range(chance.choice([0, 1, 1, 2, 5, 30]))]
        expected = [key not in model for key in batch]
        match chance.choice(["unseen", "mark", "add", "add", "mark", "sync", "reopen"]):
            case "unseen":
                assert seen.unseen(batch).tolist() == expected
            case "mark":
                seen.mark(batch)
                model |= set(batch)
            case "add":
                first = [key not in batch[:place] for place, key in enumerate(batch)]
                assert seen.add(batch).tolist() == [new and f for new, f in zip(expected, first, strict=True)]
                model |= set(batch)
            case "sync":
                seen.sync()
            case _:
                seen.close()
                seen = opening()
    everything = [b"%d" % number for number in range(400)]
    assert seen.unseen(everything).tolist() == [key not in model for key in everything]


def test_what_was_marked_is_known_after_a_reopening(opening: Callable[[], Filter]) -> None:
    """A close syncs, and a second one does nothing."""
    seen = opening()
    seen.mark(keys(0, 50))
    assert seen.add(keys(40, 60)).sum() == 10
    seen.close()
    seen.close()
    assert opening().unseen(keys(0, 70)).tolist() == [False] * 60 + [True] * 10


@pytest.mark.parametrize("name", FILTERS)
def test_what_was_synced_is_known_after_a_crash(name: str, tmp_path: Path) -> None:
    """The folder as it is after a sync, with other keys marked since: none of those synced is forgotten."""
    with FILTERS[name](tmp_path / "filter") as seen:
        seen.mark(keys(0, 60))
        seen.sync()
        seen.mark(keys(60, 90))
        shutil.copytree(tmp_path / "filter", tmp_path / "crashed")
    with FILTERS[name](tmp_path / "crashed") as seen:
        assert not seen.unseen(keys(0, 60)).any()
        seen.mark(keys(0, 90))
        assert not seen.unseen(keys(0, 90)).any()


def test_a_closed_filter_answers_nothing(seen: Filter) -> None:
    """One clear error, whatever is asked."""
    seen.close()
    for call in (seen.unseen, seen.mark, seen.add):
        for batch in (keys(0, 1), keys(0, 5)):
            with pytest.raises(FilterClosed, match="is closed"):
                call(batch)
    with pytest.raises(FilterClosed, match="is closed"):
        seen.sync()
