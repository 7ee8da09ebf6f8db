"""Dumps and journals as files: written whole or not at all, read whatever they are."""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from anabranch.crawler.jobs.durablefiles import UNFINISHED, descriptor, sync_file, sync_folder
from anabranch.crawler.outcomes.errors import UsageError, storage_error, storage_errors
from anabranch.crawler.urls.canonicalization import KeyOf
from anabranch.crawler.urls.parsing import canonical
from anabranch.frontier.core import Frontier
from anabranch.frontier.operating.dumpreading import load_dump
from anabranch.frontier.operating.load import LoadReport
from anabranch.frontier.operating.recovery import Journal, load_journal

_GZIP = b"\x1f\x8b"
#: The beginning of a line of Heritrix's journal.
_JOURNAL = re.compile(rb"(?:F[+sdefri]|T|E) ")
#: So much of a file is looked at to tell what it is.
_HEAD_BYTES = 4096
_TORN = (EOFError, zlib.error, gzip.BadGzipFile)


def write_dump(lines: Iterable[str], file: Path | None) -> None:
    """Write the lines to standard output, or to a file, compressed if its name ends in `.gz`.

    The file appears when it is whole and on the disk; what was there before stays until then. A link is followed; a pipe or a
    device is written to as it is. Raises: StorageError; BrokenPipeError.
    """
    if file is None:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
        return
    with _output_errors(file):
        is_gzip = file.suffix == ".gz"
        if file.exists() and not file.is_file():
            with _writing(file, is_gzip=is_gzip) as out:
                out.writelines(lines)
            return
        _replace(Path(os.path.realpath(file)), lines, is_gzip=is_gzip)


def _replace(file: Path, lines: Iterable[str], *, is_gzip: bool) -> None:
    unfinished = file.with_name(file.name + UNFINISHED)
    try:
        with _writing(unfinished, is_gzip=is_gzip) as out:
            out.writelines(lines)
        with descriptor(unfinished, os.O_RDWR) as fd:
            sync_file(fd)
        unfinished.replace(file)
        sync_folder(file.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def _output_errors(file: Path) -> Iterator[None]:
    """As `storage_errors`; that nobody reads a pipe any more stays what it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, file, "--output") from error


def is_journal(file: Path) -> bool:
    """It is Heritrix's recovery journal; False: it is a dump. Raises: UsageError for what is neither, and for no file."""
    try:
        with file.open("rb") as plain:
            head = _plain(plain.read(_HEAD_BYTES)).lstrip()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"{file}: cannot be read: {words.lower()}") from error
    if head.startswith(b"{"):
        return False
    if _JOURNAL.match(head):
        return True
    raise UsageError(f"{file}: neither a dump nor a Heritrix recovery journal; nothing was loaded")


def load_file(frontier: Frontier, file: Path, key: KeyOf, *, failures: bool, disregarded: bool) -> LoadReport:
    """Load a dump, which has its keys for dedup, or a journal, whose URLs are made canonical and get them (blocks).

    Raises: UsageError, DumpDamaged, FormatMismatch, StorageError, StoreUnavailable.
    """
    if is_journal(file):
        journal = Journal([file], failures=failures, disregarded=disregarded, canonical=canonical, key=key)
        with storage_errors(file, "FILE"):
            return load_journal(journal, frontier.loading)
    if failures or disregarded:
        raise UsageError("--failures and --disregarded are for Heritrix's journal; a dump says how each URL ended")
    with storage_errors(file, "FILE"), _opened(file) as lines:
        return load_dump(_up_to_the_tear(lines), frontier.loading, name=file.name)


def _plain(head: bytes) -> bytes:
    """The beginning of a file, decompressed as far as it goes; empty if it cannot be."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head)
    except zlib.error:
        return b""


@contextmanager
def _writing(file: Path, *, is_gzip: bool) -> Iterator[IO[str]]:
    with gzip.open(file, "wt", encoding="ascii") if is_gzip else file.open("w", encoding="ascii") as out:
        yield out


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    with file.open("rb") as plain:
        is_gzip = plain.read(len(_GZIP)) == _GZIP
        plain.seek(0)
        if is_gzip:
            with gzip.open(plain) as inner:
                yield inner  # type: ignore[misc]
        else:
            yield plain


def _up_to_the_tear(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file whose compressed stream may end too early; the reader notices that its end is missing."""
    try:
        yield from lines
    except _TORN:
        return
