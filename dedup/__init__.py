"""Has this URL been seen? The room of the seen set; it knows nothing of crawling.

A key is bytes: the canonical URL in UTF-8. Its way through the room:

1. `UniqFilter.unseen` takes a batch of keys, mostly the outlinks of one page (`uniq.py`). In the room a batch is numpy
   arrays (`batch.py`); one key alone goes the same way as plain numbers, which is several times as fast.
2. `signature.py` makes a number of each key: CRC-32, 32 bits. `fileindex.py` says what it means: the first byte is one
   of 256 files, the rest a bit in it.
3. `smm.py` looks at that bit (`bitfiles.py`). All files lie side by side in one stretch of addresses (`mappedfiles.py`), so
   the batch is one numpy step; pages without a block on the disk are not even touched (`pagetable.py`). Bit 0: the key is
   new. Bit 1: go on.
4. `fingerprint.py` makes 128 bits of the key (XXH3). Bits 80-127 lead it down the tree (`tree.py`), level by level, to
   a leaf; bits 0-79 name its k positions there.
5. `leaves/table.py` knows the leaves' places in memory, and `leaves/arena.py` looks at the positions, for all leaves in one
   step. One is clear: the key is new. None: it is dropped, and wrongly so only if both filters err.
6. The owner stores the new URLs, and then calls `UniqFilter.mark`: the fingerprint goes to its leaf's log
   (`leaves/log.py`) and its bits are set in both filters.
7. A leaf that has become full is split (`splitting.py`): its log is divided among new leaves, the new tree replaces the old
   one in a single rename (`manifest.py`), and the old log goes.
8. `sync` makes it durable, logs first. After a crash the bits of the leaves are built again from the logs (`dsbf.py`).

The numbers (how many hashes, how large a leaf, how many leaves) come from `bloom.py`. Each folder says what it is
(`folderformat.py`), and is opened only with the parameters that it was made with. `durablefiles.py` writes what a crash
must not break.

Beside that way: `similarity.py` drops URLs whose `features.py` are all known, and keeps the others in `url_db.py`; `capture/`
reads URLs out of packets; `baselines.py` are the filters that the published experiments compare with.
"""

from __future__ import annotations

from dedup.bloom import DsbfParameters
from dedup.dsbf import Dsbf, DsbfStatistics
from dedup.errors import (
    BadParameters,
    DedupError,
    FilterClosed,
    FilterInUse,
    FormatMismatch,
    InvariantBroken,
    StoreFull,
)
from dedup.smm import Smm
from dedup.uniq import UniqFilter, UniqParameters, UniqStatistics

__all__ = [
    "BadParameters",
    "DedupError",
    "Dsbf",
    "DsbfParameters",
    "DsbfStatistics",
    "FilterClosed",
    "FilterInUse",
    "FormatMismatch",
    "InvariantBroken",
    "Smm",
    "StoreFull",
    "UniqFilter",
    "UniqParameters",
    "UniqStatistics",
]
