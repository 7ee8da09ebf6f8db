"""Where a filter stands: which filter it is, and how many syncs made new marks durable.

Who notes a position beside what he marked can tell later whether a filter still knows it: not if it is an older copy, a new
filter, or another one. File POSITION, JSON: `magic`, `version`, `parameters` (none), `filter`, 32 random hex digits, and
`syncs`, from 1. It is written after all that it stands for, so it is never ahead; copy a filter's folder while it is closed.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from anabranch.dedup.durablefiles import replace_file
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.folderformat import Format, read_record

NAME = "POSITION"

_FORMAT = Format(magic="anabranch filter position", version=1, parameters={})


class Position:
    """The position of one folder's filter. `advance` belongs to one caller at a time, in all processes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._filter, self._syncs = self._read()

    def __str__(self) -> str:
        """The filter's name, a hyphen, the number of syncs; empty before the first one."""
        return f"{self._filter}-{self._syncs}" if self._syncs else ""

    def forget(self) -> None:
        """Begin again with another name: marks that the position stood for are lost. Raises: OSError."""
        self._path.unlink(missing_ok=True)
        self._filter, self._syncs = "", 0

    def advance(self) -> None:
        """Record durably that one more sync made marks durable. Raises: OSError, FormatMismatch."""
        name, syncs = self._read()  # another process may have advanced it
        name, syncs = name or secrets.token_hex(16), syncs + 1
        replace_file(self._path, json.dumps(_FORMAT.record() | {"filter": name, "syncs": syncs}).encode() + b"\n")
        self._filter, self._syncs = name, syncs

    def _read(self) -> tuple[str, int]:
        if not self._path.exists():
            return "", 0
        try:
            return _parsed(self._path)
        except FormatMismatch as error:
            raise FormatMismatch(f"{error}; remove it to have every key marked again") from error


def _parsed(path: Path) -> tuple[str, int]:
    found = read_record(path)
    _FORMAT.require(path, found)
    match found:
        case {"filter": str(name), "syncs": int(syncs)} if name and syncs > 0:
            return name, syncs
    raise FormatMismatch(f"{path} is damaged: it does not hold a name and a number")
