"""The files of an exact index: runs and their merging, the log of the tail, and the manifest that names those that count.

MANIFEST is JSON: `magic`, `version`, `parameters`, `runs` and `log` (the numbers of files), and `seal` (bytes and CRC-32
that the log started with when the manifest was written; null or missing: unknown). `sync` writes it if other files count
than before, and the end if anything changed; all other files are removed at the next opening. So a crash at any moment
leaves what was synced, and a cut or changed log is noticed. Runs: `runs.py`; logs: `tail.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

import numpy as np

from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.exact.runs import RunWriter, SortedRun, ranked, write_run
from anabranch.dedup.exact.tail import HEADER_BYTES, Seal, TailLog
from anabranch.dedup.files.durable import UNFINISHED, replace_file, store_full_errors, sync_folder, sync_path
from anabranch.dedup.files.formatfile import Format, read_record


class RunMerge:
    """The merge of some runs without common elements, which serve until it is done."""

    def __init__(self, sources: Sequence[SortedRun], path: Path, number: int) -> None:
        self.sources = tuple(sources)
        self._places = [0] * len(sources)
        #: Elements that are still to be moved.
        self.remaining = sum(run.count for run in sources)
        #: It finishes the run of all elements, once none remains.
        self.writer = RunWriter(path, number, self.remaining)

    def step(self, elements: int) -> int:
        """Move about `elements` elements, 1 or more; returns how many. Raises: StoreFull with nothing moved."""
        stops = self._stops(max(1, elements // len(self.sources)))
        stretches = zip(self.sources, self._places, stops, strict=True)
        parts = [run.part(start, stop) for run, start, stop in stretches if start < stop]
        highs, lows = (np.concatenate(halves) for halves in zip(*parts, strict=True))
        self.writer.append(*ranked(highs, lows))
        self._places = stops
        self.remaining -= len(highs)
        return len(highs)

    def _stops(self, each: int) -> list[int]:
        """Return the end of each run's next part: at most `each` elements, more only to keep equal high halves together."""
        stretches = list(zip(self.sources, self._places, strict=True))
        bounds = [run.high(start + each - 1) for run, start in stretches if start + each < run.count]
        if not bounds:
            return [run.count for run in self.sources]
        return [run.place_above(min(bounds), start) for run, start in stretches]


MANIFEST = "MANIFEST"
#: Elements that a merge moves for each one that is marked. An element is moved at most log2(n / tail) times in all, so
#: merging keeps up with marking up to n = 2^32 tails, and is done before marking has added 1/32 of what is merged.
MOVES_PER_KEY = 32
#: With more runs than this a merge is done in one call: sessions that end before their merge could else pile them up.
MOST_RUNS = 32

_FORMAT = Format(magic="anabranch exact index", version=1, parameters={})
_Named: TypeAlias = tuple[list[int], int, Seal | None]  # runs, log, seal of the log
_PARTS_PER_TAIL = 4  # of a merge: the smaller a part, the shorter a call; below some 10,000 elements parts cost more


