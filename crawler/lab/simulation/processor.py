"""The crawler's own speed: one processor, before which the pages stand in line. Pure; the time is an argument."""

from __future__ import annotations


class Processor:
    """Serves first come, first served, each for as long as it asks."""

    def __init__(self) -> None:
        self.busy_s = 0.0  #: that it has worked, or will have when all are served
        self._free_s = 0.0  #: when it is free

    def serve(self, now_s: float, work_s: float) -> float:
        """Stand in line from now on; the answer is how long it takes until the work is done."""
        self._free_s = max(self._free_s, now_s) + work_s
        self.busy_s += work_s
        return self._free_s - now_s
