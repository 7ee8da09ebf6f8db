"""The figures of patent CN102693315, as its text has them: microseconds for a whole pass over 75,012 URLs. Table 3 is lost."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

URLS = 75_012
MEAN_URL_BYTES = 50.5


class Pair(NamedTuple):
    """Two passes of the SMM."""

    first_us: float  #: query and insert
    second_us: float  #: query all again


class Row(NamedTuple):
    """A row of table 2: a bitmap hash table."""

    first_query_us: float
    insert_us: float  #: query and insert
    query_us: float  #: after all are inserted


#: Table 1: the SMM, four runs. Run 1 found a fresh store; whether the others found it filled is not said.
TABLE_1 = (Pair(2_038_838, 170_205), Pair(342_172, 165_876), Pair(427_925, 169_508), Pair(342_219, 165_811))
TABLE_1_MEAN = Pair(787_788.5, 167_850)
#: Not in the source, but its four runs give it.
TABLE_1_MEDIAN = Pair(median(run.first_us for run in TABLE_1), median(run.second_us for run in TABLE_1))

#: Table 2: buckets -> times.
TABLE_2 = {
    10: Row(34_742_593, 15_632_846, 34_547_932),
    100: Row(3_497_778, 1_116_397, 3_487_212),
    1_000: Row(484_152, 280_649, 482_715),
    10_000: Row(174_795, 252_472, 185_054),
}

#: Table 3: Bloom filters of so many bits with so many hashes; its times are lost.
BLOOM_BITS = (80_000, 8_000_000)
BLOOM_HASHES = (1, 4, 5, 6, 9, 10)
