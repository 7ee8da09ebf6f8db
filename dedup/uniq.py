"""UniqFilter: asked before a URL is enqueued, and told afterwards.

It is a chain of stages, named by its mode (`modes.py`): the SMM, the DSBF, an exact index. They are asked in this order, each
one only about the keys that all before it know. So a key is dropped only if all know it, and the probabilities of their
errors multiply: CRC-32 and XXH3 are independent, and the exact index does not err.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Self

import numpy as np

from anabranch.dedup import folderformat, modes
from anabranch.dedup.batch import BoolArray, first_of_each
from anabranch.dedup.dsbf.filter import Dsbf, DsbfStatistics
from anabranch.dedup.durablefiles import descriptor
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.exact.index import ExactIndex, ExactStatistics
from anabranch.dedup.fingerprint import fingerprints
from anabranch.dedup.losses import LossCount
from anabranch.dedup.modes import UniqParameters
from anabranch.dedup.position import Position
from anabranch.dedup.smm.store import Smm
from anabranch.dedup.stages import Stage, ask, of_kind, open_stage, require_stages, tell

__all__ = ["UniqFilter", "UniqParameters", "UniqStatistics"]

_LOSSES = "LOSSES"
_FEW_KEYS = 1000  # of so few that are missing chance may be the cause


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqStatistics:
    """A filter at one moment."""

    mode: str  #: the stages, as in `modes.MODES`
    keys: int  #: distinct keys marked: exactly, or as the DSBF counts them, or as bits of the SMM
    false_drop: float  #: probability that a new key is dropped now: the product of what the stages err
    expected_lost: float  #: sum of that probability over all new keys so far, each taken to be asked for once
    smm_bits_set: int  #: bits set in the SMM; 0 without one
    smm_fill: float  #: share of bits set in the SMM; 0 without one
    dsbf: DsbfStatistics | None  #: leaves, splits, rates; None without a DSBF
    exact: ExactStatistics | None  #: runs and tail; None without an exact index


class UniqFilter:
    """Has this key been seen? `UniqFilter.open` gives a lasting one.

    A key marked and synced is known for ever. A new key is taken for known with the probability that `statistics`
    states. Marking and asking belong to one thread; `sync` may run in another one at the same time. A folder belongs to
    one filter at a time; in mode "smm" several processes may share it, and `add` tells exactly one of them that a key is new.
    """

    def __init__(self, folder: Path, mode: str, stages: Sequence[Stage]) -> None:
        self._folder = folder
        self._mode = mode
        self._stages = tuple(stages)
        self._smm = of_kind(Smm, stages)
        self._dsbf = of_kind(Dsbf, stages)
        self._exact = of_kind(ExactIndex, stages)
        self._by_fingerprint = tuple(stage for stage in stages if not isinstance(stage, Smm))
        self._position = Position(folder)
        if not (folder / _LOSSES).exists():
            self._position.forget()  # who removed that file goes on without keys that were lost
        self._losses = LossCount(folder / _LOSSES, self._keys())
        self._calls = 0  # that marked
        self._synced_calls = 0  # of these, in some sync that has ended
        self._is_closed = False

    @classmethod
    def open(cls, folder: str | Path, parameters: UniqParameters | None = None, leaves: str = "memory") -> Self:
        """Open a folder's filter, or make it if the folder is new or empty.

        Without `parameters` they are those that the folder records, or for a new one the defaults. `leaves` is where
        the bits of the DSBF are while it is open, "memory" or "mapped", and may be another one each time. Cost:
        milliseconds after a clean end, else 0.3 µs per key that was marked. Raises: FormatMismatch if the folder is not
        ours, is damaged, lost keys that were synced, or was made with other parameters (it names them); BadParameters;
        FilterInUse; StoreFull, OSError.
        """
        folder = Path(folder)
        given = parameters or modes.recorded(folder) or UniqParameters()
        wanted = given.format
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder), ExitStack() as opened:
            _require_mode(folder, given)
            is_complete = folderformat.adopt(folder, wanted)
            if is_complete:
                require_stages(folder, given.stages)
            stages = []
            for name in given.stages:
                stages.append(open_stage(folder / name, name, given, leaves))
                opened.callback(stages[-1].close)
            if not is_complete:
                folderformat.complete(folder, wanted)
            made = cls(folder, given.mode, stages)
            if made._dsbf is not None:
                made._losses.require_kept(made._keys(), *_unsure(given))
            opened.pop_all()
        return made

    @staticmethod
    def recorded(folder: Path) -> UniqParameters | None:
        """The parameters that a folder's filter was made with, None if there is no filter. Raises: FormatMismatch."""
        return modes.recorded(folder)

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key is new; nothing is changed. A new key that is twice in the batch is new twice."""
        if len(keys) == 1:
            return np.array([any(stage.is_unseen(keys[0]) for stage in self._stages)])
        if self._smm is None:
            return ask(self._by_fingerprint, fingerprints(keys))
        new = self._smm.unseen(keys)
        known = len(keys) - np.count_nonzero(new)
        if self._by_fingerprint and known == len(keys):
            return ask(self._by_fingerprint, fingerprints(keys))
        if self._by_fingerprint and known:
            new[~new] = ask(self._by_fingerprint, fingerprints(list(compress(keys, ~new))))
        return new

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into all stages; the one that errs least comes last, since a key is known only once it has it.

        Raises: StoreFull (an OSError); some keys may then be in some stages only and count as new: repeat the call.
        """
        if len(keys) == 1:
            for stage in self._stages:
                stage.mark_one(keys[0])
        else:
            if self._smm is not None:
                self._smm.mark(keys)
            if self._by_fingerprint:
                tell(self._by_fingerprint, fingerprints(keys), first_of_each(keys))
        self._has_marked()

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new; a key twice in one batch is new once. Raises as `mark`."""
        if self._by_fingerprint and len(keys) == 1:
            new = self.unseen(keys)
            if new[0]:
                self.mark(keys)
            return new
        new = self._add_by_fingerprint(keys) if self._by_fingerprint else self._stages[0].add(keys)
        self._has_marked()
        return new

    def position(self) -> str:
        """What stands for all marked before the last `sync` (`position.py`), empty if nothing was.

        A filter with this name and at least this number knows it all.
        """
        return str(self._position)

    def sync(self) -> None:
        """Make all that was marked before this call durable. Raises: OSError; it may be repeated."""
        calls = self._calls  # before, as the keys: what is marked meanwhile may be lost
        durable = self._keys() if self._dsbf is not None else 0
        for stage in reversed(self._stages):
            stage.sync()
        self._losses.step(self._keys(), self.false_drop())
        with _alone(self._folder):
            self._losses.save(durable)
            if calls != self._synced_calls:
                self._position.advance()
        self._synced_calls = calls

    def false_drop(self) -> float:
        """Probability that a key never marked is dropped now; in mode "exact" 0. Cost: O(leaves)."""
        if self._exact is not None:
            return 0.0
        by_smm = self._smm.fill if self._smm is not None else 1.0
        return by_smm * (self._dsbf.rates()[0] if self._dsbf is not None else 1.0)

    def statistics(self) -> UniqStatistics:
        """The filter at this moment; nothing is changed. Cost: O(leaves)."""
        keys, false_drop = self._keys(), self.false_drop()
        return UniqStatistics(
            mode=self._mode,
            keys=keys,
            false_drop=false_drop,
            expected_lost=self._losses.at(keys, false_drop),
            smm_bits_set=self._smm.bits_set if self._smm is not None else 0,
            smm_fill=self._smm.fill if self._smm is not None else 0.0,
            dsbf=self._dsbf.statistics() if self._dsbf is not None else None,
            exact=self._exact.statistics() if self._exact is not None else None,
        )

    def check(self) -> None:
        """Verify all that the filter says about itself; it reads everything.

        Raises: InvariantBroken; FormatMismatch for a file that was cut off or replaced; OSError.
        """
        for stage in reversed(self._stages):
            stage.check()

    def close(self, *, stands: bool = True) -> None:
        """Sync and let go of all files, once; unless it `stands`, its position stays as it was. Raises: OSError, then."""
        if self._is_closed:
            return
        self._is_closed = True
        self._synced_calls = self._synced_calls if stands else self._calls
        with ExitStack() as closing:
            for stage in self._stages:
                closing.callback(stage.close)
            self.sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<UniqFilter {self._mode} {' '.join(map(repr, self._stages))}>"

    def _add_by_fingerprint(self, keys: Sequence[bytes]) -> BoolArray:
        """`add` with each key hashed once for each kind of hash."""
        elements, addresses = fingerprints(keys), None
        if self._smm is None:
            new = ask(self._by_fingerprint, elements)
        else:
            addresses = self._smm.addresses(keys)
            new = self._smm.are_clear(addresses)
            if np.count_nonzero(new) < len(new):
                known = ~new
                new[known] = ask(self._by_fingerprint, elements[known])
        new &= first_of_each(keys)
        if count := np.count_nonzero(new):
            if self._smm is not None and addresses is not None:
                self._smm.set(addresses[new])
            tell(self._by_fingerprint, elements[new], np.ones(count, dtype=np.bool_))
        return new

    def _keys(self) -> int:
        """Distinct keys, by the stage that knows best."""
        if self._exact is not None:
            return len(self._exact)
        if self._dsbf is not None:
            return len(self._dsbf)
        return self._smm.bits_set if self._smm is not None else 0

    def _has_marked(self) -> None:
        self._calls += 1  # only now, so that a sync that began amid the call does not stand for it
        keys = self._keys()
        if self._losses.is_due(keys):
            self._losses.step(keys, self.false_drop())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process opens the folder's filter or writes a file in the folder itself."""
    with descriptor(folder, os.O_RDONLY) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield


def _unsure(given: UniqParameters) -> tuple[float, int]:
    """The share and the number of keys that the DSBF may count fewer although no log was cut off.

    One set is counted differently by those falsely known, fewer than 3 f of all; and a part of a batch, 1/40 of a leaf,
    may have been counted and not yet logged when a sync in another thread began.
    """
    return max(0.01, 3 * given.false_positive), given.dsbf.split_above // 32 + _FEW_KEYS


def _require_mode(folder: Path, given: UniqParameters) -> None:
    """Told before all other differences, which follow from it."""
    there = modes.recorded(folder)
    if there is not None and there.mode != given.mode:
        raise FormatMismatch(
            f"{folder} was made with other parameters: mode is {there.mode!r} there, {given.mode!r} here"
        )
