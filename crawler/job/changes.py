"""The changes that an operator made to a job's order while it lived, in `state/changes.json`: they survive a restart.

The order in the job's folder has them. But the same command may go on with the job, and name the value that was changed
(`--limit 100`): then the change holds. A command, or an edit of the order, that names another value is newer, and wins. So is
a command line that names the default (`--limit 0`): nobody names it to begin a job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from anabranch.crawler.job.orderfile import begun_order, write_order
from anabranch.crawler.order.changes import CHANGEABLE, Change, changed_order, values
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import OrderDamaged, storage_errors
from anabranch.dedup.files.durable import replace_file
from anabranch.frontier.jobfolder import STATE

#: Below the state of a job.
CHANGES_FILE = "changes.json"
_CHANGEABLE = frozenset(f"{section}.{key}" for section, keys in CHANGEABLE.items() for key in keys)


def change_order(directory: Path, settings: Sequence[str]) -> tuple[CrawlOrder, list[Change]]:
    """Change the order of a job that the caller holds, durably; the new one, and what differs.

    Raises: as `changed_order`; UsageError if the job has not begun; OrderDamaged, StorageError.
    """
    order, changes = changed_order(begun_order(directory), settings)
    keep_changes(directory, order, changes)
    return order, changes


def keep_changes(directory: Path, order: CrawlOrder, changes: Sequence[Change]) -> None:
    """Keep an order in the folder of its job, and what differs in it, durably. Raises: OrderDamaged, StorageError."""
    known = {change.key: change for change in _read(directory / STATE)}
    for change in changes:
        known[change.key] = known.get(change.key, change)._replace(now=change.now)
    _write(directory / STATE, [change for change in known.values() if change.now != change.was])
    write_order(directory, dump_order(order))


def held_changes(directory: Path, order: CrawlOrder, commanded: Collection[str] = ()) -> list[Change]:
    """The changes that hold although a command names the values from before them.

    `commanded` are the keys that the command line itself names: a default that it names ends the change. Raises: OrderDamaged,
    StorageError.
    """
    named, defaults = values(order), values(CrawlOrder())
    return [
        change
        for change in _read(directory / STATE)
        if named[change.key] == change.was and not (change.key in commanded and change.was == defaults[change.key])
    ]


def lasting_changes(directory: Path) -> list[Change]:
    """All that operators changed in the job's order while it lived, a line a key. Raises: OrderDamaged, StorageError."""
    return _read(directory / STATE)


def changes_stamp(directory: Path) -> bytes:
    """Differs when an operator has changed the order meanwhile. Raises: StorageError."""
    file = directory / STATE / CHANGES_FILE
    with storage_errors(file):
        return file.read_bytes() if file.exists() else b""


def settle_changes(state: Path, order: CrawlOrder) -> None:
    """Forget the changes that this order, which a run begins with, does not have. Raises: OrderDamaged, StorageError."""
    changes, named = _read(state), values(order)
    held = [change for change in changes if named[change.key] == change.now]
    if held != changes:
        _write(state, held)


def _read(state: Path) -> list[Change]:
    file = state / CHANGES_FILE
    try:
        with storage_errors(file):
            found = [Change(*one) for one in json.loads(file.read_bytes())] if file.exists() else []
    except (ValueError, TypeError) as error:
        raise OrderDamaged(f"{file}: cannot be read; remove it, and change the order again") from error
    return [change for change in found if change.key in _CHANGEABLE]  # another version may know others


def _write(state: Path, changes: Sequence[Change]) -> None:
    with storage_errors(state / CHANGES_FILE):
        replace_file(state / CHANGES_FILE, json.dumps(changes).encode())
