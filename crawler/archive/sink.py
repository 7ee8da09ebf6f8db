"""The archived result of a visit (`JournalEntry`) and the interface of the files that it is written to (`JournalSink`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from anabranch.crawler.archive.records import Exchange, RecordLocation


class JournalEntry(NamedTuple):
    """The result of one visit: lines with their newline, and an exchange; None for nothing."""

    crawl_log: bytes | None = None
    pages: bytes | None = None
    links: bytes | None = None
    errors: bytes | None = None
    exchange: Exchange | None = None
    place: RecordLocation | None = None  #: of the exchange's record; the WARC files fill it in for the sinks after them

    @property
    def is_fit(self) -> bool:
        """Whether each line ends with its newline; a line without one would be cut as torn."""
        for line in (self.crawl_log, self.pages, self.links, self.errors):
            if line is not None and line[-1:] != b"\n":
                return False
        return True


class JournalSink(Protocol):
    """A file for groups of entries. The journal's thread calls `append`, then `keep` if all sinks succeeded, or `take_back`."""

    @property
    def path(self) -> Path:
        """The file that a failure is about, for the operator."""

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
