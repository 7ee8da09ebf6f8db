"""The entries of a visit (`JournalEntry`), the files that take them (`JournalSink`), and their record (`GroupRecord`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from anabranch.crawler.archive.records import Exchange, NameRecord, RecordLocation
from anabranch.dedup.files.durable import FileMark


class JournalEntry(NamedTuple):
    """The result of one visit: lines with their newline, and an exchange; None for nothing."""

    crawl_log: bytes | None = None
    pages: bytes | None = None
    links: bytes | None = None
    errors: bytes | None = None
    exchange: Exchange | None = None
    name: NameRecord | None = None  #: a name that was looked up
    place: RecordLocation | None = None  #: of the exchange's record; the WARC files fill it in for the sinks after them

    @property
    def is_fit(self) -> bool:
        """Whether each line ends with its newline; a line without one would be cut as torn."""
        for line in (self.crawl_log, self.pages, self.links, self.errors):
            if line is not None and line[-1:] != b"\n":
                return False
        return True


class JournalSink(Protocol):
    """Files for groups of entries. The journal's thread calls `append`, then `keep` if all succeeded, or `take_back`."""

    @property
    def path(self) -> Path:
        """The file that a failure is about, for the operator."""

    def follow(self) -> bool:
        """Follow a file that an operator moved or cut; whether one was. Raises: OSError."""
        return False

    def marks(self) -> Mapping[str, FileMark]:
        """The ends of the files that grow, with the group that was appended; after `close`, of those that were left so.

        Raises: OSError.
        """
        return {}

    def append(self, entries: Sequence[JournalEntry]) -> Sequence[JournalEntry] | None:
        """Write the group, durably if the next run needs it. Returns the entries for the next sinks; None = unchanged.

        Raises: OSError, possibly half done.
        """

    def keep(self) -> None:
        """Commit what was appended. Must not fail."""

    def take_back(self) -> None:
        """Remove what was appended since `keep`, as far as the disk allows. Must not fail."""

    def close(self) -> None:
        """Close the file. Must not fail; a second call does nothing."""


class GroupRecord(Protocol):
    """The record by which a group counts: written after all sinks, in one piece. The journal's thread calls it."""

    @property
    def path(self) -> Path:
        """The file that a failure is about, for the operator."""

    @property
    def files(self) -> Mapping[str, FileMark] | None:
        """The ends of the files behind the last group that was recorded; None if none ever was."""

    def begin(self, files: Mapping[str, FileMark], /) -> None:
        """Record the files before the first group. Raises: OSError."""

    def append(self, entries: Sequence[JournalEntry], files: Mapping[str, FileMark], /) -> None:
        """Record a group and the files with it, durably. Raises: OSError, possibly half done."""

    def keep(self) -> None:
        """The group counts. Must not fail."""

    def take_back(self) -> None:
        """Remove what was appended since `keep`. Raises: OSError; then the group may count."""

    def settle(self, files: Mapping[str, FileMark], /) -> None:
        """All sinks were closed in order, and left only these files to the next run. Must not fail."""

    def close(self) -> None:
        """Close the file. Must not fail; a second call does nothing."""
