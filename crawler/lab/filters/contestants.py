"""The filters that `anabranch compare --filters` compares: a table of names and openers.

Each is used through the seam of the Frontier (`frontier/seen.py`), those of a crawl as a crawl opens them, without the
memory of recent URLs in front. A filter of your own is named `package.module:Class`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.keys import fingerprint
from anabranch.dedup.uniq import MODES, UniqParameters
from anabranch.dedup.userfunctions import found
from anabranch.frontier import SeenFilter
from anabranch.frontier.filterchoice import open_choice

if TYPE_CHECKING:
    from rbloom import Bloom


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSize:
    """The size that the filters are made for. Those that are named by their class decide for themselves."""

    expected: int  #: URLs
    false_positive: float  #: share of new URLs that may be taken for known, once the expected ones are in


#: Opens or makes the filter in a folder.
Opener: TypeAlias = Callable[[Path, FilterSize], SeenFilter]


def opener_of(name: str) -> Opener:
    """The opener of a filter, by its name. Raises: BadParameters, UsageError if it cannot be used here."""
    if name == "rbloom":
        _require_rbloom()
    if name == "similar":
        import anabranch.dedup.similarity.filter  # noqa: F401, PLC0415 - before the filter's memory is measured
    if name in CONTESTANTS:
        return CONTESTANTS[name]
    found(name, "filter", CONTESTANTS)
    return lambda folder, _: open_choice(folder, name, kept=False)


def _uniq(mode: str, folder: Path, size: FilterSize) -> SeenFilter:
    return open_choice(folder, uniq_parameters(mode, size), kept=False)


def uniq_parameters(mode: str, size: FilterSize) -> UniqParameters:
    """The parameters of our own filter in a mode."""
    return UniqParameters(mode=mode, expected=size.expected, false_positive=size.false_positive)


class _Peer:
    """The parts of `SeenFilter` that say nothing about these filters."""

    blocks = False

    def position(self) -> str:
        """Empty: an experiment does not repeat marks after a crash."""
        return ""

    def facts(self) -> Mapping[str, float | str]:
        """Empty: they do not estimate their losses."""
        return {}


class SimilarContestant(_Peer):
    """The similarity filter as a crawl uses it: URLs count at once, and are on the disk after a sync."""

    def __init__(self, folder: Path, size: FilterSize) -> None:
        from anabranch.dedup.similarity.filter import (  # noqa: PLC0415 - SQLAlchemy, for this filter alone
            SimilarityFilter,
            SimilarityParameters,
        )

        self._filter = SimilarityFilter.open(
            folder, SimilarityParameters(expected=size.expected, false_positive=size.false_positive)
        )
        self._unstored: list[bytes] = []

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """True where a URL resembles none before it."""
        unlike: list[bool] = (~self._filter.are_similar(keys)).tolist()
        return unlike

    def mark(self, keys: Sequence[bytes]) -> None:
        """Remember the URLs."""
        self._unstored += compress(keys, self._filter.mark(keys).tolist())

    def sync(self) -> None:
        """Write what was marked since the last call."""
        self._filter.store(self._unstored)
        self._unstored.clear()

    def close(self) -> None:
        """Sync, and close the table."""
        self.sync()
        self._filter.close()


class RbloomContestant(_Peer):
    """The classic Bloom filter of the package rbloom. It is in memory; a sync writes all of it."""

    def __init__(self, folder: Path, size: FilterSize) -> None:
        from rbloom import Bloom  # noqa: PLC0415 - an extra

        self._file = folder / "bloom"
        self._bloom: Bloom = (
            Bloom.load(str(self._file), _signed_128)
            if self._file.exists()
            else Bloom(size.expected, size.false_positive, _signed_128)
        )

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """For each key, whether one of its bits is clear."""
        bloom = self._bloom
        return [key not in bloom for key in keys]

    def mark(self, keys: Sequence[bytes]) -> None:
        """Set their bits."""
        self._bloom.update(keys)

    def sync(self) -> None:
        """Write the whole filter."""
        self._bloom.save(str(self._file))

    def close(self) -> None:
        """Sync."""
        self.sync()


def _signed_128(key: bytes) -> int:
    """XXH3-128, the same in every process: rbloom saves no filter that uses Python's `hash()`."""
    return fingerprint(key) - (1 << 127)


def _require_rbloom() -> None:
    try:
        import rbloom  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            f"--filters rbloom needs the package rbloom: pip --python {sys.executable} install rbloom"
        ) from error


#: By the name that `--filters` takes, in the order of the table.
CONTESTANTS: dict[str, Opener] = {
    **{mode: partial(_uniq, mode) for mode in MODES},
    "similar": SimilarContestant,
    "rbloom": RbloomContestant,
}
