"""What was said and is not durable yet."""

from anabranch.frontier.backlog import MAX_BYTES, MAX_ROWS, Backlog
from anabranch.frontier.stores.messages import Batch
from tests.frontier.builder import row


def batch(number: int, rows: int = 1) -> Batch:
    made = Batch(number)
    made.new = [row(place + 1) for place in range(rows)]
    return made


def test_it_is_empty_until_something_is_said_and_again_when_all_is_durable() -> None:
    """`said` and `durable` are numbers of batches; equal means acknowledged."""
    backlog = Backlog(10)
    assert backlog.is_empty
    backlog.add(batch(1), 0)
    backlog.add(batch(2), 0)
    assert (backlog.said, backlog.durable, backlog.is_empty) == (2, 0, False)
    backlog.synced(1)
    assert (backlog.durable, backlog.rows, backlog.is_empty) == (1, 1, False)
    backlog.synced(2)
    assert (backlog.durable, backlog.rows, backlog.is_empty) == (2, 0, True)


def test_so_many_finishes_fill_it() -> None:
    """The bound is on leases that ended and are not acknowledged."""
    backlog = Backlog(2)
    backlog.add(batch(1), 1)
    assert not backlog.is_full
    backlog.add(batch(2), 1)
    assert backlog.is_full
    backlog.synced(1)
    assert not backlog.is_full


def test_so_many_rows_fill_it() -> None:
    """New, ended and moved rows count alike."""
    backlog = Backlog(2)
    backlog.add(batch(1, MAX_ROWS - 1), 0)
    assert not backlog.is_full
    backlog.add(batch(2), 0)
    assert backlog.is_full
    backlog.synced(2)
    assert not backlog.is_full


def test_so_many_bytes_fill_it() -> None:
    """URLs and payloads of 64 MiB are as much as the store may owe, however few rows they are."""
    backlog = Backlog(10)
    large = Batch(1)
    large.new = [row(number)._replace(payload=bytes(MAX_BYTES // 7)) for number in range(1, 8)]
    backlog.add(large, 0)
    assert backlog.is_full
    backlog.synced(1)
    assert not backlog.is_full
    assert backlog.bytes == 0


def test_an_older_answer_takes_nothing_back() -> None:
    """What is durable stays durable, whatever comes late."""
    backlog = Backlog(2)
    backlog.add(batch(1), 1)
    backlog.synced(1)
    backlog.synced(0)
    assert (backlog.durable, backlog.finishes) == (1, 0)


def test_the_store_begins_at_each_half() -> None:
    """Of finishes: so a full one never waits for a store that gathers more. Once for each half, not for every batch after."""
    backlog = Backlog(4)
    told = []
    for number in range(1, 5):
        backlog.add(batch(number), 1)
        told.append(backlog.begins())
    assert told == [False, True, False, True]
    assert backlog.is_full


def test_the_store_begins_at_half_of_the_rows() -> None:
    """And of the bytes, alike."""
    backlog = Backlog(1000)
    backlog.add(batch(1, MAX_ROWS // 2 - 1), 1)
    assert not backlog.begins()
    backlog.add(batch(2), 1)
    assert backlog.begins()
    large = Batch(3)
    large.new = [row(1)._replace(payload=b"x" * (MAX_BYTES // 2))]
    backlog.add(large, 0)
    assert backlog.begins()


def test_what_is_durable_is_not_gathered() -> None:
    """A store that began by itself has nothing to be told."""
    backlog = Backlog(4)
    backlog.add(batch(1), 1)
    backlog.synced(1)
    backlog.add(batch(2), 1)
    assert not backlog.begins()
