"""Where the lines of `anabranch dedup` come from: a file or standard input, or what else has a descriptor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from anabranch.crawler.cli.saying import say
from anabranch.crawler.outcomes.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stream of lines."""

    fd: int
    name: str  #: for messages
    ends_at_signal: bool = True  #: False: a signal ends what fills it, and it is read to its end
    require_whole: Callable[[], None] = lambda: None  #: after its end: raises what made it end too early
    counted: Callable[[], str] = lambda: ""  #: what it met beside the lines, in words
    fault: Callable[[], str] = lambda: ""  #: after its end: why nothing can have come out of it, in words


@contextmanager
def lines_of(file: str | None) -> Iterator[Source]:
    """The lines of the file, or of standard input if it is None or "-". Raises: UsageError, OSError."""
    if file in (None, "-"):
        fd = descriptor(sys.stdin, "input", "name a FILE")
        if os.isatty(fd):
            say("anabranch: reading URLs from the terminal; Ctrl-D ends them")
        yield Source(fd=fd, name="standard input")
    else:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield Source(fd=fd, name=file)
        finally:
            os.close(fd)


def descriptor(stream: TextIO | None, name: str, advice: str) -> int:
    """The number of a standard stream. Raises: UsageError if the stream is closed; its number may then belong to any file."""
    if stream is None:
        raise UsageError(f"standard {name} is closed; {advice}")
    return stream.fileno()
