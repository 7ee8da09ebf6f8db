"""How soon memory that is free goes back to the system, for a process that reads what sites send."""

from __future__ import annotations

import ctypes
import os

#: Blocks of this size are mapped, and go back the moment they are free; so does this much at the end of a heap.
GIVE_BACK_BYTES = 1 << 20

#: Of <malloc.h>, https://www.gnu.org/software/libc/manual/html_node/Malloc-Tunable-Parameters.html
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def give_back_early() -> bool:
    """Let glibc give memory back at `GIVE_BACK_BYTES`; False where the allocator is another one, and nothing changes.

    By itself it raises both limits up to 32 MiB and 64 MiB with each large block that is freed, for every heap, of which each
    thread may have one: a few large bodies, and a crawl keeps 100 MB of nothing for good. Until then it gives back too soon:
    reading a page of 12 KB takes a third longer.
    """
    if not _is_glibc():
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(limit, GIVE_BACK_BYTES) for limit in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))


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
