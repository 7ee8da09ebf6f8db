"""`anabranch lab smm`: tables 1 to 3 of patent CN102693315, measured with the SMM and its peers.

Pass 1 queries the URLs and inserts the new ones, pass 2 queries all of them again. The published runs are four starts of a
program with a durable store. The source does not state which of them found a filled store, so both cases are measured.

All methods take turns, in rounds whose order reverses, so that their ratios are of the same minute. Two ways of calling are
timed for every method: one URL a call, as the published program works, and all URLs in one batch, as the Frontier uses the
filters. Only times of the same way compare. Times are CPU time of the thread in microseconds for a whole pass; opening, syncing
and closing are timed separately, by the clock. `smm_report.py` compares the methods and shows the result.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns, thread_time_ns
from typing import Any, TypeAlias, TypeVar

from anabranch.crawler.lab.filters.baselines import BitmapHashTable, ClassicBloom
from anabranch.crawler.lab.filters.smm_report import (
    BLOOM_BITS,
    BLOOM_HASHES,
    MEAN_URL_BYTES,
    TABLE_2,
    URLS,
    BloomRun,
    Passes,
    SmmMeasurements,
    SmmRun,
    TableRun,
    report_of,
)
from anabranch.crawler.lab.report import LEAST_ROUNDS, LabReport, OnProgress, in_turns
from anabranch.crawler.lab.urls import packet_urls, repeated, urls_of_file
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.smm.addresses import signature_named
from anabranch.dedup.smm.store import Smm

T = TypeVar("T")

#: The Bloom filters: bits, hashes.
BLOOMS = tuple(product(BLOOM_BITS, BLOOM_HASHES))

#: Of the hash tables, those that `quick` leaves out: their time grows as URLs² / buckets.
SLOW_BUCKETS = (10,)
#: What takes long is timed for one of so many parts of the URLs in each round, each round another part, and counted for all.
PARTS = 9
#: Tables with fewer buckets take long; so do Bloom filters with one URL a call.
PARTED_BELOW = 1_000
#: Blocks of a part, all over the pass, because a table slows down while it fills.
_BLOCKS = 9
#: Fewer URLs are all timed.
_FEWEST_PARTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SmmOptions:
    """Options of `anabranch lab smm`."""

    urls: Path | None = None  #: a file of URLs, one a line, in place of generated ones
    count: int = URLS  #: of generated URLs, 50.5 bytes long on average
    repeats: float = 0.0  #: share of the input that repeats earlier URLs, 0 to 0.9
    runs: int = LEAST_ROUNDS  #: rounds, each with an opening of the stores and a filling of every filter
    probes: int = 1_000_000  #: URLs never inserted that are asked to count false positives
    signature: str = "crc32"
    levels: tuple[int, ...] = (1, 3)
    seed: int = 1
    quick: bool = False  #: leaves out the table of 10 buckets, which takes a minute

    def __post_init__(self) -> None:
        if not 0 <= self.repeats <= 0.9:
            raise UsageError(f"--repeats {self.repeats}: it must be from 0 to 0.9")
        for name in ("count", "runs", "probes"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} {getattr(self, name)}: it must be 1 or more")


def run(options: SmmOptions, on_progress: OnProgress) -> LabReport:
    """Measure all methods and report. The stores lie in a temporary folder, at most 2 GiB at a time with levels (1, 3).

    Raises: UsageError; BadParameters for a signature or levels that do not go together; OSError.
    """
    on_progress(0, 1, "making the URLs")
    source = (
        urls_of_file(options.urls) if options.urls else packet_urls(options.count, MEAN_URL_BYTES, seed=options.seed)
    )
    urls = repeated(source, options.repeats, options.seed)
    known = set(urls)
    probes = [url for url in packet_urls(options.probes, MEAN_URL_BYTES, options.seed + 1) if url not in known]
    with TemporaryDirectory(prefix="anabranch-lab-") as folder:
        return report_of(
            _measure(_Bench(options=options, urls=urls, probes=probes, folder=Path(folder), on_progress=on_progress))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """The input of all measurements."""

    options: SmmOptions
    urls: Sequence[bytes]
    probes: Sequence[bytes]
    folder: Path
    on_progress: OnProgress

    @property
    def buckets(self) -> list[int]:
        return [buckets for buckets in TABLE_2 if not (self.options.quick and buckets in SLOW_BUCKETS)]

    @property
    def shape(self) -> Shape:
        return self.options.signature, self.options.levels

    def contestants(self) -> list[tuple[str, Callable[[int], Any]]]:
        """All that take turns: the name of each in words, and its measurement of a round, by the number of the round."""
        return [
            ("SMM, fresh store", self._fresh),
            ("SMM, the same store", self._reopened),
            *((f"bitmap hash table, {buckets:,} buckets", partial(self._table, buckets)) for buckets in self.buckets),
            *((f"Bloom filter, {bits:,} bits, k = {k}", partial(self._bloom, (bits, k))) for bits, k in BLOOMS),
        ]

    @property
    def kept(self) -> list[Path]:
        """The folders of the stores that stay from round to round."""
        return [self.folder / "singly", self.folder / "batch"]

    def _fresh(self, number: int) -> SmmRun:
        folders = [self.folder / f"{calls}-{number}" for calls in ("singly", "batch")]
        run = smm_run(folders, self.urls, self.shape)
        for folder in folders:
            shutil.rmtree(folder)
        return run

    def _reopened(self, _number: int) -> SmmRun:
        return smm_run(self.kept, self.urls, self.shape)

    def _table(self, buckets: int, number: int) -> TableRun:
        part = number % PARTS if buckets < PARTED_BELOW and self._is_parted else None
        return table_run(buckets, self.urls, self.probes[: len(self.urls)], part)

    def _bloom(self, shape: tuple[int, int], number: int) -> BloomRun:
        """The probes are for the first round alone."""
        part = number % PARTS if self._is_parted else None
        return bloom_run(shape, self.urls, () if number else self.probes, part)

    @property
    def _is_parted(self) -> bool:
        return len(self.urls) >= _FEWEST_PARTED


def _measure(bench: _Bench) -> SmmMeasurements:
    contestants = bench.contestants()
    steps = len(contestants) * bench.options.runs
    found: dict[str, list[Any]] = {name: [] for name, _ in contestants}
    for step, (number, (name, measure)) in enumerate(in_turns(contestants, bench.options.runs)):
        bench.on_progress(step, steps, f"round {number + 1} of {bench.options.runs}: {name}")
        found[name].append(measure(number))
    fresh, reopening, *others = map(tuple, found.values())
    false_hits, bits = smm_false_hits(bench.kept[0], bench.probes, bench.shape)
    return SmmMeasurements(
        urls=len(bench.urls),
        distinct=len(set(bench.urls)),
        mean_url_bytes=sum(map(len, bench.urls)) / len(bench.urls),
        missing=min(len(bench.urls), len(bench.probes)),
        probes=len(bench.probes),
        reopening=reopening,
        fresh=fresh,
        smm_false_hits=false_hits,
        is_linear=getattr(signature_named(bench.options.signature), "is_linear", False),
        smm_bits=bits,
        smm_disk_bytes=sum(file.stat().st_blocks * 512 for file in bench.kept[0].rglob("*")),
        tables=tuple(others[: len(bench.buckets)]),
        table_bytes=sum(map(sys.getsizeof, set(bench.urls))),
        blooms=tuple(others[len(bench.buckets) :]),
    )


#: The signature and the levels of a store.
Shape: TypeAlias = tuple[str, tuple[int, ...]]


def smm_run(folders: Sequence[Path], urls: Sequence[bytes], shape: Shape) -> SmmRun:
    """Open the stores in two folders, make the passes over the one singly and over the other in a batch, and close."""
    store = "reopened" if any(folder.exists() for folder in folders) else "fresh"
    passes: list[Passes] = []
    open_us = close_us = 0.0
    for folder, make_passes in zip(folders, (_smm_singly, _smm_batch), strict=True):
        opened_us, smm = _by_the_clock(partial(Smm.open, folder, *shape))
        with smm:
            passes.append(make_passes(smm, urls))
            close_us += _by_the_clock(smm.close)[0]
        open_us += opened_us
    return SmmRun(store=store, singly=passes[0], batch=passes[1], open_us=open_us / 2, close_us=close_us / 2)


def _smm_singly(smm: Smm, urls: Sequence[bytes]) -> Passes:
    def add(url: bytes) -> bool:
        if is_new := smm.is_unseen(url):
            smm.mark_one(url)
        return is_new

    return _passes(lambda: sum(map(add, urls)), lambda: sum(map(smm.is_unseen, urls)))


def _smm_batch(smm: Smm, urls: Sequence[bytes]) -> Passes:
    return _passes(lambda: int(smm.add(urls).sum()), lambda: int(smm.unseen(urls).sum()))


def smm_false_hits(folder: Path, probes: Sequence[bytes], shape: Shape) -> tuple[int, int]:
    """How many of the probes the folder's store takes for known, and how many bits it has."""
    with Smm.open(folder, *shape) as smm:
        return len(probes) - int(smm.unseen(probes).sum()), smm.bits


