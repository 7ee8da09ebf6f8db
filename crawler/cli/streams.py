"""Standard error that can never end a crawl, and descriptors 0 to 2 that no other file gets."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Forgiving(io.FileIO):
    """Takes everything: what cannot be written (no reader, full disk, a terminal that has gone) is lost without a word."""

    def write(self, data: Any, /) -> int:
        """Write what can be written; the length of the data, whatever becomes of it."""
        try:
            super().write(data)
        except OSError:
            hide = os.open(os.devnull, os.O_WRONLY)
            os.dup2(hide, self.fileno())
            os.close(hide)
        return memoryview(data).nbytes


def keep_streams() -> None:
    """Open what is closed of descriptors 0 to 2 on nothing, and let no write to standard error fail.

    Started with `2>&-`, the first file that the process opens would be its standard error: the job's lock, or its database.
    A standard error that is not the process's own, as in tests, is left alone.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        encoding = getattr(sys.stderr, "encoding", None)
        raw = _Forgiving(2, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", write_through=True)
