"""The timed passes of the SMM experiment: query and insert all URLs, then query all again, for the SMM and its peers.

Two ways of calling are timed: one URL at a time, as the published program works, and all URLs as one batch, as the Frontier
uses the filters. Times are wall clock in microseconds for a whole pass; opening, syncing and closing are timed apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TypeAlias, TypeVar

from anabranch.dedup.baselines import BitmapHashTable, ClassicBloom
from anabranch.dedup.smm.store import Smm

T = TypeVar("T")
#: The signature and the levels of a store.
Shape: TypeAlias = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Two passes over the same URLs."""

    first_us: float  #: query all, insert what is new
    second_us: float  #: query all again
    new: int  #: taken for new in pass 1
    forgotten: int  #: taken for new in pass 2; anything but 0 is a defect


@dataclass(frozen=True, slots=True, kw_only=True)
class SmmRun:
    """One opening of a store, with both ways of calling, each on a store of its own."""

    store: str  #: fresh or reopened
    singly: Passes
    batch: Passes
    open_us: float  #: opening, making the files included
    close_us: float  #: syncing to the disk and closing


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """A bitmap hash table of so many buckets. It takes one URL at a time, inside one call."""

    buckets: int
    empty_us: float  #: query all while nothing is inserted
    missing_us: float  #: query as many others, all missing, when all is inserted: whole chains are scanned
    passes: Passes
    false_hits: int  #: of the missing ones


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomRun:
    """A classic Bloom filter of m bits and k hashes."""

    bits: int
    hashes: int
    singly: Passes | None  #: None: left out
    batch: Passes
    false_hits: int  #: probes taken for known


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that the experiment measured. Runs of one method stand together; the means are the report's."""

    urls: int  #: in the input, repeats included
    distinct: int
    mean_url_bytes: float
    missing: int  #: URLs never inserted that the tables were asked for
    probes: int  #: URLs never inserted that the others were asked for
    reopening: tuple[SmmRun, ...]  #: the first on a fresh store, the others on the same, reopened
    fresh: tuple[SmmRun, ...]  #: each on a fresh store
    smm_false_hits: int
    smm_bits: int  #: that the store has
    smm_disk_bytes: int  #: blocks that the store takes
    tables: tuple[tuple[TableRun, ...], ...]  #: per number of buckets
    table_bytes: int  #: that the URLs of a table take in memory, without its buckets
    blooms: tuple[tuple[BloomRun, ...], ...]  #: per (bits, hashes)


def smm_run(folders: Sequence[Path], urls: Sequence[bytes], shape: Shape) -> SmmRun:
    """Open the stores in two folders, make the passes over the one singly and over the other in a batch, and close."""
    store = "reopened" if any(folder.exists() for folder in folders) else "fresh"
    passes: list[Passes] = []
    open_us = close_us = 0.0
    for folder, make_passes in zip(folders, (_smm_singly, _smm_batch), strict=True):
        opened_us, smm = timed(partial(Smm.open, folder, *shape))
        with smm:
            passes.append(make_passes(smm, urls))
            close_us += timed(smm.close)[0]
        open_us += opened_us
    return SmmRun(store=store, singly=passes[0], batch=passes[1], open_us=open_us / 2, close_us=close_us / 2)


def _smm_singly(smm: Smm, urls: Sequence[bytes]) -> Passes:
    def first() -> int:
        new = 0
        for url in urls:
            if smm.is_unseen(url):
                smm.mark_one(url)
                new += 1
        return new

    return _passes(first, lambda: sum(map(smm.is_unseen, urls)))


def _smm_batch(smm: Smm, urls: Sequence[bytes]) -> Passes:
    return _passes(lambda: int(smm.add(urls).sum()), lambda: int(smm.unseen(urls).sum()))


def smm_false_hits(folder: Path, probes: Sequence[bytes], shape: Shape) -> tuple[int, int]:
    """How many of the probes the folder's store takes for known, and how many bits it has."""
    with Smm.open(folder, *shape) as smm:
        return len(probes) - int(smm.unseen(probes).sum()), smm.bits


def table_run(buckets: int, urls: Sequence[bytes], missing: Sequence[bytes]) -> TableRun:
    """The three columns of the published table 2, and the query of an empty table."""
    table = BitmapHashTable(buckets)
    empty_us, _ = timed(lambda: table.contains(urls))
    passes = _passes(lambda: int(table.add(urls).sum()), lambda: int((~table.contains(urls)).sum()))
    missing_us, hits = timed(lambda: int(table.contains(missing).sum()))
    return TableRun(buckets=buckets, empty_us=empty_us, missing_us=missing_us, passes=passes, false_hits=hits)


def bloom_run(shape: tuple[int, int], urls: Sequence[bytes], probes: Sequence[bytes], *, singly: bool) -> BloomRun:
    """A filter of (bits, hashes); singly costs an array of one for each call, 20 to 80 µs."""
    bloom = ClassicBloom(*shape)
    batch = _passes(lambda: int(bloom.add(urls).sum()), lambda: int((~bloom.contains(urls)).sum()))
    return BloomRun(
        bits=shape[0],
        hashes=shape[1],
        singly=_bloom_singly(ClassicBloom(*shape), urls) if singly else None,
        batch=batch,
        false_hits=int(bloom.contains(probes).sum()),
    )


def _bloom_singly(bloom: ClassicBloom, urls: Sequence[bytes]) -> Passes:
    return _passes(
        lambda: sum(bool(bloom.add((url,))[0]) for url in urls),
        lambda: sum(not bloom.contains((url,))[0] for url in urls),
    )


def _passes(first: Callable[[], int], second: Callable[[], int]) -> Passes:
    (first_us, new), (second_us, forgotten) = timed(first), timed(second)
    return Passes(first_us=first_us, second_us=second_us, new=new, forgotten=forgotten)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """The work's duration in microseconds, and its result."""
    begun = perf_counter_ns()
    result = work()
    return (perf_counter_ns() - begun) / 1000, result