def table_run(buckets: int, urls: Sequence[bytes], missing: Sequence[bytes], part: int | None = None) -> TableRun:
    """The three columns of the published table 2, and the query of an empty table; with a part, by that part of the URLs."""
    table, other = BitmapHashTable(buckets), BitmapHashTable(buckets)
    empty_us, _ = timed(lambda: sum(map(table.contains_one, urls)))
    if part is None:
        singly, batch = _peer_singly(table, urls), _peer_batch(other, urls)
    else:
        missing = missing[part::PARTS]
        singly = _parted(_singly_of(table), table.put, urls, part)
        batch = _parted(_batch_of(other), other.put, urls, part)
    missing_us, hits = timed(lambda: sum(map(table.contains_one, missing)))
    return TableRun(
        buckets=buckets,
        empty_us=empty_us,
        missing_us=missing_us * len(urls) / max(1, len(missing)),
        singly=singly,
        batch=batch,
        false_hits=hits,
    )


def bloom_run(
    shape: tuple[int, int], urls: Sequence[bytes], probes: Sequence[bytes], part: int | None = None
) -> BloomRun:
    """A filter of (bits, hashes); with a part, one URL a call is timed by that part of the URLs."""
    bloom, other = ClassicBloom(*shape), ClassicBloom(*shape)
    singly = (
        _peer_singly(other, urls)
        if part is None
        else _parted(_singly_of(other), lambda block: int(other.add(block).sum()), urls, part)
    )
    return BloomRun(
        bits=shape[0],
        hashes=shape[1],
        singly=singly,
        batch=_peer_batch(bloom, urls),
        false_hits=int(bloom.contains(probes).sum()),
    )


