"""The gates of services that many hosts share: name servers, proxies, the network, open files, and those of user functions.

    open -> (a visit met it while it was away) shut: probe 1, 2, 3 ... -> open

Pure; the time is an argument. Probe n follows the one before after min(2^(n-1), 60) s and up to a tenth more: the jitter keeps
the workers of a job from asking together. A service that is away again within a minute goes on counting probes. One that has
not worked in this run is waited for `first_s`, another for `most_s`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from anabranch.frontier.records import name_id

#: The wait before the first probe.
FIRST_PROBE_S: Final = 1.0
#: The longest wait between two probes, and the most that the jitter adds to a wait, as a share of it.
LONGEST_S: Final = 60.0
_JITTER: Final = 0.1
#: 2^this is more than `LONGEST_S`.
_MOST_DOUBLINGS: Final = 6


@dataclass(slots=True)
class Away:
    """A service that is away."""

    since_s: float  #: when a visit met it first
    reason: str  #: how it failed last
    next_s: float  #: when it is probed next
    probes: int = 0  #: that have failed

    def again(self, reason: str) -> None:
        """Another visit met it."""
        self.reason = reason

    def failed(self, next_s: float) -> None:
        """A probe has failed: the next one is then."""
        self.probes, self.next_s = self.probes + 1, next_s


class ServiceGates:
    """Which services are away. Every operation costs O(services that are away)."""

    def __init__(self, first_s: float, most_s: float, salt: str = "") -> None:
        """`most_s` = 0: no bound. `salt` differs between the workers of a job."""
        self._first_s = first_s
        self._most_s = most_s or math.inf
        self._salt = salt
        self.away: dict[str, Away] = {}  #: by name, in the order in which they were shut
        self._left: dict[
            str, tuple[float, int]
        ] = {}  #: services that are back: since when, after so many failed probes

    def shut(self, service: str, reason: str, now_s: float) -> bool:
        """A visit met the service while it was away; True if its gate was open."""
        away = self.away.get(service)
        if away is not None:
            away.again(reason)
            return False
        back_s, probes = self._left.pop(service, (-math.inf, -1))
        probes = probes + 1 if now_s - back_s < LONGEST_S else 0  # one that comes and goes is asked less and less often
        self.away[service] = Away(now_s, reason, now_s + self._wait_s(service, probes), probes)
        return True

    def failed(self, service: str, now_s: float) -> None:
        """A probe has failed: the next one comes later."""
        away = self.away.get(service)
        if away is not None:
            away.failed(now_s + self._wait_s(service, away.probes + 1))

    def open(self, service: str, now_s: float) -> Away | None:
        """The service is back; returns how it was away, None if it was not."""
        away = self.away.pop(service, None)
        if away is not None:
            self._left[service] = now_s, away.probes
        return away

    def due(self, now_s: float) -> list[str]:
        """The services that are to be probed now."""
        return [service for service, away in self.away.items() if away.next_s <= now_s]

    def given_up_s(self, service: str, *, has_worked: bool) -> float:
        """When the run stops waiting for a service that is away."""
        return self.away[service].since_s + (self._most_s if has_worked else min(self._first_s, self._most_s))

    def _wait_s(self, service: str, probes: int) -> float:
        """The wait before the next probe, after so many."""
        wait_s = min(FIRST_PROBE_S * 2.0 ** min(probes, _MOST_DOUBLINGS), LONGEST_S)
        share = (name_id(f"{self._salt} {service} {probes}") + (1 << 63)) / (1 << 64)
        return wait_s * (1.0 + _JITTER * share)
