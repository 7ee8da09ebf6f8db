"""The similarity filter: drops a URL if each of its features, by itself, was seen before.

A URL is `u1/u2/…/un`. Each feature of it (the site u1, the depth n, the first directory u2, the tail page un; source: the
patent on similarity-based URL deduplication) is one bit in the bit array of its own type: the feature's MD5 mod N, or the
number itself mod N. All bits 1: similar. Any bit 0: new; the URL goes to the table URL_DB (`url_db.py`), and then the bits
are set. The arrays are in memory and are rebuilt from URL_DB at opening.

Known limit of the published mode: features of different URLs combine. The site-bound mode hashes each feature together
with its site. Any bytes are accepted; without a slash they are a site alone (n = 1).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np

from anabranch.dedup.errors import BadParameters, FormatMismatch
from anabranch.dedup.files import Closing, formatfile
from anabranch.dedup.keys import BoolArray
from anabranch.dedup.similarity.url_db import UrlDb
from anabranch.dedup.userfunctions import imported

#: (u1, …, un) of a URL; never empty.
Parts: TypeAlias = tuple[bytes, ...]
#: Bytes are hashed; a number is taken as it is. One feature gives one of the two for all URLs, and always the same.
Feature: TypeAlias = Callable[[Parts], bytes | int]

_SCHEME = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//")
_AFTER_PATH = re.compile(rb"[?#]")


def parts_of(url: bytes, *, drop_query: bool = False) -> Parts:
    """Split a URL without its scheme at the slashes of its path; query and fragment belong to un, unless dropped."""
    scheme = _SCHEME.match(url)
    rest = url[scheme.end() :] if scheme else url
    after = _AFTER_PATH.search(rest)
    if after is None:
        return tuple(rest.split(b"/"))
    path, query = rest[: after.start()], b"" if drop_query else rest[after.start() :]
    *parts, last = (path if b"/" in path else path + b"/").split(b"/")
    return (*parts, last + query)


#: By name. A user function is named `package.module:function`.
FEATURES: dict[str, Feature] = {
    "site": lambda parts: parts[0],  # u1
    "depth": len,  # n
    "directory": lambda parts: parts[1] if len(parts) > 1 else b"",  # u2
    "tail": lambda parts: parts[-1] if len(parts) > 1 else b"",  # un
}


def feature_named(name: str) -> Feature:
    """The feature of that name, from the table or imported. Raises: BadParameters, also when an imported one fails."""
    if name in FEATURES:
        return FEATURES[name]
    feature: Feature = imported(name, "feature", FEATURES)
    return feature


MAGIC = "anabranch similarity filter"
VERSION = 1

#: Name of the SQLite file in the filter's folder.
URL_DB_NAME = "URL_DB.sqlite"

_PROBE: Parts = (b"www.example.com", b"news", b"index.html")
_MAX_BITS = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityParameters:
    """The features that a filter compares, and its size; recorded in its folder. Raises: BadParameters when made."""

    expected: int = 1_000_000  #: k: URLs that will be stored, at least 1
    false_positive: float = 1e-3  #: P: part of URLs new in every hashed feature called similar at k
    features: tuple[str, ...] = tuple(FEATURES)  #: names as for `feature_named`, each once
    #: The mode: False is "published", only values are hashed; True is "site-bound", site, slash and value, numbers too.
    site_bound: bool = False
    drop_query: bool = False  #: True: URLs that differ in the query alone are equal

    def __post_init__(self) -> None:
        if self.expected < 1:
            raise BadParameters(f"expected is {self.expected}; it must be at least 1")
        if not 0 < self.false_positive < 1:
            raise BadParameters(f"false_positive is {self.false_positive}; it must be between 0 and 1")
        if not self.features or len(set(self.features)) < len(self.features):
            raise BadParameters(f"features are {' '.join(self.features)!r}; name at least one, each once")
        if any(re.search(r"\s", name) for name in self.features):
            raise BadParameters(f"features are {self.features!r}; a name has no spaces")

    def record(self) -> dict[str, str | int | float | list[int]]:
        """The parameters as FORMAT files hold them."""
        return {
            "expected": self.expected,
            "false_positive": self.false_positive,
            "features": " ".join(self.features),
            "mode": "site-bound" if self.site_bound else "published",
            "drop_query": self.drop_query,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityStatistics:
    """A filter at one moment."""

    urls: int  #: URLs stored
    array_bits: int  #: N: bits of each array
    fill: dict[str, float]  #: feature -> share of its array's bits that are set
    false_similar: float  #: rate at which a URL new in every hashed feature is called similar now (product of fills)


def array_bits(expected: int, false_positive: float, hashed: int) -> int:
    """N, the bits of each array, from k, P and F, the number of hashed features. Raises: BadParameters above 2^40.

    M = -k ln P / (ln 2)^2, and N = the larger of M and -k / ln(1 - P^(1/F)), rounded up; without a hashed feature N = M. At k
    different URLs an array is filled to 1 - e^(-k/N) <= P^(1/F), so all F bits are set by chance at a rate of at most P.
    """
    bits = -expected * math.log(false_positive) / math.log(2) ** 2
    if hashed:
        share = math.log1p(-(false_positive ** (1 / hashed)))
        bits = max(bits, -expected / share if share else math.inf)
    if bits > _MAX_BITS:
        raise BadParameters(f"{expected} URLs at {false_positive} ask for over 2^40 bits per feature; ask for less")
    return math.ceil(bits)


class BitArray:
    """One bit per value of one feature, in memory."""

    def __init__(self, bits: int) -> None:
        self._bytes = bytearray(-(-bits // 8))
        self.bits_set = 0  #: number of set bits

    def is_set(self, place: int) -> bool:
        """True if the bit is 1."""
        return bool(self._bytes[place >> 3] & 128 >> (place & 7))

    def flip(self, place: int) -> None:
        """Set a clear bit, or clear a set one."""
        self._bytes[place >> 3] ^= 128 >> (place & 7)
        self.bits_set += 1 if self.is_set(place) else -1


class Comparison:
    """From a URL to one place in each array: parts, features, hashes. Raises: BadParameters."""

    def __init__(self, parameters: SimilarityParameters) -> None:
        self._features = [(name, feature_named(name)) for name in parameters.features]
        self._is_bound, self._drop_query = parameters.site_bound, parameters.drop_query
        #: Names of the hashed features; what one gives for one URL says whether it is hashed.
        self.hashed = tuple(name for name, value in self._values(_PROBE) if isinstance(value, bytes))
        #: N.
        self.array_bits = array_bits(parameters.expected, parameters.false_positive, len(self.hashed))

    def places(self, url: bytes) -> list[int]:
        """The place in each array, from 0 to N - 1, in the order of the features. Cost: one MD5 per feature."""
        parts = parts_of(url, drop_query=self._drop_query)
        values = [value for _, value in self._values(parts)]
        if self._is_bound:  # a site holds no slash, so prefixed values of two sites are never equal
            values = [parts[0] + b"/" + (value if isinstance(value, bytes) else b"%d" % value) for value in values]
        numbers = [
            value
            if isinstance(value, int)
            else int.from_bytes(hashlib.md5(value, usedforsecurity=False).digest(), "big")
            for value in values
        ]
        return [number % self.array_bits for number in numbers]

    def _values(self, parts: Parts) -> Iterable[tuple[str, bytes | int]]:
        for name, feature in self._features:
            value: object = feature(parts)
            if not isinstance(value, bytes | int):
                raise BadParameters(f"feature {name!r} gave {value!r} for {b'/'.join(parts)!r}; give bytes or int")
            yield name, value


class SimilarityFilter(Closing):
    """Is this URL, or a similar one, known? `SimilarityFilter.open` gives a lasting one. It belongs to one thread."""

    def __init__(self, url_db: UrlDb, parameters: SimilarityParameters) -> None:
        self._url_db = url_db
        self._comparison = Comparison(parameters)
        self._names = parameters.features
        self._arrays = [BitArray(self._comparison.array_bits) for _ in self._names]
        for url in url_db:
            self._set(self._comparison.places(url))

    @classmethod
    def open(cls, folder: Path, parameters: SimilarityParameters | None = None) -> Self:
        """Open a folder's filter, or make it if the folder is new or empty: 10 µs per URL. Raises: as `UniqFilter.open`."""
        given = parameters or SimilarityParameters()
        Comparison(given)  # unknown features leave no folder behind
        wanted = formatfile.Format(magic=MAGIC, version=VERSION, parameters=given.record())
        is_complete = formatfile.adopt(folder, wanted)
        path = folder / URL_DB_NAME
        if is_complete and not path.exists():
            raise FormatMismatch(f"{path} is missing: the filter is damaged")
        url_db = UrlDb.open(path, given.record(), may_be_new=not is_complete)
        try:
            made = cls(url_db, given)
            if not is_complete:
                formatfile.complete(folder, wanted)
        except BaseException:
            url_db.close()
            raise
        return made

    def is_similar(self, url: bytes) -> bool:
        """True if the bits of all features are set; nothing is changed."""
        places = self._comparison.places(url)
        return all(array.is_set(place) for array, place in zip(self._arrays, places, strict=True))

    def are_similar(self, urls: Sequence[bytes]) -> BoolArray:
        """True where `add_all` would answer False: similar to a stored URL or to an earlier new one of the batch."""
        new, flipped = self._admit(urls)
        _flip(flipped)
        return ~new

    def add(self, url: bytes) -> bool:
        """`add_all` of one URL; True if it was new. Cost: one sync of the disk if so."""
        return bool(self.add_all([url])[0])

    def add_all(self, urls: Sequence[bytes]) -> BoolArray:
        """Test and store, one after another: True where a URL was new. New ones are on the disk when it returns.

        Cost: one transaction. Raises: StoreFull (an OSError), OSError, FilterClosed; nothing is changed then.
        """
        new, flipped = self._admit(urls)
        try:
            self.store(list(compress(urls, new)))
        except BaseException:
            _flip(flipped)
            raise
        return new

    def mark(self, urls: Sequence[bytes]) -> BoolArray:
        """The first half of `add_all`: in memory alone. A restart forgets what `store` was not given after it."""
        return self._admit(urls)[0]

    def store(self, urls: Sequence[bytes]) -> None:
        """The second half of `add_all`: URLs that `mark` found new are on the disk when it returns. It may be repeated.

        In the thread that opened the filter; `is_similar`, `are_similar` and `mark` may run in another thread meanwhile.
        """
        self._url_db.append(urls, " ".join(self._names))

    def statistics(self) -> SimilarityStatistics:
        """The filter at this moment; nothing is changed."""
        bits = self._comparison.array_bits
        fill = {name: array.bits_set / bits for name, array in zip(self._names, self._arrays, strict=True)}
        chance = math.prod(fill[name] for name in self._comparison.hashed)
        return SimilarityStatistics(urls=len(self), array_bits=bits, fill=fill, false_similar=chance)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._url_db.close()

    def __len__(self) -> int:
        return len(self._url_db)

    def __repr__(self) -> str:
        return f"<SimilarityFilter {len(self)} urls by {' '.join(self._names)}>"

    def _set(self, places: list[int]) -> list[tuple[BitArray, int]]:
        """Set the bits; those that were clear."""
        clear = [pair for pair in zip(self._arrays, places, strict=True) if not pair[0].is_set(pair[1])]
        _flip(clear)
        return clear

    def _admit(self, urls: Sequence[bytes]) -> tuple[BoolArray, list[tuple[BitArray, int]]]:
        """Set the bits of all URLs: which were new, and the bits that were clear before."""
        new, flipped = np.zeros(len(urls), dtype=np.bool_), []
        for number, places in enumerate([self._comparison.places(url) for url in urls]):
            clear = self._set(places)
            new[number] = bool(clear)
            flipped += clear
        return new, flipped


def _flip(bits: list[tuple[BitArray, int]]) -> None:
    for array, place in bits:
        array.flip(place)
