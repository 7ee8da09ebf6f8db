"""Bodies that are small on the wire and large behind it, made without ever holding what they decode to.

Every one of the HTML bombs decodes to a page that begins with EARLY; a link to /late would stand behind gigabytes of spaces.
"""

from __future__ import annotations

import zlib
from functools import cache

EARLY = b'<!DOCTYPE html><title>x</title><a href="/early">x</a>\n'
MIB = 1 << 20

GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
#: Raw deflate: a stored block of no bytes.
EMPTY_BLOCK = b"\0\0\0\xff\xff"
#: Raw deflate: this ends the stream (an empty last block); brotli: an empty last meta-block (RFC 7932 section 9.2).
_DEFLATE_END = b"\x03\0"
_BROTLI_END = b"\x03"
#: Flushed meta-blocks of brotli (quality 11, window 2^24): EARLY, 16 MiB of spaces behind it, 16 MiB behind those ….
_BROTLI_EARLY = bytes.fromhex("8f1a002024f1785ec021070edfc53208a2c02107723ec4496ba801da382a9f41d3e3a68001")
_BROTLI_FIRST = bytes.fromhex("fcffff875f02241e0b0772efff0d")
_BROTLI_NEXT = bytes.fromhex("fcffff875f02200e0b0074efff0d")
#: zstd (RFC 8878): magic number; a frame header with nothing but a window; blocks that repeat one byte 131,072 times.
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SPACES = (1 << 1 | 131_072 << 3).to_bytes(3, "little") + b" "


@cache
def _flushed_spaces() -> bytes:
    """1 MiB of spaces as deflate blocks that end on a byte and look at nothing before them: they may be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(b" " * MIB) + packer.flush(zlib.Z_FULL_FLUSH)


@cache
def _raw_bomb(mebibytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    early = packer.compress(EARLY) + packer.flush(zlib.Z_FULL_FLUSH)
    return early + _flushed_spaces() * mebibytes + _DEFLATE_END


def gzip_bomb(mebibytes: int = 1024) -> bytes:
    """About 1:1000. The checksum at its end is wrong: nobody is meant to get there."""
    return GZIP_HEAD + _raw_bomb(mebibytes) + b"\0" * 8


def deflate_bomb(mebibytes: int = 1024) -> bytes:
    """Return the bytes of `gzip_bomb` without the gzip frame, as some servers send `deflate`."""
    return _raw_bomb(mebibytes)


@cache
def nested_gzip_bomb(mebibytes: int = 10_240) -> bytes:
    """A bomb in a gzip: 10 GiB in some kilobytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(gzip_bomb(mebibytes)) + packer.flush()


def brotli_bomb(mebibytes: int = 4096) -> bytes:
    """About 1:1,000,000."""
    return _BROTLI_EARLY + _BROTLI_FIRST + _BROTLI_NEXT * (mebibytes // 16 - 1) + _BROTLI_END


def zstd_bomb(mebibytes: int = 4096, window_log: int = 23) -> bytes:
    """About 1:30,000; with a large window (up to 2^41 bytes) the decoder is asked for that much memory at once."""
    raw_block = (len(EARLY) << 3).to_bytes(3, "little") + EARLY
    head = _ZSTD_MAGIC + b"\0" + bytes([(window_log - 10) << 3])
    return head + raw_block + _ZSTD_SPACES * (8 * mebibytes) + b"\x01\0\0"


def html_in_gzip(head: bytes, unit: bytes, size_bytes: int, tail: bytes = b"") -> bytes:
    """A gzip whose page is a head, a unit repeated up to so many bytes, and a tail."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    block = unit * (MIB // len(unit))
    parts = [packer.compress(head), *(packer.compress(block) for _ in range(size_bytes // len(block)))]
    return b"".join([*parts, packer.compress(tail), packer.flush()])
