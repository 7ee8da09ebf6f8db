"""The order that a job keeps: `order.toml`, which people may edit, its copy in the job's state, and its changes.

The program writes both at the start of each run. An edited order is accepted, and `order_edits` lists the differences. An order
that is missing, cut or no TOML is damage; the copy is the remedy. A missing or damaged copy is made again by the next run. The
order ends with a comment, which distinguishes a cut file from an edit that removes the last lines.

Changes that an operator made while the job lived are in `state/changes.json`, too, and survive a restart. The same command may
go on with the job and name the value from before the change (`--limit 100`): then the change holds. Any other value that a
command or an edit of the order names replaces the change. So does a default on the command line (`--limit 0`), since nobody
names a default to begin a job.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anabranch.crawler.job.seeds import has_seeds
from anabranch.crawler.job.state import keep_order, kept_order
from anabranch.crawler.order.changes import Change, changed_order, parsed_changes, settled_changes, with_changes
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.sources import job_layer
from anabranch.crawler.outcomes.errors import OrderDamaged, UsageError, storage_errors
from anabranch.dedup.files.durable import replace_file
from anabranch.frontier.jobfolder import ORDER_FILE, STATE

#: Last line of the order as the program writes it.
_END = "# end of the order (keep this line)"

#: Below the state of a job.
CHANGES_FILE = "changes.json"

#: Most characters of a value, and most edits, that are shown.
_SHOWN_CHARS = 60
_SHOWN_EDITS = 20


def write_order(directory: Path, text: str) -> None:
    """Save the order of a run, then its copy, which is never newer. Cost: two syncs. Raises: StorageError."""
    order = directory / ORDER_FILE
    text = f"{text.rstrip()}\n\n{_END}\n"
    with storage_errors(order):
        replace_file(order, text.encode())
        keep_order(directory / STATE, text)


def order_file(directory: Path) -> Path | None:
    """The job's order, whole; None if the job has none yet. Writes nothing. Raises: OrderDamaged, StorageError."""
    order, copy = directory / ORDER_FILE, directory / STATE / ORDER_FILE
    with storage_errors(order):
        kept = kept_order(directory / STATE)
        if not order.exists():
            if not has_seeds(directory):
                return None
            raise _damaged("is missing", order, copy, kept)
        content = order.read_bytes()
    try:
        text = content.decode("utf-8-sig")
        tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _damaged(f"not UTF-8 (at line {line})", order, copy, kept) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(f"not TOML: {' '.join(str(error).split())}", order, copy, kept) from error
    if not text.strip():
        raise _damaged("is empty", order, copy, kept)
    whole, mark, _ = (kept or "").partition(_END)
    # Orders of older versions have no end mark, so a lack of that alone is no damage.
    if mark and _END not in text and text.rstrip() != whole.rstrip() and whole.startswith(text.rstrip()):
        line = text.count("\n") + 1
        raise _damaged(f"is cut: what was written from line {line} on is missing", order, copy, kept)
    return order


def begun_order(directory: Path, caller: Caller = BY_VARIABLES) -> CrawlOrder:
    """The order that the job goes on by. Code that only the job names is withheld, unless the `caller` runs it.

    Raises: UsageError if it has none yet; OrderError, OrderDamaged, StorageError.
    """
    kept = order_file(directory)
    if kept is None:
        raise UsageError(f"{directory}: the job has not begun; `anabranch crawl` begins it")
    return caller.order_of(job_layer(kept))


def last_order_file(directory: Path) -> Path | None:
    """The order of the job's last run, without later edits of `order.toml`; None if unknown. Raises: StorageError."""
    order, copy = directory / ORDER_FILE, directory / STATE / ORDER_FILE
    with storage_errors(order):
        if kept_order(directory / STATE) is not None:
            return copy
        return order if order.is_file() else None


