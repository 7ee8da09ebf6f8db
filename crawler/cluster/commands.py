"""What the operator wants of a job's workers: that all of them run, pause or stop, and verbs that one of them answers.

A wish has a number that grows; each worker notes the last one that it has followed. A command is a row for one worker, which
writes the answer into it; who asked reads it, and removes the row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection

from anabranch.crawler.cluster.database import execute, fact, fetch, lock_job, put_fact, server_time

#: Answers that were not read within this time are removed.
_FORGOTTEN_S = 600.0


class Wish(StrEnum):
    """What all workers are to do."""

    RUN = "run"
    PAUSE = "pause"
    RESUME = "resume"  #: as RUN, and limits that paused the crawl hold no more
    STOP = "stop"
    STOP_NOW = "stop now"


def wish(connection: Connection) -> tuple[int, Wish]:
    """The last wish and its number."""
    return parsed_wish(fact(connection, "wish"))


def parsed_wish(text: str | None) -> tuple[int, Wish]:
    """The same from the text of the fact `wish`. Pure."""
    number, _, wanted = (text or "0 run").partition(" ")
    return int(number), Wish(wanted)


def put_wish(connection: Connection, wanted: Wish) -> int:
    """Record a wish for all workers; its number."""
    lock_job(connection)
    number = wish(connection)[0] + 1
    put_fact(connection, "wish", f"{number} {wanted.value}")
    return number


class Command(NamedTuple):
    """A verb for one worker."""

    number: int
    verb: str
    arguments: Mapping[str, Any]


def ask(connection: Connection, epochs: Sequence[int], verb: str, arguments: Mapping[str, Any]) -> dict[int, int]:
    """Ask these workers; the number of each one's command, by its epoch."""
    lock_job(connection)
    now_s = server_time(connection)
    execute(connection, "DELETE FROM job_command WHERE asked_s < :then_s", then_s=now_s - _FORGOTTEN_S)
    ((last,),) = fetch(connection, "SELECT coalesce(max(number), 0) FROM job_command")
    last = max(last, int(fact(connection, "command") or "0"))
    numbers = {epoch: last + place for place, epoch in enumerate(epochs, start=1)}
    put_fact(connection, "command", str(last + len(epochs)))
    rows = [
        {"number": number, "epoch": epoch, "verb": verb, "arguments": json.dumps(arguments), "asked_s": now_s}
        for epoch, number in numbers.items()
    ]
    if rows:
        execute(connection, "INSERT INTO job_command VALUES (:number, :epoch, :verb, :arguments, NULL, :asked_s)", rows)
    return numbers


def asked_of(connection: Connection, epoch: int) -> list[Command]:
    """The commands that a worker has not answered, oldest first."""
    rows = fetch(
        connection,
        "SELECT number, verb, arguments FROM job_command WHERE epoch = :epoch AND answer IS NULL ORDER BY number",
        epoch=epoch,
    )
    return [Command(number, verb, json.loads(arguments)) for number, verb, arguments in rows]


def answer(connection: Connection, number: int, reply: Mapping[str, Any]) -> None:
    """Write the reply of a worker."""
    execute(
        connection, "UPDATE job_command SET answer = :answer WHERE number = :number",
        answer=json.dumps(reply), number=number,
    )  # fmt: skip


def take_answer(connection: Connection, number: int) -> Mapping[str, Any] | None:
    """The reply to a command, which is removed with it; None if there is none yet."""
    rows = fetch(
        connection,
        "DELETE FROM job_command WHERE number = :number AND answer IS NOT NULL RETURNING answer",
        number=number,
    )
    reply: Mapping[str, Any] | None = json.loads(rows[0][0]) if rows else None
    return reply


def withdraw(connection: Connection, number: int) -> None:
    """Remove a command, answered or not."""
    execute(connection, "DELETE FROM job_command WHERE number = :number", number=number)
