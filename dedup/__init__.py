"""Has this URL been seen? The room of the seen set; it knows nothing of crawling.

A key is bytes: the canonical URL in UTF-8. Its way through the room:

1. `UniqFilter.unseen` takes a batch of keys, mostly the outlinks of one page (`uniq.py`), and asks its stages, which its mode
   names (`modes.py`); a key is dropped only if all stages know it. In the room a batch is numpy arrays (`batch.py`); one key
   alone goes the same way as plain numbers, which is several times as fast.
2. `smm/` makes a number of each key (CRC-32 by default). The first byte is one of 256 mapped files, the rest a
   bit in it. Bit 0: the key is new. Bit 1: go on.
3. `fingerprint.py` makes 128 bits of the key (XXH3). In `dsbf/` bits 80-127 lead it down a tree, level by level, to a leaf;
   bits 0-79 name its k positions there. `leaves/` looks at them, for all leaves in one step. One is clear: the key is new.
4. None is: it is dropped, and wrongly so only if both filters err. In mode "exact" `exact/` stands in the DSBF's place:
   sorted runs of fingerprints, which do not err.
5. The owner stores the new URLs, and then calls `UniqFilter.mark`: the fingerprint goes to its leaf's log (`leaves/log.py`),
   its bits are set in all stages. A full leaf splits while it serves: its children take what comes, and with every later call
   some elements of its log move on to them.
6. `sync` makes it durable, logs first. After a clean end the bits are read or mapped again (`leaves/image.py`), after any other
   they are built from the logs (`dsbf/restoring.py`). `losses.py` counts what was lost by expectation.

Each folder says what it is (`folderformat.py`), and is opened only with the parameters that it was made with. `durablefiles.py`
writes what a crash must not break.

Beside that way: `dsbf/sharedfilter.py` is the same tree with its leaves in Redis, shared by crawlers; `similarity/` drops URLs
whose features are all known; `stream.py` passes on the new lines of a stream by any of these, which `linefilters.py` opens by
name; `capture/` reads URLs out of packets; `baselines.py` are the filters that the published experiments compare with.
"""

from __future__ import annotations

from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.dsbf.filter import Dsbf, DsbfStatistics
from anabranch.dedup.dsbf.sharedfilter import SharedDsbf, SharedStatistics
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
from anabranch.dedup.modes import UniqParameters
from anabranch.dedup.smm.store import Smm
from anabranch.dedup.uniq import UniqFilter, UniqStatistics

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
