"""Records of a UniqFilter (`uniq.py`) about itself: its answers, the expected number of keys it lost, and its last sync.

File LOSSES, JSON: `magic`, `version`, `keys`, `odds`, `lost`: the sum up to a number of keys, and the odds there;
`durable`: the keys that the filter counted when the last sync began, 0 (or missing) if that is unknown; and `answers`:
the fields of `Answers` at that sync, 0 each if missing.

File POSITION, JSON: `magic`, `version`, `parameters` (none), `filter`, 32 random hex digits, and `syncs`, from 1. A store
that saves a position with the keys it marked can later see whether a filter still has them: an older copy, a new filter
or another one does not. The file is written after everything that it covers, so it is never ahead.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
from pathlib import Path
from typing import NamedTuple

from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.files.durable import replace_file, store_full_errors
from anabranch.dedup.files.formatfile import Format, read_record


class Answers(NamedTuple):
    """Counts of answers about keys by the stage that gave them, over all openings of the folder.

    A kill loses the counts since the last sync. If several processes share the folder at a time, the last sync wins.
    asked = memory_known + smm_new + set_new + dropped, and set_asked = smm_known where there are both stages.
    """

    asked: int = 0  #: keys asked about; a key twice in a batch counts twice
    memory_known: int = 0  #: known to the memory of recent keys, which is exact
    smm_new: int = 0  #: new, as the SMM says
    smm_known: int = 0  #: perhaps known, as the SMM says
    set_asked: int = 0  #: asked of the DSBF, or of the exact index
    set_new: int = 0  #: new, as that one says
    dropped: int = 0  #: known to all stages


NO_ANSWERS = Answers()

_LOSSES_FORMAT = Format(magic="anabranch loss count", version=1, parameters={})
_STEP_KEYS = 1000
_STEP_SHARE = 64


class LossCount:
    """The expected number of new keys dropped so far: the integral of the odds of a false drop over the keys.

    The odds p / (1 - p) are taken each 1,000 keys or 1/64 of all. Of several processes in one folder the last record
    counts.
    """

    def __init__(self, path: Path, keys: int) -> None:
        self._path = path
        self._keys, self._odds, self._lost = 0, 0.0, 0.0
        #: Keys that were durable at the last sync; 0: not known.
        self.durable = 0
        self.answers = NO_ANSWERS  #: up to the last sync before the opening
        if path.exists():
            try:
                self._restore(read_record(path))
            except FormatMismatch as error:
                raise FormatMismatch(f"{error}; remove it to count losses from 0 again") from error
        self._keys = min(self._keys, keys)
        self._saved = self._keys, self.durable, self.answers
        self._lock = threading.Lock()  # marking and syncing may be in two threads

    def _restore(self, record: dict[str, object]) -> None:
        _LOSSES_FORMAT.require(self._path, record)
        match {"durable": 0, "answers": {}} | record:
            case {
                "keys": int(keys),
                "odds": float(odds),
                "lost": float(lost),
                "durable": int(durable),
                "answers": dict(answers),
            } if math.isfinite(odds + lost) and all(type(number) is int for number in answers.values()):
                self._keys, self._odds, self._lost, self.durable = keys, odds, lost, durable
                self.answers = Answers(**{name: answers.get(name, 0) for name in Answers._fields})
            case _:
                raise FormatMismatch(f"{self._path} is damaged: it does not hold a sum")

    def is_due(self, keys: int) -> bool:
        """True if enough keys came since the last step."""
        return keys - self._keys >= max(_STEP_KEYS, self._keys // _STEP_SHARE)

    def step(self, keys: int, false_drop: float) -> None:
        """Extend the integral to this number of keys; a number that another thread has passed adds nothing."""
        with self._lock:
            self._lost = self._sum(keys, _odds(false_drop))
            self._keys, self._odds = max(self._keys, keys), _odds(false_drop)

    def at(self, keys: int, false_drop: float) -> float:
        """The sum as a step to this number of keys would make it; nothing is changed."""
        with self._lock:
            return self._sum(keys, _odds(false_drop))

    def save(self, durable: int = 0, answers: Answers = NO_ANSWERS) -> None:
        """Write the sum, how many keys are durable, and the answers, durably if one of them moved. Raises: OSError."""
        with self._lock:
            keys = self._keys
            numbers = {"keys": keys, "odds": self._odds, "lost": self._lost, "durable": durable}
            record = _LOSSES_FORMAT.record() | numbers | {"answers": answers._asdict()}
        if (keys, durable, answers) != self._saved:
            with store_full_errors(self._path):
                replace_file(self._path, json.dumps(record).encode() + b"\n")
            self._saved = keys, durable, answers

    def require_kept(self, keys: int, share: float, few: int) -> None:
        """Raise `FormatMismatch` if more keys are missing of those that were durable than this share and these few."""
        if keys < self.durable * (1 - share) - few:
            raise FormatMismatch(
                f"{self._path.parent} holds {keys} keys, its record says {self.durable}: a log is damaged; "
                f"restore it from a copy, or remove {self._path} to go on without the others"
            )

    def _sum(self, keys: int, odds: float) -> float:
        return self._lost + max(0, keys - self._keys) * (self._odds + odds) / 2


def _odds(probability: float) -> float:
    return probability / max(1 - probability, 1e-9)


_POSITION_FORMAT = Format(magic="anabranch filter position", version=1, parameters={})


class Position:
    """The position of one folder's filter. `advance` belongs to one caller at a time, in all processes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "POSITION"
        self._filter, self._syncs = self._read()

    def __str__(self) -> str:
        """The filter's name, a hyphen, the number of syncs; empty before the first one."""
        return f"{self._filter}-{self._syncs}" if self._syncs else ""

    def forget(self) -> None:
        """Begin again with another name: marks that the position covered are lost. Raises: OSError."""
        self._path.unlink(missing_ok=True)
        self._filter, self._syncs = "", 0

    def advance(self) -> None:
        """Record durably that one more sync made marks durable. Raises: OSError, FormatMismatch."""
        name, syncs = self._read()  # another process may have advanced it
        name, syncs = name or secrets.token_hex(16), syncs + 1
        with store_full_errors(self._path):
            replace_file(
                self._path, json.dumps(_POSITION_FORMAT.record() | {"filter": name, "syncs": syncs}).encode() + b"\n"
            )
        self._filter, self._syncs = name, syncs

    def _read(self) -> tuple[str, int]:
        if not self._path.exists():
            return "", 0
        advice = "remove it to have every key marked again"
        try:
            found = read_record(self._path)
            _POSITION_FORMAT.require(self._path, found)
        except FormatMismatch as error:
            raise FormatMismatch(f"{error}; {advice}") from error
        match found:
            case {"filter": str(name), "syncs": int(syncs)} if name and syncs > 0:
                return name, syncs
        raise FormatMismatch(f"{self._path} is damaged: it does not hold a name and a number; {advice}")
