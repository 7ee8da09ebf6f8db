"""The series of a simulated crawl: each second, or less often if it lasts long. Pure, but for what it looks at."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.crawler.lab.policies.series import NOTHING_YET, Sample

#: Samples that are kept at most (even). When there are more, every other one is left out, and the rest is sampled half as
#: often.
MOST_SAMPLES = 600


class Series:
    """Samples at the multiples of an interval that begins with `each_s` and is doubled when there are too many.

    Active workers are not sampled but counted: their means and peaks are exact, however long the interval is. `look` says
    the rest of a moment; it hears the moment and what is known of the workers then.
    """

    def __init__(self, look: Callable[[Sample], Sample], each_s: float = 1.0, most: int = MOST_SAMPLES) -> None:
        self.each_s = each_s
        self.samples: list[Sample] = []
        self._look = look
        self._most = most
        # The sample that is being made, taken apart: time goes on with every event.
        self._now_s = self._held_s = 0.0
        self._peak = 0
        self._due_s = 0.0  # when it is taken
        self._take()

    def go_on(self, at_s: float, active: int) -> None:
        """So many workers are active until `at_s`; samples that are due before are taken."""
        while True:
            until_s = self._due_s if self._due_s < at_s else at_s  # noqa: FURB136 - a call costs four times as much
            passed_s = until_s - self._now_s
            if passed_s > 0:
                self._now_s = until_s
                self._held_s += active * passed_s
                self._peak = max(self._peak, active)
            if until_s == at_s:
                return
            self._take()

    def close(self) -> tuple[Sample, ...]:
        """All samples, and one of the end."""
        if self.samples[-1].at_s < self._now_s:
            self._take()
        return tuple(self.samples)

    def _take(self) -> None:
        samples = self.samples
        samples.append(self._look(NOTHING_YET._replace(at_s=self._now_s, held_s=self._held_s, peak=self._peak)))
        self._peak = 0
        if len(samples) > self._most:
            samples[2::2] = map(_with_peak_of, samples[2::2], samples[1::2])
            del samples[1::2]
            self.each_s *= 2
        self._due_s = len(samples) * self.each_s


def _with_peak_of(sample: Sample, before: Sample) -> Sample:
    """The sample before is left out: what was at most since then stands in this one."""
    return sample._replace(peak=max(sample.peak, before.peak))
