"""A crawl that is sampled: `python -m scripts.benchmarks.profile.sampled FILE ARGUMENT...` runs `anabranch ARGUMENT...`.

At each tick of the kernel in which the process runs (each millisecond of its CPU time; each 4 ms where there are 250 a second),
every thread's own CPU time since the last look goes to the stage that its stack is in now, so the parts add up to the whole.
FILE gets the looks as JSON: `[epoch seconds, {stage: CPU seconds}]` each. What
the looking takes goes to no stage.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from anabranch.crawler.cli import main
from scripts.benchmarks.profile.stages import stage_of

_EACH_S = 0.001
#: What file names of the product begin with; the rest begins with the room, as `stages` needs it.
_PACKAGE = str(Path(__file__).resolve().parents[3] / "anabranch")

#: A sample: its time, and the use of each stage since the one before.
Look = tuple[float, dict[str, float]]


class Sampler:
    """Samples the stacks of this process, from its main thread, while entered."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self._used: dict[int, float] = {}
        self._stages: dict[tuple[tuple[str, str], ...], str] = {}

    def __enter__(self) -> Sampler:
        self._used = dict(_clocks())
        signal.signal(signal.SIGPROF, self._look)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, _EACH_S, _EACH_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def _look(self, *_: object) -> None:
        """Frames of this function and its caller have no stage. No frame is kept, because it would keep its variables."""
        now, parts = dict(_clocks()), dict[str, float]()
        frames = sys._current_frames()  # noqa: SLF001 - the documented way to see what other threads do
        stacks = {thread: tuple(_stack(frames.pop(thread, None))) for thread in now}
        frames.clear()
        for thread, used in now.items():
            stage = self._stage(stacks[thread])
            parts[stage] = parts.get(stage, 0.0) + used - self._used.get(thread, 0.0)
        self.looks.append((time.time(), parts))
        self._used = dict(_clocks())

    def _stage(self, stack: tuple[tuple[str, str], ...]) -> str:
        if (stage := self._stages.get(stack)) is None:
            stage = self._stages[stack] = stage_of(stack)
        return stage


def _clocks() -> Iterator[tuple[int, float]]:
    """CPU seconds of each living thread."""
    for thread in threading.enumerate():
        if thread.ident is not None:
            try:
                yield thread.ident, time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            except OSError:  # it has just ended
                continue


def _stack(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    while frame is not None:
        yield frame.f_code.co_filename.removeprefix(_PACKAGE), frame.f_code.co_name
        frame = frame.f_back


def run(file: Path, arguments: list[str]) -> int:
    """The crawl's exit status."""
    sys.argv = ["anabranch", *arguments]
    status = 0
    with Sampler() as sampler:
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    file.write_text(json.dumps(sampler.looks), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