#: A peer's two calls for some URLs: how many were new, and how many are known.
Calls: TypeAlias = tuple[Callable[[Sequence[bytes]], int], Callable[[Sequence[bytes]], int]]


def _singly_of(peer: BitmapHashTable | ClassicBloom) -> Calls:
    return lambda urls: sum(map(peer.add_one, urls)), lambda urls: sum(map(peer.contains_one, urls))


def _batch_of(peer: BitmapHashTable | ClassicBloom) -> Calls:
    return lambda urls: int(peer.add(urls).sum()), lambda urls: int(peer.contains(urls).sum())


def _peer_singly(peer: BitmapHashTable | ClassicBloom, urls: Sequence[bytes]) -> Passes:
    add, known = _singly_of(peer)
    return _passes(lambda: add(urls), lambda: len(urls) - known(urls))


def _peer_batch(peer: BitmapHashTable | ClassicBloom, urls: Sequence[bytes]) -> Passes:
    add, known = _batch_of(peer)
    return _passes(lambda: add(urls), lambda: len(urls) - known(urls))


def _parted(calls: Calls, fill: Callable[[Sequence[bytes]], int], urls: Sequence[bytes], part: int) -> Passes:
    """Both passes by one of `PARTS` parts of the URLs, counted for all of them.

    `fill` inserts those of the others that did not come before, and returns how many it took for new.
    """
    add, known = calls
    met_before: set[bytes] = set()
    first_us, new, timed_urls = 0.0, 0, 0
    for number, block in enumerate(_blocks(urls)):
        if number % PARTS == part:
            us, added = timed(partial(add, block))
            first_us, new, timed_urls = first_us + us, new + added, timed_urls + len(block)
        else:
            new += fill([url for url in dict.fromkeys(block) if url not in met_before])
        met_before.update(block)
    again = urls[part::PARTS]
    second_us, met = timed(partial(known, again))
    return Passes(
        first_us=first_us * len(urls) / timed_urls,
        second_us=second_us * len(urls) / len(again),
        new=new,
        forgotten=len(again) - met,
    )


def _blocks(urls: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    count = PARTS * _BLOCKS
    edges = [len(urls) * number // count for number in range(count + 1)]
    return (urls[start:end] for start, end in pairwise(edges))


def _passes(first: Callable[[], int], second: Callable[[], int]) -> Passes:
    begun = perf_counter_ns()
    (first_us, new), (second_us, forgotten) = timed(first), timed(second)
    waited_us = (perf_counter_ns() - begun) / 1000 - first_us - second_us
    return Passes(first_us=first_us, second_us=second_us, new=new, forgotten=forgotten, waited_us=max(0.0, waited_us))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """The CPU time of the work in this thread, in microseconds, and its result."""
    begun = thread_time_ns()
    result = work()
    return (thread_time_ns() - begun) / 1000, result


def _by_the_clock(work: Callable[[], T]) -> tuple[float, T]:
    """The work's duration in microseconds, waiting included, and its result."""
    begun = perf_counter_ns()
    result = work()
    return (perf_counter_ns() - begun) / 1000, result
