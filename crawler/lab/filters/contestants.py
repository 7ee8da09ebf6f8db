"""The filters that `anabranch compare --filters` compares: a table of names and openers.

Each is used through the seam of the Frontier (`frontier/seen.py`), those of a crawl as a crawl opens them, without the
memory of recent URLs in front. The peers are those of other libraries: they are in memory, and a sync writes all of them;
static ones are built once and only asked then. A filter of your own is named `package.module:Class`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.keys import fingerprint
from anabranch.dedup.uniq import MODES, UniqParameters
from anabranch.dedup.userfunctions import found
from anabranch.extras import install_command
from anabranch.frontier import SeenFilter
from anabranch.frontier.filterchoice import open_choice


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSize:
    """The size that the filters are made for. Those that are named by their class decide for themselves."""

    expected: int  #: URLs
    false_positive: float  #: share of new URLs that may be taken for known, once the expected ones are in
    bits: float | None = None  #: of memory for each expected URL, in place of the rate

    def rate(self, bits_of: Callable[[float], float]) -> float:
        """The rate that a filter is made for: the given one, or the least whose filter has no more than the bits.

        `bits_of` gives the bits of a filter for a rate. Raises: UsageError if a rate of one half takes more.
        """
        if self.bits is None:
            return self.false_positive
        least, most = _LEAST_RATE, _MOST_RATE
        if bits_of(most) > self.bits * self.expected:
            raise UsageError(f"--bits {self.bits:g}: the least that it can be made with is more")
        for _ in range(_HALVINGS):
            middle = (least * most) ** 0.5
            least, most = (least, middle) if bits_of(middle) <= self.bits * self.expected else (middle, most)
        return most


_LEAST_RATE, _MOST_RATE, _HALVINGS = 1e-12, 0.5, 40

#: Opens or makes the filter in a folder.
Opener: TypeAlias = Callable[[Path, FilterSize], SeenFilter]


class Kind(NamedTuple):
    """A contestant."""

    open: Opener
    made_for: str  #: a sentence
    package: str = ""  #: of the extra `peers`, as it is imported; empty for our own
    is_durable: bool = True  #: marks that were synced outlive a kill; else a sync writes the whole filter
    is_static: bool = False  #: it is built once from all URLs, and takes no others
    can_be_sized: bool = False  #: it can be made for a number of bits


def opener_of(name: str) -> Opener:
    """The opener of a filter, by its name. Raises: BadParameters, UsageError if it cannot be used here."""
    if name == "similar":
        import anabranch.dedup.similarity.filter  # noqa: F401, PLC0415 - before the filter's memory is measured
    if kind := CONTESTANTS.get(name):
        if kind.package and find_spec(kind.package) is None:
            raise UsageError(
                f"--filters {name} needs the package {_DISTRIBUTIONS.get(kind.package, kind.package)}: "
                f"{install_command('peers')}"
            )
        return kind.open
    found(name, "filter", CONTESTANTS)
    return lambda folder, _: open_choice(folder, name, kept=False)


def _uniq(mode: str, folder: Path, size: FilterSize) -> SeenFilter:
    return open_choice(folder, uniq_parameters(mode, size), kept=False)


def uniq_parameters(mode: str, size: FilterSize) -> UniqParameters:
    """The parameters of our own filter in a mode."""
    if size.bits is None or mode != "dsbf":
        return UniqParameters(mode=mode, expected=size.expected, false_positive=size.false_positive)
    shape = partial(UniqParameters, mode=mode, expected=size.expected, leaf_bits=_SMALL_LEAF_BITS)
    return shape(false_positive=size.rate(lambda rate: shape(false_positive=rate).dsbf.first_leaves * _SMALL_LEAF_BITS))


#: A DSBF is as large as its leaves, so that small ones come near to a number of bits.
_SMALL_LEAF_BITS = 1 << 16


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


class PeerInMemory(_Peer, ABC):
    """A peer that is in memory: a sync writes the whole filter into one file, and an opening reads it."""

    def __init__(self, folder: Path, size: FilterSize) -> None:
        self._file = folder / "filter"
        self._held: Any = self.read(self._file) if self._file.exists() else self.made(size)

    @abstractmethod
    def made(self, size: FilterSize) -> Any:
        """Make a filter."""

    @abstractmethod
    def read(self, file: Path) -> Any:
        """Read what `write` wrote."""

    @abstractmethod
    def write(self, file: Path) -> None:
        """Write the filter."""

    @abstractmethod
    def bits(self) -> float:
        """The size of the filter, by its own account."""

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """For each key, whether it was never marked."""
        held = self._held
        return [key not in held for key in keys]

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys."""
        self._held.update(keys)

    def facts(self) -> Mapping[str, float | str]:
        """The size."""
        return {"filter_bits": self.bits()}

    def sync(self) -> None:
        """Write the whole filter, if there is one."""
        if self._held is not None:
            self.write(self._file)

    def close(self) -> None:
        """Sync."""
        self.sync()


