"""The folder of a job, as far as its Frontier is concerned: its format mark and its lock.

    FOLDER/order.toml    FOLDER/state/{format.json, lock, frontier.db, seen/, leases}

`format.json` marks a job that a host program made (`hosts.embedding`): it has no seeds and no scope, and only that program can
continue it. One process at a time holds a job, by a lock on a file (`dedup.files.locks`). A crawl never removes that file; a
host program may remove its job with it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from anabranch.dedup.files.durable import UNFINISHED
from anabranch.dedup.files.locks import lock_file

FORMAT = "anabranch job"
#: Raised with every change of a folder that an older program would misread. Folders of older versions are migrated.
VERSION = 3

#: The folder of jobs that are given by name.
JOBS = Path("jobs")
#: The order with which the job was run last, in its folder; the other files are in its state folder.
ORDER_FILE = "order.toml"
STATE = "state"
FORMAT_FILE = "format.json"
STORE_FILE = "frontier.db"  #: of SQLite
SEEN_FOLDER = "seen"  #: the filter
LOCK_FILE = "lock"
#: The lease board of a running host program.
LEASES_FILE = "leases"

_EMBEDDED = "embedded"  # in the format file


def is_job(directory: Path) -> bool:
    """Whether the folder has the mark of a job. False for a path that no file can have."""
    try:
        return (directory / STATE / FORMAT_FILE).is_file()
    except OSError:
        return False


def is_current(directory: Path) -> bool:
    """Whether the job has the format of this program and is not a host program's. False if its mark cannot be read."""
    return _format_of(directory) == {"format": FORMAT, "version": VERSION}


def named_job(typed: str) -> Path | None:
    """The folder of the job that is given by its folder or by its name; None without one."""
    return next((folder for folder in (Path(typed), JOBS / typed) if typed and is_job(folder)), None)


def has_store(state: Path) -> bool:
    """Whether the state folder has the store of a Frontier."""
    file = state / STORE_FILE
    return file.is_file() and file.stat().st_size > 0


def is_embedded(directory: Path) -> bool:
    """Whether the job is a host program's by its mark. False if it cannot be read."""
    return _format_of(directory).get(_EMBEDDED) is True


def is_readable(directory: Path) -> bool:
    """Whether the job has the format of this program, or an older one."""
    content = _format_of(directory)
    version = content.get("version")
    return content.get("format") == FORMAT and isinstance(version, int) and 1 <= version <= VERSION


def is_being_made(state: Path) -> bool:
    """Whether this is the state of a job that is being made, or was when its process ended: it has little but its lock.

    Raises: OSError.
    """
    names = {entry.name for entry in state.iterdir()} if state.is_dir() else {""}
    return names <= {LOCK_FILE, FORMAT_FILE, FORMAT_FILE + UNFINISHED}


def format_text(*, embedded: bool = False) -> bytes:
    """The content of the format file of a new job; `embedded`: it is a host program's."""
    content = {"format": FORMAT, "version": VERSION, **({_EMBEDDED: True} if embedded else {})}
    return f"{json.dumps(content)}\n".encode()


def make_folders(directory: Path) -> None:
    """Make the job's folder and its state, for their owner alone; those above as usual. One that exists keeps its mode."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    for folder in (directory, directory / STATE):
        folder.mkdir(mode=0o700, exist_ok=True)


def missing_folders(directory: Path) -> list[Path]:
    """The folders that making a job here will make, its state first, then outwards. Raises: OSError."""
    return [folder for folder in (directory / STATE, directory, *directory.parents) if not folder.exists()]


def remove_made(made: Sequence[Path]) -> None:
    """Remove the folders that a failed start made, the innermost first; one that is not empty stays, with those around it."""
    for folder in made:
        with contextlib.suppress(OSError):
            folder.rmdir()


def take_lock(directory: Path) -> int:
    """Take the job's lock; it is held until the descriptor is closed. Raises: LockHeld, OSError."""
    return lock_file(directory / STATE / LOCK_FILE)


def _format_of(directory: Path) -> dict[str, object]:
    """The content of the format file; empty if it cannot be read."""
    try:
        content = json.loads((directory / STATE / FORMAT_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
