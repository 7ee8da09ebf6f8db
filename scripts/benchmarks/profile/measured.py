"""The rows of a sampled crawl: microseconds of a page by stage, their sum, and the kernel's count."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from scripts.benchmarks.crawl.contestants import REPOSITORY, Contestant, Task, ours
from scripts.benchmarks.crawl.observing import CrawlFailed, observe
from scripts.benchmarks.crawl.race import cores, result_of, task_of
from scripts.benchmarks.profile.sampled import Look
from scripts.benchmarks.profile.stages import STAGES
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import Site
from scripts.benchmarks.site.process import serving
from scripts.benchmarks.site.tally import Tally

_LOOKS = "looks.json"


def profiled(name: str, *options: str) -> Callable[[Setting], Iterable[Row]]:
    """A group: one crawl with these options."""

    def measured(setting: Setting) -> Iterable[Row]:
        contestant = Contestant(
            name=name, what="", command=_sampled(options), environment={"PYTHONPATH": str(REPOSITORY)}
        )
        servers, pinned = cores()
        pages = setting.wishes.pages  # a small version would say nothing: there is a look each few pages
        with serving(Site(pages=pages), servers) as server:
            task = task_of(server, setting)
            used = observe(contestant.command(task), pinned, contestant.environment)
            tally = server.tally()
        if fault := tally.fault(pages):
            raise CrawlFailed(fault)
        looks: list[Look] = json.loads((setting.folder / _LOOKS).read_text(encoding="utf-8"))
        yield from rows(name, stages_us(looks, tally), result_of(tally, used).cpu_us, len(between(looks, tally)))

    return measured


def _sampled(options: Sequence[str]) -> Callable[[Task], Sequence[str]]:
    """The product's own command line, run by the sampler."""

    def command(task: Task) -> Sequence[str]:
        _, _, _, *arguments = ours(*options)(task)
        return [sys.executable, "-m", "scripts.benchmarks.profile.sampled", str(task.folder / _LOOKS), *arguments]

    return command


def stages_us(looks: Iterable[Look], tally: Tally) -> dict[str, float]:
    """Microseconds of a page by stage, of the samples from the first request to the last."""
    parts = dict.fromkeys(STAGES, 0.0)
    for _, used in between(looks, tally):
        for stage, seconds in used.items():
            parts[stage] += 1e6 * seconds / tally.pages
    return parts


def between(looks: Iterable[Look], tally: Tally) -> list[Look]:
    """The samples from the first request to the last."""
    return [look for look in looks if tally.first_s <= look[0] <= tally.last_s]


def rows(name: str, parts: Mapping[str, float], kernel_us: float, looks: int) -> Iterator[Row]:
    """A row per stage, in their order, then the sum, with the number of samples."""
    whole = sum(parts.values())
    for stage, what in STAGES.items():
        share = 100 * parts[stage] / whole if whole else 0.0
        yield Row(name=f"{name}/{stage}", what=f"{what}: {share:.1f} %", measured=parts[stage], unit="µs")
    yield Row(
        name=f"{name}/sum", what="CPU time of a page, all of these", measured=whole, unit="µs", note=f"{looks:,} looks"
    )
    yield Row(
        name=f"{name}/kernel",
        what="the same as the kernel counts it",
        measured=kernel_us,
        unit="µs",
        note="includes the sampling itself, and threads that are not Python's",
    )
