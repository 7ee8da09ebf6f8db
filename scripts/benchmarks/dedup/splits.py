"""How long one call with 64 keys takes while leaves split: the elements of a full leaf move a little at a time.

A filter that was planned for nothing gets ten million keys, so that leaves of the usual size split all along. Calls are
timed one by one; those during which a split was under way count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from anabranch.dedup import DsbfStatistics, UniqFilter, UniqParameters
from anabranch.dedup.bloom.formulas import MOVES_PER_KEY
from anabranch.dedup.bloom.splitting import MOVE_AT_LEAST
from anabranch.dedup.keys import FINGERPRINT_BYTES
from scripts.benchmarks.dedup.keys import Call, Keys, batches, parts, urls
from scripts.benchmarks.rows import Row, Setting

_COUNT = 10_000_000
_BATCH = 64
_TARGET_MS = 10.0
_LOG_HEADER_BYTES = 64


class Times:
    """Durations of calls, as CPU time of this thread and as wall-clock time."""

    def __init__(self) -> None:
        self.cpu_ns: list[int] = []
        self.wall_ns: list[int] = []

    def time(self, call: Call, batch: Keys) -> None:
        """Time a call."""
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        call(batch)
        self.cpu_ns.append(time.thread_time_ns() - cpu)
        self.wall_ns.append(time.perf_counter_ns() - wall)

    def drop_last(self) -> None:
        """Forget the last call."""
        self.cpu_ns.pop()
        self.wall_ns.pop()


class Watch:
    """Asks and marks batches, and records the calls during splits."""

    def __init__(self, uniq: UniqFilter, fan_out: int) -> None:
        self._uniq = uniq
        self._fan_out = fan_out
        self.asking, self.marking, self.syncing = Times(), Times(), Times()
        self.most_moved = 0  #: elements, by one call

    def feed(self, batch: Keys) -> None:
        """One `unseen` and one `mark`."""
        before = tree_of(self._uniq)
        self.asking.time(self._uniq.unseen, batch)
        self.marking.time(self._uniq.mark, batch)
        after = tree_of(self._uniq)
        if before.splitting or after.splitting:
            self.most_moved = max(self.most_moved, self._moved(before, after) - len(batch))
        else:
            self.asking.drop_last()
            self.marking.drop_last()

    def sync(self) -> None:
        """End splits on the disk, which no other call does."""
        self.syncing.time(lambda _: self._uniq.sync(), [])

    def _moved(self, before: DsbfStatistics, after: DsbfStatistics) -> int:
        """Elements written to the logs: the call's keys, and those that move."""
        headers = (after.splits - before.splits) * self._fan_out * _LOG_HEADER_BYTES
        return (after.log_bytes - before.log_bytes - headers) // FINGERPRINT_BYTES


def calls(setting: Setting) -> Iterator[Row]:
    """Durations, then the number of elements moved in a call."""
    shape = UniqParameters(expected=0, levels=(1, 3), leaf_bits=1 << 19 if setting.is_quick else 1 << 23)
    with UniqFilter.open(setting.folder / "uniq", shape) as uniq:
        watch = Watch(uniq, shape.split_fan_out)
        setting.say(f"{setting.count(_COUNT):,} keys")
        for part in parts(setting.count(_COUNT)):
            for batch in batches(urls(part), _BATCH):
                watch.feed(batch)
            watch.sync()
        grown = tree_of(uniq)
    note = f"{grown.splits} splits, {grown.leaves} leaves, {len(watch.marking.cpu_ns):,} calls amid a split"
    yield _longest("split-mark", "mark", watch.marking, note)
    yield _longest("split-unseen", "unseen", watch.asking, note)
    yield Row(
        name="split-moved",
        what=f"elements that the most moving call of {_BATCH} keys moved",
        measured=float(watch.most_moved),
        unit="",
        target=float(MOVE_AT_LEAST + MOVES_PER_KEY * _BATCH),
        is_bound=True,
        note=f"the stated bound is {MOVE_AT_LEAST:,} + {MOVES_PER_KEY} a key",
    )
    yield Row(
        name="split-sync",
        what="longest sync (by the clock), which ends splits on the disk; may run in another thread",
        measured=max(watch.syncing.wall_ns) / 1e6,
        unit="ms",
    )


def tree_of(uniq: UniqFilter) -> DsbfStatistics:
    """The DSBF of a filter."""
    found = uniq.statistics().dsbf
    assert found is not None
    return found


def percentile(values: Sequence[int], share: float) -> int:
    """The quantile of the values for this share."""
    ranked = sorted(values)
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)]


def _longest(name: str, verb: str, times: Times, note: str) -> Row:
    cpu, wall = (percentile(values, 0.9999) / 1e6 for values in (times.cpu_ns, times.wall_ns))
    median = percentile(times.cpu_ns, 0.5) / 1e6
    return Row(
        name=name,
        what=f"{verb} of {_BATCH} keys amid splits: CPU time, 99.99th percentile",
        measured=cpu,
        unit="ms",
        target=_TARGET_MS,
        is_bound=True,
        note=f"longest {max(times.cpu_ns) / 1e6:.3g} ms, median {median:.3g} ms; by the clock {wall:.3g} ms; {note}",
    )
