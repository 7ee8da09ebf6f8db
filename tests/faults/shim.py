"""Processes in which one chosen call of the system fails, or kills them: `shim.c`, compiled here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest.mock import patch

from tests.acceptance import forkserver

SOURCE = Path(__file__).with_name("shim.c")
COMPILER = shutil.which("cc")
#: The modules that a server of processes with the shim imports; it is another one than that of processes without.
PRELOAD = (*forkserver.ROOMS, "json")


class Call(NamedTuple):
    """One call on a file of the watched folder."""

    number: int  #: among those of the process
    kind: str  #: w write, f sync, r rename, t truncate, o create, m map
    path: str
    failed: bool


def compiled(*folders: Path) -> Path:
    """The library, made in the first of these folders from which code may run: containers mount /dev/shm without that.

    Raises: StopIteration: code may run from none. subprocess.CalledProcessError.
    """
    library = next(folder for folder in folders if not os.statvfs(folder).f_flag & os.ST_NOEXEC) / "shim.so"
    command = [COMPILER or "cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


@contextmanager
def preloaded() -> Iterator[None]:
    """While entered, processes that are started from `PRELOAD` have the library, and so has every fresh one.

    A server of processes that was started before would not have it, and one that has it must not outlast it.
    """
    forkserver.close_all()
    with TemporaryDirectory() as folder, TemporaryDirectory(dir=sys.prefix) as beside_installed_code:
        library = compiled(Path(folder), Path(beside_installed_code))
        with patch.dict(os.environ, LD_PRELOAD=str(library)):
            try:
                yield
            finally:
                forkserver.close_all()


def variables(folder: Path, log: Path) -> dict[str, str]:
    """Return the variables by which a process counts its calls on the files in a folder, and lists them in the log."""
    return {"FAULT_PATH": str(folder), "FAULT_LOG": str(log)}


def fault(number: int, error: str, *, calls: int = 1) -> dict[str, str]:
    """Return the additional variables by which a call fails.

    `error` is an errno, KILL, TEAR or SHORT. `calls` is how many calls fail; 0: all from there on.
    """
    return {"FAULT_N": str(number), "FAULT_ERROR": error, "FAULT_CALLS": str(calls)}


def calls_in(log: Path) -> list[Call]:
    """The calls that were listed."""
    found = []
    for line in log.read_text().splitlines():
        number, kind, rest = line.split(" ", 2)
        found.append(Call(int(number), kind, rest.removesuffix(" FAULT"), rest.endswith(" FAULT")))
    return found
