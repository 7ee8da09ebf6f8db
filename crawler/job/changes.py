"""The changes that an operator made to a job's order while it lived, in `state/changes.json`: they survive a restart.

The order in the job's folder has them. But the same command may go on with the job, and name the value that was changed
(`--limit 100`): then the change holds. A command, or an edit of the order, that names another value is newer, and wins. So is
a command line that names the default (`--limit 0`): nobody names it to begin a job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from anabranch.crawler.job.orderfile import begun_order, write_order
from anabranch.crawler.order.changes import (
    Change,
    changed_order,
    parsed_changes,
    settled_changes,
    with_changes,
)
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import OrderDamaged, storage_errors
from anabranch.dedup.files.durable import replace_file
from anabranch.frontier.jobfolder import STATE

#: Below the state of a job.
CHANGES_FILE = "changes.json"


def change_order(directory: Path, settings: Sequence[str]) -> tuple[CrawlOrder, list[Change]]:
    """Change the order of a job that the caller holds, durably; the new one, and what differs.

    Raises: as `changed_order`; UsageError if the job has not begun; OrderDamaged, StorageError.
    """
    order, changes = changed_order(begun_order(directory), settings)
    keep_changes(directory, order, changes)
    return order, changes


def keep_changes(directory: Path, order: CrawlOrder, changes: Sequence[Change]) -> None:
    """Keep an order in the folder of its job, and what differs in it, durably. Raises: OrderDamaged, StorageError."""
    _write(directory / STATE, with_changes(lasting_changes(directory), changes))
    write_order(directory, dump_order(order))


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
    changes = _read(state)
    held = settled_changes(changes, order)
    if held != changes:
        _write(state, held)


def _read(state: Path) -> list[Change]:
    file = state / CHANGES_FILE
    try:
        with storage_errors(file):
            return parsed_changes(file.read_bytes()) if file.exists() else []
    except (ValueError, TypeError) as error:
        raise OrderDamaged(f"{file}: cannot be read; remove it, and change the order again") from error


def _write(state: Path, changes: Sequence[Change]) -> None:
    with storage_errors(state / CHANGES_FILE):
        replace_file(state / CHANGES_FILE, json.dumps(changes).encode())
