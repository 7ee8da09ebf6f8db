"""The UniqFilter, rbloom and a Python set, each in a process of its own: time and memory with ten million keys, as ratios.

The processes work in turns on the same hundredth of the keys, each time in the reverse order of the time before, so that other
work on the machine slows all of them down. First all keys are new; then each process is asked for known keys in a scattered
order, as links of pages are. A ratio is the median of those of all parts, by CPU time. Making the keys is not timed.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from anabranch.crawler.lab.report import in_turns
from anabranch.dedup import UniqFilter, UniqParameters
from scripts.benchmarks.dedup.keys import Call, batches, parts, scattered, urls
from scripts.benchmarks.dedup.peers import rbloom_with_xxh3, tested_then_updated
from scripts.benchmarks.rows import Row, Setting, rounds_row

_EXPECTED = 10_000_000
_PARTS = 100
_KNOWN_PARTS = 30

#: Most that the UniqFilter may take of a set's time, and of its memory.
_NEW_TIMES, _KNOWN_TIMES, _MEMORY_SHARE = 3.0, 2.0, 1 / 8

#: Opens a contestant in a folder: the call for new keys, and the one for known keys.
Opening = Callable[[Path], tuple[Call, Call]]


def _uniq(folder: Path) -> tuple[Call, Call]:
    uniq = UniqFilter.open(folder, UniqParameters(expected=_EXPECTED))
    return uniq.add, uniq.unseen


def _rbloom(_: Path) -> tuple[Call, Call]:
    return tested_then_updated(rbloom_with_xxh3(_EXPECTED))


def _rbloom_update(_: Path) -> tuple[Call, Call]:
    bloom = rbloom_with_xxh3(_EXPECTED)
    return bloom.update, bloom.update


def _set(_: Path) -> tuple[Call, Call]:
    return tested_then_updated(set())


def large(setting: Setting) -> Iterator[Row]:
    """Batches of 10,000: rbloom's speed is to be reached, and a part of a set's."""
    found = _run(setting, 10_000, (_uniq, _rbloom, _rbloom_update, _set))
    uniq, rbloom, update, held = found
    yield from _faster("contest-10000", uniq, rbloom, update, target=1.0)
    for kind, most in (("new", _NEW_TIMES), ("known", _KNOWN_TIMES)):
        yield rounds_row(
            name=f"contest-10000-set-{kind}",
            what=f"{kind}: CPU time of UniqFilter over that of a set",
            figures=_ratios(uniq, held, kind),
            unit="x",
            target=most,
            is_bound=True,
            note=_note(uniq, held, kind),
        )
    yield Row(
        name="contest-10000-memory",
        what=f"RssAnon of the process with the UniqFilter over that with a set, {uniq.keys:,} keys",
        measured=uniq.memory.anonymous / held.memory.anonymous if held.memory.anonymous else None,
        unit="x",
        target=_MEMORY_SHARE,
        is_bound=True,
        note=f"{uniq.memory.anonymous / 2**20:,.0f} and {held.memory.anonymous / 2**20:,.0f} MiB, interpreter included",
    )
    yield Row(
        name="contest-10000-mapped",
        what="resident mapped pages (RssFile, RssShmem) of the process with the UniqFilter",
        measured=uniq.memory.mapped,
        unit="bytes",
        note=f"the kernel can drop them; {held.memory.mapped / 2**20:,.0f} MiB with a set: libraries",
    )


def small(setting: Setting) -> Iterator[Row]:
    """Batches of 64, as the Frontier asks: numpy's fixed cost per call shows. No targets."""
    uniq, rbloom, update = _run(setting, 64, (_uniq, _rbloom, _rbloom_update))
    yield from _faster("contest-64", uniq, rbloom, update, target=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident memory of a process, in bytes; 0 without /proc (not Linux)."""

    anonymous: int  #: its own: heap and other anonymous pages
    mapped: int  #: pages of files

    @classmethod
    def of_this_process(cls) -> Memory:
        """By the kernel."""
        status = Path(f"/proc/{os.getpid()}/status")
        text = status.read_text(encoding="utf-8") if status.exists() else ""
        found = {name: int(size) << 10 for name, size in re.findall(r"^Rss(\w+):\s+(\d+) kB", text, re.MULTILINE)}
        return cls(anonymous=found.get("Anon", 0), mapped=found.get("File", 0) + found.get("Shmem", 0))


class Contestant:
    """A contestant's process, and what it measured."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self.seconds: dict[str, list[float]] = {"new": [], "known": []}  #: of CPU, per part
        self.keys = 0  #: new ones so far
        self.memory = Memory(anonymous=0, mapped=0)  #: after the last part of new keys

    def time(self, kind: str, numbers: Sequence[int], size: int) -> None:
        """Have it work on the keys of these numbers. Raises: EOFError if its process has ended."""
        self._line.send((kind, numbers, size))
        seconds, memory = self._line.recv()
        self.seconds[kind].append(seconds)
        if kind == "new":
            self.keys += len(numbers)
            self.memory = memory


@contextmanager
def competing(opening: Opening, folder: Path) -> Iterator[Contestant]:
    """A process with a contestant; it is killed at the end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_compete, args=(opening, folder, theirs))
    child.start()
    theirs.close()
    try:
        yield Contestant(ours)
    finally:
        child.kill()
        child.join()
        ours.close()


def _compete(opening: Opening, folder: Path, line: Connection) -> None:
    new, known = opening(folder)
    while True:
        kind, numbers, size = line.recv()
        in_batches = batches(urls(numbers), size)
        call = new if kind == "new" else known
        started = time.process_time()
        for batch in in_batches:
            call(batch)
        seconds = time.process_time() - started
        del in_batches, batch
        line.send((seconds, Memory.of_this_process()))


def _run(setting: Setting, size: int, openings: Sequence[Opening]) -> list[Contestant]:
    count = setting.count(_EXPECTED)
    with ExitStack() as processes:
        found = [
            processes.enter_context(competing(opening, setting.folder / f"{size}{opening.__name__}"))
            for opening in openings
        ]
        setting.say(f"{count:,} new keys in batches of {size:,}, {len(found)} processes in turns")
        in_parts = list(parts(count, _PARTS))
        for number, contestant in in_turns(found, _PARTS):
            contestant.time("new", in_parts[number], size)
        setting.say("known keys")
        for number, contestant in in_turns(found, _KNOWN_PARTS):
            contestant.time("known", scattered(in_parts[number], count), size)
    return found


def _faster(name: str, uniq: Contestant, rbloom: Contestant, update: Contestant, target: float | None) -> Iterator[Row]:
    """How many times as fast as rbloom: where it answers for each key, as the UniqFilter does, and where it only updates."""
    for peer, other, how, least in (
        ("rbloom", rbloom, {"new": "`in` for each key, then update", "known": "`in` for each key"}, target),
        ("rbloom-update", update, dict.fromkeys(("new", "known"), "update, which does not answer"), None),
    ):
        for kind, ours in (("new", "add"), ("known", "unseen")):
            yield rounds_row(
                name=f"{name}-{peer}-{kind}-x",
                what=f"{kind}: speed of UniqFilter ({ours}) over rbloom with XXH3 ({how[kind]})",
                figures=_ratios(other, uniq, kind),
                unit="x",
                target=least,
                note=_note(uniq, other, kind),
            )


def _ratios(over: Contestant, under: Contestant, kind: str) -> list[float]:
    """The ratio of the two contestants' CPU times in each part."""
    return [one / other for one, other in zip(over.seconds[kind], under.seconds[kind], strict=True)]


def _note(uniq: Contestant, other: Contestant, kind: str) -> str:
    keys = uniq.keys if kind == "new" else uniq.keys * _KNOWN_PARTS // _PARTS
    mine, theirs = sum(uniq.seconds[kind]), sum(other.seconds[kind])
    return f"{keys / mine:,.0f} and {keys / theirs:,.0f} URLs per CPU second over all parts"
