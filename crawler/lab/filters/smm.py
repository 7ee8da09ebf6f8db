"""`anabranch lab smm`: tables 1 to 3 of patent CN102693315, measured with the SMM and its peers.

Pass 1 queries the URLs and inserts the new ones, pass 2 queries all of them again. The published runs are four starts of a
program with a durable store. The source does not state which of them found a filled store, so both cases are measured.

Two ways of calling are timed for every method: one URL a call, as the published program works, and all URLs in one batch, as
the Frontier uses the filters. Only times of the same way compare. Times are wall clock in microseconds for a whole pass;
opening, syncing and closing are timed separately.
`smm_report.py` compares the methods and shows the result.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter_ns
from typing import TypeAlias, TypeVar

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
from anabranch.crawler.lab.report import LabReport, OnProgress
from anabranch.crawler.lab.urls import packet_urls, repeated, urls_of_file
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.smm.addresses import signature_named
from anabranch.dedup.smm.store import Smm

T = TypeVar("T")

#: The Bloom filters: bits, hashes.
BLOOMS = tuple(product(BLOOM_BITS, BLOOM_HASHES))

#: Of the hash tables, those that `quick` leaves out: their time grows as URLs² / buckets.
SLOW_BUCKETS = (10,)
#: A method that takes longer is measured once, whatever the number of runs.
REPEATED_BELOW_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmmOptions:
    """Options of `anabranch lab smm`."""

    urls: Path | None = None  #: a file of URLs, one a line, in place of generated ones
    count: int = URLS  #: of generated URLs, 50.5 bytes long on average
    repeats: float = 0.0  #: share of the input that repeats earlier URLs, 0 to 0.9
    runs: int = 4  #: openings of a store, or fillings of a filter in memory
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
    """Measure all methods and report. The stores lie in a temporary folder, at most 1 GiB at a time with levels (1, 3).

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

    def step(self, number: int, what: str) -> None:
        """Report that this step begins, counted from 0."""
        self.on_progress(number, 2 * self.options.runs + len(self.buckets) + len(BLOOMS), what)


def _measure(bench: _Bench) -> SmmMeasurements:
    runs = bench.options.runs
    reopening, (false_hits, bits), disk_bytes = _smm_reopening(bench)
    fresh = _smm_fresh(bench)
    tables = []
    for number, buckets in enumerate(bench.buckets):
        bench.step(2 * runs + number, f"bitmap hash table, {buckets:,} buckets")
        missing = bench.probes[: len(bench.urls)]
        tables.append(_runs(runs, partial(table_run, buckets, bench.urls, missing)))
    return SmmMeasurements(
        urls=len(bench.urls),
        distinct=len(set(bench.urls)),
        mean_url_bytes=sum(map(len, bench.urls)) / len(bench.urls),
        missing=min(len(bench.urls), len(bench.probes)),
        probes=len(bench.probes),
        reopening=reopening,
        fresh=(reopening[0], *fresh),
        smm_false_hits=false_hits,
        is_linear=getattr(signature_named(bench.options.signature), "is_linear", False),
        smm_bits=bits,
        smm_disk_bytes=disk_bytes,
        tables=tuple(tables),
        table_bytes=sum(map(sys.getsizeof, set(bench.urls))),
        blooms=_blooms(bench, 2 * runs + len(tables)),
    )


def _smm_reopening(bench: _Bench) -> tuple[tuple[SmmRun, ...], tuple[int, int], int]:
    """Runs on the same two stores; then their false hits and bits, and the bytes that one of them takes on the disk."""
    folders = [bench.folder / "singly", bench.folder / "batch"]
    runs = []
    for number in range(bench.options.runs):
        bench.step(number, f"SMM, {'reopened' if number else 'fresh'} store")
        runs.append(smm_run(folders, bench.urls, bench.shape))
    hits = smm_false_hits(folders[0], bench.probes, bench.shape)
    disk_bytes = sum(file.stat().st_blocks * 512 for file in folders[0].rglob("*"))
    for folder in folders:
        shutil.rmtree(folder)
    return tuple(runs), hits, disk_bytes


def _smm_fresh(bench: _Bench) -> list[SmmRun]:
    """The second and later runs, each on stores of its own."""
    runs = []
    for number in range(1, bench.options.runs):
        bench.step(bench.options.runs + number, "SMM, fresh store")
        folders = [bench.folder / f"{calls}-{number}" for calls in ("singly", "batch")]
        runs.append(smm_run(folders, bench.urls, bench.shape))
        for folder in folders:
            shutil.rmtree(folder)
    return runs


def _blooms(bench: _Bench, steps_done: int) -> tuple[tuple[BloomRun, ...], ...]:
    """Each filter's runs; the probes are for the first alone."""
    measured = []
    for number, shape in enumerate(BLOOMS):
        bench.step(steps_done + number, f"Bloom filter, {shape[0]:,} bits, k = {shape[1]}")
        first = bloom_run(shape, bench.urls, bench.probes)
        others = [bloom_run(shape, bench.urls, ()) for _ in range(1, bench.options.runs)]
        measured.append((first, *others))
    return tuple(measured)


def _runs(runs: int, run_once: Callable[[], T]) -> tuple[T, ...]:
    """So many runs, or one if that takes long."""
    begun = monotonic()
    first = run_once()
    more = runs - 1 if monotonic() - begun < REPEATED_BELOW_S else 0
    return (first, *(run_once() for _ in range(more)))


#: The signature and the levels of a store.
Shape: TypeAlias = tuple[str, tuple[int, ...]]


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


def table_run(buckets: int, urls: Sequence[bytes], missing: Sequence[bytes]) -> TableRun:
    """The three columns of the published table 2, and the query of an empty table."""
    table = BitmapHashTable(buckets)
    empty_us, _ = timed(lambda: sum(map(table.contains_one, urls)))
    singly = _peer_singly(table, urls)
    missing_us, hits = timed(lambda: sum(map(table.contains_one, missing)))
    batch = _peer_batch(BitmapHashTable(buckets), urls)
    return TableRun(
        buckets=buckets, empty_us=empty_us, missing_us=missing_us, singly=singly, batch=batch, false_hits=hits
    )


def bloom_run(shape: tuple[int, int], urls: Sequence[bytes], probes: Sequence[bytes]) -> BloomRun:
    """A filter of (bits, hashes)."""
    bloom = ClassicBloom(*shape)
    return BloomRun(
        bits=shape[0],
        hashes=shape[1],
        singly=_peer_singly(ClassicBloom(*shape), urls),
        batch=_peer_batch(bloom, urls),
        false_hits=int(bloom.contains(probes).sum()),
    )


def _peer_singly(peer: BitmapHashTable | ClassicBloom, urls: Sequence[bytes]) -> Passes:
    return _passes(lambda: sum(map(peer.add_one, urls)), lambda: len(urls) - sum(map(peer.contains_one, urls)))


def _peer_batch(peer: BitmapHashTable | ClassicBloom, urls: Sequence[bytes]) -> Passes:
    return _passes(lambda: int(peer.add(urls).sum()), lambda: len(urls) - int(peer.contains(urls).sum()))


def _passes(first: Callable[[], int], second: Callable[[], int]) -> Passes:
    (first_us, new), (second_us, forgotten) = timed(first), timed(second)
    return Passes(first_us=first_us, second_us=second_us, new=new, forgotten=forgotten)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """The work's duration in microseconds, and its result."""
    begun = perf_counter_ns()
    result = work()
    return (perf_counter_ns() - begun) / 1000, result
