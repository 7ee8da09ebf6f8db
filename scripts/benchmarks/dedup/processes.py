"""Four processes add the same million URLs to one SMM at once: each URL is new to exactly one of them, once.

The URLs have different addresses: two of one address are one to the store. Each process begins at another place and goes
round, so that all of them meet all over.
"""

from __future__ import annotations

import multiprocessing
import time
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch.dedup import Smm
from scripts.benchmarks.dedup.keys import Keys, batches, urls
from scripts.benchmarks.rows import Row, Setting

_COUNT = 1_000_000
_PROCESSES = 4
_BATCH = 100


def race(setting: Setting) -> Iterator[Row]:
    """The number of URLs that were new to none or to more than one, and the rate."""
    count = setting.count(_COUNT)
    folder = setting.folder / "smm"
    setting.say(f"{_PROCESSES} processes, {count:,} URLs each")
    Smm.open(folder).close()
    times_new, seconds = _run(folder, count)
    wrong = int(np.count_nonzero(times_new != 1))
    yield Row(
        name="processes-once",
        what=f"{count:,} new URLs, {_PROCESSES} processes: URLs not new exactly once",
        measured=float(wrong),
        unit="URLs",
        target=0.0,
        is_bound=True,
        note=f"new to none {np.count_nonzero(times_new == 0):,}, to several {np.count_nonzero(times_new > 1):,}",
    )
    yield Row(
        name="processes-rate",
        what=f"all {_PROCESSES} together, batches of {_BATCH}",
        measured=_PROCESSES * count / seconds,
        unit="URLs/s",
    )


def distinct_urls(count: int) -> Keys:
    """That many URLs with different addresses in an SMM of CRC-32."""
    by_address: dict[int, bytes] = {}
    for url in urls(range(count + count // 100 + 10)):
        by_address.setdefault(zlib.crc32(url), url)
        if len(by_address) == count:
            break
    return list(by_address.values())


def _run(folder: Path, count: int) -> tuple[NDArray[np.int64], float]:
    """How many processes each URL was new to, and the time from the start signal to the last answer."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(_PROCESSES)]
    children = [
        context.Process(target=_add_all, args=(folder, count, number, theirs))
        for number, (_, theirs) in enumerate(pipes)
    ]
    try:
        for child in children:
            child.start()
        for ours, theirs in pipes:
            theirs.close()  # so that a child that dies is an EOFError here
            ours.recv()
        started = time.perf_counter()
        for ours, _ in pipes:
            ours.send("go")
        times_new = np.sum([np.frombuffer(ours.recv_bytes(), dtype=np.bool_) for ours, _ in pipes], axis=0)
        return times_new.astype(np.int64), time.perf_counter() - started
    finally:
        for child in children:
            if child.pid is not None:
                child.kill()
                child.join()


def _add_all(folder: Path, count: int, number: int, parent: Connection) -> None:
    keys = distinct_urls(count)
    places = np.roll(np.arange(count), -(count * number // _PROCESSES))
    in_turn = batches([keys[place] for place in places.tolist()], _BATCH)
    with Smm.open(folder) as smm:
        parent.send("ready")
        parent.recv()
        new = np.concatenate([smm.add(batch) for batch in in_turn])
    answers = np.zeros(count, dtype=np.bool_)
    answers[places] = new
    parent.send_bytes(answers.tobytes())
