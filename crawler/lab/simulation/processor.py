"""The crawler's own speed: one processor, before which the pages stand in line. Pure; the time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long the crawler itself takes for a page. On a machine that others use, it waits for each turn of the processor."""

    page_s: float = 0.0  #: of the processor, for a page
    wait_s: float = 0.0  #: until the processor is had, each time
    turn_s: float = math.inf  #: for how long it is had then


class Processor:
    """Serves first come, first served. Whoever finds it idle waits until it is had; those who come meanwhile wait with him."""

    def __init__(self, speed: Speed) -> None:
        self.busy_s = 0.0  #: that it has worked, or will have when all are served
        self._speed = speed
        self._free_s = -math.inf  #: when it is free
        self._left_s = 0.0  #: of its turn, then

    def serve(self, now_s: float) -> float:
        """Stand in line from now on with a page; the answer is how long it takes until it is done."""
        speed = self._speed
        self.busy_s += speed.page_s
        if now_s > self._free_s:
            self._free_s, self._left_s = now_s + speed.wait_s, speed.turn_s
        work_s = speed.page_s
        while work_s > self._left_s:
            self._free_s += self._left_s + speed.wait_s
            work_s -= self._left_s
            self._left_s = speed.turn_s
        self._free_s += work_s
        self._left_s -= work_s
        return self._free_s - now_s
