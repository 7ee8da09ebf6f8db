"""Ten million keys that stay: all are asked again, the files are measured, and the filter is opened again twice.

A child process fills the filter, asks, syncs, and is killed (SIGKILL). A second one opens what is left and closes it cleanly;
a third one opens that. So memory is a process's own that does nothing else, and the kill is a real one.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from anabranch.dedup import UniqFilter, UniqParameters
from scripts.benchmarks.dedup.keys import batches, parts, urls
from scripts.benchmarks.rows import Row, Setting

_EXPECTED = 10_000_000
_SMM_BYTES = 512 << 20
_BYTES_PER_URL = 18
_BATCH = 10_000
_BLOCK_BYTES = 4096

#: Works on the filter of a folder with so many keys, and yields once.
Task = Callable[[Path, int], Iterator[dict[str, float]]]


def kept(setting: Setting) -> Iterator[Row]:
    """Losses, sizes and openings."""
    count, folder = setting.count(_EXPECTED), setting.folder / "uniq"
    setting.say(f"a process marks {count:,} keys and asks them all again")
    filled = in_child(_fill_and_ask, folder, count)
    yield Row(
        name="lasting-lost",
        what=f"false negatives among {count:,} keys, all asked again",
        measured=filled["lost"],
        unit="keys",
        target=0.0,
        is_bound=True,
    )
    yield from _sizes(filled, count)
    setting.say("opened after kill -9")
    killed = in_child(open_and_close, folder, count)
    yield _disk("lasting-disk-closed", "after a clean end", disk_bytes(folder), disk_bytes(folder / "smm"), count)
    setting.say("opened after a clean end")
    clean = in_child(open_and_close, folder, count)
    for name, what, found in (("killed", "after kill -9", killed), ("clean", "after a clean end", clean)):
        yield Row(name=f"lasting-open-{name}", what=f"opening {what}", measured=found["opened_s"], unit="s")
    lost = killed["lost"] + clean["lost"]
    what = "synced keys unknown after the two openings, a sample asked"
    yield Row(name="lasting-reopened", what=what, measured=lost, unit="keys", target=0.0, is_bound=True)


def _sizes(filled: dict[str, float], count: int) -> Iterator[Row]:
    yield Row(
        name="lasting-disk-empty",
        what="disk blocks of a filter just made (the SMM's files are sparse)",
        measured=filled["empty_bytes"],
        unit="bytes",
    )
    yield _disk("lasting-disk", "in use, synced", filled["full_bytes"], filled["smm_bytes"], count)
    yield Row(
        name="lasting-memory",
        what="memory of its own (RssAnon) that the filter adds to the process",
        measured=filled["own_bytes"],
        unit="bytes",
        note="the SMM's pages are the file's and can be dropped by the kernel",
    )


def _disk(name: str, when: str, whole: float, smm: float, count: int) -> Row:
    return Row(
        name=name,
        what=f"disk blocks with {count:,} keys, {when}: 512 MiB + {_BYTES_PER_URL} bytes a key",
        measured=whole,
        unit="bytes",
        target=float(_SMM_BYTES + _BYTES_PER_URL * count),
        is_bound=True,
        note=f"the SMM {smm / 2**20:.1f} MiB, the rest {(whole - smm) / count:.2f} bytes a key",
    )


def _fill_and_ask(folder: Path, count: int) -> Iterator[dict[str, float]]:
    before = own_bytes()
    uniq = UniqFilter.open(folder, UniqParameters(expected=count, levels=(1, 3)))
    empty = disk_bytes(folder)
    for part in parts(count):
        for batch in batches(urls(part), _BATCH):
            uniq.mark(batch)
    lost = sum(int(uniq.unseen(batch).sum()) for part in parts(count) for batch in batches(urls(part), _BATCH))
    uniq.sync()
    yield {
        "lost": lost,
        "empty_bytes": empty,
        "full_bytes": disk_bytes(folder),
        "smm_bytes": disk_bytes(folder / "smm"),
        "own_bytes": own_bytes() - before,
    }


def open_and_close(folder: Path, count: int) -> Iterator[dict[str, float]]:
    started = time.perf_counter()
    with UniqFilter.open(folder, UniqParameters(expected=count, levels=(1, 3))) as uniq:
        opened_s = time.perf_counter() - started
        lost = float(uniq.unseen(urls(range(0, count, 100))).sum())
    yield {"opened_s": opened_s, "lost": lost}


def in_child(task: Task, folder: Path, count: int) -> dict[str, float]:
    """The first value that the task yields, in a separate process, which is then killed without clean-up."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(task, folder, count, theirs))
    child.start()
    theirs.close()
    try:
        answer: dict[str, float] = ours.recv()
    except EOFError:
        raise RuntimeError(f"the process for {task.__name__} ended without an answer") from None
    finally:
        ours.close()
        child.kill()
        child.join()
    return answer


def _work(task: Task, folder: Path, count: int, answers: Connection) -> None:
    steps = task(folder, count)
    answers.send(next(steps))
    signal.pause()  # what the task has opened is still open when the parent kills


def disk_bytes(folder: Path) -> int:
    """Blocks of data that the folder's files have on the disk, in bytes. Holes have none; extent trees are not counted."""
    found = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum(min(one.st_blocks * 512, -(-one.st_size // _BLOCK_BYTES) * _BLOCK_BYTES) for one in found)


def own_bytes() -> int:
    """RssAnon of this process; 0 without /proc (not Linux)."""
    status = Path(f"/proc/{os.getpid()}/status")
    found = re.search(r"^RssAnon:\s+(\d+) kB", status.read_text(), re.MULTILINE) if status.exists() else None
    return int(found[1]) * 1024 if found else 0
