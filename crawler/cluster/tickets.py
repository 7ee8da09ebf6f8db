"""Rows of limits that hold for the job as a whole, though several workers fetch.

Pages: a worker has tickets for some pages in all since it joined, a number in its row of `job_worker`; its visits take them
(`run.limits.PageTickets`). Tickets that were not used are free again when the worker's lease has ended, because its pages are
counted in the transactions that end them: the limit is exact.

Bytes: each worker writes what it has fetched; what is being fetched at the limit is beyond it.

Bandwidth: a row says up to when the cap is granted; a worker takes half of what is left of the next `GRANTED_S`, so that those
who ask behind it find some, and one that is alone has all.
"""

from __future__ import annotations

from sqlalchemy import Connection

from anabranch.crawler.job.database import execute, fact, fetch, lock_job, put_fact, server_time
from anabranch.crawler.order.sections import UsedLimits

#: Tickets that a worker takes at a time, at most: a block shrinks with what is left, so that none wait at one worker.
_MOST_AT_ONCE = 1000
_PART = 4
#: A cap of bandwidth is granted for so much time in advance, at most.
GRANTED_S = 0.5
_BANDWIDTH = "bandwidth"


def granted(connection: Connection, epoch: int) -> int:
    """The tickets of a worker since it joined."""
    rows = fetch(connection, "SELECT tickets FROM job_worker WHERE epoch = :epoch", epoch=epoch)
    return int(rows[0][0]) if rows else 0  # another round has begun


def take_tickets(connection: Connection, epoch: int, pages: int, wanted: int) -> int:
    """Give a worker up to so many more tickets, fewer if few are left; how many it has since it joined."""
    lock_job(connection)
    left = pages - _pages_and_tickets(connection)
    ((live,),) = fetch(connection, "SELECT count(*) FROM worker WHERE until_s > 0")
    block = min(left // (_PART * max(live, 1)), _MOST_AT_ONCE)
    more = min(left, max(block, min(wanted, max(left // max(live, 1), 1))))
    if more > 0:
        execute(
            connection,
            "UPDATE job_worker SET tickets = tickets + :more WHERE epoch = :epoch",
            more=more,
            epoch=epoch,
        )
    return granted(connection, epoch)


def keep_tickets(connection: Connection, epoch: int, tickets: int) -> None:
    """A worker needs no more than so many since it joined."""
    execute(
        connection,
        "UPDATE job_worker SET tickets = :tickets WHERE epoch = :epoch AND tickets > :tickets",
        tickets=tickets,
        epoch=epoch,
    )


def hold_tickets(connection: Connection, epoch: int, tickets: int) -> None:
    """A worker has so many since it joined, at least: it fetched without a limit before."""
    execute(
        connection,
        "UPDATE job_worker SET tickets = :tickets WHERE epoch = :epoch AND tickets < :tickets",
        tickets=tickets,
        epoch=epoch,
    )


def take_bandwidth(connection: Connection, rate: int, wanted: int) -> int:
    """Give a worker some of the bytes of the cap that it wants to read soon; how many."""
    lock_job(connection)
    now_s = server_time(connection)
    granted_s = max(float(fact(connection, _BANDWIDTH) or 0.0), now_s)
    room = rate * (now_s + GRANTED_S - granted_s)
    given = int(max(min(wanted, room / 2), 0))
    put_fact(connection, _BANDWIDTH, repr(granted_s + given / rate))
    return given


def used(connection: Connection) -> UsedLimits:
    """Return the amounts that all workers have used, those that have ended included."""
    ((pages, fetched),) = fetch(
        connection,
        "SELECT (SELECT coalesce(sum(done), 0) FROM worker), (SELECT coalesce(sum(bytes), 0) FROM job_worker)",
    )
    return UsedLimits(int(pages), int(fetched))


def _pages_and_tickets(connection: Connection) -> int:
    """Pages that are done, or that a live worker has a ticket for."""
    ((total,),) = fetch(
        connection,
        """SELECT coalesce(sum(CASE WHEN until_s > 0 AND tickets > done THEN tickets ELSE done END), 0)
           FROM worker LEFT JOIN job_worker ON job_worker.epoch = worker.epoch""",
    )
    return int(total)
