"""What compresses the records: one gzip member each, by zlib-ng where that is installed, else by zlib."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

_LEVEL = 6  # zlib's own compromise; 9 takes twice the time for 1 % less
_GZIP = 16  # zlib: gzip with its header, beside the bits of the window
_LEAST_WINDOW, _LARGEST_WINDOW = 9, 15
_LOOK_AHEAD = 262  # zlib: bytes of its window that it does not look back to


class Deflate(Protocol):
    """Makes one gzip member."""

    def compress(self, data: bytes, /) -> bytes:
        """Take some; answers what is ready of the member."""

    def flush(self) -> bytes:
        """The rest of the member."""


def _library() -> Callable[[int, int, int, int], Deflate]:
    """zlib-ng's takes half of zlib's time, for members that are a hundredth larger."""
    try:
        made: Callable[[int, int, int, int], Deflate] = import_module("zlib_ng.zlib_ng").compressobj
    except ImportError:
        return zlib.compressobj
    return made


_compressor = _library()


def gzip_member(size_bytes: int) -> Deflate:
    """What compresses a record of so many bytes.

    A window that holds all of it finds what a larger one would. zlib clears its tables for each record, which for a request
    took ten times as long as the compression.
    """
    window = min(max((size_bytes + _LOOK_AHEAD).bit_length(), _LEAST_WINDOW), _LARGEST_WINDOW)
    return _compressor(_LEVEL, zlib.DEFLATED, _GZIP + window, (window + 1) // 2)
