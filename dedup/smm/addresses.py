"""From a key to one bit of one file: the signature gives a number, the levels divide it into a file and an offset.

A signature is read big-endian; its leading bytes are the address. Levels `(1, 3)` take the first byte of an address as the
file's name and the other three as the bit offset in it; every level before the last but one is a folder. Names are
upper-case hex, two digits a byte. Bit 0 of a file is the most significant bit of its first byte.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

import numpy as np
import xxhash

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.keys import ByteArray, IntArray
from anabranch.dedup.userfunctions import imported

_CHECKED = b"123456789"  # the customary input of check values


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberSignature:
    """A signature that its library gives as a number."""

    width_bytes: int  #: at most 8
    number: Callable[[bytes], int]  #: the whole signature
    #: Two keys with one signature still have one when the same text is appended to both: so two sites, not two pages, collide.
    is_linear: bool = False

    def address(self, key: bytes, prefix_bytes: int) -> int:
        """The first `prefix_bytes` bytes of the key's signature, as one big-endian number."""
        return self.number(key) >> 8 * (self.width_bytes - prefix_bytes)

    def addresses(self, keys: Sequence[bytes], prefix_bytes: int) -> IntArray:
        """`address` of each key."""
        whole = np.fromiter(map(self.number, keys), dtype=np.uint64, count=len(keys))
        return (whole >> 8 * (self.width_bytes - prefix_bytes)).view(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSignature:
    """A signature that its library gives as bytes, all of one length."""

    width_bytes: int
    digest: Callable[[bytes], bytes]  #: gives that many bytes for every key

    def address(self, key: bytes, prefix_bytes: int) -> int:
        """The first `prefix_bytes` bytes of the key's signature, as one big-endian number."""
        return int.from_bytes(self.digest(key)[:prefix_bytes])

    def addresses(self, keys: Sequence[bytes], prefix_bytes: int) -> IntArray:
        """`address` of each key. The digests are joined and read as one array: ints one by one take longer."""
        joined = b"".join(map(self.digest, keys))
        table: ByteArray = np.frombuffer(joined, dtype=np.uint8).reshape(len(keys), self.width_bytes)
        words = np.zeros((len(keys), 8), dtype=np.uint8)
        words[:, 8 - prefix_bytes :] = table[:, :prefix_bytes]
        return words.view(">i8").ravel().astype(np.int64)


#: Keys become addresses of 1 to 7 bytes, not more than the signature has.
Signature: TypeAlias = NumberSignature | DigestSignature

#: By name, as recorded in FORMAT files; a user function is named `package.module:function`. Microseconds per
#: key of 55 bytes, alone / in a batch of 64 [measured]: crc32 0.18 / 0.14, xxh3-64 0.10 / 0.06, md5 0.63 / 0.40,
#: sha1 0.56 / 0.36.
SIGNATURES: dict[str, Signature] = {
    "crc32": NumberSignature(width_bytes=4, number=zlib.crc32, is_linear=True),  # ISO 3309, as in zlib
    # RFC 1321; FIPS 180-4, RFC 3174
    "md5": DigestSignature(width_bytes=16, digest=lambda key: hashlib.md5(key, usedforsecurity=False).digest()),
    "sha1": DigestSignature(width_bytes=20, digest=lambda key: hashlib.sha1(key, usedforsecurity=False).digest()),
    "xxh3-64": NumberSignature(width_bytes=8, number=xxhash.xxh3_64_intdigest),  # xxHash 0.8, seed 0
}


def full_name(name: str) -> str:
    """The name that folders record: `xxh3` is short for `xxh3-64`."""
    return "xxh3-64" if name == "xxh3" else name


def signature_named(name: str) -> Signature:
    """The signature of that name, from the table or imported. It and an imported signature's methods raise BadParameters."""
    if name in SIGNATURES:
        return SIGNATURES[name]
    function = imported(name, "signature", SIGNATURES)
    sample = function(b"")
    if not isinstance(sample, bytes) or not sample:
        raise BadParameters(f"signature {name!r} must give bytes, at least one; for an empty key it gave {sample!r}")
    width = len(sample)

    def digest(key: bytes) -> bytes:
        made = function(key)
        if not isinstance(made, bytes):
            raise BadParameters(f"signature {name!r} must give bytes; for {key!r} it gave {made!r}")
        if len(made) != width:
            raise BadParameters(
                f"signature {name!r} must give digests of one length; "
                f"it gave {width} bytes for an empty key and {len(made)} for {key!r}"
            )
        return made

    return DigestSignature(width_bytes=width, digest=digest)


def check_value(signature: Signature) -> str:
    """First 7 bytes of the signature of "123456789", in hex: they detect a changed or salted function of the same name."""
    width = min(signature.width_bytes, 7)
    return f"{signature.address(_CHECKED, width):0{2 * width}x}"


_LARGEST_ADDRESS_BYTES = 7  # an address is a signed 64-bit integer
_LARGEST_OFFSET_BYTES = 5  # a file of 128 GiB; the next, 32 TiB, is more than common file systems take
_FEWEST_LEVELS = 2

#: Levels to choose from, smallest first; the last is the default: 2^32 bits.
_SIZES = ((1, 1), (1, 2), (1, 3))
_HIGHEST_FILL = 1 / 256


def levels_for(expected: int, highest_fill: float = _HIGHEST_FILL) -> tuple[int, ...]:
    """The smallest levels with a fill of at most this once `expected` keys are marked, else (1, 3).

    Larger ones would cost a page of the disk for nearly each key.
    """
    for levels in _SIZES:
        if -math.expm1(-expected / 256 ** sum(levels)) <= highest_fill:
            return levels
    return _SIZES[-1]


def planned_loss(expected: int, levels: tuple[int, ...]) -> float:
    """The number of keys that a store of these levels is expected to drop while so many are marked: the sum of its fill.

    n - B (1 - e^(-n/B)) for n keys and B bits, about n^2 / 2B. A linear signature has the same mean, in larger portions.
    """
    bits: float = 256 ** sum(levels)
    return expected + bits * math.expm1(-expected / bits)


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The shape of a store: 256 ** (all levels but the last) files of 256 ** (the last) bits."""

    levels: tuple[int, ...]  #: bytes of the address that each level takes

    def __post_init__(self) -> None:
        if len(self.levels) < _FEWEST_LEVELS or min(self.levels) < 1:
            raise BadParameters(f"levels {self.levels}: two or more are needed, of one byte or more each")
        if self.levels[-1] > _LARGEST_OFFSET_BYTES:
            raise BadParameters(f"levels {self.levels}: the last takes at most {_LARGEST_OFFSET_BYTES} bytes")
        if self.address_bytes > _LARGEST_ADDRESS_BYTES:
            raise BadParameters(f"levels {self.levels} take more than {_LARGEST_ADDRESS_BYTES} bytes together")

    @property
    def address_bytes(self) -> int:
        """Leading bytes of the signature that address a bit."""
        return sum(self.levels)

    @property
    def file_bits(self) -> int:
        """Bits in one file."""
        return 1 << 8 * self.levels[-1]

    @property
    def file_bytes(self) -> int:
        """Size of one file."""
        return self.file_bits // 8

    @property
    def files(self) -> int:
        """Number of files."""
        return 1 << 8 * sum(self.levels[:-1])

    def name(self, file: int) -> PurePosixPath:
        """Path of the file of that number, below the store's folder."""
        digits = f"{file:0{2 * sum(self.levels[:-1])}X}"
        parts, start = [], 0
        for width in self.levels[:-1]:
            parts.append(digits[start : start + 2 * width])
            start += 2 * width
        return PurePosixPath(*parts)

    def names(self) -> Iterator[PurePosixPath]:
        """All files' paths, in the order of their numbers."""
        return map(self.name, range(self.files))
