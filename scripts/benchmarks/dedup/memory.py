"""The UniqFilter beside a Python set: memory and time for the same keys, each in a process of its own."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from anabranch.dedup import UniqFilter, UniqParameters
from scripts.benchmarks.dedup.keys import Keys, batches, parts, urls
from scripts.benchmarks.dedup.lasting import in_child
from scripts.benchmarks.rows import Row, Setting

_EXPECTED = 10_000_000
_BATCH = 10_000
#: A part of the known keys that is asked again: one in five.
_ASKED_AGAIN = 5
_LEAST_TIMES_SMALLER = 8.0
_MOST_TIMES_NEW = 3.0
_MOST_TIMES_KNOWN = 2.0


def beside_a_set(setting: Setting) -> Iterator[Row]:
    """Test and set of new keys, then questions about known ones, in batches of 10,000."""
    count = setting.count(_EXPECTED)
    setting.say(f"a set of {count:,} keys")
    theirs = in_child(_of_set, setting.folder / "set", count)
    setting.say(f"a UniqFilter of {count:,} keys")
    ours = in_child(_of_uniq, setting.folder / "set-uniq", count)
    yield Row(
        name="set-memory-x",
        what=f"RssAnon of a set over that of a UniqFilter, {count:,} keys",
        measured=theirs["RssAnon"] / ours["RssAnon"],
        unit="x",
        target=_LEAST_TIMES_SMALLER,
        note=(
            f"set {theirs['RssAnon'] / 2**20:,.0f} MiB; UniqFilter {ours['RssAnon'] / 2**20:,.0f} MiB, and "
            f"{(ours['RssFile'] + ours['RssShmem']) / 2**20:,.0f} MiB of mapped pages, which the kernel can drop"
        ),
    )
    for kind, most in (("new", _MOST_TIMES_NEW), ("known", _MOST_TIMES_KNOWN)):
        yield Row(
            name=f"set-{kind}-x",
            what=f"time of a UniqFilter over that of a set, {kind} keys, batches of {_BATCH:,}",
            measured=ours[kind] / theirs[kind],
            unit="x",
            target=most,
            is_bound=True,
            note=(
                f"UniqFilter {ours[kind] * 1e6:.2f} µs a key, set {theirs[kind] * 1e6:.2f} µs; processor time alone: "
                f"{ours[f'{kind}-cpu'] * 1e6:.2f} and {theirs[f'{kind}-cpu'] * 1e6:.2f} µs"
            ),
        )


def _of_set(_: Path, count: int) -> Iterator[dict[str, float]]:
    held = set[bytes]()

    def add(batch: Keys) -> list[bool]:
        new = [key not in held for key in batch]
        held.update(batch)
        return new

    yield _measured(add, lambda batch: [key not in held for key in batch], count)


def _of_uniq(folder: Path, count: int) -> Iterator[dict[str, float]]:
    uniq = UniqFilter.open(folder, UniqParameters(expected=count))
    yield _measured(uniq.add, uniq.unseen, count)


def _measured(add: Callable[[Keys], Any], ask: Callable[[Keys], Any], count: int) -> dict[str, float]:
    """Seconds a key, and the growth of the process's memory."""
    before = resident_bytes()
    new, new_cpu = _timed(add, list(parts(count)))
    grown = {name: size - before[name] for name, size in resident_bytes().items()}
    known, known_cpu = _timed(ask, list(parts(count))[::_ASKED_AGAIN])
    return {"new": new, "new-cpu": new_cpu, "known": known, "known-cpu": known_cpu, **grown}


def _timed(call: Callable[[Keys], Any], asked: Sequence[range]) -> tuple[float, float]:
    """Seconds a key, and of these the process's own; the keys of each part are made before."""
    spent_s = own_s = 0.0
    for part in asked:
        made = batches(urls(part), _BATCH)
        started_s, own_started_s = time.perf_counter(), time.process_time()
        for batch in made:
            call(batch)
        spent_s += time.perf_counter() - started_s
        own_s += time.process_time() - own_started_s
    keys = sum(map(len, asked))
    return spent_s / keys, own_s / keys


def resident_bytes() -> dict[str, int]:
    """The process's resident memory by kind, as Linux counts it in /proc/PID/status: its own, of files, shared."""
    status = Path(f"/proc/{os.getpid()}/status").read_text()
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(Rss\w+):\s+(\d+) kB", status, re.MULTILINE)}
