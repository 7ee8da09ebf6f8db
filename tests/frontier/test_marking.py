"""From durable rows to marks: in slices, and nothing is forgotten."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.marking import SLICE, Marking
from anabranch.frontier.models import SEEN
from anabranch.frontier.operating.steps import flushed
from anabranch.frontier.seen import ExactFilter
from tests.frontier.builder import DelayingStore, FullFilter, Rig, build, pages

MANY = 10 * SLICE


class CountingFilter(ExactFilter):
    """Notes how many keys each call marks."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def mark(self, keys: Sequence[bytes]) -> None:
        self.calls.append(len(keys))
        super().mark(keys)


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def keys(first: int, count: int) -> list[bytes]:
    return [key(number) for number in range(first, first + count)]


@pytest.fixture
def seen() -> CountingFilter:
    return CountingFilter()


@pytest.fixture
def durable(seen: CountingFilter) -> Rig:
    """Very many rows, that one commit made durable; nothing was asked since."""
    store = DelayingStore()
    rig = build(store=store, seen=seen)
    for url in pages("a.test", MANY):
        rig.add(url)
    store.flush()
    return rig


def test_a_call_marks_one_slice_of_what_became_durable(durable: Rig, seen: CountingFilter) -> None:
    """However much one commit brought: a host's event loop waits for each call."""
    for _ in range(5):
        durable.core.counts()
    assert max(seen.calls) <= SLICE + 1
    assert len(seen.calls) == 5


def test_what_waits_for_its_slice_is_seen(durable: Rig, seen: CountingFilter) -> None:
    """The pending set has it until the filter knows it."""
    last = pages("a.test", MANY)[-1]
    assert durable.add(last) == [SEEN]
    assert list(seen.unseen([last.encode()])) == [True]
    durable.core.flush()
    assert durable.add(last) == [SEEN]
    assert list(seen.unseen([last.encode()])) == [False]


def test_a_flush_marks_the_rest(durable: Rig, seen: CountingFilter) -> None:
    """Slice by slice; then nothing is pending, and every row may stand in a checkpoint."""
    durable.core.flush()
    assert seen.facts()["keys"] == MANY
    assert durable.intake.marking.pending == set()
    assert durable.intake.marking.ordinal == MANY


def test_a_flush_in_steps_lets_others_in_between_the_slices(durable: Rig, seen: CountingFilter) -> None:
    """An event loop goes on between them."""
    durable.core.counts()  # with the keys that came in since the last slice
    marked = [sum(seen.calls)]
    steps = flushed(durable.parts, durable.store)
    question = next(steps)
    try:
        while True:
            question = steps.send(question())
            marked.append(sum(seen.calls))
    except StopIteration:
        marked.append(sum(seen.calls))
    assert marked[-1] == MANY
    assert max(after - before for before, after in pairwise(marked)) <= 2 * SLICE


def test_a_close_marks_the_rest(durable: Rig, seen: CountingFilter) -> None:
    """A clean end says that the filter knows every row."""
    durable.core.close()
    assert seen.facts()["keys"] == MANY


def test_a_failing_filter_ends_the_call_that_marks(durable: Rig) -> None:
    """As it did when all was marked at once; every further call says the same."""
    rig = build(store=DelayingStore(), seen=FullFilter("mark"))
    rig.add("http://a.test/")
    rig.store.flush()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="the filter"):
            rig.core.counts()


def test_no_row_is_called_known_before_its_last_key_is_marked(seen: CountingFilter) -> None:
    """A checkpoint takes that number; after a kill only rows above it are marked again."""
    marking = Marking(seen)
    marking.remember(1, 100, keys(0, SLICE - 1))
    marking.remember(2, 200, keys(SLICE, SLICE))
    marking.mark_some()  # takes in how many came
    marking.synced(1)
    marking.synced(2)
    assert marking.ordinal == 0
    marking.mark_some()
    assert (seen.calls, marking.ordinal) == ([SLICE], 100)
    marking.mark_some()
    assert (seen.calls, marking.ordinal) == ([SLICE, SLICE - 1], 200)


def test_batches_without_keys_are_known_at_once(seen: CountingFilter) -> None:
    """A filter that blocks is marked by the store."""
    marking = Marking(seen)
    marking.remember(1, 7, [])
    marking.synced(1)
    marking.mark_some()
    assert (seen.calls, marking.ordinal) == ([], 7)


def test_what_is_to_be_marked_does_not_pile_up(seen: CountingFilter) -> None:
    """Pages of more links than a slice has keys, each with one call: a slice is larger by what came in."""
    store = DelayingStore()
    rig = build(store=store, seen=seen)
    per_page = 3 * SLICE
    for number in range(20):
        rig.add(*pages("a.test", per_page, str(number)))
        store.flush()
    assert len(rig.intake.marking.pending) <= 2 * per_page
