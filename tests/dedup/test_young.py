"""A filter whose keys a store has too: a set while they are few, then the UniqFilter, and never in between."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.dedup import StoreFull, UniqFilter, UniqParameters
from anabranch.dedup.young import SLICE, YoungFilter

#: The SMM has so few bits that it alone errs at once; the index behind it does not.
EXACT = UniqParameters(mode="exact", levels=(1, 1), expected=1000)
LIMIT = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "seen"


@pytest.fixture
def young(folder: Path) -> Iterator[YoungFilter]:
    made = YoungFilter(UniqFilter.open(folder, EXACT), LIMIT)
    yield made
    made.close()


def keys(first: int, last: int) -> list[bytes]:
    return [b"http://a.test/%d" % number for number in range(first, last)]


def grow(young: YoungFilter) -> int:
    """Mark keys until the UniqFilter has all; how many."""
    count = 0
    while "grown up" not in repr(young):
        young.mark(keys(count, count + 20))
        count += 20
    return count


def test_a_young_filter_writes_nothing(young: YoungFilter, folder: Path) -> None:
    """Its keys are in the store of whoever marks them: they are told again to whoever opens the folder next."""
    young.mark(keys(0, LIMIT))
    young.sync()
    assert young.position() == ""
    assert young.unseen(keys(0, LIMIT + 1)) == [False] * LIMIT + [True]
    assert (young.statistics().keys, young.statistics().false_drop) == (LIMIT, 0.0)
    young.close()
    with UniqFilter.open(folder) as left:
        assert left.statistics().keys == 0


def test_answers_do_not_change_while_it_grows_up(young: YoungFilter) -> None:
    """Every key that was marked is known and no other one, before, meanwhile and afterwards."""
    draw = random.Random(7)
    marked = 0
    while marked < 6 * LIMIT:
        step = draw.randrange(1, 30)
        asked = keys(max(0, marked - 50), marked + step)
        assert young.unseen(asked) == [key not in set(keys(0, marked)) for key in asked]
        young.mark(keys(marked, marked + step))
        marked += step
    assert "grown up" in repr(young)
    assert not any(young.unseen(keys(0, marked)))
    assert young.statistics().keys == marked


def test_a_grown_filter_answers_of_a_few_recent_keys_itself(
    young: YoungFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many the UniqFilter is asked, which is as quick then; of others in any case."""
    count, asked = grow(young), list[int]()
    ask = young._uniq.unseen
    monkeypatch.setattr(young._uniq, "unseen", lambda keys: asked.append(len(keys)) or ask(keys))
    young.mark(keys(count, count + 3))
    assert young.unseen(keys(count, count + 3)) == [False] * 3
    assert young.unseen(keys(count, count + 5)) == [False] * 3 + [True] * 2
    assert young.unseen(keys(count, count + 3) * 100) == [False] * 300
    assert asked == [2, 300]


def test_it_grows_up_in_slices(young: YoungFilter, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call pays for all the keys that came before."""
    told: list[int] = []
    mark = UniqFilter.mark
    monkeypatch.setattr(UniqFilter, "mark", lambda self, some: (told.append(len(some)), mark(self, some))[1])
    count = grow(young)
    assert len(told) > 1
    assert max(told) <= SLICE + 2 * 20
    assert sum(told) == count


def test_grown_up_it_knows_its_keys_by_itself(young: YoungFilter, folder: Path) -> None:
    """From then on it is synced, its position stands for all keys, and another opening needs to be told nothing."""
    count = grow(young)
    young.sync()
    assert young.position() != ""
    young.close()
    again = YoungFilter(UniqFilter.open(folder), LIMIT)
    assert not any(again.unseen(keys(0, count)))
    assert all(again.unseen(keys(count, count + 20)))
    again.close()


def test_a_filter_that_is_closed_while_it_grows_up_stands_for_nothing(young: YoungFilter, folder: Path) -> None:
    """The UniqFilter has a part of the keys: its position must not say that it has all."""
    young.mark(keys(0, LIMIT))
    young.mark(keys(LIMIT, LIMIT + 20))
    assert "young" in repr(young)
    young.sync()
    young.close()
    with UniqFilter.open(folder) as left:
        assert 0 < left.statistics().keys < LIMIT + 20
        assert left.position() == ""


def test_a_mark_that_fails_while_it_grows_up_may_be_repeated(
    young: YoungFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: no key is left out of the UniqFilter, once there is room again."""

    def full(_: UniqFilter, some: list[bytes]) -> None:
        raise StoreFull("full")

    young.mark(keys(0, LIMIT))
    with monkeypatch.context() as patch:
        patch.setattr(UniqFilter, "mark", full)
        with pytest.raises(StoreFull):
            young.mark(keys(LIMIT, LIMIT + 20))
    young.mark(keys(LIMIT, LIMIT + 20))
    count = grow(young)
    assert not any(young._uniq.unseen(keys(0, max(count, LIMIT + 20))))


def test_what_is_remembered_is_bounded(young: YoungFilter) -> None:
    """A crawl of millions keeps two handfuls of keys in memory."""
    first = grow(young)
    for number in range(first, first + 6 * LIMIT, 30):
        young.mark(keys(number, number + 30))
        young.unseen(keys(number - first, number - first + 30))
    assert len(young._recent) + len(young._older) < 2 * (LIMIT + 60)
    assert not young._untold
