"""The series of a simulated crawl: each second, or less often if it lasts long. Pure, but for what it looks at."""

from __future__ import annotations

from collections.abc import Callable

from crawler.lab.policies.series import Sample

#: Samples that are kept at most. When there are more, every other one is left out, and the rest is sampled half as often.
MOST_SAMPLES = 600


class Series:
    """Samples at the multiples of an interval that begins with `each_s` and is doubled when there are too many."""

    def __init__(self, look: Callable[[float], Sample], each_s: float = 1.0, most: int = MOST_SAMPLES) -> None:
        self.each_s = each_s
        self.samples = [look(0.0)]
        self._look = look
        self._most = most

    def next_s(self) -> float:
        """When the next sample is due."""
        return len(self.samples) * self.each_s

    def take(self) -> None:
        """It is that late."""
        self.samples.append(self._look(self.next_s()))
        if len(self.samples) > self._most:
            del self.samples[1::2]
            self.each_s *= 2

    def close(self, at_s: float) -> tuple[Sample, ...]:
        """All samples, and one of the end."""
        if self.samples[-1].at_s < at_s:
            self.samples.append(self._look(at_s))
        return tuple(self.samples)
