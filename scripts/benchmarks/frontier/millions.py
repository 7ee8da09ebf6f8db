"""Ten million queued URLs of a million queues: disk, memory, openings, speed; and what a lease costs with fewer queues.

The store is filled and closed. A child process opens it, leases, and is killed (SIGKILL) amid its work; another one opens what
it left. So memory is that of a process which does nothing else, and the kill is a real one. Before each opening all files are
read once, so that the system has them in its memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anabranch.frontier.composition import FrontierOrder
from anabranch.frontier.jobfolder import STORE_FILE
from scripts.benchmarks.dedup.lasting import disk_bytes, in_child, own_bytes
from scripts.benchmarks.frontier.filling import PER_QUEUE, fill
from scripts.benchmarks.frontier.host import START_S, Host, Rounds, both
from scripts.benchmarks.frontier.links import URL_CHARACTERS, Web
from scripts.benchmarks.frontier.speed import POLITENESS
from scripts.benchmarks.rows import Row, Setting

ORDER = FrontierOrder(policy="host", politeness=POLITENESS)

_QUEUES = (10_000, 100_000, 1_000_000)
_QUICK = 100
#: URLs that are leased and finished; of a small store nine tenths.
_FETCHED = 300_000
#: Each opening is that much later, in virtual time: all slots have rested.
_LATER_S = 1e6
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """The measurements with one number of queues."""

    queues: int
    urls: int
    scheduled: float  #: URLs per second, of the last ones
    store_bytes: int
    seen_bytes: int
    opened: dict[str, float]  #: figures of the process that opened it

    @property
    def lease_us(self) -> float:
        """Lease + finish of a URL, microseconds by the clock."""
        return 1e6 / self.opened["fetched"]


def measured(setting: Setting) -> Iterator[Row]:
    """The rows of the largest store, then the growth of the cost of a lease."""
    sizes = [queues // _QUICK if setting.is_quick else queues for queues in _QUEUES]
    few, more, most = (_grown(setting, queues) for queues in sizes)
    yield from _largest(most)
    setting.say("opened after kill -9")
    killed = in_child(open_again, _folder(setting, most.queues), most.queues)
    yield _opening("killed", "after kill -9", killed, 15.0)
    yield Row(name="millions-lease", what=f"lease + finish, {few.queues:,} queues", measured=few.lease_us, unit="µs")
    for grown in (more, most):
        yield Row(
            name=f"millions-lease-{grown.queues}-x",
            what=f"lease + finish, {grown.queues:,} queues over {few.queues:,}",
            measured=grown.lease_us / few.lease_us,
            unit="x",
            target=1.5,
            is_bound=True,
            note=f"{grown.lease_us:.1f} µs over {few.lease_us:.1f} µs, one round of each: a hint",
        )


def prepare(folder: Path, queues: int, say: Callable[[str], None]) -> tuple[int, float]:
    """Fill a state of so many queues and close it. Returns the number of URLs, and the rate of the last ones."""
    filled = fill(folder, ORDER, queues, say)
    say(f"{queues:,} queues: opened for the first time, which fills the filter; then the last URLs by schedule()")
    more, rounds = _more(queues), Rounds()
    with Host(folder, ORDER, queues, START_S + _LATER_S) as host:
        batches = Web(queues).batches(range(filled, filled + more))
        rounds.time(more, lambda: (host.schedule(batches), host.flush()))
    return filled + more, rounds.median


def open_and_lease(folder: Path, queues: int) -> Iterator[dict[str, float]]:
    """Open, lease and finish; then schedule until the process is killed."""
    _warm(folder)
    count, rounds = min(9 * queues, _FETCHED), Rounds()
    with _timed(folder, queues, START_S + 2 * _LATER_S) as (host, figures):
        rounds.time(count, lambda: (host.fetch(count), host.flush()))
        figures |= {"fetched": rounds.median, "count": count, "own_bytes": own_bytes()}
        first = queues * PER_QUEUE + _more(queues)
        host.schedule(Web(queues).batches(range(first, first + _more(queues))))
        yield figures


def open_again(folder: Path, queues: int) -> Iterator[dict[str, float]]:
    """Open the remaining state."""
    _warm(folder)
    with _timed(folder, queues, START_S + 3 * _LATER_S) as (_, figures):
        yield figures


@contextmanager
def _timed(folder: Path, queues: int, start_s: float) -> Iterator[tuple[Host, dict[str, float]]]:
    """A host, with how long the opening and the first lease took, and the memory after them."""
    started = time.perf_counter()
    with Host(folder, ORDER, queues, start_s) as host:
        opened = time.perf_counter()
        host.fetch(1)
        figures = {"opened_s": opened - started, "first_s": time.perf_counter() - opened, "opened_bytes": own_bytes()}
        yield host, figures


def _largest(most: Grown) -> Iterator[Row]:
    held = f"{most.urls:,} URLs in {most.queues:,} queues"
    opened = most.opened
    yield Row(
        name="millions-rate",
        what=f"schedule + lease + finish, {held}",
        measured=both(most.scheduled, opened["fetched"]),
        unit="URLs/s",
        target=10_000.0,
        note=f"schedule {most.scheduled:,.0f}/s, lease + finish {opened['fetched']:,.0f}/s",
    )
    yield Row(
        name="millions-disk",
        what=f"store: bytes per URL of {URL_CHARACTERS} characters, {held}",
        measured=most.store_bytes / most.urls,
        unit="bytes",
        target=150.0,
        is_bound=True,
        note=f"after a clean end, its log cut; the filter has {most.seen_bytes / most.urls:.1f} bytes per URL besides",
    )
    yield Row(
        name="millions-memory",
        what="memory of its own (RssAnon) of a process that opened it and leases",
        measured=opened["own_bytes"],
        unit="bytes",
        target=float(300 << 20),
        is_bound=True,
        note=f"after {opened['count']:,.0f} leases; after the first one {opened['opened_bytes'] / 2**20:.0f} MiB",
    )
    yield _opening("clean", "after a clean end", opened, 3.0)


def _opening(name: str, when: str, figures: dict[str, float], target: float) -> Row:
    return Row(
        name=f"millions-open-{name}",
        what=f"opening {when}, files in the page cache",
        measured=figures["opened_s"],
        unit="s",
        target=target,
        is_bound=True,
        note=f"the first lease came and was finished {figures['first_s']:.2f} s later",
    )


def _grown(setting: Setting, queues: int) -> Grown:
    folder = _folder(setting, queues)
    urls, scheduled = prepare(folder, queues, setting.say)
    store_bytes, seen_bytes = (folder / STORE_FILE).stat().st_size, disk_bytes(folder / "seen")
    setting.say(f"{queues:,} queues: opened, {min(9 * queues, _FETCHED):,} URLs leased")
    opened = in_child(open_and_lease, folder, queues)
    return Grown(
        queues=queues, urls=urls, scheduled=scheduled, store_bytes=store_bytes, seen_bytes=seen_bytes, opened=opened
    )


def _folder(setting: Setting, queues: int) -> Path:
    return setting.folder / str(queues)


def _more(queues: int) -> int:
    """URLs that come by schedule(), besides those that are written directly to the store."""
    return queues * 3 // 10


def _warm(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(_READ_BYTES):
                    pass
