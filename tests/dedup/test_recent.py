"""Recent keys in a bounded set, and a UniqFilter behind it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.dedup import UniqFilter, UniqParameters
from anabranch.dedup.recent import RecentFront, RecentKeys

#: The SMM has so few bits that it alone errs at once; the index behind it does not.
EXACT = UniqParameters(mode="exact", levels=(1, 1), expected=1000)
GENERATION = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "seen"


@pytest.fixture
def front(folder: Path) -> Iterator[RecentFront]:
    made = RecentFront(UniqFilter.open(folder, EXACT), GENERATION)
    yield made
    made.close()


def keys(first: int, last: int) -> list[bytes]:
    return [b"http://a.test/%d" % number for number in range(first, last)]


def test_the_latest_are_remembered_and_the_others_forgotten() -> None:
    """The set is bounded by two generations."""
    recent = RecentKeys[bytes](generation=10)
    keys = [b"%d" % number for number in range(40)]
    for key in keys:
        recent.add([key])
    remembered = [key for key in keys if key in recent]
    assert remembered == keys[-len(remembered) :]
    assert 10 <= len(remembered) <= 20


def test_what_is_met_again_and_again_is_not_forgotten() -> None:
    """The links that stand on every page are the ones that are worth it."""
    recent = RecentKeys[bytes](generation=10)
    recent.add([b"home"])
    for number in range(100):
        recent.add([b"%d" % number])
        assert b"home" in recent


def test_the_missing_of_many_keys_keep_their_order() -> None:
    """Keys of both generations are found, and those of the older one are remembered for another generation."""
    recent = RecentKeys[bytes](generation=10)
    recent.add(b"%d" % number for number in range(10))
    recent.add([b"10"])
    assert recent.missing([b"11", b"3", b"10", b"12"]) == [b"11", b"12"]
    recent.add(b"%d" % number for number in range(20, 28))
    assert b"3" in recent
    assert b"4" not in recent
    assert (bool(recent), len(recent._newer | recent._older)) == (True, 20 - 9 + 1 - 2)
    assert not RecentKeys[bytes](1)


def test_the_first_key_is_in_the_filter_behind(front: RecentFront, folder: Path) -> None:
    """The memory is a cache: another opening needs no keys, however few there were."""
    front.mark(keys(0, 1))
    front.sync()
    assert front.position() != ""
    front.close()
    with UniqFilter.open(folder) as left:
        assert left.unseen(keys(0, 2)).tolist() == [False, True]


def test_answers_are_those_of_a_set(front: RecentFront) -> None:
    """Every key that was marked is known and no other one, in memory or not."""
    draw = random.Random(7)
    marked = 0
    while marked < 6 * GENERATION:
        step = draw.randrange(1, 30)
        asked = keys(max(0, marked - 3 * GENERATION), marked + step)
        assert front.unseen(asked) == [key not in set(keys(0, marked)) for key in asked]
        front.mark(keys(marked, marked + step))
        marked += step
    assert not any(front.unseen(keys(0, marked)))
    assert front.statistics().keys == marked


def test_a_few_recent_keys_are_answered_from_memory(front: RecentFront, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of many keys goes to the UniqFilter, which is as quick then; so do all keys that are not recent."""
    asked = list[int]()
    ask = front._uniq.unseen
    monkeypatch.setattr(front._uniq, "unseen", lambda keys: asked.append(len(keys)) or ask(keys))
    front.mark(keys(0, 3))
    assert front.unseen(keys(0, 3)) == [False] * 3
    assert front.unseen(keys(0, 5)) == [False] * 3 + [True] * 2
    assert front.unseen(keys(0, 3) * 100) == [False] * 300
    assert asked == [2, 300]
    assert front.statistics().answers[:2] == (308, 6)


def test_what_is_remembered_is_bounded(front: RecentFront) -> None:
    """A crawl of millions keeps two handfuls of keys in memory."""
    for number in range(0, 6 * GENERATION, 30):
        front.mark(keys(number, number + 30))
        front.unseen(keys(number // 2, number // 2 + 30))
    assert len(front._recent._newer | front._recent._older) < 2 * (GENERATION + 60)
