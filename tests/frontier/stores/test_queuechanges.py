"""What becomes of the rows of queues."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.frontier.models import QueueKey
from anabranch.frontier.stores.messages import QueueRow, Standing
from anabranch.frontier.stores.reading import read_queue
from tests.frontier.stores.crawl_file import Crawl, crawl, queue_facts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        yield made


def queue(store: Crawl, id_: int) -> QueueRow | None:
    with store.connection.begin():
        return read_queue(store.connection, id_)


def test_the_first_name_of_a_queue_stays(store: Crawl) -> None:
    """In one transaction and in later ones; it counts once."""
    batches = [store.batch() for _ in range(3)]
    for batch, precedence in zip(batches, (3, 4, 5), strict=True):
        batch.queue_names = [(7, QueueKey("seven"), precedence)]
    store.write(*batches[:2])
    store.write(batches[2])
    assert queue(store, 7) == QueueRow(7, QueueKey("seven"), Standing.OPEN, 3, 0, None, 0, 0)
    assert store.totals.queues == 1


def test_a_queue_that_changes_keeps_its_standing_and_its_key(store: Crawl) -> None:
    """Standings are said apart; whoever sends the row of a queue may not know the newest."""
    batch = store.batch()
    batch.queue_names, batch.standings = [(7, QueueKey("seven"), 3)], [(7, Standing.RETIRED)]
    store.write(batch)
    batch = store.batch()
    batch.queues = [
        queue_facts(7, spent=9, budget=None),
        queue_facts(7, precedence=2, spent=10, budget=-1, successes=4, errors=5),
    ]
    store.write(batch)
    assert queue(store, 7) == QueueRow(7, QueueKey("seven"), Standing.RETIRED, 2, 10, -1, 4, 5)


def test_a_queue_that_was_never_named_is_made_and_counted(store: Crawl) -> None:
    """Beside known ones, which stay as they were just written."""
    first, second = store.batch(), store.batch()
    first.queues = [queue_facts(7, spent=1)]
    second.queues = [queue_facts(7, spent=2), queue_facts(8, spent=3)]
    store.write(first)
    store.write(second)
    assert [queue(store, 7), queue(store, 8)] == [queue_facts(7, spent=2), queue_facts(8, spent=3)]
    assert store.totals.queues == 2
