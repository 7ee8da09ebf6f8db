"""Writes millions of queued URLs to a store, as a Frontier's state that can be opened.

They go straight to the store, in batches of 10,000 rows that say what schedule() says of new URLs; schedule() itself would
take several times as long. They go over the queues twice, by id: the pages of the tables are split as they are when rows
come in any order, but hardly a page of `url` and `lane` is written more than twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from anabranch.frontier.composition import FrontierOrder
from anabranch.frontier.jobfolder import STORE_FILE
from anabranch.frontier.policies.precedence import QUEUE_BASE
from anabranch.frontier.records import NORMAL, GateKey, QueueKey, Row, name_id, turn_of
from anabranch.frontier.stores.contract import Announced, Batch
from anabranch.frontier.stores.sql.store import SqlStore
from scripts.benchmarks.frontier.host import START_S
from scripts.benchmarks.frontier.links import SAME_HOST, host_name, url_of

#: Times that every queue gets `SAME_HOST` URLs.
VISITS = 2
#: URLs of a queue.
PER_QUEUE = VISITS * SAME_HOST

_QUEUES_AT_ONCE = 2000
_BATCHES_AT_ONCE = 4
_ROWS_AT_ONCE = 10_000


def fill(
    folder: Path, order: FrontierOrder, queues: int, say: Callable[[str], None], same_host: int = SAME_HOST
) -> int:
    """Queue `VISITS` times `same_host` URLs for each of so many hosts (blocks). Answers how many: 0 to that minus one.

    The filter is made at the first opening, which marks every URL. `order` must have the policy `host`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    store = SqlStore(folder / STORE_FILE)
    store.open({"policy": order.policy, "politeness": order.scope.value}, START_S, lambda: None)
    try:
        for batch in _batches(queues, same_host):
            store.write(batch)
            if batch.number % _BATCHES_AT_ONCE == 0:
                store.flush()
            if batch.last_number % 1_000_000 == 0:
                say(f"{batch.last_number:,} URLs are in the store")
    finally:
        store.close(clean=True)
    return queues * VISITS * same_host


def _batches(queues: int, same_host: int) -> Iterator[Batch]:
    names = sorted((name_id(name), name) for name in map(host_name, range(queues)))
    number = rows = 0
    for visit in range(VISITS):
        for start in range(0, queues, _QUEUES_AT_ONCE):
            number += 1
            batch = Batch(number, START_S)
            for one_id, name in names[start : start + _QUEUES_AT_ONCE]:
                _announce(batch, one_id, name, rows, same_host, is_new=visit == 0)
                rows += same_host
            batch.last_number = rows
            yield batch


def new_urls(hosts: int, urls: int) -> Iterator[Batch]:
    """Batches of new URLs, up to `_ROWS_AT_ONCE` in each, of these hosts in turn."""
    names = sorted((name_id(name), name) for name in map(host_name, range(hosts)))
    rows = 0
    for number in range(1, -(-urls // _ROWS_AT_ONCE) + 1):
        batch = Batch(number, START_S)
        for one_id, name in names:
            _announce(batch, one_id, name, rows, _ROWS_AT_ONCE // hosts, is_new=number == 1)
            rows += _ROWS_AT_ONCE // hosts
        batch.last_number = rows
        yield batch


def _announce(batch: Batch, one_id: int, name: str, rows: int, more: int, *, is_new: bool) -> None:
    """The changes of schedule() for more URLs of a host that is not in memory. Its queue and gate have the same name and id."""
    turn = turn_of(QUEUE_BASE, rows + 1)
    if is_new:
        batch.queue_names.append((one_id, QueueKey(name), QUEUE_BASE))
        batch.gate_names.append((one_id, GateKey(name)))
    batch.announced.append(Announced(one_id, one_id, turn))
    batch.woken.append((one_id, turn))
    for ordinal in range(rows + 1, rows + more + 1):
        url = url_of(name, ordinal - 1)
        batch.new.append(Row(one_id, one_id, NORMAL, ordinal, url, None, "", 0, 0, None, None))
