"""A program to be killed: writes batches as fast as it can and prints the number of each that is durable.

Batch n adds the rows (n-1)*20+1 … n*20 and ends the first five of the batch before it. `python killable_writer.py FILE`.
"""

import sys
from pathlib import Path
from queue import SimpleQueue

from frontier.stores.base import Counters, Synced
from frontier.stores.sql import SqlStore
from tests.frontier.stores.rows import A_LANE, IDENTITY, Teller, done, row

NEW = 20
ENDED = 5
#: Batches that may be under way.
AHEAD = 8


def expected(batches: int) -> Counters:
    """The totals after so many whole batches."""
    ended = max(batches - 1, 0) * ENDED
    return Counters(last_ordinal=batches * NEW, queued=batches * NEW - ended, done=ended)


def say(teller: Teller, number: int) -> None:
    """Write batch `number`."""
    first = (number - 1) * NEW + 1
    ended = [done(row(ordinal)) for ordinal in range(first - NEW, first - NEW + ENDED) if ordinal > 0]
    teller.say([row(ordinal) for ordinal in range(first, first + NEW)], ended=ended)


def main() -> None:
    told: SimpleQueue[None] = SimpleQueue()
    store = SqlStore(Path(sys.argv[1]))
    opening = store.open(IDENTITY, lambda: told.put(None))
    first = opening.counters.last_ordinal // NEW
    teller = Teller(store, announced={A_LANE} if opening.lanes else set())
    durable = 0
    while True:
        while teller.number < durable + AHEAD:
            say(teller, first + teller.number + 1)
        told.get()
        for answer in store.take_answers():
            if isinstance(answer, Synced):
                durable = answer.number
                print(first + durable, flush=True)


if __name__ == "__main__":
    main()
