"""Search in a long sorted array of hashes that begins near the right place.

Hashes are spread evenly, so that a value tells its place: among n of them the guess is off by about sqrt(n) / 2, after a
look at what stands there by the root of that, and after another look by a few places. That is three memory accesses
a value, which do not wait for one another, against some ten of a binary search, each of which waits for the one before.
"""

from __future__ import annotations

import numpy as np

from anabranch.dedup.batch import BoolArray, HashArray, IntArray

#: Shorter arrays are mostly in the processor's cache, where a binary search is as fast.
WORTH_GUESSING = 1 << 21
#: For fewer values a binary search is faster: it has one numpy call, a guess has 25.
FEWEST_GUESSED = 24

_LOOKS = 2
_WINDOW: IntArray = np.arange(32, dtype=np.int64)  # four cache lines; one value in 200 lies outside of it
_RANGE = 2.0**64


def find(ascending: HashArray, wanted: HashArray) -> tuple[IntArray, BoolArray]:
    """For each wanted value the first place where it stands, and whether it stands anywhere (else the place is any).

    Right for any ascending array, fast for hashes. Cost: 25 µs, and 0.3 to 0.6 µs a value among 10 million.
    """
    starts = _guess(ascending, wanted)
    windows = ascending[starts[:, None] + _WINDOW]
    hits = windows == wanted[:, None]
    places: IntArray = starts + hits.argmax(axis=1)
    found: BoolArray = hits.any(axis=1)
    unsure = np.flatnonzero((windows[:, 0] >= wanted) | (windows[:, -1] < wanted))
    if len(unsure):
        again = np.minimum(ascending.searchsorted(wanted[unsure]), len(ascending) - 1)
        places[unsure] = again
        found[unsure] = ascending[again] == wanted[unsure]
    return places, found


def _guess(ascending: HashArray, wanted: HashArray) -> IntArray:
    """Starts of the windows in which the values should be."""
    last, per_step = len(ascending) - 1, len(ascending) / _RANGE
    places: IntArray = (wanted * per_step).astype(np.int64)
    for _ in range(_LOOKS):
        np.clip(places, 0, last, out=places)
        off = (wanted - ascending[places]).view(np.int64)  # wraps around, and so is signed
        places += (off * per_step).astype(np.int64)
    return np.clip(places - len(_WINDOW) // 2, 0, len(ascending) - len(_WINDOW))
