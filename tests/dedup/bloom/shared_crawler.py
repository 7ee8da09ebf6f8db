"""A crawler to be run many times at once, and to be killed: `python shared_crawler.py START STOP SEED URL ...`.

It adds the keys START to STOP in an order of its own, 30 at a time, and prints each key that was new; a line is out before
the next batch begins.
"""

from __future__ import annotations

import random
import sys

from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.sharedfilter import SharedDsbf

#: Leaves of some 370 elements, in which false answers are so rare that none happens in a test.
SMALL = DsbfParameters(expected=0, false_positive=1e-9, leaf_bits=1 << 14, split_fan_out=3)


def key(number: int) -> bytes:
    """Return a key of site102: no two of its first 5,000 keys have nearly the same bits, as some keys of other sites do."""
    return b"http://site102.example/%d" % number


def main() -> None:
    start, stop, seed = map(int, sys.argv[1:4])
    numbers = list(range(start, stop))
    random.Random(seed).shuffle(numbers)
    with SharedDsbf.open(sys.argv[4:], parameters=SMALL) as dsbf:
        for first in range(0, len(numbers), 30):
            batch = numbers[first : first + 30]
            new = dsbf.add([key(number) for number in batch]).tolist()
            print(*[n for n, is_new in zip(batch, new, strict=True) if is_new], flush=True)


if __name__ == "__main__":
    main()
