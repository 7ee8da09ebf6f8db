"""UniqFilter: the SMM and the DSBF together, asked before a URL is enqueued.

The SMM is asked first: a bit of 0 means new, and the DSBF is not asked. On a bit of 1 the DSBF decides. So a key is
dropped only if both know it, and the probabilities of their errors multiply: CRC-32 and XXH3 are independent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from pathlib import Path
from typing import Self

import numpy as np

from dedup import folderformat
from dedup.batch import BoolArray, first_of_each
from dedup.bloom import DsbfParameters
from dedup.dsbf import Dsbf, DsbfStatistics
from dedup.durablefiles import replace_file
from dedup.errors import FormatMismatch
from dedup.manifest import NAME as MANIFEST
from dedup.smm import Smm

MAGIC = "anabranch uniq filter"
VERSION = 1

_LOSSES = "LOSSES"
_STEP_KEYS = 1000
_STEP_SHARE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqParameters:
    """The shape of a filter, recorded in its folder. The defaults are for 10 million URLs."""

    signature: str = "crc32"  #: of the SMM: a name in `dedup.signature.SIGNATURES`
    levels: tuple[int, ...] = (1, 3)  #: of the SMM: bytes of the signature that each level takes
    expected: int = 10_000_000  #: n: keys that the DSBF holds before its first split
    false_positive: float = 1e-3  #: f: bound of the rate of each leaf of the DSBF
    leaf_bits: int = 1 << 23  #: m: bits of one leaf of the DSBF, a power of two
    split_fan_out: int = 4  #: children that a full leaf of the DSBF gets

    @property
    def dsbf(self) -> DsbfParameters:
        """The part that concerns the DSBF."""
        return DsbfParameters(
            expected=self.expected,
            false_positive=self.false_positive,
            leaf_bits=self.leaf_bits,
            split_fan_out=self.split_fan_out,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqStatistics:
    """A filter at one moment."""

    keys: int  #: distinct keys marked, as the DSBF counts them
    false_drop: float  #: probability that a new key is dropped now: share of set SMM bits x rate of the DSBF
    expected_lost: float  #: sum of that probability over all new keys so far, each taken to be asked for once
    smm_bits_set: int  #: bits set in the SMM
    smm_fill: float  #: share of bits set in the SMM
    dsbf: DsbfStatistics  #: leaves, splits, rates


class LossCount:
    """The expected number of new keys dropped so far: the integral of the odds of a false drop over the keys.

    At a probability p one key of p / (1 - p) is lost for each that is found new. The odds are taken at intervals of
    1,000 keys or 1/64 of all and joined by straight lines. The record lags behind the keys after a crash; the next
    step closes the gap.
    """

    def __init__(self, path: Path, keys: int) -> None:
        self._path = path
        self._keys, self._odds, self._lost = 0, 0.0, 0.0
        if path.exists():
            self._restore(folderformat.read_record(path))
        self._keys = min(self._keys, keys)
        self._saved = self._keys
        self._lock = threading.Lock()  # marking and syncing may be in two threads

    def _restore(self, record: dict[str, object]) -> None:
        match record:
            case {"magic": str(m), "keys": int(keys), "odds": float(odds), "lost": float(lost)} if m == MAGIC:
                self._keys, self._odds, self._lost = keys, odds, lost
            case _:
                raise FormatMismatch(f"{self._path} is damaged: remove it to count losses from 0 again")

    def is_due(self, keys: int) -> bool:
        """True if enough keys came since the last step."""
        return keys - self._keys >= max(_STEP_KEYS, self._keys // _STEP_SHARE)

    def step(self, keys: int, false_drop: float) -> None:
        """Take the integral up to this number of keys."""
        with self._lock:
            self._lost = self._sum(keys, _odds(false_drop))
            self._keys, self._odds = keys, _odds(false_drop)

    def at(self, keys: int, false_drop: float) -> float:
        """What the sum would be after a step to this number of keys; nothing is changed."""
        with self._lock:
            return self._sum(keys, _odds(false_drop))

    def _sum(self, keys: int, odds: float) -> float:
        return self._lost + max(0, keys - self._keys) * (self._odds + odds) / 2

    def save(self) -> None:
        """Write the sum durably if it moved. Raises: OSError."""
        with self._lock:
            keys = self._keys
            record = {"magic": MAGIC, "keys": keys, "odds": self._odds, "lost": self._lost}
        if keys != self._saved:
            replace_file(self._path, json.dumps(record).encode() + b"\n")
            self._saved = keys


class UniqFilter:
    """Has this key been seen? `UniqFilter.open` gives a lasting one.

    A key marked and synced is known for ever. A new key is taken for known with the probability that `statistics`
    states. Marking and asking belong to one thread; `sync` may run in another one at the same time.
    """

    def __init__(self, smm: Smm, dsbf: Dsbf, losses: LossCount) -> None:
        self._smm = smm
        self._dsbf = dsbf
        self._losses = losses

    @classmethod
    def open(cls, folder: Path, parameters: UniqParameters | None = None) -> Self:
        """Open a folder's filter, or make it if the folder is new or empty.

        Cost: milliseconds, and 0.3 µs per key marked. Raises: FormatMismatch if the folder is not ours, is damaged
        or was made with other parameters (it names them); BadParameters; FilterInUse; StoreFull, OSError.
        """
        given = parameters or UniqParameters()
        shape = given.dsbf
        record = asdict(given) | {"levels": list(given.levels)}
        wanted = folderformat.Format(magic=MAGIC, version=VERSION, parameters=record)
        is_complete = folderformat.adopt(folder, wanted)
        smm_folder, dsbf_folder = folder / "smm", folder / "dsbf"
        if is_complete:
            _require(smm_folder / folderformat.NAME, dsbf_folder / MANIFEST)
        dsbf = Dsbf.open(dsbf_folder, shape)
        try:
            losses = LossCount(folder / _LOSSES, len(dsbf))
            smm = Smm.open(smm_folder, given.signature, given.levels)
            if not is_complete:
                folderformat.complete(folder, wanted)
        except BaseException:
            dsbf.close()
            raise
        return cls(smm, dsbf, losses)

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key is new; nothing is changed. A new key that is twice in the batch is new twice."""
        if len(keys) == 1:
            return np.array([self._smm.is_unseen(keys[0]) or self._dsbf.is_unseen(keys[0])])
        new = self._smm.unseen(keys)
        if not new.all():
            known = ~new
            new[known] = self._dsbf.unseen(keys if known.all() else list(compress(keys, known)))
        return new

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into both filters.

        Raises: StoreFull (an OSError); some keys may then be in one filter only and count as new: repeat the call.
        """
        if len(keys) == 1:
            self._dsbf.mark_one(keys[0])
            self._smm.mark_one(keys[0])
        else:
            self._dsbf.mark(keys)
            self._smm.mark(keys)
        if self._losses.is_due(len(self._dsbf)):
            self._losses.step(len(self._dsbf), self.false_drop())

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new; a key twice in one batch is new once. Raises as `mark`."""
        new = self.unseen(keys) & first_of_each(keys)
        if new.any():
            self.mark(list(compress(keys, new)))
        return new

    def sync(self) -> None:
        """Make all that was marked before this call durable. Raises: OSError; it may be repeated."""
        self._dsbf.sync()
        self._smm.sync()
        self._losses.step(len(self._dsbf), self.false_drop())
        self._losses.save()

    def false_drop(self) -> float:
        """Probability that a key never marked is dropped now. Cost: O(leaves)."""
        return self._smm.fill * self._dsbf.rates()[0]

    def statistics(self) -> UniqStatistics:
        """The filter at this moment; nothing is changed. Cost: O(leaves)."""
        shape, false_drop = self._dsbf.statistics(), self.false_drop()
        return UniqStatistics(
            keys=shape.elements,
            false_drop=false_drop,
            expected_lost=self._losses.at(shape.elements, false_drop),
            smm_bits_set=self._smm.bits_set,
            smm_fill=self._smm.fill,
            dsbf=shape,
        )

    def check(self) -> None:
        """Verify all that the filter says about itself; it reads everything. Raises: InvariantBroken, OSError."""
        self._dsbf.check()
        self._smm.check()

    def close(self) -> None:
        """Sync and let go of all files; a second call does nothing. Raises: OSError, with the files let go."""
        if self._dsbf.is_closed:
            return
        try:
            self.sync()
        finally:
            try:
                self._dsbf.close()
            finally:
                self._smm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<UniqFilter {self._smm!r} {self._dsbf!r}>"


def _odds(probability: float) -> float:
    return probability / max(1 - probability, 1e-9)


def _require(*paths: Path) -> None:
    for path in paths:
        if not path.exists():
            raise FormatMismatch(f"{path} is missing: the filter is damaged")
