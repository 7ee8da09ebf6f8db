"""Has this URL been seen? The room of the seen set; it knows nothing of crawling.

A key is bytes: the canonical URL in UTF-8. Its way through the room:

1. `UniqFilter.unseen` (`uniq.py`) takes a batch of keys, mostly the outlinks of one page, and asks its stages, which its
   mode selects; a key is dropped only if all stages know it. In the room a batch is numpy arrays (`keys.py`); a single
   key goes the same way as plain numbers, which is several times as fast.
2. `smm/` makes a number of each key (CRC-32 by default). The first byte is one of 256 mapped files, the rest a
   bit in it. Bit 0: the key is new. Bit 1: go on.
3. `keys.py` makes 128 bits of the key (XXH3). In `bloom/` bits 80-127 lead it down a tree, level by level, to a leaf;
   bits 0-79 give its k positions there, which are looked up for all leaves in one step. One is clear: the key is new.
4. All are set: the key is dropped, and wrongly so only if both filters err. In mode "exact" `exact/` takes the DSBF's
   place: sorted runs of fingerprints, which do not err.
5. The owner stores the new URLs, and then calls `UniqFilter.mark`: the fingerprint goes to its leaf's log
   (`bloom/log.py`), its bits are set in all stages. A full leaf splits while it serves: its children take new elements,
   and with every later call some elements of its log move on to them (`bloom/splitting.py`).
6. `sync` makes it durable, logs first. After a clean end the bits are read or mapped again, after any other end they are
   built from the logs (`bloom/restoring.py`). `bookkeeping.py` sums up the expected losses.

`recent.py` answers for recent keys from memory. Each folder records what it is (`files/formatfile.py`), and is opened only
with the parameters that it was made with. `files/` has the durable writes, locks, headers and maps of all rooms.

Other ways in: `bloom/sharedfilter.py` is the same tree with its leaves in Redis, shared by crawlers; `similarity/` drops
URLs whose features are all known; `stream.py` passes on the new lines of a stream by any of these, which `linefilters.py`
opens by name; `capture/` reads URLs out of packets; `baselines.py` has the filters that the published experiments compare
with.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.dedup.bloom.filter import Dsbf, DsbfStatistics
    from anabranch.dedup.bloom.formulas import DsbfParameters
    from anabranch.dedup.bloom.sharedfilter import SharedDsbf, SharedStatistics
    from anabranch.dedup.errors import (
        BadParameters,
        DedupError,
        FilterClosed,
        FilterInUse,
        FormatMismatch,
        InvariantBroken,
        StoreFull,
        StoreUnavailable,
    )
    from anabranch.dedup.exact.index import ExactIndex, ExactStatistics
    from anabranch.dedup.smm.store import Smm
    from anabranch.dedup.uniq import UniqFilter, UniqParameters, UniqStatistics

__all__ = [
    "BadParameters",
    "DedupError",
    "Dsbf",
    "DsbfParameters",
    "DsbfStatistics",
    "ExactIndex",
    "ExactStatistics",
    "FilterClosed",
    "FilterInUse",
    "FormatMismatch",
    "InvariantBroken",
    "SharedDsbf",
    "SharedStatistics",
    "Smm",
    "StoreFull",
    "StoreUnavailable",
    "UniqFilter",
    "UniqParameters",
    "UniqStatistics",
]

#: Where the names are. They are imported at their first use: a program that needs `dedup.files` alone does not wait for numpy.
_MODULES = {
    "BadParameters": "anabranch.dedup.errors",
    "DedupError": "anabranch.dedup.errors",
    "Dsbf": "anabranch.dedup.bloom.filter",
    "DsbfParameters": "anabranch.dedup.bloom.formulas",
    "DsbfStatistics": "anabranch.dedup.bloom.filter",
    "ExactIndex": "anabranch.dedup.exact.index",
    "ExactStatistics": "anabranch.dedup.exact.index",
    "FilterClosed": "anabranch.dedup.errors",
    "FilterInUse": "anabranch.dedup.errors",
    "FormatMismatch": "anabranch.dedup.errors",
    "InvariantBroken": "anabranch.dedup.errors",
    "SharedDsbf": "anabranch.dedup.bloom.sharedfilter",
    "SharedStatistics": "anabranch.dedup.bloom.sharedfilter",
    "Smm": "anabranch.dedup.smm.store",
    "StoreFull": "anabranch.dedup.errors",
    "StoreUnavailable": "anabranch.dedup.errors",
    "UniqFilter": "anabranch.dedup.uniq",
    "UniqParameters": "anabranch.dedup.uniq",
    "UniqStatistics": "anabranch.dedup.uniq",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
