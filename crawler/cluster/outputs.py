"""The files of a job's workers that have arrived elsewhere, and the pages that are lost with a worker's machine.

A page counts as fetched when its record is on its worker's disk. If the machine is lost, so are the records whose files had not
arrived: `requeue_lost` queues those pages again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Set
from functools import partial

from sqlalchemy import Connection

from anabranch.crawler.archive.uploads import Uploaded
from anabranch.crawler.cluster.payloads import forget_payloads
from anabranch.crawler.job.database import JobDatabase, execute, fact, fetch, lock_job
from anabranch.frontier import ShareRule, epochs_of, pages_of, requeue, reserve_numbers
from anabranch.frontier.records import name_id


def put_output(connection: Connection, worker: str, number: int, arrived: Uploaded) -> None:
    """Register a file that a worker has written in a round."""
    pages = sorted({name_id(url) for url in arrived.urls})
    execute(
        connection,
        """INSERT INTO job_output VALUES (:worker, :file, :address, :round, :size, :pages)
           ON CONFLICT (worker, file) DO UPDATE SET address = excluded.address, round = excluded.round,
           size = excluded.size, pages = excluded.pages""",
        worker=worker,
        file=arrived.file,
        address=arrived.address,
        round=number,
        size=arrived.size_bytes,
        pages=struct.pack(f">{len(pages)}q", *pages),
    )


def has_outputs(connection: Connection, worker: str) -> bool:
    """A file of this worker has arrived elsewhere."""
    return bool(fetch(connection, "SELECT 1 FROM job_output WHERE worker = :worker LIMIT 1", worker=worker))


def requeue_lost(database: JobDatabase, name: str, rule: ShareRule, precedence_of: Callable[[str], int]) -> int:
    """Queue again each page of a worker whose record is in no file that has arrived; how many. Others may crawl meanwhile.

    The worker must not be at work. Cost: a look at each ended URL for each time that it has joined.
    """
    database.do(partial(forget_payloads, worker=name))
    arrived = database.do(_arrived)
    epochs = database.do(partial(epochs_of, name=name))
    return sum(_requeue_of(database, epoch, arrived, rule, precedence_of) for epoch, _ in epochs)


def _requeue_of(
    database: JobDatabase, epoch: int, arrived: Set[int], rule: ShareRule, precedence_of: Callable[[str], int]
) -> int:
    """Queue the lost pages of one time that a worker was at work, in several transactions."""
    total, after = 0, 0
    while True:
        pages = database.do(partial(pages_of, epoch=epoch, after=after))  # a long search, so nothing is locked for it
        lost = [page for page in pages if page.status > 0 and name_id(page.url) not in arrived]
        if lost:
            with database.transaction() as connection:
                lock_job(connection)  # of two that do this, the second finds the pages gone
                there = {page.ordinal for page in pages_of(connection, epoch, after)}
                lost = [page for page in lost if page.ordinal in there]
                total += requeue(connection, lost, rule, reserve_numbers(connection), precedence_of, epoch)
        if not pages:
            return total
        after = pages[-1].ordinal


def _arrived(connection: Connection) -> set[int]:
    """The pages of this round in all files that have arrived, by the ids of their URLs."""
    found: set[int] = set()
    number = int(fact(connection, "round") or "1")
    for (pages,) in fetch(connection, "SELECT pages FROM job_output WHERE round = :number", number=number):
        found.update(struct.unpack(f">{len(pages) // 8}q", pages))
    return found
