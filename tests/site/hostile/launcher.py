"""The real command, in a hurry, and on an Internet of its own.

    python tests/site/hostile/launcher.py [--files N] [--internet ADDRESS] crawl …

A URL is tried as often as the crawl's table says, but at once: the waits between the tries are the only thing that is left
out. With `--internet` that one loopback address counts as public and every other address as what it is, so that a test can
have both an Internet and something private that no crawl may touch. With `--files` the process may have
so many files and sockets.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # started as a program: the import path holds this folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from anabranch.crawler.cli import main
from anabranch.crawler.fetch import connections
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.processors import disposition


def tries_at_once() -> None:
    """Leave out the waits between the tries of a URL, not the tries."""
    waits = disposition.retry_after

    def retry_after(failure: FetchError | int, attempts: int, name_retries_s: Sequence[float] = ()) -> float | None:
        return None if waits(failure, attempts, name_retries_s) is None else 0.0

    disposition.retry_after = retry_after


def internet(public: str) -> None:
    """Let this address count as public."""
    judged = connections.is_public
    connections.is_public = lambda address: address == public or judged(address)


if __name__ == "__main__":
    tries_at_once()
    if sys.argv[1:2] == ["--files"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
        del sys.argv[1:3]
    if sys.argv[1:2] == ["--internet"]:
        internet(sys.argv[2])
        del sys.argv[1:3]
    main()
