"""WARC files: appended group by group, full ones closed under their name, torn ones finished at the next opening.

    PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST.warc.gz.open    the file that grows, one gzip member per record
    PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST.cdxj.open       its index, as it grows; says nothing that the records do not
    ….warc.gz, ….cdxj                                   a finished file, and its sorted index

A file's index is written before the file gets its name, so that no finished file is without one.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from anabranch.crawler.archiving.exchanges import Exchange, Place
from anabranch.crawler.archiving.finishing import finish, finish_left_over, remove
from anabranch.crawler.archiving.growing import WARC, OpenWarc
from anabranch.crawler.jobs.durablefiles import sync_folder
from anabranch.crawler.jobs.journal import Entry
from anabranch.crawler.outcomes.errors import storage_errors

log = structlog.get_logger(__name__)

#: Visits whose records are made at once; what they say of links may be 1.5 MB of each.
AT_A_TIME = 16

_UNFIT_IN_NAME = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarcOptions:
    """How WARC files are named, how large they get, what they say of the crawl."""

    prefix: str
    size_bytes: int  #: a file that has reached it is finished
    facts: Mapping[str, str]  #: the fields of warcinfo
    is_alone: bool = True  #: nobody else writes to the folder; else only files of this prefix are ours


class WarcFiles:
    """The journal's sink for exchanges. Opening makes the folder and finishes what a killed process left in it.

    A file is made with the first exchange that needs it. The records of one visit stand in one file. The sinks behind are told
    where: in the entry, and by `note` in its line of crawl.log. Raises: StorageError from opening, OSError from `append`.
    """

    def __init__(
        self,
        folder: Path,
        options: WarcOptions,
        clock: Callable[[], float],
        note: Callable[[bytes, Place], bytes] = lambda line, _: line,
    ) -> None:
        self._folder = folder
        self._options = options
        self._clock = clock
        self._note = note
        with storage_errors(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
            finish_left_over(folder, "*" if options.is_alone else f"{options.prefix}-*")
            self._serial = sum(1 for _ in folder.glob(f"*{WARC}"))
        self._current: OpenWarc | None = None
        self._touched: list[OpenWarc] = []  # of this group, in order
        self._full: list[OpenWarc] = []  # to be finished before the next group

    @property
    def path(self) -> Path:
        """The file that grows, or else the folder."""
        return self._touched[-1].path if self._touched else self._current.path if self._current else self._folder

    def append(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Write the records of a group, with one sync per file (mostly: one); the entries with their places."""
        while self._full:
            self._finish(self._full[0])
            del self._full[0]
        places = iter(self._places([entry.exchange for entry in entries if entry.exchange is not None]))
        placed = [entry if entry.exchange is None else self._placed(entry, next(places)) for entry in entries]
        for warc in self._touched:
            warc.sync()
        return placed

    def keep(self) -> None:
        """The records count; full files are finished with the next group."""
        for warc in self._touched:
            warc.keep()
            if warc is not self._current:
                self._full.append(warc)
        self._touched.clear()

    def take_back(self) -> None:
        """Cut the records that do not count, and remove files that have no others."""
        if self._touched:
            self._current = None if self._touched[0].is_empty else self._touched[0]
        for warc in self._touched:
            warc.take_back()
            if warc.is_empty:
                warc.close()
                with suppress(OSError):
                    remove(self._folder, warc.name)
        self._touched.clear()

    def close(self) -> None:
        """Finish the files. What cannot be finished now is finished by the next opening."""
        left = [*self._full, *filter(None, [self._current])]
        self._full, self._current = [], None
        for warc in left:
            try:
                self._finish(warc)
            except OSError as error:
                log.warning(
                    "a WARC file is left open; the next run finishes it", path=str(warc.path), reason=str(error)
                )

    def _places(self, exchanges: Sequence[Exchange]) -> list[Place]:
        """Add the records of all, some at a time; where they stand."""
        places: list[Place] = []
        while len(places) < len(exchanges):
            some = exchanges[len(places) : len(places) + AT_A_TIME]
            places += self._writable().add(some, self._options.size_bytes)
        return places

    def _placed(self, entry: Entry, place: Place) -> Entry:
        line = None if entry.crawl_log is None else self._note(entry.crawl_log, place)
        return entry._replace(crawl_log=line, place=place)

    def _writable(self) -> OpenWarc:
        """The file for the next exchange, ready for this group."""
        warc = self._current
        if warc is not None and warc.size_bytes >= self._options.size_bytes:
            if warc not in self._touched:  # else `keep` does it
                self._full.append(warc)
            warc = self._current = None
        if warc is None:
            warc = self._current = self._opened()
        elif warc not in self._touched:
            warc.begin()
            self._touched.append(warc)
        return warc

    def _opened(self) -> OpenWarc:
        now_s = self._clock()
        warc = OpenWarc(self._folder, _name(self._options.prefix, now_s, self._serial))
        self._serial += 1
        self._touched.append(warc)
        warc.add_info(now_s, self._options.facts)
        return warc

    def _finish(self, warc: OpenWarc) -> None:
        warc.begin()  # a torn record must not get the name of a whole file
        warc.close()
        finish(self._folder, warc.name)


def _name(prefix: str, made_s: float, serial: int) -> str:
    """`PREFIX-yyyymmddhhmmssSSS-NNNNN-HOST`."""
    made = datetime.fromtimestamp(made_s, UTC)
    host = _UNFIT_IN_NAME.sub("-", socket.gethostname()) or "localhost"
    return f"{prefix}-{made:%Y%m%d%H%M%S}{made.microsecond // 1000:03}-{serial:05}-{host}"
