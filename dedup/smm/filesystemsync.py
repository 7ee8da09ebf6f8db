"""Make a whole file system durable at once: thousands of small files, one call."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from anabranch.dedup.durablefiles import descriptor

_libc = ctypes.CDLL(None, use_errno=True)


def sync_file_system(folder: Path) -> bool:
    """Return when all files and names of the folder's file system are on the medium (syncfs(2)); False without that call.

    It waits for what other programs wrote, too. Linux has it, and reports errors since 5.8. Raises: OSError.
    """
    syncfs = getattr(_libc, "syncfs", None)
    if syncfs is None:
        return False
    with descriptor(folder, os.O_RDONLY) as fd:
        if syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    return True