class RbloomContestant(PeerInMemory):
    """The classic Bloom filter of rbloom."""

    def made(self, size: FilterSize) -> Any:
        """Make one for the expected URLs."""
        from rbloom import Bloom  # noqa: PLC0415 - an extra

        make = partial(Bloom, size.expected, hash_func=_signed_128)
        return make(size.rate(lambda rate: make(rate).size_in_bits))

    def read(self, file: Path) -> Any:
        """Read it with the library."""
        from rbloom import Bloom  # noqa: PLC0415 - an extra

        return Bloom.load(str(file), _signed_128)

    def write(self, file: Path) -> None:
        """Write it with the library."""
        self._held.save(str(file))

    def bits(self) -> float:
        """The bits that the library counts."""
        return float(self._held.size_in_bits)


class BlockedContestant(PeerInMemory):
    """The blocked Bloom filter of abloom: a key's eight bits are in one cache line (split block, as in Apache Parquet)."""

    def made(self, size: FilterSize) -> Any:
        """Make one for the expected URLs, with a hash that is the same in every process."""
        from abloom import BloomFilter  # noqa: PLC0415 - an extra

        make = partial(BloomFilter, size.expected, serializable=True)
        return make(fp_rate=size.rate(lambda rate: make(fp_rate=rate).bit_count))

    def read(self, file: Path) -> Any:
        """Read it with the library."""
        from abloom import BloomFilter  # noqa: PLC0415 - an extra

        return BloomFilter.from_bytes(file.read_bytes())

    def write(self, file: Path) -> None:
        """Write it with the library."""
        file.write_bytes(self._held.to_bytes())

    def bits(self) -> float:
        """The bits that the library counts."""
        return float(self._held.bit_count)


class ScalableContestant(PeerInMemory):
    """The scalable Bloom filter of pybloom-live: when it is full it adds a larger one with a lower rate (Almeida, 2007)."""

    def made(self, size: FilterSize) -> Any:
        """Make one whose first filter is for the expected URLs."""
        from pybloom_live import BloomFilter, ScalableBloomFilter  # noqa: PLC0415 - an extra

        def first_bits(rate: float) -> float:
            return float(BloomFilter(size.expected, rate * _TIGHTENING).num_bits)

        return ScalableBloomFilter(initial_capacity=size.expected, error_rate=size.rate(first_bits))

    def read(self, file: Path) -> Any:
        """Read it with the library."""
        from pybloom_live import ScalableBloomFilter  # noqa: PLC0415 - an extra

        with file.open("rb") as source:
            return ScalableBloomFilter.fromfile(source)

    def write(self, file: Path) -> None:
        """Write it with the library."""
        with file.open("wb") as out:
            self._held.tofile(out)

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys, one a call."""
        for key in keys:
            self._held.add(key)

    def bits(self) -> float:
        """The bits of all its filters."""
        return float(sum(each.num_bits for each in self._held.filters))


#: Of pybloom-live: the first filter has this part of the rate, and each other one this part of the rate of the one before.
_TIGHTENING = 0.9


class CuckooContestant(PeerInMemory):
    """The scalable cuckoo filter of the crate of this name: fingerprints in two places each, which could be deleted again."""

    def made(self, size: FilterSize) -> Any:
        """Make one with places for the expected URLs."""
        from scf import PyScalableCuckooFilter  # noqa: PLC0415 - an extra

        make = partial(PyScalableCuckooFilter, max(1, round(size.expected / _CUCKOO_FILL)))
        return make(size.rate(lambda rate: make(rate).bits()))

    def read(self, file: Path) -> Any:
        """Read it with the library."""
        from scf import PyScalableCuckooFilter  # noqa: PLC0415 - an extra

        return PyScalableCuckooFilter.read_from_file(str(file))

    def write(self, file: Path) -> None:
        """Write it with the library."""
        self._held.write_to_file(str(file))

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """For each key, whether its fingerprint is in neither place."""
        known = self._held.might_contain
        return [not known(key) for key in keys]

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys, one a call."""
        for key in keys:
            self._held.insert(key)

    def bits(self) -> float:
        """The bits of all its tables."""
        return float(self._held.bits())


