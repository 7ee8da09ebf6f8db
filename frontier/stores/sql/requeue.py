"""Queues pages again whose records were lost with the machine of the worker that fetched them.

A page goes back in one transaction: its row leaves `done`, it counts as fetched no more, and it becomes a row of `link`, as if
a page had just linked to it. The worker that holds its share takes it from there; so this can be done while others crawl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from anabranch.frontier.policies.shares import ShareRule
from anabranch.frontier.records import seen_fingerprints
from anabranch.frontier.stores.contract import EndedRecord, LinkRow
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.execution import execute, fetch, write
from anabranch.frontier.stores.sql.reading import ended_of
from anabranch.frontier.stores.sql.worker import NUMBER_BITS

#: Pages of one transaction.
PAGES_AT_ONCE = 1000


def reserve_numbers(connection: Connection) -> int:
    """The first of a billion numbers that no worker gives (`worker`, "the epoch is above them")."""
    ((last,),) = fetch(connection, statements.FACT_FOR_UPDATE, ("epoch",))
    epoch = int(last) + 1
    write(connection, statements.PUT_FACTS, [("epoch", str(epoch))])
    return epoch << NUMBER_BITS


def epochs_of(connection: Connection, name: str) -> list[tuple[int, bool]]:
    """Each time that a worker of this name has joined, and whether its lease lasts."""
    return [(epoch, bool(lives)) for epoch, lives in fetch(connection, statements.EPOCHS_OF, (name,))]


def pages_of(connection: Connection, epoch: int, after: int) -> list[EndedRecord]:
    """Some of the pages that a worker has fetched, by ordinal, after one. Cost: a look at each ended URL."""
    rows = fetch(connection, statements.PAGES_OF_WORKER, (epoch, after, PAGES_AT_ONCE))
    return list(map(ended_of, rows))


def requeue(
    connection: Connection,
    pages: Sequence[EndedRecord],
    rule: ShareRule,
    first: int,
    precedence_of: Callable[[str], int],
    epoch: int,
) -> int:
    """Queue these pages of a worker again, with numbers from `first` on; how many they are."""
    write(connection, statements.DELETE_DONE, [(page.ordinal,) for page in pages])
    links = [
        LinkRow(rule.of_url(page.url) or 0, first + place, page.url, page.key, "", 0, precedence_of(page.url), None)
        for place, page in enumerate(pages)
    ]
    fingerprints = seen_fingerprints([link.dedup_key() for link in links])
    write(connection, statements.REPLACE_SEEN, list(zip(fingerprints, [link.ordinal for link in links], strict=True)))
    write(connection, statements.INSERT_LINK, links)
    execute(connection, statements.UNCOUNT_DONE, (len(pages), epoch))
    return len(pages)
