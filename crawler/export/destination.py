"""The place of an export: a file, or a folder of files, that appears under its name when all of it is whole and durable.

Until then each file has the ending `.new`. What is there already is replaced only if the operator wants it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.dedup.files.durable import UNFINISHED, sync_folder, sync_path


class Destination:
    """A place for an export. Entering refuses or makes it; leaving names the files, or removes them after an error."""

    def __init__(self, path: Path, job: Path, *, is_folder: bool, force: bool) -> None:
        self.path = path
        self._job = job
        self._is_folder = is_folder
        self._force = force
        self._files: list[Path] = []
        self._is_made = False

    def __enter__(self) -> Self:
        """Raises: UsageError for a place that must not be written to; StorageError."""
        with storage_errors(self.path, "--out"):
            self._refuse()
            if self._is_folder and not self.path.is_dir():
                self.path.mkdir()
                self._is_made = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                with storage_errors(self.path, "--out"):
                    self._finish()
        finally:
            self._remove_unfinished()

    @property
    def folder(self) -> Path:
        """The folder of the files, for files that are needed meanwhile."""
        return self.path if self._is_folder else self.path.parent

    def file(self, name: str = "") -> Path:
        """The path under which a file of the folder is written, or the only file; it is new."""
        final = self.path / name if self._is_folder else self.path
        unfinished = final.with_name(final.name + UNFINISHED)
        unfinished.unlink(missing_ok=True)  # what a killed export left means nothing
        self._files.append(final)
        return unfinished

    def _refuse(self) -> None:
        place = self.path.resolve()
        if place == self._job.resolve() or self._job.resolve() in place.parents:
            raise UsageError(f"{self.path}: is in the folder of the job; name another place with --out")
        if not os.path.lexists(self.path):
            return
        if self.path.is_dir() != self._is_folder:
            what = "a folder" if self._is_folder else "a file"
            raise UsageError(f"{self.path}: exists, and {what} is to be written; name another place with --out")
        if not self._force and (not self._is_folder or any(self.path.iterdir())):
            raise UsageError(f"{self.path}: exists; name another place with --out, or replace it with --force")

    def _finish(self) -> None:
        for final in self._files:
            sync_path(final.with_name(final.name + UNFINISHED))
        for final in self._files:
            if not self._force and os.path.lexists(final):  # made meanwhile
                raise UsageError(f"{final}: exists; name another place with --out, or replace it with --force")
            final.with_name(final.name + UNFINISHED).replace(final)
        sync_folder(self.folder)

    def _remove_unfinished(self) -> None:
        for final in self._files:
            with suppress(OSError):
                final.with_name(final.name + UNFINISHED).unlink(missing_ok=True)
        if self._is_made:
            with suppress(OSError):  # it has the files
                self.path.rmdir()
