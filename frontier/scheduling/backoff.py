"""How long a host is left alone that answers 429 or 503, asks for a rest, or cannot be reached. Pure.

The n-th trouble in a row closes its gate for

    max(what Retry-After asked for, min(base × 2^(n-1), cap)) and up to a tenth of the second on top

The part on top (jitter) keeps hosts that failed together from being asked together again. It is derived from the gate and n,
not drawn, so that a restart and a test find the same time. Heritrix has nothing of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.frontier.fingerprints import name_id

#: Doublings after which nothing changes any more: more would leave the range of a float.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a gate stays closed after a trouble; durations in seconds."""

    base_s: float = 60.0  #: after the first trouble; doubled with each further one in a row …
    cap_s: float = 3600.0  #: … up to this
    jitter: float = 0.1  #: at most this share of it is added
    forgive_s: float = 600.0  #: after so much time open and without trouble the count starts anew
    longest_retry_after_s: float = 86_400.0  #: a host may ask for at most this

    def interval_s(self, troubles: int) -> float:
        """The wait after so many troubles in a row (from 1), without jitter; 0 after none."""
        if troubles <= 0:
            return 0.0
        return min(self.base_s * 2.0 ** min(troubles - 1, _MOST_DOUBLINGS), self.cap_s)

    def wait_s(self, troubles: int, retry_after_s: float, gate_id: int) -> float:
        """How long the gate stays closed after so many troubles in a row, if the host asked for `retry_after_s` (0 = nothing).

        Never shorter than asked, up to `longest_retry_after_s`.
        """
        share = (name_id(f"{gate_id} {troubles}") + (1 << 63)) / (1 << 64)
        own_s = self.interval_s(troubles) * (1.0 + self.jitter * share)
        return max(own_s, min(max(0.0, retry_after_s), self.longest_retry_after_s))
