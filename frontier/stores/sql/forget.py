"""Forgets all URLs of a job of several workers, so that its seeds begin another round. Epochs and fixed facts stay."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, null, update

from anabranch.frontier.stores import sql
from anabranch.frontier.stores.sql.execution import execute
from anabranch.frontier.stores.sql.schema import NOTE

#: Rows of URLs and of workers; the shares stay, and are free.
_FORGET = (
    *map(delete, (sql.URL, sql.DONE, sql.SEEN, sql.LANE, sql.QUEUE, sql.GATE, sql.LINK, sql.WORKER)),
    update(sql.SHARE).values(epoch=null(), leaving=0, died_s=0),
    delete(sql.CRAWL).where(func.substr(sql.CRAWL.c.name, 1, len(NOTE)) == NOTE),
)


def forget_urls(connection: Connection) -> None:
    """Empty the tables in the running transaction. No worker may be at work. Cost: linear in the rows."""
    for statement in _FORGET:
        execute(connection, statement)
