"""The FIFO before the store thread."""

import threading

from frontier.stores.messages import Batch
from frontier.stores.thread import MAX_ROWS, Fifo, Item, Question
from tests.frontier.stores.rows import row


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
