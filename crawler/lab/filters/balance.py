"""Figures 10 and 11 of the DSBF paper (2016): how evenly URLs of portals and small sites fill the filters.

The same URLs, each once, go into one filter per domain as at the Internet Archive, into Apoidea's filters chosen by the
hash of the domain, into one filter of 2 GB, and into a DSBF of height 1. For every filter: URLs, fill, false-positive rate.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import log
from pathlib import Path

import numpy as np

from anabranch.crawler.lab.filters.balance_report import Kind, report
from anabranch.crawler.lab.report import Report, Tell
from anabranch.crawler.lab.urls import distinct_urls
from anabranch.crawler.orders.quantities import format_bytes
from anabranch.crawler.outcomes.errors import DiskFull, UsageError
from anabranch.dedup.baselines import FilterReport, PerDomainFilters
from anabranch.dedup.batch import BoolArray, Fingerprints
from anabranch.dedup.dsbf.bloom import DsbfParameters, false_positive_rates, leaves_for
from anabranch.dedup.dsbf.filter import Dsbf
from anabranch.dedup.dsbf.tree import Tree
from anabranch.dedup.fingerprint import fingerprints, map_hashes

_ARCHIVE_BITS, _APOIDEA_BITS, _SINGLE_BITS = 1 << 18, 1 << 16, 1 << 34
_HASHES = 10  # k of the Internet Archive; Apoidea's is not published
_PROBED = 3  # every third URL, altered, is a probe
_NOT_INSERTED = b"&not=inserted"  # makes a probe of a URL
_SPARE_BYTES = 1 << 28  # free space beyond the 2 GB: the DSBF's logs, and some for others
_SMALLEST_LEAF_BITS = 1 << 12
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceOptions:
    """What `anabranch lab balance` may be told."""

    urls: Path | None = None  #: one URL a line; all its distinct ones are used; `count` and `seed` are not used then
    count: int = 1_500_000  #: generated URLs
    seed: int = 1  #: of the generated URLs
    leaves: int = 10  #: c of the DSBF
    filters: int | None = None  #: number of Apoidea's filters; None: as many as take the memory of the DSBF
    two_gigabytes: bool = True  #: measure the filter of 2 GB, too; it needs that much disk for a while
    false_positive: float = 1e-3  #: f_max of the DSBF; the other filters' sizes are published


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """What goes into every kind of filter, and what is asked for."""

    urls: Sequence[bytes]  #: distinct
    probes: Sequence[bytes]  #: never inserted; on the same domains in the same proportions


def run(options: BalanceOptions, tell: Tell) -> Report:
    """Fill all filters and look at them. Raises: UsageError; DiskFull; what the filters raise.

    Cost: a minute and 900 MB of memory for 1.5 million URLs, and 2 GB of disk in the folder of temporary files.
    """
    _refuse(options)
    steps = 5 if options.two_gigabytes else 4
    with tempfile.TemporaryDirectory(prefix="anabranch-balance-") as folder:
        if options.two_gigabytes:
            _require_space(Path(folder))
        tell(0, steps, "URLs")
        urls = distinct_urls(options.urls, options.count, options.seed)
        sample = _Sample(urls=urls, probes=_probes(urls))
        parameters = sized(len(urls), options.leaves, options.false_positive)
        tell(1, steps, "one filter per domain")
        kinds = [_archive(sample)]
        tell(2, steps, "filters chosen by the hash of the domain")
        number = options.filters or max(1, options.leaves * parameters.leaf_bits // _APOIDEA_BITS)
        kinds.append(_fixed("Apoidea", PerDomainFilters.apoidea(number, _HASHES), _APOIDEA_BITS, sample))
        tell(3, steps, "DSBF")
        dsbf = _dsbf(parameters, sample, Path(folder) / "dsbf")
        if options.two_gigabytes:
            tell(4, steps, "one filter of 2 GB")
            single = PerDomainFilters.single(Path(folder) / "single", _SINGLE_BITS, _HASHES)
            kinds.append(_fixed("one of 2 GB", single, _SINGLE_BITS, sample))
    tell(steps, steps, "done")
    return report([*kinds, dsbf])


def sized(n: int, leaves: int, false_positive: float) -> DsbfParameters:
    """A DSBF with that many leaves, the smallest that holds n URLs without a split."""
    leaf_bits = _SMALLEST_LEAF_BITS
    while leaves_for(n, _with(leaf_bits, false_positive).split_above) > leaves:
        leaf_bits *= 2
    split_above = _with(leaf_bits, false_positive).split_above
    low, high = n, leaves * split_above  # the most that the leaves hold is between them
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if leaves_for(middle, split_above) <= leaves else (low, middle - 1)
    return _with(leaf_bits, false_positive, low)


def _with(leaf_bits: int, false_positive: float, expected: int = 0) -> DsbfParameters:
    return DsbfParameters(expected=expected, false_positive=false_positive, leaf_bits=leaf_bits)


def _refuse(options: BalanceOptions) -> None:
    least = _PROBED if options.urls is None else 0
    if options.count < least:
        raise UsageError(f"--count is {options.count}: ask for {least} URLs or more")
    for name, number in (("leaves", options.leaves), ("filters", options.filters)):
        if number is not None and number < 1:
            raise UsageError(f"--{name} {number}: it must be 1 or more")
    if not 0 < options.false_positive <= 0.5:
        raise UsageError(f"--false-positive {options.false_positive}: it must be above 0 and at most 0.5")


def _require_space(folder: Path) -> None:
    needed, free = _SINGLE_BITS // 8 + _SPARE_BYTES, shutil.disk_usage(folder).free
    if free < needed:
        held = f"{folder.parent} has {format_bytes(free)} free, the filter of 2 GB needs {format_bytes(needed)} for a while"
        raise DiskFull(f"{held}; point TMPDIR at another disk, or leave that filter out: --no-two-gigabytes")


def _probes(urls: Sequence[bytes]) -> list[bytes]:
    """URLs on the same hosts that are not among these. Raises: UsageError if there are none."""
    held = set(urls)
    probes = [probe for url in urls[::_PROBED] if (probe := url + _NOT_INSERTED) not in held]
    if not probes:
        raise UsageError(f"each URL stands there with {_NOT_INSERTED.decode()} behind it, too; give other URLs")
    return probes


def _archive(sample: _Sample) -> Kind:
    return _fixed("Internet Archive", PerDomainFilters.internet_archive(), _ARCHIVE_BITS, sample)


def _fixed(name: str, filters: PerDomainFilters, bits: int, sample: _Sample) -> Kind:
    """Fill filters chosen by the domain, look at them, and let them go."""
    with closing(filters):
        filters.add(sample.urls)
        return Kind(
            name=name,
            filter_bits=bits,
            hashes=_HASHES,
            capacity=int(bits * log(2) / _HASHES),  # half the bits set, formula (6): the published 18,170
            filters=tuple(filters.report(sample.probes)),
            probes=len(sample.probes),
            hits=int(filters.contains(sample.probes).sum()),
        )


def _dsbf(parameters: DsbfParameters, sample: _Sample, folder: Path) -> Kind:
    """Fill the product's filter; raise UsageError if a leaf has split, for then there is no figure of c leaves."""
    with Dsbf.open(folder, parameters) as dsbf:
        new = np.concatenate([dsbf.add(part) for part in _parts(sample.urls)])
        known = np.concatenate([~dsbf.unseen(part) for part in _parts(sample.probes)])
        dsbf.check()  # so the bits are those of the elements, and the fill can be had from these
        if dsbf.statistics().splits:
            raise UsageError("a leaf of the DSBF has split: these URLs spread too unevenly; give fewer --leaves")
    return Kind(
        name=f"DSBF, c = {parameters.first_leaves}",
        filter_bits=parameters.leaf_bits,
        hashes=parameters.hashes,
        capacity=parameters.capacity,
        filters=tuple(_leaves(parameters, sample, new, known)),
        probes=len(known),
        hits=int(known.sum()),
    )


def _leaves(parameters: DsbfParameters, sample: _Sample, new: BoolArray, known: BoolArray) -> Iterator[FilterReport]:
    """What LocHash and MapHash make of the URLs in each leaf, beside what the leaf answered."""
    tree, elements = Tree.rooted(parameters.first_leaves), fingerprints(sample.urls)
    of_urls, of_probes = tree.descend(elements), tree.descend(fingerprints(sample.probes))
    for number, leaf in enumerate(tree.leaves, 1):
        mine, asked = of_urls == leaf, of_probes == leaf
        urls = int(mine.sum())
        yield FilterReport(
            name=f"leaf {number}",
            urls=urls,
            accepted=int(new[mine].sum()),
            fill=_bits_set(elements[mine], parameters) / parameters.leaf_bits,
            expected_rate=float(false_positive_rates(parameters.leaf_bits, parameters.hashes, np.array([urls]))[0]),
            measured_rate=float(known[asked].mean()) if asked.any() else None,
        )


def _bits_set(elements: Fingerprints, parameters: DsbfParameters) -> int:
    first, second = map_hashes(elements)
    positions = first[:, None] + second[:, None] * np.arange(parameters.hashes)
    return len(np.unique(positions & (parameters.leaf_bits - 1)))


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))
