"""The Crawl-delays of origins, by the gates that they share: http and https of a host, and all its ports, have one gate."""

from __future__ import annotations

from collections import OrderedDict

from anabranch.crawler.robots.cache import MAX_ORIGINS
from anabranch.frontier.models import GateKey

#: Origins that are remembered of one gate: those with the longest delays.
MAX_OF_GATE = 100


class CrawlDelays:
    """What each gate has to keep: the longest Crawl-delay of its origins.

    Bounded in origins, of all gates together; the gate that was told of longest ago is forgotten first. A forgotten gate stays
    as it was set until one of its origins is asked again, which then decides alone. Seconds. Cost: O(origins of the gate).
    """

    def __init__(self, most: int = MAX_ORIGINS) -> None:
        self._most = most
        self._gates: OrderedDict[GateKey, dict[str, float]] = OrderedDict()
        self._origins = 0

    def __len__(self) -> int:
        """Origins that are remembered."""
        return self._origins

    def learn(self, gate: GateKey, origin: str, delay_s: float) -> float:
        """An origin wants this distance, 0 for none; the delay that its gate has to keep."""
        delays = self._gates.pop(gate, {})
        self._origins -= len(delays)
        delays[origin] = delay_s
        longest_s = max(delays.values())
        if not delay_s:
            del delays[origin]  # what is taken back takes no memory
        elif len(delays) > MAX_OF_GATE:
            del delays[min(delays, key=delays.__getitem__)]
        if delays:
            self._gates[gate] = delays
            self._origins += len(delays)
        while self._origins > self._most:
            self._origins -= len(self._gates.popitem(last=False)[1])
        return longest_s
