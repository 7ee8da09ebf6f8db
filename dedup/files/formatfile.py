"""The FORMAT file: what a folder is, in which version, made with which parameters.

JSON: `magic`, `version`, `parameters`, and `complete`, false until all files of the folder exist. So a crash while a folder
is made is no damage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.files.durable import UNFINISHED, replace_file, store_full_errors, sync_folder

NAME = "FORMAT"

Parameters: TypeAlias = Mapping[str, str | int | float | list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The kind, version and parameters that a folder must have to be opened."""

    magic: str  #: the kind of folder
    version: int  #: of the layout; a reader knows one version
    parameters: Parameters  #: what must be equal to share the files

    def record(self) -> dict[str, object]:
        """The format as the start of a JSON object."""
        return {"magic": self.magic, "version": self.version, "parameters": dict(self.parameters)}

    def require(self, path: Path, found: Mapping[str, object]) -> None:
        """Raise `FormatMismatch`, naming each difference, unless `found` (read from `path`) is this format."""
        if found.get("magic") != self.magic:
            raise FormatMismatch(f"{path} is not the file of an {self.magic}")
        if found.get("version") != self.version:
            raise FormatMismatch(f"{path} has version {found.get('version')!r}, this program reads {self.version}")
        there = found.get("parameters")
        wrong = differences(there, self.parameters) if isinstance(there, dict) else ["parameters are missing"]
        if wrong:
            raise FormatMismatch(f"{path} was made with other parameters: {'; '.join(wrong)}")


def differences(there: Mapping[str, object], here: Parameters) -> list[str]:
    """One phrase for each name with different values; empty if all agree."""
    names = sorted(there.keys() | here.keys())
    return [
        f"{name} is {there.get(name)!r} in the folder, {here.get(name)!r} here"
        for name in names
        if there.get(name) != here.get(name)
    ]


def read_record(path: Path) -> dict[str, object]:
    """The JSON object in a file. Raises: FormatMismatch for other content, OSError."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # the latter for thousands of brackets
        raise FormatMismatch(f"{path} is damaged: it is not JSON") from error
    if not isinstance(found, dict):
        raise FormatMismatch(f"{path} is damaged: it is not a JSON object")
    return found


def adopt(folder: Path, wanted: Format) -> bool:
    """True if the folder is complete; False if it is new or half made: fill it and call `complete`. Raises: FormatMismatch."""
    path = folder / NAME
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        found = read_record(path)
        wanted.require(path, found)
        return found.get("complete") is True
    if any(not entry.name.endswith(UNFINISHED) for entry in folder.iterdir()):
        raise FormatMismatch(f"{folder} is not empty and has no {NAME} file: not the folder of an {wanted.magic}")
    _write(path, wanted, complete=False)
    return False


def complete(folder: Path, wanted: Format) -> None:
    """Declare, durably, that all files of the folder are there."""
    sync_folder(folder)
    _write(folder / NAME, wanted, complete=True)
    sync_folder(folder.parent)


def _write(path: Path, wanted: Format, *, complete: bool) -> None:
    record = wanted.record() | {"complete": complete}
    with store_full_errors(path):
        replace_file(path, json.dumps(record, indent=1).encode() + b"\n")
