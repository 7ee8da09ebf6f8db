"""A program to be killed: writes batches as fast as it can and prints the number of each that is durable.

Batch n adds the rows (n-1)*20+1 … n*20 and ends the first five of the batch before it. `python killable_writer.py TARGET`, a
path or the URL of a database.
"""

import sys
from pathlib import Path
from queue import SimpleQueue

from anabranch.frontier.stores.contract import Batch, Counters, Synced
from anabranch.frontier.stores.sql.store import SqlStore
from tests.frontier.stores.batches import IDENTITY, NOW_S, batch

NEW = 20
ENDED = 5
#: Batches that may be under way.
AHEAD = 8


def expected(batches: int) -> Counters:
    """The totals after so many whole batches."""
    ended = max(batches - 1, 0) * ENDED
    return Counters(last_ordinal=batches * NEW, queued=batches * NEW - ended, done=ended, queues=min(batches, 1))


def whole_batch(number: int) -> Batch:
    """Make batch `number`."""
    first = (number - 1) * NEW + 1
    ended = [ordinal for ordinal in range(first - NEW, first - NEW + ENDED) if ordinal > 0]
    return batch(number, range(first, first + NEW), ended)


def main() -> None:
    told: SimpleQueue[None] = SimpleQueue()
    target = sys.argv[1]
    store = SqlStore(target if "://" in target else Path(target))
    opening = store.open(IDENTITY, NOW_S, lambda: told.put(None))
    number = durable = opening.counters.last_ordinal // NEW
    while True:
        while number < durable + AHEAD:
            number += 1
            store.write(whole_batch(number))
        told.get()
        for answer in store.take_answers():
            if isinstance(answer, Synced):
                durable = answer.number
                print(durable, flush=True)


if __name__ == "__main__":
    main()
