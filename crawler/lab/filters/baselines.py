"""Filters that the published experiments compare with the SMM and the DSBF; for measurements, no crawl uses them.

`BitmapHashTable` and `ClassicBloom` are the peers of patent CN102693315, tables 2 and 3; `PerDomainFilters` those of
the DSBF paper 2016, figures 10 and 11. All three live for one process: nothing is reopened.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from anabranch.dedup.bloom.formulas import false_positive_rates
from anabranch.dedup.errors import BadParameters, FilterClosed
from anabranch.dedup.files.mapped import PAGE_BYTES, PAGE_SHIFT, MappedFiles, allocate_pages
from anabranch.dedup.keys import BoolArray, ByteArray, IntArray, fingerprints, map_hashes

_BIT: ByteArray = np.array([128 >> bit for bit in range(8)], dtype=np.uint8)
_AT_ONCE = 1 << 16  # keys of one vectorised pass; with ten hashes it takes about 30 MB
_HOST = re.compile(rb"(?:(?:[a-z][a-z0-9+.-]*:)?//)?(?:[^@/?#]*@)?(\[[^\]]*\]|[^:/?#]*)", re.IGNORECASE)


class BitmapHashTable:
    """A hash table of B buckets; a key's bucket is CRC-32 mod B, and a bucket's chain is scanned linearly.

    So n keys cost about n / (2B) comparisons per key found and n / B per key missed: time falls as 1/B, as in patent
    CN102693315, table 2. Exact: no false positives.
    """

    def __init__(self, buckets: int) -> None:
        if buckets < 1:
            raise BadParameters(f"buckets is {buckets}; it must be 1 or more")
        self._chains: list[list[bytes]] = [[] for _ in range(buckets)]

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Insert the keys that are missing; True where a key was. A key twice in one batch is new once."""
        return np.fromiter(map(self.add_one, keys), dtype=np.bool_, count=len(keys))

    def contains(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key was added."""
        return np.fromiter(map(self.contains_one, keys), dtype=np.bool_, count=len(keys))

    def put(self, keys: Sequence[bytes]) -> int:
        """Insert keys that are missing, and different, without a look at the chains. Returns their number."""
        for key in keys:
            self._chains[zlib.crc32(key) % len(self._chains)].append(key)
        return len(keys)

    def add_one(self, key: bytes) -> bool:
        """Insert one key; True if it was missing."""
        chain = self._chains[zlib.crc32(key) % len(self._chains)]
        is_new = key not in chain
        if is_new:
            chain.append(key)
        return is_new

    def contains_one(self, key: bytes) -> bool:
        """True if the key was added."""
        return key in self._chains[zlib.crc32(key) % len(self._chains)]


class _Bytes:
    """Bytes in memory, which can grow; with a path those of a new sparse file of `size` bytes, mapped shared."""

    def __init__(self, size: int = 0, path: Path | None = None) -> None:
        self._path = path
        self._present: BoolArray = np.zeros(size // PAGE_BYTES, dtype=np.bool_)
        self.data: ByteArray = np.zeros(0, dtype=np.uint8)
        if path:
            if size % PAGE_BYTES:
                raise BadParameters(f"a mapped filter of {size} bytes is not whole pages of {PAGE_BYTES}")
            path.touch(exist_ok=False)
            self._files = MappedFiles([path], size, PAGE_BYTES)
            self.data = self._files.data

    def reach(self, size: int) -> None:
        """Have at least `size` bytes. Growing copies: at most five bytes moved per byte taken."""
        held = self.data.size
        if size > held:
            self.data = np.pad(self.data, (0, max(size, held + held // 4) - held))

    def reserve(self, places: IntArray) -> None:
        """Allocate the file's pages of these bytes: a write into a hole of a full disk kills. Raises: StoreFull."""
        pages = np.unique(places >> PAGE_SHIFT) if self._path else places[:0]
        pages = pages[~self._present[pages]]
        while self._path and len(pages):
            done = allocate_pages(self._path, (pages * PAGE_BYTES).tolist(), PAGE_BYTES)
            self._present[pages[:done]] = True
            pages = pages[done:]

    def close(self) -> None:
        """Let the bytes go."""
        self.data = np.zeros(0, dtype=np.uint8)
        if self._path:
            self._files.close()


class _Rows:
    """Filters of `row_bits` bits each in one array of bytes, so that a batch over all is one pass; with counts."""

    def __init__(self, row_bits: int, bits: _Bytes) -> None:
        self.row_bits = row_bits
        self._bits = bits
        #: Rows: keys given to `add`, those that set a bit, bits set; a column per filter.
        self.counts: IntArray = np.zeros((3, 0), dtype=np.int64)

    def reach(self, rows: int) -> None:
        """Have at least that many filters."""
        missing = rows - self.counts.shape[1]
        if missing > 0:
            self._bits.reach(rows * self.row_bits // 8)
            self.counts = np.pad(self.counts, ((0, 0), (0, missing)))

    def add(self, rows: IntArray, positions: IntArray) -> BoolArray:
        """Set each key's positions (n, k) in its row; True where a bit was clear when the key's turn came."""
        bits = rows[:, None] * self.row_bits + positions
        clear = self._are_clear(bits)
        fresh, first = np.unique(bits[clear], return_index=True)  # the first key alone finds a bit clear
        self._bits.reserve(fresh >> 3)
        for number in range(8):  # of several bits in one byte numpy would store the last alone
            self._bits.data[fresh[fresh & 7 == number] >> 3] |= _BIT[number]
        new: BoolArray = np.zeros(len(rows), dtype=np.bool_)
        new[np.nonzero(clear)[0][first]] = True
        met = (rows, rows[new], fresh // self.row_bits)
        self.counts += [np.bincount(of, minlength=self.counts.shape[1]) for of in met]
        return new

    def contains(self, rows: IntArray, positions: IntArray) -> BoolArray:
        """True where all positions of a key are set in its row; False where the row is -1, no filter."""
        held: BoolArray = rows >= 0
        held[held] = ~self._are_clear(rows[held, None] * self.row_bits + positions[held]).any(axis=1)
        return held

    def add_one(self, row: int, positions: Sequence[int]) -> bool:
        """`add` of one key, without arrays of one."""
        data, start, fresh = self._bits.data, row * self.row_bits, 0
        for position in positions:
            place, bit = start + position >> 3, 128 >> (position & 7)
            byte = data.item(place)
            if not byte & bit:
                data[place] = byte | bit
                fresh += 1
        self.counts[:, row] += (1, fresh > 0, fresh)
        return fresh > 0

    def contains_one(self, row: int, positions: Sequence[int]) -> bool:
        """`contains` of one key, without arrays of one."""
        data, start = self._bits.data, row * self.row_bits
        return all(data.item(start + position >> 3) & 128 >> (position & 7) for position in positions)

    def _are_clear(self, bits: IntArray) -> BoolArray:
        return np.asarray((self._bits.data[bits >> 3] & _BIT[bits & 7]) == 0)


def _in_parts(keys: Sequence[bytes], answer: Callable[[Sequence[bytes]], BoolArray]) -> BoolArray:
    """The answers for all keys, some at once, so that any batch takes little memory."""
    parts = [answer(keys[start : start + _AT_ONCE]) for start in range(0, len(keys), _AT_ONCE)]
    return np.concatenate([np.zeros(0, dtype=np.bool_), *parts])


_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "crc32": lambda key: zlib.crc32(key).to_bytes(4, "big"),
    "md5": lambda key: hashlib.md5(key, usedforsecurity=False).digest(),
    "sha1": lambda key: hashlib.sha1(key, usedforsecurity=False).digest(),
}
#: Number of hash words k -> the digests that give them, of 1, 4 and 5 words of 32 bits (CN102693315, table 3).
WORD_SOURCES = {1: "crc32", 4: "md5", 5: "sha1", 6: "crc32 sha1", 9: "md5 sha1", 10: "crc32 md5 sha1"}


def hash_words(keys: Sequence[bytes], k: int) -> IntArray:
    """The k words of each key, shape (n, k): its digests one after the other, cut into big-endian 32-bit words."""
    digests = (b"".join(map(_DIGESTS[name], keys)) for name in WORD_SOURCES[k].split())
    columns = [np.frombuffer(words, dtype=">u4").reshape(len(keys), -1) for words in digests]
    return np.hstack(columns).astype(np.int64)


class ClassicBloom:
    """A Bloom filter of m bits whose k positions are hash words mod m (patent CN102693315, table 3).

    Raises: BadParameters if k is none of `WORD_SOURCES`, or m is not whole bytes or above 2^32.
    """

    def __init__(self, bits: int, hashes: int) -> None:
        if hashes not in WORD_SOURCES:
            raise BadParameters(f"hashes is {hashes}; whole digests give {', '.join(map(str, WORD_SOURCES))}")
        if not 8 <= bits <= 1 << 32 or bits % 8:
            raise BadParameters(f"bits is {bits}; it must be whole bytes up to 2^32 bits, which 32-bit words reach")
        self.bits, self.hashes = bits, hashes
        self._rows = _Rows(bits, _Bytes())
        self._rows.reach(1)

    @property
    def fill(self) -> float:
        """Share of bits set."""
        return int(self._rows.counts[2, 0]) / self.bits

    def expected_rate(self, n: int) -> float:
        """False-positive rate with n distinct keys by the formula (1 - e^(-kn/m))^k."""
        return float(false_positive_rates(self.bits, self.hashes, np.array([n]))[0])

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Insert the keys; True where a bit was clear, in the batch's order. Cost: 2 µs per key with k = 10."""
        return _in_parts(keys, lambda part: self._rows.add(*self._places(part)))

    def contains(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key was added, or falsely."""
        return _in_parts(keys, lambda part: self._rows.contains(*self._places(part)))

    def add_one(self, key: bytes) -> bool:
        """`add` of one key, several times as fast as a batch of one."""
        return self._rows.add_one(0, self._positions(key))

    def contains_one(self, key: bytes) -> bool:
        """`contains` of one key, several times as fast as a batch of one."""
        return self._rows.contains_one(0, self._positions(key))

    def _positions(self, key: bytes) -> list[int]:
        words = b"".join([_DIGESTS[name](key) for name in WORD_SOURCES[self.hashes].split()])
        return [word % self.bits for word in struct.unpack(f">{self.hashes}I", words)]

    def _places(self, keys: Sequence[bytes]) -> tuple[IntArray, IntArray]:
        return np.zeros(len(keys), dtype=np.int64), hash_words(keys, self.hashes) % self.bits


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterReport:
    """One filter of a `PerDomainFilters`."""

    name: str  #: the domain, or the filter's number
    urls: int  #: URLs inserted: each call counts, so a caller that wants distinct ones adds each URL once
    accepted: int  #: those among them that the filter took for new
    fill: float  #: share of bits set
    expected_rate: float  #: false-positive rate with `urls` distinct URLs by the formula
    measured_rate: float | None  #: share of the filter's probes that it took for known; None without any probe


def host_of(url: bytes) -> bytes:
    """The host in lower case, without user and port; the scheme may be missing."""
    return next(_HOST.finditer(url))[1].lower()  # there is a match: every part of it is optional


class PerDomainFilters:
    """Fixed filters among which a URL's domain chooses (DSBF paper 2016, figures 10 and 11).

    Each has `filter_bits` bits, a power of two as all published sizes are, and k positions by the DSBF's MapHash. With
    `number` there are that many, chosen by CRC-32 of the domain mod `number`; without it (0) each domain gets its own
    at its first URL. Raises: BadParameters.
    """

    def __init__(self, filter_bits: int, hashes: int, number: int = 0, path: Path | None = None) -> None:
        if not 8 <= filter_bits <= 1 << 40 or filter_bits & (filter_bits - 1):
            raise BadParameters(f"filter_bits is {filter_bits}; it must be a power of two from 8 to 2^40")
        if hashes < 1 or number < 0:
            raise BadParameters(f"hashes is {hashes}, number {number}; they must be 1 or more and 0 or more")
        self._hashes, self._number = hashes, number
        self._names: dict[bytes, int] = {b"%d" % i: i for i in range(number)}
        self._bits = _Bytes(filter_bits // 8 * number, path)
        self._rows = _Rows(filter_bits, self._bits)
        self._rows.reach(number)
        self._is_closed = False
        #: The domain of a URL: its host, unless the caller puts another rule here before the first URL.
        self.domain_of: Callable[[bytes], bytes] = host_of

    @classmethod
    def internet_archive(cls) -> Self:
        """One filter of 32 KB with k = 10 per domain: it holds 18,170 URLs at a rate of 1e-3."""
        return cls(1 << 18, 10)

    @classmethod
    def apoidea(cls, number: int, hashes: int = 10) -> Self:
        """`number` filters of 8 KB, chosen by the hash of the domain. Their k is not published."""
        return cls(1 << 16, hashes, number)

    @classmethod
    def single(cls, path: Path, filter_bits: int = 1 << 34, hashes: int = 10) -> Self:
        """One filter of 2 GB in a new sparse file, nearly all allocated after 50,000 URLs. Raises: FileExistsError."""
        return cls(filter_bits, hashes, 1, path)

    def add(self, urls: Sequence[bytes]) -> BoolArray:
        """Insert; True where a filter took the URL for new. Raises: FilterClosed; StoreFull with a part inserted."""
        return _in_parts(urls, lambda part: self._rows.add(self._choose(part, may_open=True), self._positions(part)))

    def contains(self, urls: Sequence[bytes]) -> BoolArray:
        """True where the URL was added, or falsely; False for a domain without a filter. Raises: FilterClosed."""
        return _in_parts(urls, lambda part: self._rows.contains(self._choose(part), self._positions(part)))

    def report(self, probes: Sequence[bytes] = ()) -> list[FilterReport]:
        """Every filter, in order of its making; probes are URLs never added. Raises: FilterClosed."""
        rows, known = self._choose(probes), self.contains(probes)
        asked, taken = (np.bincount(r, minlength=len(self._names)) for r in (rows[rows >= 0], rows[known]))
        bits = self._rows.row_bits
        expected = false_positive_rates(bits, self._hashes, self._rows.counts[0]).tolist()
        return [
            FilterReport(
                name=name.decode("utf-8", "replace"),
                urls=urls,
                accepted=accepted,
                fill=bits_set / bits,
                expected_rate=rate,
                measured_rate=hits / tried if tried else None,
            )
            for name, (urls, accepted, bits_set), rate, hits, tried in zip(
                self._names, self._rows.counts.T.tolist(), expected, taken.tolist(), asked.tolist(), strict=True
            )
        ]

    def close(self) -> None:
        """Let the bits go; a second call does nothing. A mapped file stays; it is the caller's to remove."""
        self._is_closed = True
        self._bits.close()

    def _choose(self, urls: Sequence[bytes], *, may_open: bool = False) -> IntArray:
        """The filter of each URL, -1 if its domain has none and may not open one."""
        if self._is_closed:
            raise FilterClosed("the filters are closed; make new ones")
        if self._number:
            rows = (zlib.crc32(self.domain_of(url)) % self._number for url in urls)
        elif may_open:
            rows = (self._names.setdefault(self.domain_of(url), len(self._names)) for url in urls)
        else:
            rows = (self._names.get(self.domain_of(url), -1) for url in urls)
        chosen = np.fromiter(rows, dtype=np.int64, count=len(urls))
        self._rows.reach(len(self._names))
        return chosen

    def _positions(self, urls: Sequence[bytes]) -> IntArray:
        first, second = map_hashes(fingerprints(urls))
        return (first[:, None] + second[:, None] * np.arange(self._hashes)) & (self._rows.row_bits - 1)
