"""Recent keys in a bounded set, and a filter that is a set during its warm-up, then the UniqFilter, and never in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.dedup import StoreFull, UniqFilter, UniqParameters
from anabranch.dedup.recent import WARMUP_SLICE, RecentKeys, WarmupFilter

#: The SMM has so few bits that it alone errs at once; the index behind it does not.
EXACT = UniqParameters(mode="exact", levels=(1, 1), expected=1000)
LIMIT = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "seen"


@pytest.fixture
def warmup(folder: Path) -> Iterator[WarmupFilter]:
    made = WarmupFilter(UniqFilter.open(folder, EXACT), LIMIT)
    yield made
    made.close()


def keys(first: int, last: int) -> list[bytes]:
    return [b"http://a.test/%d" % number for number in range(first, last)]


def fill(warmup: WarmupFilter) -> int:
    """Mark keys until the UniqFilter has all; how many."""
    count = 0
    while "full" not in repr(warmup):
        warmup.mark(keys(count, count + 20))
        count += 20
    return count


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


def test_a_filter_writes_nothing_during_its_warm_up(warmup: WarmupFilter, folder: Path) -> None:
    """Its keys are in the store of whoever marks them: the store marks them again at the next opening."""
    warmup.mark(keys(0, LIMIT))
    warmup.sync()
    assert warmup.position() == ""
    assert warmup.unseen(keys(0, LIMIT + 1)) == [False] * LIMIT + [True]
    assert (warmup.statistics().keys, warmup.statistics().false_drop) == (LIMIT, 0.0)
    warmup.close()
    with UniqFilter.open(folder) as left:
        assert left.statistics().keys == 0


def test_answers_do_not_change_at_the_end_of_the_warm_up(warmup: WarmupFilter) -> None:
    """Every key that was marked is known and no other one, before, meanwhile and afterwards."""
    draw = random.Random(7)
    marked = 0
    while marked < 6 * LIMIT:
        step = draw.randrange(1, 30)
        asked = keys(max(0, marked - 50), marked + step)
        assert warmup.unseen(asked) == [key not in set(keys(0, marked)) for key in asked]
        warmup.mark(keys(marked, marked + step))
        marked += step
    assert "full" in repr(warmup)
    assert not any(warmup.unseen(keys(0, marked)))
    assert warmup.statistics().keys == marked


def test_a_full_filter_answers_of_a_few_recent_keys_itself(
    warmup: WarmupFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many the UniqFilter is asked, which is as quick then; of others in any case."""
    count, asked = fill(warmup), list[int]()
    ask = warmup._uniq.unseen
    monkeypatch.setattr(warmup._uniq, "unseen", lambda keys: asked.append(len(keys)) or ask(keys))
    warmup.mark(keys(count, count + 3))
    assert warmup.unseen(keys(count, count + 3)) == [False] * 3
    assert warmup.unseen(keys(count, count + 5)) == [False] * 3 + [True] * 2
    assert warmup.unseen(keys(count, count + 3) * 100) == [False] * 300
    assert asked == [2, 300]


def test_the_warm_up_ends_in_slices(warmup: WarmupFilter, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call pays for all the keys that came before."""
    written: list[int] = []
    mark = UniqFilter.mark
    monkeypatch.setattr(UniqFilter, "mark", lambda self, some: (written.append(len(some)), mark(self, some))[1])
    count = fill(warmup)
    assert len(written) > 1
    assert max(written) <= WARMUP_SLICE + 2 * 20
    assert sum(written) == count


def test_a_full_filter_knows_its_keys_by_itself(warmup: WarmupFilter, folder: Path) -> None:
    """From then on it is synced, its position covers all keys, and another opening needs no keys."""
    count = fill(warmup)
    warmup.sync()
    assert warmup.position() != ""
    warmup.close()
    again = WarmupFilter(UniqFilter.open(folder), LIMIT)
    assert not any(again.unseen(keys(0, count)))
    assert all(again.unseen(keys(count, count + 20)))
    again.close()


def test_a_filter_that_is_closed_at_the_end_of_the_warm_up_has_no_position(warmup: WarmupFilter, folder: Path) -> None:
    """The UniqFilter has a part of the keys: its position must not say that it has all."""
    warmup.mark(keys(0, LIMIT))
    warmup.mark(keys(LIMIT, LIMIT + 20))
    assert "warming up" in repr(warmup)
    warmup.sync()
    warmup.close()
    with UniqFilter.open(folder) as left:
        assert 0 < left.statistics().keys < LIMIT + 20
        assert left.position() == ""


def test_a_mark_that_fails_at_the_end_of_the_warm_up_may_be_repeated(
    warmup: WarmupFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: no key is left out of the UniqFilter, once there is room again."""

    def full(_: UniqFilter, some: list[bytes]) -> None:
        raise StoreFull("full")

    warmup.mark(keys(0, LIMIT))
    with monkeypatch.context() as patch:
        patch.setattr(UniqFilter, "mark", full)
        with pytest.raises(StoreFull):
            warmup.mark(keys(LIMIT, LIMIT + 20))
    warmup.mark(keys(LIMIT, LIMIT + 20))
    count = fill(warmup)
    assert not any(warmup._uniq.unseen(keys(0, max(count, LIMIT + 20))))


def test_what_is_remembered_is_bounded(warmup: WarmupFilter) -> None:
    """A crawl of millions keeps two handfuls of keys in memory."""
    first = fill(warmup)
    for number in range(first, first + 6 * LIMIT, 30):
        warmup.mark(keys(number, number + 30))
        warmup.unseen(keys(number - first, number - first + 30))
    assert len(warmup._recent._newer | warmup._recent._older) < 2 * (LIMIT + 60)
    assert not warmup._keys
    assert not warmup._unwritten