def edited_tables(directory: Path) -> dict[str, Any]:
    """Return people's changes of the job's order since its last run, as tables of an order. Raises: StorageError."""
    order = directory / ORDER_FILE
    with storage_errors(order):
        kept = kept_order(directory / STATE)
        if kept is None or not order.exists():
            return {}
        then, now = tomllib.loads(kept), tomllib.loads(order.read_text("utf-8-sig"))
    edited: dict[str, Any] = {}
    for section, table in now.items():
        if not isinstance(table, Mapping):
            edited |= {} if then.get(section) == table else {section: table}
        elif changed := {key: value for key, value in table.items() if then.get(section, {}).get(key) != value}:
            edited[section] = changed
    return edited


def order_edits(directory: Path) -> list[str]:
    """The edits of the job's order, a line for each key; none without a sound copy. Raises: StorageError."""
    order = directory / ORDER_FILE
    with storage_errors(order):
        kept = kept_order(directory / STATE)
        if kept is None or not order.exists():
            return []
        text = order.read_text("utf-8-sig")
    then, now = dict(_keys(tomllib.loads(kept))), dict(_keys(tomllib.loads(text)))
    names = [name for name in then | now if then.get(name) != now.get(name)]
    lines = [f"{order}: edited: {name}: {_shown(then.get(name))} is now {_shown(now.get(name))}" for name in names]
    more = len(lines) - _SHOWN_EDITS
    return lines if more <= 0 else [*lines[:_SHOWN_EDITS], f"{order}: edited: and {more} keys more"]


def _keys(tables: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Each key of each section, and its value; a list of entries counts as one key."""
    for section, table in tables.items():
        if isinstance(table, Mapping):
            yield from ((f"[{section}] {key}", value) for key, value in table.items())
        else:
            yield f"[[{section}]]", table


def _shown(value: object) -> str:
    text = "not set" if value is None else ascii(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _damaged(what: str, order: Path, copy: Path, kept: str | None) -> OrderDamaged:
    remedy = f"put the job's copy in its place (cp {copy} {order})" if kept is not None else "restore it from a copy"
    return OrderDamaged(f"{order}: {what}; {remedy}, or name the order to go on by: -c FILE")


# Changes by operators


def change_order(directory: Path, settings: Sequence[str]) -> tuple[CrawlOrder, list[Change]]:
    """Change the order of a job that the caller holds, durably; the new one, and what differs.

    Raises: as `changed_order`; UsageError if the job has not begun; OrderDamaged, StorageError.
    """
    order, changes = changed_order(begun_order(directory), settings)
    keep_changes(directory, order, changes)
    return order, changes


def keep_changes(directory: Path, order: CrawlOrder, changes: Sequence[Change]) -> None:
    """Keep an order in the folder of its job, and what differs in it, durably. Raises: OrderDamaged, StorageError."""
    _write_changes(directory / STATE, with_changes(lasting_changes(directory), changes))
    write_order(directory, dump_order(order))


def lasting_changes(directory: Path) -> list[Change]:
    """All that operators changed in the job's order while it lived, a line a key. Raises: OrderDamaged, StorageError."""
    return _read_changes(directory / STATE)


def changes_stamp(directory: Path) -> bytes:
    """Differs when an operator has changed the order meanwhile. Raises: StorageError."""
    file = directory / STATE / CHANGES_FILE
    with storage_errors(file):
        return file.read_bytes() if file.exists() else b""


def settle_changes(state: Path, order: CrawlOrder) -> None:
    """Forget the changes that this order, which a run begins with, does not have. Raises: OrderDamaged, StorageError."""
    changes = _read_changes(state)
    held = settled_changes(changes, order)
    if held != changes:
        _write_changes(state, held)


def _read_changes(state: Path) -> list[Change]:
    file = state / CHANGES_FILE
    try:
        with storage_errors(file):
            return parsed_changes(file.read_bytes()) if file.exists() else []
    except (ValueError, TypeError) as error:
        raise OrderDamaged(f"{file}: cannot be read; remove it, and change the order again") from error


def _write_changes(state: Path, changes: Sequence[Change]) -> None:
    with storage_errors(state / CHANGES_FILE):
        replace_file(state / CHANGES_FILE, json.dumps(changes).encode())
