"""A file of credentials in the console's own folder: a JSON list that a command may change while the console reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from anabranch.crawler.outcomes.errors import StorageError, storage_errors
from anabranch.dedup.files.durable import replace_file
from anabranch.dedup.files.locks import folder_turn

T = TypeVar("T")


class CredentialFile(Generic[T]):
    """The entries of one file. A change by another process counts from the next question on."""

    def __init__(self, path: Path, entry: Callable[..., T], row: Callable[[T], Sequence[Any]], remedy: str) -> None:
        """`entry` makes an entry of the values of a row, `row` the opposite; `remedy`: what to do if the file is damaged."""
        self.path = path
        self._entry, self._row, self._remedy = entry, row, remedy
        self._read_at: tuple[int, int] | None = None
        self._entries: list[T] = []

    def entries(self) -> list[T]:
        """All entries; none without a file. Cost: a look at the file's times. Raises: StorageError."""
        try:
            with storage_errors(self.path):
                if not self.path.exists():
                    return []
                status = self.path.stat()
                if (status.st_mtime_ns, status.st_ino) != self._read_at:
                    self._entries = self._parsed(json.loads(self.path.read_bytes()))
                    self._read_at = (status.st_mtime_ns, status.st_ino)
        except (ValueError, TypeError) as error:
            raise StorageError(f"{self.path}: cannot be read; remove it, and {self._remedy} again") from error
        return [*self._entries]

    def _parsed(self, rows: object) -> list[T]:
        """Raises: ValueError, TypeError for what is no list of rows."""
        if not isinstance(rows, list):
            raise TypeError("no list")
        return [self._entry(*row) for row in rows]

    @contextmanager
    def changed(self) -> Iterator[list[T]]:
        """The entries, to be changed in place. No other process changes them meanwhile. Raises: StorageError."""
        with storage_errors(self.path, "folder of the console"), folder_turn(self.path.parent):
            entries = self.entries()
            yield entries
            text = json.dumps([self._row(entry) for entry in entries])
            replace_file(self.path, text.encode())  # readable by the owner alone
