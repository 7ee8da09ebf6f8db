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

from anabranch.crawler.jobs.durablefiles import checked_json, checked_line, replace_file, sync_folder
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.outcomes.exits import ExitCode

#: Stands while a round is ordered and not begun; holds its number.
AGAIN_MARK = "again"
_ROUND_FILE = "round.json"

#: What a job's state keeps from round to round (with SQLite's files beside): its seeds, what it fetched, what it has counted.
_LASTING = ("seeds.jsonl", "payloads.sqlite", "accounts.", _ROUND_FILE)


class RoundDamaged(CrawlerError):
    """A file that says which round a job is in cannot be read: someone else wrote to it, or the disk failed."""

    exit_code: ExitCode = ExitCode.BAD_ORDER


class Round(NamedTuple):
    """Which round a job is in."""

    number: int = 1
    bytes_before: int = 0  #: what earlier rounds fetched: limits are a round's
    urls_before: int = 0  #: what earlier rounds processed, with robots.txt and look-ups, as the accounts count


#: What every job begins with.
FIRST = Round()


def current_round(state: Path) -> Round:
    """The round of a job that has begun it. Raises: OSError, RoundDamaged."""
    file = state / _ROUND_FILE
    try:
        said = checked_json(file.read_bytes())
        # A round that an earlier version began has no URLs: it counts those of earlier rounds as its own.
        return Round(_whole(said["number"], 1), _whole(said["bytes_before"], 0), _whole(said.get("urls_before", 0), 0))
    except FileNotFoundError:
        return FIRST
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RoundDamaged(
            f"{file}: damaged; restore it from a copy, or remove it: rounds are counted from 1 again then, "
            "and --size-limit counts what earlier ones fetched"
        ) from error


def ordered_round(state: Path) -> int | None:
    """The number of the round that is ordered and has no Frontier yet; None if there is none. Raises: OSError, RoundDamaged."""
    file = state / AGAIN_MARK
    try:
        return _whole(int(file.read_bytes()), 1)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RoundDamaged(
            f"{file}: damaged; write the number of the round into it that was ordered, "
            f"one more than {state / _ROUND_FILE} has (2 if there is none)"
        ) from error


def _whole(value: object, least: int) -> int:
    """The number. Raises: ValueError for anything else."""
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value


def settle_round(state: Path, *, again: bool, keep: Set[str]) -> None:
    """Order another round if it is wanted (`again`), and remove the last one's Frontier if one is ordered.

    `keep` names what else stays in the state folder. Raises: OSError, RoundDamaged.
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


def round_of_run(state: Path) -> int:
    """The number of the round that a run of this job fetches for: the one that is ordered, or else the one that goes on.

    Raises: OSError, RoundDamaged.
    """
    return ordered_round(state) or current_round(state).number


def begin_round(state: Path, fetched_bytes: int, processed_urls: int) -> None:
    """The ordered round has a Frontier: from now on it is gone on with. Without an order nothing happens.

    The bytes and URLs are those of all rounds before it.

    Raises: OSError, RoundDamaged.
    """
    number = ordered_round(state)
    if number is None:
        return
    begun = Round(number, fetched_bytes, processed_urls)
    replace_file(state / _ROUND_FILE, checked_line(json.dumps(begun._asdict()).encode()))
    (state / AGAIN_MARK).unlink()
    sync_folder(state)
