"""A job's folder, as far as a Frontier is concerned: what says that it is one, and who holds it.

    FOLDER/order.toml    FOLDER/state/{format.json, lock, frontier.db, seen/, leases}

Of a job that a host program made, `format.json` says so: it has no seeds and no scope, and only that program can go on with it.

One process at a time holds a job, by a lock on a file. A lock on a file without a name keeps nobody out: so a crawl never
removes the file, and whoever gets the lock of a file that was removed, as a host program's job may be, takes that of the next
one. The lock ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path

FORMAT = "anabranch job"
#: Raise it with every change of a folder that an older program would misread. Folders of older versions are brought to it.
VERSION = 2

#: The order that the job was run by last, in its folder; the others are in its state folder.
ORDER_FILE = "order.toml"
STATE = "state"
FORMAT_FILE = "format.json"
LOCK_FILE = "lock"
#: What a host that runs has in flight.
LEASES_FILE = "leases"
#: Ending of files that are being written; such a file means nothing and may be removed.
UNFINISHED = ".new"

_EMBEDDED = "embedded"  # in the format file


class Held(Exception):
    """Another process holds the job."""

    def __init__(self, process: int | None) -> None:
        super().__init__(process)
        self.process = process  #: its id, if it has said so


def is_job(directory: Path) -> bool:
    """The folder is a job's: it says so itself. A path that no file can have is none."""
    try:
        return (directory / STATE / FORMAT_FILE).is_file()
    except OSError:
        return False


def is_embedded(directory: Path) -> bool:
    """The job is a host program's. A file that says nothing of it, or cannot be read, is none's."""
    return _said(directory).get(_EMBEDDED) is True


def is_readable(directory: Path) -> bool:
    """The job was written in a format that this program reads: its own, or an older one."""
    said = _said(directory)
    version = said.get("version")
    return said.get("format") == FORMAT and isinstance(version, int) and 1 <= version <= VERSION


def is_being_made(state: Path) -> bool:
    """The state of a job whose making was broken off, or goes on elsewhere: it has its lock and little else.

    Raises: OSError.
    """
    names = {entry.name for entry in state.iterdir()} if state.is_dir() else {""}
    return names <= {LOCK_FILE, FORMAT_FILE, FORMAT_FILE + UNFINISHED}


def format_text(*, embedded: bool = False) -> bytes:
    """What the format file of a new job says; `embedded`: it is a host program's."""
    said = {"format": FORMAT, "version": VERSION, **({_EMBEDDED: True} if embedded else {})}
    return f"{json.dumps(said)}\n".encode()


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
    """The lock's descriptor, held until it is closed. Raises: Held, OSError."""
    while True:
        lock = _locked(directory)
        if _has_name(lock, directory):
            return lock
        os.close(lock)


def _locked(directory: Path) -> int:
    lock = os.open(directory / STATE / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(PermissionError):  # it is another user's
            os.fchmod(lock, 0o600)  # older versions made it for all to take
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        process = holder(lock)
        os.close(lock)
        raise Held(process) from error
    except OSError:
        os.close(lock)
        raise
    return lock


def _has_name(lock: int, directory: Path) -> bool:
    """The file was not removed between its opening and its lock."""
    try:
        named = (directory / STATE / LOCK_FILE).stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(lock), named)


def holder(lock: int) -> int | None:
    """The process that wrote its id into the lock's file. It counts for nothing as long as nobody holds the lock."""
    said = os.pread(lock, 32, 0).strip()
    return int(said) if said.isdigit() else None


def _said(directory: Path) -> dict[str, object]:
    """What the format file says; nothing if it cannot be read."""
    try:
        said = json.loads((directory / STATE / FORMAT_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
