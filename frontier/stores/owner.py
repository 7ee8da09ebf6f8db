"""Who holds a store: a line for whoever is refused.

The lock is the database's own and goes with its holder; this line only tells who that is, so a stale one is harmless.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

#: What the file begins with: its kind and version.
_HEADER = "anabranch owner 1"
_LONGEST = 1000  #: characters; a longer file is not ours


def owner_line(now_s: float) -> str:
    """How an owner is called that is this process: `process 4711 on host crawler-1 since 2026-11-21 21:03:02 UTC`."""
    since = datetime.fromtimestamp(now_s, UTC)
    return f"process {os.getpid()} on host {socket.gethostname()} since {since:%Y-%m-%d %H:%M:%S} UTC"


class OwnerFile:
    """The line in a small text file beside a database."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(f"{database.name}.owner")

    def write(self, line: str) -> None:
        """Write it; the lock must be had. Raises: OSError."""
        self._path.write_text(f"{_HEADER}\n{line}\n", encoding="utf-8")

    def read(self) -> str | None:
        """The line that is there; None if there is none that can be read."""
        try:
            with self._path.open(encoding="utf-8") as file:
                header, line, *_ = file.read(_LONGEST).split("\n")
        except (OSError, ValueError):
            return None
        return line if header == _HEADER and line else None

    def remove(self) -> None:
        """Take it away; the lock must be had still. What cannot be removed stays."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
