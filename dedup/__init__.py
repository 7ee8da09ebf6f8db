"""Has this URL been seen? The room of the seen set; it knows nothing of crawling.

A key is bytes: the canonical URL in UTF-8. Its way through the room:

1. `UniqFilter.unseen` (`uniq.py`) takes a batch of keys, mostly the outlinks of one page, and asks its stages, which its
   mode selects; a key is dropped only if all stages know it. In the room a batch is numpy arrays (`keys.py`).
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

`recent.py` answers for recent keys from memory. `files/` has the durable writes, locks, headers and maps of all rooms.

Other ways in: `bloom/sharedfilter.py` is the same tree with its leaves in Redis, shared by crawlers; `similarity/` drops
URLs if all their features are known; `stream.py` passes on the new lines of a stream by any of these, which
`linefilters.py` opens by name; `capture/` reads URLs out of packets.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.dedup.bloom.filter import Dsbf as Dsbf
    from anabranch.dedup.bloom.filter import DsbfStatistics as DsbfStatistics
    from anabranch.dedup.bloom.formulas import DsbfParameters as DsbfParameters
    from anabranch.dedup.bloom.sharedfilter import SharedDsbf as SharedDsbf
    from anabranch.dedup.bloom.sharedfilter import SharedStatistics as SharedStatistics
    from anabranch.dedup.errors import BadParameters as BadParameters
    from anabranch.dedup.errors import DedupError as DedupError
    from anabranch.dedup.errors import FilterClosed as FilterClosed
    from anabranch.dedup.errors import FilterInUse as FilterInUse
    from anabranch.dedup.errors import FormatMismatch as FormatMismatch
    from anabranch.dedup.errors import InvariantBroken as InvariantBroken
    from anabranch.dedup.errors import StoreFull as StoreFull
    from anabranch.dedup.errors import StoreUnavailable as StoreUnavailable
    from anabranch.dedup.exact.index import ExactIndex as ExactIndex
    from anabranch.dedup.exact.index import ExactStatistics as ExactStatistics
    from anabranch.dedup.smm.store import Smm as Smm
    from anabranch.dedup.uniq import UniqFilter as UniqFilter
    from anabranch.dedup.uniq import UniqParameters as UniqParameters
    from anabranch.dedup.uniq import UniqStatistics as UniqStatistics

#: Names by module. They are imported at their first use: a program that needs `dedup.files` alone does not wait for numpy.
_NAMES = {
    "bloom.filter": "Dsbf DsbfStatistics",
    "bloom.formulas": "DsbfParameters",
    "bloom.sharedfilter": "SharedDsbf SharedStatistics",
    "errors": "BadParameters DedupError FilterClosed FilterInUse FormatMismatch InvariantBroken StoreFull StoreUnavailable",
    "exact.index": "ExactIndex ExactStatistics",
    "smm.store": "Smm",
    "uniq": "UniqFilter UniqParameters UniqStatistics",
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
