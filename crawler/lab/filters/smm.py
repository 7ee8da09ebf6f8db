"""`anabranch lab smm`: tables 1 to 3 of patent CN102693315, measured with the SMM and its peers.

The URLs are queried and inserted (pass 1), then queried again (pass 2). The published runs are four starts of a program whose
store outlives it; which of them found the store already filled is not said, so both cases are measured.
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
from time import monotonic
from typing import TypeVar

from anabranch.crawler.lab.filters.smm_passes import (
    BloomRun,
    Measured,
    Shape,
    SmmRun,
    bloom_run,
    smm_false_hits,
    smm_run,
    table_run,
)
from anabranch.crawler.lab.filters.smm_published import BLOOM_BITS, BLOOM_HASHES, MEAN_URL_BYTES, TABLE_2, URLS
from anabranch.crawler.lab.filters.smm_report import report_of
from anabranch.crawler.lab.report import Report, Tell
from anabranch.crawler.lab.urls import packet_urls, repeated, urls_of_file
from anabranch.crawler.outcomes.errors import UsageError

T = TypeVar("T")

#: The Bloom filters: bits, hashes.
BLOOMS = tuple(product(BLOOM_BITS, BLOOM_HASHES))

#: Of the hash tables, those that `quick` leaves out: their time grows as URLs² / buckets.
SLOW_BUCKETS = (10,)
#: A method that takes longer is measured once, whatever the number of runs.
REPEATED_BELOW_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmmOptions:
    """What `anabranch lab smm` is told."""

    urls: Path | None = None  #: a file of URLs, one a line, in place of generated ones
    count: int = URLS  #: of generated URLs, 50.5 bytes long on average
    repeats: float = 0.0  #: share of the input that repeats earlier URLs, 0 to 0.9
    runs: int = 4  #: openings of a store, or fillings of a filter in memory
    probes: int = 1_000_000  #: URLs never inserted that are asked to count false positives
    signature: str = "crc32"
    levels: tuple[int, ...] = (1, 3)
    seed: int = 1
    quick: bool = False  #: leaves out what takes long: the table of 10 buckets, the Bloom filter one URL at a time

    def __post_init__(self) -> None:
        if not 0 <= self.repeats <= 0.9:
            raise UsageError(f"--repeats {self.repeats}: it must be from 0 to 0.9")
        for name in ("count", "runs", "probes"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} {getattr(self, name)}: it must be 1 or more")


def run(options: SmmOptions, tell: Tell) -> Report:
    """Measure all methods and report. The stores lie in a temporary folder, at most 1 GiB at a time with levels (1, 3).

    Raises: UsageError; BadParameters for a signature or levels that do not go together; OSError.
    """
    tell(0, 1, "making the URLs")
    source = (
        urls_of_file(options.urls) if options.urls else packet_urls(options.count, MEAN_URL_BYTES, seed=options.seed)
    )
    urls = repeated(source, options.repeats, options.seed)
    known = set(urls)
    probes = [url for url in packet_urls(options.probes, MEAN_URL_BYTES, options.seed + 1) if url not in known]
    with TemporaryDirectory(prefix="anabranch-lab-") as folder:
        return report_of(_measure(_Bench(options=options, urls=urls, probes=probes, folder=Path(folder), tell=tell)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """What all methods are measured with."""

    options: SmmOptions
    urls: Sequence[bytes]
    probes: Sequence[bytes]
    folder: Path
    tell: Tell

    @property
    def buckets(self) -> list[int]:
        return [buckets for buckets in TABLE_2 if not (self.options.quick and buckets in SLOW_BUCKETS)]

    @property
    def shape(self) -> Shape:
        return self.options.signature, self.options.levels

    def step(self, number: int, what: str) -> None:
        """Tell that the step of that number begins, from 0."""
        self.tell(number, 2 * self.options.runs + len(self.buckets) + len(BLOOMS), what)


def _measure(bench: _Bench) -> Measured:
    runs = bench.options.runs
    reopening, (false_hits, bits), disk_bytes = _smm_reopening(bench)
    fresh = _smm_fresh(bench)
    tables = []
    for number, buckets in enumerate(bench.buckets):
        bench.step(2 * runs + number, f"bitmap hash table, {buckets:,} buckets")
        missing = bench.probes[: len(bench.urls)]
        tables.append(_runs(runs, partial(table_run, buckets, bench.urls, missing)))
    return Measured(
        urls=len(bench.urls),
        distinct=len(set(bench.urls)),
        mean_url_bytes=sum(map(len, bench.urls)) / len(bench.urls),
        missing=min(len(bench.urls), len(bench.probes)),
        probes=len(bench.probes),
        reopening=reopening,
        fresh=(reopening[0], *fresh),
        smm_false_hits=false_hits,
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
    """Each filter's runs; one URL at a time and the probes are for the first alone."""
    measured = []
    for number, shape in enumerate(BLOOMS):
        bench.step(steps_done + number, f"Bloom filter, {shape[0]:,} bits, k = {shape[1]}")
        first = bloom_run(shape, bench.urls, bench.probes, singly=not bench.options.quick)
        others = [bloom_run(shape, bench.urls, (), singly=False) for _ in range(1, bench.options.runs)]
        measured.append((first, *others))
    return tuple(measured)


def _runs(runs: int, run_once: Callable[[], T]) -> tuple[T, ...]:
    """So many runs, or one if that takes long."""
    begun = monotonic()
    first = run_once()
    more = runs - 1 if monotonic() - begun < REPEATED_BELOW_S else 0
    return (first, *(run_once() for _ in range(more)))
