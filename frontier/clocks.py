"""The clock: epoch seconds that never go back.

A machine's clock may be set, by a person or by NTP, and an hour back would keep every gate closed for an hour. So the rule is:
the epoch is read once, at the opening, and from then on time is what the monotonic clock says has passed. A clock of the
host's own that goes back is met by the highest time seen, and goes on from there at its own pace. Either way every rest that
has begun lasts as long as it was meant to: politeness is kept, and nothing stalls.

What a clock that went back between two runs means for the stored times is told in `FrontierStore.open`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

#: Epoch seconds.
Clock = Callable[[], float]


def steady_clock(epoch: Clock = time.time, monotonic: Clock = time.monotonic) -> Clock:
    """The usual clock: the epoch at this moment plus the monotonic time since. A call costs as much as `monotonic`."""
    offset_s = epoch() - monotonic()
    return lambda: offset_s + monotonic()


def never_back(clock: Clock) -> Clock:
    """A host's own clock, its steps back left out: after each it goes on from the highest time seen. For one thread."""
    highest_s = -math.inf
    lead_s = 0.0  # what was left out so far

    def time_s() -> float:
        nonlocal highest_s, lead_s
        now_s = clock() + lead_s
        if now_s < highest_s:
            lead_s += highest_s - now_s
            return highest_s
        highest_s = now_s
        return now_s

    return time_s
