"""How many files one URL's way through the Frontier leads through: what a reader has to open to follow it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from anabranch.frontier import Candidate, FrontierOrder, Outcome, OutcomeKind, open_frontier

#: Files of the room that a seed, its lease, its end with three links and a flush may touch.
MOST_FILES = 26
#: Successive calls in different files while one URL is scheduled.
MOST_CHANGES = 25


class Walk:
    """The calls of the room's functions, in their order, of the calling thread and of all others."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str, str]] = []  #: thread, file below the room, function

    def files(self) -> list[str]:
        """The files touched, sorted."""
        return sorted({file for _, file, _ in self.calls})

    def changes(self) -> int:
        """How often two successive calls of this thread are in different files."""
        here = [file for thread, file, _ in self.calls if thread == threading.get_ident()]
        return sum(one != other for one, other in pairwise(here))

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call; `sys.setprofile` calls this."""
        if event == "call":
            _, room, file = frame.f_code.co_filename.rpartition("/anabranch/frontier/")
            if room:
                self.calls.append((threading.get_ident(), file, frame.f_code.co_qualname))


@contextmanager
def walked() -> Iterator[Walk]:
    walk = Walk()
    threading.setprofile_all_threads(walk.note) if sys.version_info >= (3, 12) else threading.setprofile(walk.note)
    sys.setprofile(walk.note)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # the documented way to end it


def listed(walk: Walk, say: Callable[[str], None] = print) -> None:
    """The walk as a list of file and function, each once, in the order in which they are met."""
    for file, function in dict.fromkeys((file, function) for _, file, function in walk.calls):
        say(f"{file}: {function}")


def test_one_url_touches_few_files(tmp_path: Path) -> None:
    """Seed, lease, finish with three links, flush; durable in SQLite, by the default policy, in all threads."""
    with walked() as opening:  # the store's thread begins here, and is to be profiled, too
        frontier = open_frontier(tmp_path, FrontierOrder())
        opening.calls.clear()
        frontier.schedule([Candidate("http://example.org/")])
        frontier.flush()
        while (lease := frontier.lease()) is None:
            frontier.wait_until_durable()  # its answers come with it
        links = [Candidate(f"http://example.org/{number}") for number in range(3)]
        frontier.finish(lease, Outcome(OutcomeKind.DONE, 200, start_s=frontier.now_s(), end_s=frontier.now_s()), links)
        frontier.flush()
        sys.setprofile(None)
        files = opening.files()
    frontier.close()
    listed(opening)
    assert len(files) <= MOST_FILES, "\n".join(files)


def test_scheduling_a_url_changes_files_seldom(tmp_path: Path) -> None:
    """Between two calls of one `schedule` of one URL the reader seldom opens another file."""
    with open_frontier(tmp_path, FrontierOrder()) as frontier:
        frontier.schedule([Candidate("http://example.org/first")])
        frontier.flush()
        with walked() as walk:
            frontier.schedule([Candidate("http://example.net/")])
            changes = walk.changes()
    listed(walk)
    assert changes <= MOST_CHANGES
