"""Forgets all URLs of a job of several workers, so that its seeds begin another round. Epochs and fixed facts stay."""

from __future__ import annotations

from sqlalchemy import Connection

from anabranch.frontier.stores.sql.execution import execute

#: Rows of URLs and of workers; the shares stay, and are free.
_FORGET = (
    "DELETE FROM url",
    "DELETE FROM done",
    "DELETE FROM seen",
    "DELETE FROM lane",
    "DELETE FROM queue",
    "DELETE FROM gate",
    "DELETE FROM link",
    "DELETE FROM worker",
    "UPDATE share SET epoch = NULL, leaving = 0, died_s = 0",
    "DELETE FROM crawl WHERE substr(name, 1, 5) = 'note:'",
)


def forget_urls(connection: Connection) -> None:
    """Empty the tables in the running transaction. No worker may be at work. Cost: linear in the rows."""
    for statement in _FORGET:
        execute(connection, statement)
