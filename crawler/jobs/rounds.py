"""Rounds of a job: the next one begins with the seeds, logs and archive of the last, and with a Frontier of its own.

`state/again` stands from the order for another round until its Frontier is there. While it stands the old Frontier is being
removed, or is gone; so a process may be killed at any point, and the next one begins the round again, in which nothing was
fetched yet.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple

from crawler.jobs.durablefiles import replace_file, sync_folder

#: Stands while a round is ordered and not begun; holds its number.
AGAIN_MARK = "again"
_ROUND_FILE = "round.json"

#: What a job's state keeps from round to round (with SQLite's files beside): its seeds, what it fetched, what it has counted.
_LASTING = ("seeds.jsonl", "payloads.sqlite", "accounts.sqlite", _ROUND_FILE)


class Round(NamedTuple):
    """Which round a job is in."""

    number: int = 1
    bytes_before: int = 0  #: what earlier rounds fetched: limits are a round's


def current_round(state: Path) -> Round:
    """The round of a job that has begun it. Raises: OSError, ValueError for a file that somebody else wrote."""
    try:
        said = json.loads((state / _ROUND_FILE).read_bytes())
    except FileNotFoundError:
        return Round()
    return Round(int(said["number"]), int(said["bytes_before"]))


def ordered_round(state: Path) -> int | None:
    """The number of the round that is ordered and has no Frontier yet; None if there is none."""
    try:
        return int((state / AGAIN_MARK).read_bytes())
    except FileNotFoundError:
        return None


def settle_round(state: Path, *, again: bool, keep: Set[str]) -> None:
    """Order another round if it is wanted (`again`), and remove the last one's Frontier if one is ordered.

    `keep` names what else stays in the state folder. Raises: OSError.
    """
    if ordered_round(state) is None:
        if not again:
            return
        replace_file(state / AGAIN_MARK, str(current_round(state).number + 1).encode())
    for entry in state.iterdir():
        if entry.name in keep or entry.name == AGAIN_MARK or entry.name.startswith(_LASTING):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    sync_folder(state)


def begin_round(state: Path, fetched_bytes: int) -> None:
    """The ordered round has a Frontier: from now on it is gone on with. Without an order nothing happens. Raises: OSError."""
    number = ordered_round(state)
    if number is None:
        return
    replace_file(state / _ROUND_FILE, json.dumps({"number": number, "bytes_before": fetched_bytes}).encode() + b"\n")
    (state / AGAIN_MARK).unlink()
    sync_folder(state)
