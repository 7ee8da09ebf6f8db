"""Notices of ended runs that a console has not delivered yet: a file each in its folder, so a restart loses none.

    run ends -> `add` -> notices/ID.KIND.json -> delivered: the file goes; not: tried again, at growing distances, then given up

Notices that were given up stay, to be seen, until others need their place. Of several consoles with one folder one delivers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import structlog

from anabranch.crawler.operate import Facts, Notice, NoticeTargets, Undelivered, deliver
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.dedup.files.durable import checked_json, checked_line, replace_file
from anabranch.dedup.files.locks import LockHeld, lock_file

log = structlog.get_logger(__name__)

_FOLDER, _ENDS, _LOCK = "notices", "ends.json", "lock"
#: Seconds after the first failure, the second one, …; after the last the notice is given up.
WAITS_S = (10.0, 60.0, 300.0, 1800.0, 7200.0, 21_600.0, 43_200.0)
#: Files; the oldest one goes for a new one, of those that were given up first.
MOST_KEPT = 1000


class Kept(NamedTuple):
    """A notice that is to go to one target."""

    notice: Notice
    kind: str  #: the target: command or webhook
    tries: int = 0
    next_s: float | None = 0.0  #: when it is tried next, epoch seconds; None: it was given up
    error: str = ""  #: of the last try


def take_outbox(folder: Path) -> int:
    """Lock the notices of a console's folder while the process lives; the descriptor. Raises: UsageError, StorageError."""
    file = folder / _FOLDER / _LOCK
    with storage_errors(file):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            return lock_file(file)
        except LockHeld as held:
            raise UsageError(
                f"--on-end-command, --on-end-webhook: process {held.process} delivers the notices of {folder}; "
                "give this console another folder (--state), or leave the options out"
            ) from held


class NoticeOutbox:
    """The notices of one console. Its methods may be called by any thread. Raises: StorageError."""

    def __init__(self, folder: Path, targets: NoticeTargets) -> None:
        self.targets = targets
        self._folder = folder / _FOLDER
        self._changing = Lock()
        with storage_errors(self._folder):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._kept = {file: kept for file in sorted(self._folder.glob("*.*.json")) if (kept := _read(file))}

    def add(self, notice: Notice) -> None:
        """Keep a notice for each target. One that is kept already stays as it is."""
        with self._changing:
            for kind in self.targets.kinds:
                file = self._folder / f"{notice.id}.{kind}.json"
                if file not in self._kept:
                    self._make_room()
                    self._write(file, Kept(notice, kind))

    def deliver_due(self, now_s: float) -> float | None:
        """Try those that are due, the oldest first (blocks); when the next one is due, if any is."""
        with self._changing:
            due = [(file, kept) for file, kept in self._kept.items() if kept.next_s is not None]
        for file, kept in sorted(due, key=lambda one: one[1].notice.made_s):
            if kept.next_s is not None and kept.next_s <= now_s:
                self._try(file, kept, now_s)
        with self._changing:
            return min((kept.next_s for kept in self._kept.values() if kept.next_s is not None), default=None)

    def facts(self, job: str) -> list[Facts]:
        """The notices of a job that were not delivered, the newest first."""
        with self._changing:
            found = [kept for kept in self._kept.values() if kept.notice.job == job]
        return [
            {"id": one.notice.id, "to": one.kind, "made_s": one.notice.made_s, "tries": one.tries}
            | {"next_s": one.next_s, "error": one.error}
            for one in sorted(found, key=lambda one: -one.notice.made_s)
        ]

    def failed(self) -> Iterator[str]:
        """The job of each notice that was tried in vain."""
        with self._changing:
            jobs = [kept.notice.job for kept in self._kept.values() if kept.tries]
        yield from jobs

    def _try(self, file: Path, kept: Kept, now_s: float) -> None:
        try:
            deliver(kept.notice, kept.kind, self.targets, now_s)
        except Undelivered as error:
            tries = kept.tries + 1
            next_s = now_s + WAITS_S[kept.tries] if kept.tries < len(WAITS_S) else None
            log.warning(
                "a notice was not delivered",
                job=kept.notice.job,
                tries=tries,
                reason=str(error),
                again=next_s is not None,
            )
            with self._changing:
                self._write(file, kept._replace(tries=tries, next_s=next_s, error=str(error)))
            return
        with self._changing:
            self._remove(file)

    def _make_room(self) -> None:
        while len(self._kept) >= MOST_KEPT:
            file = min(self._kept, key=lambda one: (self._kept[one].next_s is not None, self._kept[one].notice.made_s))
            log.warning("a notice was dropped for newer ones", job=self._kept[file].notice.job)
            self._remove(file)

    def _write(self, file: Path, kept: Kept) -> None:
        self._kept[file] = kept
        with storage_errors(file):
            replace_file(file, checked_line(json.dumps(kept).encode()))

    def _remove(self, file: Path) -> None:
        self._kept.pop(file, None)
        with storage_errors(file):
            file.unlink(missing_ok=True)


def _read(file: Path) -> Kept | None:
    """A notice; None if the file is damaged, which is logged. Raises: OSError."""
    try:
        notice, *others = checked_json(file.read_bytes())
        return Kept(Notice(*notice), *others)
    except (ValueError, TypeError, RecursionError):
        log.warning("a notice is damaged, and left out", file=str(file))
        return None


class KnownEnds:
    """Which run of each job was noticed last, in a file of the console's folder."""

    def __init__(self, folder: Path, now_s: float) -> None:
        """`now_s`: runs of unknown jobs that ended before the file was made are no news."""
        self._file = folder / _FOLDER / _ENDS
        self._since_s, self._began_s = now_s, dict[str, float]()
        with storage_errors(self._file), suppress(FileNotFoundError, ValueError, TypeError, RecursionError):
            self._since_s, self._began_s = checked_json(self._file.read_bytes())
        self._write()

    def is_news(self, place: str, began_s: float, ended_s: float) -> bool:
        """Whether nobody was told of the end of this run."""
        known_s = self._began_s.get(place)
        return began_s != known_s and (known_s is not None or ended_s >= self._since_s)

    def note(self, place: str, began_s: float) -> None:
        """The end of this run is known, and was told if it is news."""
        if self._began_s.get(place) != began_s:
            self._began_s[place] = began_s
            self._write()

    def forget(self, place: str) -> None:
        """The job has gone."""
        if self._began_s.pop(place, None) is not None:
            self._write()

    def places(self) -> list[str]:
        """The places of the jobs that are known."""
        return list(self._began_s)

    def _write(self) -> None:
        with storage_errors(self._file):
            replace_file(self._file, checked_line(json.dumps([self._since_s, self._began_s]).encode()))
