"""Names for the shapes of arrays that pass between the parts of the room."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]
IntArray: TypeAlias = NDArray[np.int64]
HashArray: TypeAlias = NDArray[np.uint64]
#: Shape (n, 2): bits 64-127 and bits 0-63 of n fingerprints.
Fingerprints: TypeAlias = NDArray[np.uint64]


def first_of_each(values: Sequence[Hashable]) -> BoolArray:
    """True where a value stands for the first time in the batch.

    Cost: one set if all values differ, which is the usual case; a Python loop otherwise.
    """
    first = np.ones(len(values), dtype=np.bool_)
    if len(set(values)) == len(values):
        return first
    met: set[Hashable] = set()
    for place, value in enumerate(values):
        first[place] = value not in met
        met.add(value)
    return first
