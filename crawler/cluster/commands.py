"""The operator's requests to a job's workers: run, pause or stop for all of them, and commands for single workers.

The desired state of a job says whether it is to be crawled. It is a fact of the job and outlives its workers, so a worker that
a supervisor starts again does not undo a stop. A worker that was drained stays away in the same way.

A wish has a number that grows; each worker notes the last one that it has followed. A command is a row for one worker, which
writes the answer into it; who asked reads it, and removes the row.

A job that was moved elsewhere keeps workers away, and so does one that is being moved, or has not arrived.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Any

from sqlalchemy import Connection

from anabranch.crawler.job.database import (
    JobDatabase,
    drop_fact,
    execute,
    fact,
    fetch,
    has_job,
    has_workers,
    lock_job,
    put_fact,
    server_time,
)
from anabranch.crawler.job.state import MOVED_TO, noted_place
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.outcomes.errors import JobMoved, JobMoving, UsageError
from anabranch.frontier import end_late_workers
from anabranch.frontier.jobfolder import STATE
from anabranch.frontier.stores.sql.reading import job_counts

#: The name of a command that is the job's one worker for a moment.
OPERATOR = "operator"
#: Workers that a line names.
_MOST_NAMED = 20
#: A job that is moved is held for so long, again and again.
MOVING_S = 5.0
#: Answers that were not read within this time are removed.
_FORGOTTEN_S = 600.0


class DesiredState(StrEnum):
    """Whether a job is to be crawled. A worker of a job in a database joins only in the state RUN."""

    RUN = "run"
    STOPPED = "stopped"  #: by the operator
    FINISHED = "finished"  #: nothing was left; nothing was queued since


def desired_state(connection: Connection) -> DesiredState:
    """The state. RUN for a job of an earlier version, and for a finished one that has queued URLs again."""
    state = DesiredState(fact(connection, "desired_state") or DesiredState.RUN)
    if state is DesiredState.FINISHED and not (has_workers(connection) and job_counts(connection).is_done):
        return DesiredState.RUN
    return state


def put_desired_state(connection: Connection, state: DesiredState) -> None:
    """Record the state. With RUN a stop that was wished before is withdrawn."""
    lock_job(connection)
    put_fact(connection, "desired_state", state.value)
    if state is DesiredState.RUN and is_to_end(connection):
        put_wish(connection, Wish.RUN)


def is_to_end(connection: Connection) -> bool:
    """The operator has asked the workers to end."""
    return wish(connection)[1] in {Wish.STOP, Wish.STOP_NOW}


def note_finished(connection: Connection, seeds: int) -> bool:
    """Record FINISHED if nothing is queued and the caller has tried all seeds of the job. Returns whether it was recorded.

    A job that the operator has stopped meanwhile stays stopped.
    """
    lock_job(connection)
    ((last,),) = fetch(connection, "SELECT coalesce(max(number), 0) FROM job_seed")
    counts = job_counts(connection)
    is_wanted = desired_state(connection) is DesiredState.RUN
    is_finished = bool(is_wanted and last == seeds and counts.is_done and not counts.counters.retired)
    if is_finished:
        put_desired_state(connection, DesiredState.FINISHED)
    return is_finished


def drained_workers(connection: Connection) -> list[str]:
    """The names of the workers that stay away, in order."""
    names: list[str] = json.loads(fact(connection, "drained") or "[]")
    return names


def put_drained(connection: Connection, name: str, *, is_drained: bool) -> None:
    """Record that a worker stays away, or may come back."""
    lock_job(connection)
    names = {*drained_workers(connection)} - {name}
    put_fact(connection, "drained", json.dumps(sorted(names | {name} if is_drained else names)))


def absent_workers(connection: Connection, but: str = "") -> str:
    """Names the workers that have joined and are neither at work nor drained, each with its machine if that is known.

    At most 20 names, without the worker `but`; empty if no worker is absent.
    """
    if not has_workers(connection):
        return ""
    now_s = server_time(connection)
    rows = fetch(
        connection,
        """SELECT worker.name, until_s, status FROM worker LEFT JOIN job_worker ON job_worker.epoch = worker.epoch
           WHERE worker.name <> :operator ORDER BY worker.epoch""",
        operator=OPERATOR,
    )
    out = {name for name, until_s, _ in rows if until_s > now_s} | {*drained_workers(connection), but}
    machines = {name: "" if status is None else str(json.loads(status)["machine"]) for name, _, status in rows}
    absent = [
        f"{name} ({machine})" if machine not in {"", name} else name
        for name, machine in sorted(machines.items())
        if name not in out
    ]
    named = ", ".join(absent[:_MOST_NAMED])
    return named if len(absent) <= _MOST_NAMED else f"{named} and {len(absent) - _MOST_NAMED} more"


class Wish(StrEnum):
    """The operator's request to all workers."""

    RUN = "run"
    PAUSE = "pause"
    RESUME = "resume"  #: as RUN, and limits that paused the crawl hold no more
    STOP = "stop"
    STOP_NOW = "stop now"


