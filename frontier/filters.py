"""The filters of dedup behind this room's seam: a job's own one, and the file by which it is known whose it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from anabranch.dedup.durablefiles import replace_file
from anabranch.dedup.errors import BadParameters
from anabranch.dedup.errors import FormatMismatch as FilterMismatch
from anabranch.dedup.folderformat import Format, read_record
from anabranch.dedup.uniq import UniqFilter, UniqParameters
from anabranch.dedup.young import YoungFilter
from anabranch.frontier.checkpoints import KeepsNotes
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.pairing import PAIR, Pair, next_pair

#: In the filter's folder, JSON: whose it is.
PAIR_FILE = "STORE"
_FORMAT = Format(magic="anabranch filter's store", version=1, parameters={})


class DedupFilter:
    """The room `dedup`'s UniqFilter behind this room's seam."""

    blocks = False

    def __init__(self, uniq: UniqFilter | YoungFilter) -> None:
        self._uniq = uniq

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each key, whether it was never marked."""
        answer = self._uniq.unseen(keys)
        return answer if isinstance(answer, list) else answer.tolist()

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys as seen."""
        self._uniq.mark(keys)

    def sync(self) -> None:
        """Make every mark durable."""
        self._uniq.sync()

    def position(self) -> str:
        """What stands for all that was marked before the last sync."""
        return self._uniq.position()

    def close(self) -> None:
        """Let go of maps and files."""
        self._uniq.close()

    def facts(self) -> Mapping[str, float]:
        """The filter's statistics by name."""
        statistics = self._uniq.statistics()
        return {
            "keys": float(statistics.keys),
            "false_drop_probability": statistics.false_drop,
            "expected_lost": statistics.expected_lost,
        }


def pair_of(folder: Path, notes: Mapping[str, str]) -> Pair:
    """What the store with these notes and the filter in the folder keep from this opening on; changes nothing.

    Raises: FormatMismatch if they do not belong together (dedup's for what is damaged); OSError.
    """
    return next_pair(_read(notes.get(PAIR, ""), "the store's note of its filter"), _kept(folder / PAIR_FILE))


def keep_pair(folder: Path, store: KeepsNotes, pair: Pair) -> None:
    """Both have it durably, before the filter is told of any new URL (blocks). Raises: OSError; StoreUnavailable."""
    store.note({PAIR: str(pair)})  # first: a filter that is ahead would be taken for one of a later state
    replace_file(folder / PAIR_FILE, json.dumps(_FORMAT.record() | {PAIR: str(pair)}).encode() + b"\n")


def _kept(path: Path) -> Pair | None:
    if not path.exists():
        return None
    found = read_record(path)
    _FORMAT.require(path, found)
    return _read(str(found.get(PAIR)), str(path))


def _read(text: str, place: str) -> Pair | None:
    try:
        return Pair.read(text)
    except ValueError as error:
        raise FilterMismatch(
            f"{place} is damaged: {text!r}; restore store and filter from the same copy, or start over"
        ) from error


def uniq_parameters(*, exact: bool, expect: int, false_positive: float) -> UniqParameters:
    """What `FrontierOrder.uniq` is for so many URLs; `exact`: the filter never errs. Raises: PolicyError."""
    given = UniqParameters(mode="exact" if exact else "both", expected=expect, false_positive=false_positive)
    try:
        _ = given.format
    except BadParameters as error:
        raise PolicyError(str(error)) from error
    return given


def checked_uniq(uniq: object) -> UniqParameters:
    """What a FrontierOrder says of the filter. Raises: PolicyError for anything but parameters or None."""
    if isinstance(uniq, UniqParameters | None):
        return uniq or UniqParameters()
    raise PolicyError(f"uniq {uniq!r}: give UniqParameters of anabranch.dedup.uniq, or None")
