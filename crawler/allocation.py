"""How soon memory that is free goes back to the system, for a process that reads what sites send."""

from __future__ import annotations

import ctypes
import os

#: Blocks of this size are mapped, and go back the moment they are free.
GIVE_BACK_BYTES = 1 << 20
#: This much at the end of a heap is kept: what reading a page of usual size takes, and takes again for the next one.
KEPT_BYTES = 4 << 20

#: Of <malloc.h>, https://www.gnu.org/software/libc/manual/html_node/Malloc-Tunable-Parameters.html
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def give_back_early() -> bool:
    """Let glibc give memory back at these sizes; False where the allocator is another one, and nothing changes.

    By itself it raises both limits up to 32 MiB and 64 MiB with each large block that is freed, for every heap, of which each
    thread may have one: a few large bodies, and a crawl keeps 100 MB of nothing for good. Until then it gives back too soon:
    the tree of a page of 12 KB takes 1.2 MB, from the system again for each page: that is up to half of the time of reading it.
    """
    if not _is_glibc():
        return False
    libc = ctypes.CDLL(None)
    limits = {_M_TRIM_THRESHOLD: KEPT_BYTES, _M_MMAP_THRESHOLD: GIVE_BACK_BYTES}
    return all(libc.mallopt(limit, size) for limit, size in limits.items())


def give_back_now() -> None:
    """Give the system all free memory, also what lies between blocks in use; nothing with another allocator.

    Cost: 5 to 10 ms for 100 MB.
    """
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def _is_glibc() -> bool:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") is not None
    except (AttributeError, OSError, ValueError):  # no such name, or no names at all, on another system
        return False
