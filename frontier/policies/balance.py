"""How evenly a policy spreads URLs over queues: what the comparisons of policies print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from anabranch.frontier.models import QueueKey


class Balance(NamedTuple):
    """How many URLs came to how many queues."""

    urls: int
    queues: int  #: queues that got any
    longest: int  #: URLs of the longest

    @property
    def mean(self) -> float:
        """URLs per queue that got any; 0 if there are none."""
        return self.urls / self.queues if self.queues else 0.0

    @property
    def max_over_mean(self) -> float:
        """The longest queue in shares: 1 is perfect; the number of queues, if one has nearly all. 0 if there are none."""
        return self.longest / self.mean if self.queues else 0.0


def balance(keys: Iterable[QueueKey]) -> Balance:
    """The balance of an assignment, from the key of each URL. Cost: O(URLs)."""
    lengths = Counter(keys)
    return Balance(lengths.total(), len(lengths), max(lengths.values(), default=0))
