"""The order that a job keeps: `order.toml`, which people may edit, and its copy in the job's state.

The program writes both at the start of each run. An edited order is accepted, and `order_edits` lists the differences. An order
that is missing, cut or no TOML is damage; the copy is the remedy. A missing or damaged copy is made again by the next run. The
order ends with a comment, which distinguishes a cut file from an edit that removes the last lines.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from anabranch.crawler.job.seeds import SEED_BOOK, is_begun
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sources import job_layer
from anabranch.crawler.outcomes.errors import OrderDamaged, UsageError, storage_errors
from anabranch.dedup.files.durable import replace_file
from anabranch.frontier.jobfolder import ORDER_FILE, STATE

#: Last line of the copy: the checksum of all before it.
_CHECKSUM = "# crc32 of all lines above: {:08x}\n"
_CHECKSUM_BYTES = len(_CHECKSUM.format(0))

#: Last line of the order as the program writes it.
_END = "# end of the order (keep this line)"

#: Most characters of a value, and most edits, that are shown.
_SHOWN_CHARS = 60
_SHOWN_EDITS = 20


def write_order(directory: Path, text: str) -> None:
    """Save the order of a run, then its copy, which is never newer. Cost: two syncs. Raises: StorageError."""
    order, copy = directory / ORDER_FILE, directory / STATE / ORDER_FILE
    text = f"{text.rstrip()}\n\n{_END}\n"
    with storage_errors(order):
        replace_file(order, text.encode())
        replace_file(copy, (text + _CHECKSUM.format(crc32(text.encode()))).encode())


def order_file(directory: Path) -> Path | None:
    """The job's order, whole; None if the job has none yet. Writes nothing. Raises: OrderDamaged, StorageError."""
    order, copy = directory / ORDER_FILE, directory / STATE / ORDER_FILE
    with storage_errors(order):
        kept = _kept(copy)
        if not order.exists():
            if not is_begun(directory / STATE / SEED_BOOK):
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
        if _kept(copy) is not None:
            return copy
        return order if order.is_file() else None


def edited_tables(directory: Path) -> dict[str, Any]:
    """Return people's changes of the job's order since its last run, as tables of an order. Raises: StorageError."""
    order, copy = directory / ORDER_FILE, directory / STATE / ORDER_FILE
    with storage_errors(order):
        kept = _kept(copy)
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
    order, copy = directory / ORDER_FILE, directory / STATE / ORDER_FILE
    with storage_errors(order):
        kept = _kept(copy)
        if kept is None or not order.exists():
            return []
        text = order.read_text("utf-8-sig")
    then, now = dict(_keys(tomllib.loads(kept))), dict(_keys(tomllib.loads(text)))
    names = [name for name in then | now if then.get(name) != now.get(name)]
    lines = [f"{order}: edited: {name}: {_shown(then.get(name))} is now {_shown(now.get(name))}" for name in names]
    more = len(lines) - _SHOWN_EDITS
    return lines if more <= 0 else [*lines[:_SHOWN_EDITS], f"{order}: edited: and {more} keys more"]


def _kept(copy: Path) -> str | None:
    """The copy's text; None without a sound copy. Raises: OSError."""
    try:
        content = copy.read_bytes()
    except FileNotFoundError:
        return None
    text, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    return text.decode() if checksum == _CHECKSUM.format(crc32(text)).encode() else None


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