def wish(connection: Connection) -> tuple[int, Wish]:
    """The last wish and its number."""
    return parsed_wish(fact(connection, "wish"))


def parsed_wish(text: str | None) -> tuple[int, Wish]:
    """Return the number and the wish that the text of the fact `wish` holds; None: number 0 and RUN. Pure."""
    number, _, wanted = (text or "0 run").partition(" ")
    return int(number), Wish(wanted)


def put_wish(connection: Connection, wanted: Wish) -> int:
    """Record a wish for all workers; its number."""
    lock_job(connection)
    number = wish(connection)[0] + 1
    put_fact(connection, "wish", f"{number} {wanted.value}")
    return number


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


def asked_of(connection: Connection, epoch: int) -> dict[int, Mapping[str, Any]]:
    """The requests {"verb", "arguments"} that a worker has not answered, by their numbers, oldest first."""
    rows = fetch(
        connection,
        "SELECT number, verb, arguments FROM job_command WHERE epoch = :epoch AND answer IS NULL ORDER BY number",
        epoch=epoch,
    )
    return {number: {"verb": verb, "arguments": json.loads(arguments)} for number, verb, arguments in rows}


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


# A job that is moved

#: Names of facts: where the job is now; where it comes from, while it is not known that it has moved; who moves it, until when.
_MOVED = "moved"
_ARRIVES = "arrives"
_MOVING = "moving"


def refuse_moved(place: str, connection: Connection) -> None:
    """Raises: JobMoved if the job is elsewhere now, or if this is a copy of one that has not moved; JobMoving."""
    if not has_job(connection):
        return
    if moved := fact(connection, _MOVED):
        raise JobMoved(f"{place}: the job was moved to {moved}; name that place to go on with it")
    if source := fact(connection, _ARRIVES):
        if not has_moved(source, place):
            raise JobMoved(
                f"{place}: is a copy of {source}, whose move did not end; "
                f"`anabranch move {quote(source)} {quote(place)}` ends it"
            )
        drop_fact(connection, _ARRIVES)
    if moving := fact(connection, _MOVING):
        _, target, until_s = json.loads(moving)
        if until_s > server_time(connection):
            raise JobMoving(f"{place}: the job is being moved to {target}; wait until that has ended")


def has_moved(source: str, place: str) -> bool:
    """Whether the job of a folder or a database notes that it is at this place now. Raises: StorageError, FrontierError."""
    if not source.startswith(DATABASES):
        return noted_place(Path(source) / STATE, MOVED_TO) == place
    with JobDatabase(source) as database, database.transaction() as connection:
        return has_job(connection) and fact(connection, _MOVED) == place


def hold_for_move(connection: Connection, place: str, token: str, target: str) -> None:
    """Keep workers away for `MOVING_S` seconds. The same `token` may do it again, to hold the job for longer.

    Raises: UsageError if workers are at work, or if the time of this token was over: others may have come; JobMoved, JobMoving.
    """
    lock_job(connection)
    now_s, moving = server_time(connection), json.loads(fact(connection, _MOVING) or "[]")
    if moving and moving[0] == token:
        if moving[2] < now_s:
            raise UsageError(
                f"{place}: the job was not held all the time, since this process or the server was away; move it again"
            )
    else:
        refuse_moved(place, connection)
        end_late_workers(connection)
        if names := fetch(connection, "SELECT name FROM worker WHERE until_s > 0 ORDER BY epoch"):
            listed = ", ".join(name for (name,) in names[:_MOST_NAMED])
            raise UsageError(f"{place}: workers are at work ({listed}); stop the crawl first (`anabranch stop`)")
    put_fact(connection, _MOVING, json.dumps([token, target, now_s + MOVING_S]))


def let_go(connection: Connection, token: str) -> None:
    """The job is not moved: let workers come again."""
    lock_job(connection)
    if json.loads(fact(connection, _MOVING) or "[0]")[0] == token:
        drop_fact(connection, _MOVING)


def put_moved(connection: Connection, place: str, token: str, target: str) -> None:
    """Record that the job is elsewhere now. Raises: UsageError if it was not held all the time."""
    hold_for_move(connection, place, token, target)
    put_fact(connection, _MOVED, target)
    drop_fact(connection, _MOVING)


def put_arrival(connection: Connection, source: str) -> None:
    """Record that this is a copy, which is crawled only if the job at `source` has moved; empty: it has."""
    if source:
        put_fact(connection, _ARRIVES, source)
    else:
        drop_fact(connection, _ARRIVES)


def arrival_in(connection: Connection) -> str:
    """The job that this one was copied from, if it is not known that it has moved; else empty."""
    return (has_job(connection) and fact(connection, _ARRIVES)) or ""


def forget_move(connection: Connection) -> None:
    """Remove what the rows of a copy say of its own move."""
    for name in (_MOVED, _ARRIVES, _MOVING):
        drop_fact(connection, name)
