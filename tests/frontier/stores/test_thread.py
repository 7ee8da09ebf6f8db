"""The FIFO before the store thread."""

import threading
from queue import SimpleQueue

from anabranch.frontier.stores.messages import Batch
from anabranch.frontier.stores.thread import MAX_ROWS, Fifo, Item, Question
from tests.frontier.stores.rows import row

#: Longer than any test: what comes before was wanted.
LONG_S = 600.0


class Taker:
    """A thread that takes groups, and a test that waits for them."""

    def __init__(self, fifo: Fifo) -> None:
        self._fifo = fifo
        self._groups: SimpleQueue[list[Item]] = SimpleQueue()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def next(self) -> list[Item]:
        return self._groups.get(timeout=30)

    def end(self) -> None:
        self._fifo.close()
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()

    def _take(self) -> None:
        for group in self._fifo.groups():
            self._groups.put(group)


def batch(number: int, rows: int = 1) -> Batch:
    made = Batch(number)
    made.new = [row(ordinal) for ordinal in range(rows)]
    return made


def handed_out(fifo: Fifo) -> list[list[Item]]:
    """All that is in it, by groups."""
    fifo.close()
    return list(fifo.groups())


def test_all_that_waits_becomes_one_group() -> None:
    """In its order, whatever it is."""
    fifo = Fifo()
    items: list[Item] = [batch(1), Question(lambda _: None), batch(2)]
    assert [fifo.append(item) for item in items] == [True] * 3
    assert handed_out(fifo) == [items]


def test_a_group_has_so_many_rows_and_no_more() -> None:
    """A batch that would make it larger opens the next one; one that is larger alone stands alone."""
    fifo = Fifo()
    small, fits, over, huge, last = (
        batch(1, 1), batch(2, MAX_ROWS - 1), batch(3, 1), batch(4, MAX_ROWS + 1), batch(5, 1)
    )  # fmt: skip
    for item in (small, fits, over, huge, last):
        fifo.append(item)
    assert handed_out(fifo) == [[small, fits], [over], [huge], [last]]


def test_a_closed_one_takes_nothing_and_hands_out_the_rest() -> None:
    """What was said before the end is worked off."""
    fifo = Fifo()
    fifo.append(batch(1))
    fifo.close()
    assert not fifo.append(batch(2))
    assert [[item.number for item in group if isinstance(item, Batch)] for group in fifo.groups()] == [[1]]


def test_the_taker_waits_for_something_or_for_the_end() -> None:
    """An item wakes it, and so does the end."""
    fifo = Fifo()
    groups: list[list[Item]] = []
    taken = threading.Semaphore(0)

    def take() -> None:
        for group in fifo.groups():
            groups.append(group)
            taken.release()

    taker = threading.Thread(target=take)
    taker.start()
    first = batch(1)
    fifo.append(first)
    assert taken.acquire(timeout=30)
    fifo.close()
    taker.join(timeout=30)
    assert not taker.is_alive()
    assert groups == [[first]]


def test_what_nobody_waits_for_is_gathered() -> None:
    """A transaction lingers for more, so that many pages share a commit; then it is begun though nobody hurries."""
    fifo = Fifo(linger_s=0.001)
    taker = Taker(fifo)
    first = batch(1)
    fifo.append(first)
    assert taker.next() == [first]
    taker.end()


def test_who_hurries_gets_what_was_gathered() -> None:
    """All of it in one group, and what comes later is gathered anew."""
    fifo = Fifo(LONG_S)
    taker = Taker(fifo)
    items: list[Item] = [batch(1), batch(2)]
    for item in items:
        fifo.append(item)
    fifo.hurry()
    assert taker.next() == items
    last = batch(3)
    fifo.append(last)
    assert taker._groups.empty()
    taker.end()
    assert taker.next() == [last]


def test_a_hurry_for_nothing_does_not_last() -> None:
    """When nothing waits, nothing is wanted: the next batch is gathered as any other."""
    fifo = Fifo(LONG_S)
    fifo.hurry()
    assert not fifo._is_hurried
    fifo.append(batch(1))
    assert not fifo._is_hurried


def test_who_waits_for_an_answer_hurries_by_that() -> None:
    """A flush, or an operator's question."""
    fifo = Fifo(LONG_S)
    taker = Taker(fifo)
    items: list[Item] = [batch(1), Question(lambda _: None)]
    for item in items:
        fifo.append(item)
    assert [*taker.next(), *([] if taker._groups.empty() else taker.next())] == items
    taker.end()


def test_the_end_waits_for_no_more() -> None:
    """What was gathered is worked off at once."""
    fifo = Fifo(LONG_S)
    taker = Taker(fifo)
    first = batch(1)
    fifo.append(first)
    taker.end()
    assert taker.next() == [first]


def test_of_more_than_a_group_the_rest_is_wanted_too() -> None:
    """Somebody waits for all of it."""
    fifo = Fifo(LONG_S)
    taker = Taker(fifo)
    large, small = batch(1, MAX_ROWS), batch(2)
    fifo.append(large)
    fifo.append(small)
    fifo.hurry()
    assert [taker.next(), taker.next()] == [[large], [small]]
    taker.end()
