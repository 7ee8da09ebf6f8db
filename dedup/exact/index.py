"""An exact set of keys on disk: their 128-bit fingerprints in sorted runs, the newest ones in a tail.

"Exact": two of n keys share a fingerprint with a probability of n^2 / 2^129, 10^-25 for 10 million. Each element is in
one place: the tail (`tail.py`), a dictionary and its log, or one run (`runs.py`), an immutable file that is searched in
place. A long tail is written as a run; runs are merged (`runfolder.py`), so their number is logarithmic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from anabranch.dedup.errors import BadParameters, FilterClosed, InvariantBroken
from anabranch.dedup.exact.runfolder import RunFolder
from anabranch.dedup.exact.runs import SortedRun
from anabranch.dedup.exact.tail import TAIL_ELEMENT_BYTES, TailLog
from anabranch.dedup.files import Closing
from anabranch.dedup.files.locks import FolderLock
from anabranch.dedup.keys import BoolArray, Fingerprints, fingerprint, fingerprints, first_of_each

#: Elements of the tail: the dictionary takes some 10 MiB.
TAIL_ELEMENTS = 1 << 16

_MASK_64 = (1 << 64) - 1
_WORTH_SORTING = 256  # elements that are asked for; below that sorting costs more than it saves
_CHECK_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactStatistics:
    """An index at one moment."""

    elements: int  #: distinct elements
    tail: int  #: those of them that are in the tail
    runs: int  #: sorted files
    merging: int  #: elements that the merge under way has still to move
    file_bytes: int  #: runs and log that count now; a merge under way takes as much again as what it merges


class ExactIndex(Closing):
    """The index of one folder. Use `ExactIndex.open`."""

    def __init__(self, folder: Path, tail_elements: int, lock: FolderLock) -> None:
        self._folder = folder
        self._tail_elements = tail_elements
        self._lock = lock
        self._files = RunFolder(folder, tail_elements)
        self.is_closed = False

    @classmethod
    def open(cls, folder: Path, tail_elements: int = TAIL_ELEMENTS) -> Self:
        """Open a folder's index, or make it if the folder is new or empty, by reading the log. Raises: as `UniqFilter.open`."""
        if tail_elements < 1:
            raise BadParameters(f"tail_elements is {tail_elements}; it must be 1 or more")
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            return cls(folder, tail_elements, lock)
        except BaseException:
            lock.release()
            raise

    def __len__(self) -> int:
        """Distinct elements, exactly."""
        return len(self._files.tail) + sum(run.count for run in self._files.runs)

    @property
    def memory_bytes(self) -> int:
        """Bytes of elements in memory."""
        return len(self._files.tail) * TAIL_ELEMENT_BYTES

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the runs, which are mapped."""
        return sum(run.file_bytes for run in self._files.runs)

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key was never marked. Cost with 10^7 elements: 1 µs per key in batches of 64."""
        return self.unseen_elements(fingerprints(keys))

    def is_unseen(self, key: bytes) -> bool:
        """`unseen` of one key, several times as fast as a batch of one."""
        self._require_open()
        return self._is_unseen(fingerprint(key))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into the set. Cost: 3 µs per key in batches of 64; once in 65,536 keys 45 ms, to write a run.

        Raises: StoreFull (an OSError), with nothing taken of up to `TAIL_ELEMENTS` keys and some of more; repeat the
        call.
        """
        self.mark_elements(fingerprints(keys), first_of_each(keys))

    def mark_one(self, key: bytes) -> None:
        """`mark` of one key, several times as fast as a batch of one."""
        self._require_open()
        element = fingerprint(key)
        self._files.make_room(1)
        if self._is_unseen(element):
            self._files.tail.take_one(element)

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new; a key twice in one batch is new once. Raises as `mark`."""
        elements = fingerprints(keys)
        new = self.unseen_elements(elements) & first_of_each(keys)
        self.mark_elements(elements[new], np.ones(np.count_nonzero(new), dtype=np.bool_))
        return new

    def unseen_elements(self, elements: Fingerprints) -> BoolArray:
        """`unseen` of the keys that have these fingerprints."""
        self._require_open()
        highs, lows = np.ascontiguousarray(elements.T)
        asked = np.arange(len(elements))
        if len(elements) > _WORTH_SORTING:
            asked = highs.argsort()
            highs, lows = highs[asked], lows[asked]
        # The tail is cheap and has what came last; then the largest run, so that little is left to ask the others for.
        parts: tuple[TailLog | SortedRun, ...] = (self._files.tail, *self._files.runs)
        for part in parts:
            known = part.knows(highs, lows)
            if np.count_nonzero(known):
                left = np.flatnonzero(~known)
                asked, highs, lows = asked[left], highs[left], lows[left]
            if not len(asked):
                break
        new = np.zeros(len(elements), dtype=np.bool_)
        new[asked] = True
        return new

    def mark_elements(self, elements: Fingerprints, is_first: BoolArray) -> None:
        """`mark` of the keys that have these fingerprints; `is_first`: which of them come first in the batch."""
        self._require_open()
        for start in range(0, len(elements), self._tail_elements):  # the tail is never longer than two of these
            part = elements[start : start + self._tail_elements]
            self._files.make_room(len(part))
            new = self.unseen_elements(part) & is_first[start : start + len(part)]
            if new.any():
                self._files.tail.take(part[new])

    def sync(self) -> None:
        """Make all that was marked before this call durable; runs that are new are synced whole. Raises: OSError."""
        self._require_open()
        self._files.sync()

    def release_pages(self) -> None:
        """Give all resident pages of the runs back to the kernel; answers stay."""
        self._require_open()
        for run in self._files.runs:
            run.release_pages()

    def statistics(self) -> ExactStatistics:
        """The index at this moment."""
        self._require_open()
        tail, runs = self._files.tail, self._files.runs
        return ExactStatistics(
            elements=len(self),
            tail=len(tail),
            runs=len(runs),
            merging=self._files.merging,
            file_bytes=tail.file_bytes + sum(run.file_bytes for run in runs),
        )

    def check(self) -> None:
        """Read and compare all files; no element may be in two places. Raises: InvariantBroken, FormatMismatch, OSError."""
        self._require_open()
        tail, runs = self._files.tail, self._files.runs
        tail.check()
        for place, run in enumerate(runs):
            run.check()
            others: tuple[TailLog | SortedRun, ...] = (tail, *runs[:place])
            for start in range(0, run.count, _CHECK_AT_ONCE):
                part = run.part(start, min(run.count, start + _CHECK_AT_ONCE))
                for other in others:
                    if other.knows(*part).any():
                        raise InvariantBroken(f"{run.path} and {other.path} have an element in common")

    def close(self) -> None:
        """Sync and unlock the folder; a second call does nothing. Raises: OSError, with the folder unlocked."""
        if self.is_closed:
            return
        try:
            self._files.sync(at_end=True)
        finally:
            self.is_closed = True
            self._files.abandon()
            self._lock.release()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self)} elements in {len(self._files.runs)} runs and a tail"
        return f"<ExactIndex {state}>"

    def _is_unseen(self, element: int) -> bool:
        high, low = element >> 64, element & _MASK_64
        return not (self._files.tail.knows_one(high, low) or any(run.knows_one(high, low) for run in self._files.runs))

    def _require_open(self) -> None:
        if self.is_closed:
            raise FilterClosed(f"the index {self._folder} is closed")