#: The crate adds a second table, twice as large, when its first is fuller than this (measured: 56 % of 65,536 places).
_CUCKOO_FILL = 0.55


class FuseContestant(PeerInMemory):
    """A binary fuse filter of pyfusefilter, with fingerprints of 8 or 16 bits. It is static: `mark` takes all URLs, once."""

    def __init__(self, fingerprint_bits: int, folder: Path, size: FilterSize) -> None:
        from pyfusefilter import Fuse8, Fuse16, pyfusefilter  # noqa: PLC0415 - an extra

        # Its own hash gives xxhash a text, which xxhash has refused since version 4.
        pyfusefilter.hash = fingerprint
        self._made: Any = {8: Fuse8, 16: Fuse16}[fingerprint_bits]
        super().__init__(folder, size)

    def made(self, size: FilterSize) -> Any:
        """Make nothing yet. Raises: UsageError if its bits, which depend on the number of URLs alone, are more than given."""
        if size.bits is not None and 8 * self._made(size.expected).size_in_bytes() > size.bits * size.expected:
            raise UsageError(f"--bits {size.bits:g}: its size is fixed, and more")

    def read(self, file: Path) -> Any:
        """Read it with the library."""
        return self._made.deserialize(file.read_bytes())

    def write(self, file: Path) -> None:
        """Write it with the library."""
        file.write_bytes(bytes(self._held.serialize()))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Build the filter of all URLs."""
        self._held = self._made(keys)

    def bits(self) -> float:
        """The bits that the library counts."""
        return 8 * float(self._held.size_in_bytes())


def _signed_128(key: bytes) -> int:
    """XXH3-128, the same in every process: rbloom saves no filter that uses Python's `hash()`."""
    return fingerprint(key) - (1 << 127)


#: The distribution of a package that has another name.
_DISTRIBUTIONS = {"pybloom_live": "pybloom-live", "scf": "cjrh-scalable-cuckoo-filter"}

_OF_OURS = {
    "smm": "knows URLs by addresses in files that several processes may share; loses as many as its fill says",
    "dsbf": "needs no plan: a full leaf splits, so that the rate stays however many URLs come",
    "both": "multiplies the error rates of the two: the default of a crawl",
    "exact": "loses none: the SMM in front, and all fingerprints on the disk",
}

#: By the name that `--filters` takes, in the order of the tables.
CONTESTANTS: dict[str, Kind] = {
    **{mode: Kind(partial(_uniq, mode), _OF_OURS[mode], can_be_sized=mode == "dsbf") for mode in MODES},
    "similar": Kind(SimilarContestant, "drops URLs that resemble earlier ones, on purpose"),
    "rbloom": Kind(
        RbloomContestant,
        "a classic Bloom filter, for a number that is known before: nearly the least memory for a rate",
        package="rbloom",
        is_durable=False,
        can_be_sized=True,
    ),
    "blocked-bloom": Kind(
        BlockedContestant,
        "a blocked Bloom filter: one cache line a key, for filters larger than the cache; a tenth more memory",
        package="abloom",
        is_durable=False,
        can_be_sized=True,
    ),
    "scalable-bloom": Kind(
        ScalableContestant,
        "a series of Bloom filters, for a number that is not known: each is larger, and a key asks all of them",
        package="pybloom_live",
        is_durable=False,
        can_be_sized=True,
    ),
    "cuckoo": Kind(
        CuckooContestant,
        "fingerprints that can be deleted again, as no Bloom filter can; its tables double",
        package="scf",
        is_durable=False,
        can_be_sized=True,
    ),
    "fuse8": Kind(
        partial(FuseContestant, 8),
        "static: the least memory for a rate, 0.4 % with 9 bits a URL, of a set that does not change",
        package="pyfusefilter",
        is_durable=False,
        is_static=True,
        can_be_sized=True,
    ),
    "fuse16": Kind(
        partial(FuseContestant, 16),
        "static: the same with 18 bits a URL, for a rate of 0.0015 %",
        package="pyfusefilter",
        is_durable=False,
        is_static=True,
        can_be_sized=True,
    ),
}
