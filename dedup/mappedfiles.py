"""Many equal files mapped side by side, so that one numpy array spans them all.

A stretch of addresses is reserved first, then each file is mapped over its place in it (mmap(2), MAP_FIXED). So a
batch over 256 files is one vectorised pass, and each descriptor is closed after mapping: `mmap.mmap` would keep a
duplicate of it for the life of the map, 256 of the 1024 that a process commonly may have.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dedup.batch import ByteArray
from dedup.durablefiles import descriptor
from dedup.errors import FormatMismatch

_MAP_FIXED = 0x10  # the same on Linux and macOS; the mmap module does not name it
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0)
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's block is

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_int64]


class MappedFiles:
    """Files of `file_bytes` each, shared and writable; file i starts at byte `i * stride` of `data`.

    `stride` is the size rounded up to a multiple of `align`, itself one of the page size. An empty file is given its
    size first, sparse.

    Touching a page that has no blocks on a full disk kills the process (SIGBUS): callers allocate pages first.
    """

    def __init__(self, paths: Sequence[Path], file_bytes: int, align: int) -> None:
        self.stride = -(-file_bytes // align) * align
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANON | _MAP_NORESERVE
        self._region = mmap.mmap(-1, self.stride * len(paths), flags=flags)
        self.data: ByteArray = np.frombuffer(self._region, dtype=np.uint8)
        try:
            start = self.data.ctypes.data
            #: Per file: all its blocks are allocated, so that no page of it can fail.
            self.is_full = [_map(path, file_bytes, start + i * self.stride) for i, path in enumerate(paths)]
            self._advise()
        except BaseException:
            self.close()
            raise

    def _advise(self) -> None:
        # Without it the kernel reads around each fault: 250 MiB are resident after 5,000 random keys.
        if hasattr(mmap, "MADV_RANDOM"):
            self._region.madvise(mmap.MADV_RANDOM)

    def close(self) -> None:
        """Unmap all files; a second call does nothing. The array is empty from then on."""
        self.data = np.zeros(0, dtype=np.uint8)
        self._region.close()


def _map(path: Path, file_bytes: int, address: int) -> bool:
    """Map a file over its place; True if all its blocks are allocated. Raises: FormatMismatch, OSError."""
    try:
        with descriptor(path, os.O_RDWR) as fd:
            status = os.fstat(fd)
            if not status.st_size:
                os.ftruncate(fd, file_bytes)
            elif status.st_size != file_bytes:
                raise FormatMismatch(f"{path} has {status.st_size} bytes instead of {file_bytes}: it is damaged")
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            place = _libc.mmap(address, file_bytes, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
            if place != address:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
            return status.st_blocks * _BLOCK_BYTES >= status.st_size > 0
    except FileNotFoundError as error:
        raise FormatMismatch(f"{path} is missing: the store is damaged") from error
