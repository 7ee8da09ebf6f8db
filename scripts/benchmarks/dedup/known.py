"""CPU time of known links in batches of 60, those of a page, in filters of several sizes and with both kinds of leaves.

A crawl does other work between two pages, which empties the processor's caches; here a walk over memory does, untimed. The
filters are asked in turns, round by round, so a ratio is of the same moments. `given`: ten million other keys were marked
before those that are asked.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

import numpy as np

from anabranch.crawler.lab.report import interval
from anabranch.dedup import Dsbf, DsbfParameters, Smm, UniqFilter, UniqParameters
from scripts.benchmarks.dedup.keys import batches, urls
from scripts.benchmarks.dedup.rates import Sample
from scripts.benchmarks.rows import Row, Setting

_LINKS = 60
_PAGES = 100  #: of a round
_ROUNDS = 41
_FEW, _MANY, _GIVEN = 30_000, 300_000, 10_000_000
_KINDS = ("classic", "blocked")
#: Walked over between pages: twice a usual second-level cache.
_OTHER_WORK_BYTES = 4 << 20

#: The call that is timed, with the links of a page.
Ask = Callable[[list[bytes]], object]
_Name = TypeVar("_Name", bound=Hashable)


def known(setting: Setting) -> Iterator[Row]:
    """The whole filter, sizes and kinds in turns; then the ratios of kinds, and of sizes."""
    few, many, given = map(setting.count, (_FEW, _MANY, _GIVEN))
    with ExitStack() as opened:
        filters = {
            (name, kind): opened.enter_context(_filled(setting, name, kind, own, others))
            for name, own, others in (("few", few, 0), ("many", many, 0), ("given", few, given))
            for kind in _KINDS
        }
        sizes = {name: many if name == "many" else few for name, _ in filters}
        asks = {(name, kind): (uniq.unseen, sizes[name]) for (name, kind), uniq in filters.items()}
        found = _in_turns(setting, asks)
    words = {"few": f"{few:,} keys", "many": f"{many:,} keys", "given": f"{few:,} keys and {given:,} others"}
    for (name, kind), times in found.items():
        yield Row(
            name=f"known-{name}-{kind}",
            what=f"CPU time of a known link among {words[name]}, {kind} leaves",
            measured=statistics.median(times),
            unit="ns",
        )
    for name, what in words.items():
        yield _ratio(
            f"known-{name}-x", f"blocked over classic leaves, {what}", found[name, "blocked"], found[name, "classic"]
        )
    for name in ("many", "given"):
        for kind in _KINDS:
            what = f"{words[name]} over {words['few']}, {kind} leaves"
            yield _ratio(f"known-growth-{name}-{kind}-x", what, found[name, kind], found["few", kind])


def smm(setting: Setting) -> Iterator[Row]:
    """The SMM alone: the published levels, the same in the order of the addresses, and smaller levels."""
    many = setting.count(_MANY)
    with ExitStack() as opened:
        usual, small = (
            opened.enter_context(Smm.open(setting.folder / name, levels=levels, alone=True))
            for name, levels in (("usual", (1, 3)), ("small", (1, 2)))
        )
        for batch in batches(urls(range(many)), 10_000):
            usual.mark(batch)
            small.mark(batch)
        asks: dict[str, tuple[Ask, int]] = {
            "usual": (usual.unseen, many),
            "ordered": (lambda keys: usual.are_clear(np.sort(usual.addresses(keys))), many),
            "small": (small.unseen, many),
        }
        found = _in_turns(setting, asks)
    words = {"usual": "levels (1, 3)", "ordered": "levels (1, 3), in the order of addresses", "small": "levels (1, 2)"}
    for name, times in found.items():
        what = f"CPU time of a known link in the SMM, {many:,} keys, {words[name]}"
        yield Row(name=f"known-smm-{name}", what=what, measured=statistics.median(times), unit="ns")
    for name in ("ordered", "small"):
        yield _ratio(f"known-smm-{name}-x", f"SMM, {words[name]} over {words['usual']}", found[name], found["usual"])


def errors(setting: Setting) -> Iterator[Row]:
    """False positives among as many other keys as were planned and marked, for both kinds of leaves."""
    count = setting.count(_GIVEN)
    for kind in _KINDS:
        shape = DsbfParameters(expected=count, leaf_kind=kind)
        with Dsbf.open(setting.folder / f"errors-{kind}", shape) as dsbf:
            setting.say(f"{count:,} keys in {kind} leaves, and as many others asked")
            for start in range(0, count, 100_000):
                for batch in batches(urls(range(start, min(start + 100_000, count))), 10_000):
                    dsbf.mark(batch)
            sample, now = Sample(), dsbf.statistics()
            sample.ask(dsbf, count)
        note = f"{now.leaves} leaves, by formula {now.mean_rate:.3g} (fullest {now.worst_rate:.3g})"
        what = f"false positives with {count:,} keys marked, {kind} leaves"
        yield sample.row(f"known-rate-{kind}", what, shape.false_positive, note)


def _filled(setting: Setting, name: str, kind: str, own: int, others: int) -> UniqFilter:
    setting.say(f"{name}: {own + others:,} keys, {kind} leaves")
    uniq = UniqFilter.open(setting.folder / f"{name}-{kind}", UniqParameters(leaf_kind=kind), alone=True)
    for start in range(0, own + others, 100_000):
        for batch in batches(urls(range(start, min(start + 100_000, own + others))), 10_000):
            uniq.mark(batch)
    uniq.sync()
    return uniq


def _in_turns(setting: Setting, asks: Mapping[_Name, tuple[Ask, int]]) -> dict[_Name, list[float]]:
    """Nanoseconds a link, by round, of each call; each has so many keys. Every round begins with another one."""
    times: dict[_Name, list[float]] = {name: [] for name in asks}
    draw, other_work = np.random.default_rng(46), np.zeros(_OTHER_WORK_BYTES, dtype=np.uint8)
    for call, count in asks.values():  # so that no page of a file has to be mapped while the clock runs
        for batch in batches(urls(range(count)), 10_000):
            call(batch)
    gc.collect()
    order = list(asks)
    for number in range(9 if setting.is_quick else _ROUNDS):
        for name in order[number % len(order) :] + order[: number % len(order)]:
            call, count = asks[name]
            spent = 0
            for page in draw.integers(0, count, size=(_PAGES, _LINKS)).tolist():
                links = urls(page)
                other_work += 1
                started = time.thread_time_ns()
                call(links)
                spent += time.thread_time_ns() - started
            times[name].append(spent / _PAGES / _LINKS)
    return times


def _ratio(name: str, what: str, over: Sequence[float], under: Sequence[float]) -> Row:
    ratios = [mine / other for mine, other in zip(over, under, strict=True)]
    between = interval(ratios)
    low, high = between or (math.nan, math.nan)
    note = f"95 % of medians {low:.3f} to {high:.3f}, {len(ratios)} rounds in turns"
    return Row(name=name, what=what, measured=statistics.median(ratios), unit="x", interval=between, note=note)