class RunFolder:
    """`tail` and `runs`, oldest run first, are the set. Only `sync` may run in another thread at the same time."""

    def __init__(self, folder: Path, tail_elements: int) -> None:
        self._folder = folder
        self._tail_elements = tail_elements
        self._merge: RunMerge | None = None
        self._credit = 0
        self._lock = threading.Lock()  # the set and the obsolete files
        self._sync_lock = threading.Lock()
        self._obsolete: list[Path] = []  # files that the next manifest sets free
        found = self._read_manifest() or self._found()
        self._recorded = found
        self.runs = tuple(SortedRun(self._run_path(number), number) for number in found[0])
        self.tail = TailLog.reopen(self._log_path(found[1]), found[1], found[2])
        self._next_number = max((*found[0], found[1])) + 1
        #: Numbers of runs that a manifest may name, so that only another manifest sets them free; and of runs on the medium.
        self._named, self._synced = {*found[0]}, {*found[0]}
        mine = {self.tail.path, *(run.path for run in self.runs)}
        for path in (*folder.glob("run-*.run"), *folder.glob("log-*.log*")):
            if path not in mine:  # no manifest names it: it was under way when the process ended
                path.unlink()

    @property
    def merging(self) -> int:
        """Elements that the merge under way has still to move."""
        return self._merge.remaining if self._merge else 0

    def make_room(self, arriving: int) -> None:
        """Write a long tail as a run, and go on merging; call it before the tail takes `arriving` elements.

        Cost: 11 to 25 ms once in 65,536 elements, and 0.6 µs per arriving one. Raises: StoreFull, OSError; it may be repeated.
        """
        if len(self.tail) >= self._tail_elements:
            self._turn_tail()
        if self._merge is None:
            self._begin_merge()
        if self._merge is not None:
            self._credit += arriving * MOVES_PER_KEY
            if len(self.runs) > MOST_RUNS:
                self._credit = max(self._credit, 2 * self._merge.remaining)
            part = max(1, self._tail_elements // _PARTS_PER_TAIL)
            while self._merge.remaining and self._credit >= part:
                self._credit -= self._merge.step(part)
            if not self._merge.remaining:
                self._end_merge(self._merge)

    def sync(self, *, at_end: bool = False) -> None:
        """Make durable what was taken before this call, and `at_end` seal it. Raises: OSError; it may be repeated."""
        with self._sync_lock:
            with self._lock:
                runs, tail = self.runs, self.tail
                tail.flush()
                self._named.update(run.number for run in runs)
                obsolete, self._obsolete = self._obsolete, []
            try:
                self._make_durable(runs, tail, at_end=at_end)
            except OSError:
                with self._lock:
                    self._obsolete += obsolete
                raise
            for path in obsolete:
                path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Release maps, and the merge under way, which begins anew after the next opening."""
        if self._merge is not None:
            self._merge.writer.abandon()
        self._merge, self.runs = None, ()

    def _make_durable(self, runs: Sequence[SortedRun], tail: TailLog, *, at_end: bool) -> None:
        """Files first, then the manifest that names them; one that only has a newer seal would cost each sync three."""
        for run in runs:
            if run.number not in self._synced:
                with store_full_errors(run.path):
                    sync_path(run.path)
                self._synced.add(run.number)
        seal = tail.seal
        tail.sync()
        found = ([run.number for run in runs], tail.number, seal)
        if found[:2] != self._recorded[:2] or (at_end and found != self._recorded):
            self._write_manifest(*found)
            self._recorded = found

    def _turn_tail(self) -> None:
        number = self._take_number()
        run = write_run(self._run_path(number), number, *self.tail.columns())
        following = self._take_number()
        with self._lock:
            self._obsolete.append(self.tail.path)
            self.runs += (run,)
            self.tail = TailLog(self._log_path(following), following)

    def _begin_merge(self) -> None:
        """Merge from the oldest run on that is not larger than all newer ones together, if there is one."""
        newer = list(accumulate((run.count for run in reversed(self.runs)), initial=0))[-2::-1]
        for place, (run, together) in enumerate(zip(self.runs, newer, strict=True)):
            if run.count <= together:
                number = self._take_number()
                self._merge = RunMerge(self.runs[place:], self._run_path(number), number)
                self._credit = 0
                return

    def _end_merge(self, merge: RunMerge) -> None:
        merged = merge.writer.finish()
        first = self.runs.index(merge.sources[0])
        with self._lock:
            self.runs = (*self.runs[:first], merged, *self.runs[first + len(merge.sources) :])
            self._obsolete += [run.path for run in merge.sources if run.number in self._named]
        self._merge = None
        for run in merge.sources:
            if run.number not in self._named:  # no manifest names it, so nothing is lost without it
                run.path.unlink(missing_ok=True)

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _run_path(self, number: int) -> Path:
        return self._folder / f"run-{number:08d}.run"

    def _log_path(self, number: int) -> Path:
        return self._folder / f"log-{number:08d}.log"

    def _found(self) -> _Named:
        """Make the files of an empty index; the manifest comes last, so that half of it is made anew."""
        log = TailLog(self._log_path(0), 0)
        found = [path for path in self._folder.iterdir() if not path.name.endswith(UNFINISHED)]
        if found and (found != [log.path] or log.path.stat().st_size > HEADER_BYTES):
            raise FormatMismatch(f"{self._folder} is not empty and has no {MANIFEST} file: it is damaged or not ours")
        log.flush()
        self._write_manifest([], 0, log.seal)
        sync_folder(self._folder.parent)
        return [], 0, log.seal

    def _write_manifest(self, runs: list[int], log: int, seal: Seal | None) -> None:
        record = _FORMAT.record() | {"runs": runs, "log": log, "seal": seal}
        with store_full_errors(self._folder / MANIFEST):
            replace_file(self._folder / MANIFEST, json.dumps(record).encode() + b"\n", names_first=True)

    def _read_manifest(self) -> _Named | None:
        path = self._folder / MANIFEST
        if not path.exists():
            return None
        found = read_record(path)
        _FORMAT.require(path, found)
        match found:
            case {"runs": [*runs], "log": int(log)} if log >= 0:
                numbers = [run for run in runs if isinstance(run, int) and run >= 0]
                if len({*numbers}) == len(runs):
                    return numbers, log, _seal(path, found.get("seal"))
        raise FormatMismatch(f"{path} is damaged: it does not name runs and a log")


def _seal(path: Path, found: object) -> Seal | None:
    """A manifest's seal of the log; None if it has none. Raises: FormatMismatch."""
    match found:
        case None:
            return None
        case [int(length), int(checksum)]:
            return length, checksum
    raise FormatMismatch(f"{path} is damaged: its seal is not a length and a checksum")
