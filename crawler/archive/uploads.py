"""Copies finished WARC files and their indexes to another place: a folder, or what fsspec reaches (S3, SFTP …).

A file is copied after its index, and counts as copied when both are there under their final names; then its name goes into the
list `uploaded`, in the state folder, and it is never copied again. What fails is tried again with the next call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import structlog

from anabranch.crawler.archive.files import finished_files, index_beside
from anabranch.crawler.outcomes.errors import CrawlerError, OrderError, StorageError, storage_errors
from anabranch.dedup.files.durable import AppendOnlyFile
from anabranch.extras import install_command

log = structlog.get_logger(__name__)

#: Seconds between two looks for finished files; longer after a failure.
LOOK_S = 3.0
_AGAIN_S = 60.0

#: The list of files that were copied, one a line.
UPLOADED_FILE = "uploaded"
#: Ending of a file that is being copied, where the place can rename.
_PART = ".part"
#: Places of objects: what is there is whole, and renaming is another copy.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "adl"})


class UploadFailed(CrawlerError):
    """A file could not be copied; it is at its worker, and the next run tries again."""


class Uploaded(NamedTuple):
    """A file that has arrived."""

    file: str  #: its name
    address: str  #: where it is now
    size_bytes: int
    urls: frozenset[str]  #: of the records in it


class Uploads:
    """Copies what a folder of WARC files has and the list lacks. Calls block."""

    def __init__(
        self, warc: Path, state: Path, target: str, on_arrival: Callable[[Uploaded], None] | None = None
    ) -> None:
        """`target` is the URL of the folder. `on_arrival` is called for each file before it is in the list.

        Raises: OrderError without fsspec, or without what it needs for this kind of URL.
        """
        self._warc = warc
        self._list = state / UPLOADED_FILE
        self._on_arrival = on_arrival
        self._target = target.rstrip("/")
        self._files, self._root = _opened(self._target)
        self._done: set[str] | None = None
        self._copying = Lock()  # a copy goes on in its thread when its task was cancelled

    def copy(self) -> int:
        """Copy each finished file that was not copied yet, the oldest first; how many.

        Raises: UploadFailed for the first that cannot be copied, after all others; StorageError.
        """
        count, failed = 0, None
        with self._copying:
            done = self._known()
            for file in finished_files(self._warc):
                if file.name not in done:
                    try:
                        self._copy(file)
                    except UploadFailed as error:
                        failed = failed or error
                        continue
                    done.add(file.name)
                    count += 1
        if failed is not None:
            raise failed
        return count

    @property
    def left(self) -> int:
        """Finished files that were not copied yet."""
        done = self._known()
        return sum(file.name not in done for file in finished_files(self._warc))

    def _known(self) -> set[str]:
        if self._done is None:
            with storage_errors(self._list):
                text = self._list.read_text() if self._list.exists() else ""
            self._done = set(text.splitlines())
        return self._done

    def _copy(self, file: Path) -> None:
        index = index_beside(file)
        try:
            for one in (index, file):
                self._put(one)
            urls, address = frozenset(_urls_of(index)), f"{self._target}/{file.name}"
            if self._on_arrival is not None:
                self._on_arrival(Uploaded(file.name, address, file.stat().st_size, urls))
        except Exception as error:
            words = " ".join(str(error).split()) or type(error).__name__
            raise UploadFailed(f"{file.name}: cannot be copied to {self._target}: {words}") from error
        with storage_errors(self._list):
            listed = AppendOnlyFile(self._list)
            try:
                listed.append(f"{file.name}\n".encode())
                listed.keep()
            finally:
                listed.close()

    def _put(self, file: Path) -> None:
        place = f"{self._root}/{file.name}"
        self._files.makedirs(self._root, exist_ok=True)
        if self._target.partition("://")[0] in _OBJECT_STORES:
            self._files.put_file(str(file), place)
            return
        self._files.put_file(str(file), place + _PART)
        self._files.mv(place + _PART, place)


def _opened(target: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise OrderError(f"[write] upload {target!r}: needs fsspec; {install_command('upload')}") from error
    try:
        files, root = fsspec.core.url_to_fs(target)
    except (ImportError, ValueError) as error:
        raise OrderError(f"[write] upload {target!r}: {error}") from error
    return files, root


def _urls_of(index: Path) -> Iterator[str]:
    """The URLs of an index."""
    with index.open("rb") as lines:
        for line in lines:
            yield json.loads(line.split(b" ", 2)[2])["url"]


class Uploading:
    """Copies finished files while a crawl runs, and the last ones at its end."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads

    async def watch(self) -> None:
        """Copy what is finished, again and again, until cancelled. Failures are logged, and tried again."""
        while True:
            try:
                await asyncio.to_thread(self._uploads.copy)
                pause_s = LOOK_S
            except (UploadFailed, StorageError) as error:
                log.warning("a WARC file waits to be copied", reason=str(error))
                pause_s = _AGAIN_S
            await asyncio.sleep(pause_s)

    async def finish(self) -> None:
        """Copy what the end of the run has finished. Raises: UploadFailed, which says how many are left."""
        try:
            await asyncio.to_thread(self._uploads.copy)
        except UploadFailed as error:
            left = self._uploads.left
            raise UploadFailed(
                f"{error}; {left} finished files are at this machine only, the next run copies them"
            ) from error
