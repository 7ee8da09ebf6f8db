"""Signatures of the SMM: a key becomes a number of fixed length, and its leading bytes are an address.

A signature is read big-endian: its most significant bytes choose the file. Another signature is one more row of
`SIGNATURES`; a user's own is named `package.module:function`, a function from a key to a digest of fixed length.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import xxhash

from anabranch.dedup.batch import ByteArray, IntArray
from anabranch.dedup.errors import BadParameters
from anabranch.dedup.registered import imported

_CHECKED = b"123456789"  # the customary input of check values


class Signature(Protocol):
    """How keys become addresses of 1 to 7 bytes, not more than the signature has."""

    @property
    def width_bytes(self) -> int:
        """Length of a signature."""
        ...

    def address(self, key: bytes, prefix_bytes: int) -> int:
        """The first `prefix_bytes` bytes of the key's signature, as one big-endian number."""
        ...

    def addresses(self, keys: Sequence[bytes], prefix_bytes: int) -> IntArray:
        """`address` of each key."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberSignature:
    """A signature that its library gives as a number."""

    width_bytes: int  #: at most 8
    number: Callable[[bytes], int]  #: the whole signature

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


def _md5(key: bytes) -> bytes:
    return hashlib.md5(key, usedforsecurity=False).digest()


def _sha1(key: bytes) -> bytes:
    return hashlib.sha1(key, usedforsecurity=False).digest()


#: By name, as recorded in FORMAT files; a user's own signature is named `package.module:function`. Microseconds per
#: key of 55 bytes, alone / in a batch of 64 [measured]: crc32 0.18 / 0.14, xxh3-64 0.10 / 0.06, md5 0.63 / 0.40,
#: sha1 0.56 / 0.36.
SIGNATURES: dict[str, Signature] = {
    "crc32": NumberSignature(width_bytes=4, number=zlib.crc32),  # ISO 3309, as in zlib
    "md5": DigestSignature(width_bytes=16, digest=_md5),  # RFC 1321
    "sha1": DigestSignature(width_bytes=20, digest=_sha1),  # FIPS 180-4, RFC 3174
    "xxh3-64": NumberSignature(width_bytes=8, number=xxhash.xxh3_64_intdigest),  # xxHash 0.8, seed 0
}


def signature_named(name: str) -> Signature:
    """The signature of that name, from the table or imported.

    Raises: BadParameters if there is none. So do the methods of an imported one, if its function fails or gives a key
    something else than bytes, as many as it gave the empty key.
    """
    return SIGNATURES[name] if name in SIGNATURES else _own(name)


def _own(name: str) -> DigestSignature:
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
    """The leading bytes, at most 7, of the signature of "123456789", in hex.

    Stored beside a signature's name: it tells a function that was changed, or salted by the process, from the one
    that a store was made with.
    """
    width = min(signature.width_bytes, 7)
    return f"{signature.address(_CHECKED, width):0{2 * width}x}"
