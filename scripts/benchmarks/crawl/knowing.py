"""Measures the cost of a page in a long crawl, with ten thousand known URLs and with ten million. Each page has one new link.

The known URLs come by `anabranch frontier load`, as ended ones, into a job that has fetched nothing yet but what is not there;
so the store and the filter hold them as a crawl leaves them. In each round a crawl goes on in a copy of that job. The other
links are strewn evenly over all known URLs, which is the worst case: of ten million a crawl has met hardly one lately.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from scripts.benchmarks.crawl.contestants import CLONE, JOB, Contestant, Task, crawl_command
from scripts.benchmarks.crawl.observing import observe
from scripts.benchmarks.crawl.race import Result, cores, crawled, task_of
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import CHAINS, Site, known_path, origin, origins, path
from scripts.benchmarks.site.process import Server, serving

_KNOWN = (10_000, 10_000_000)
_TARGET = 1.25


def grown(setting: Setting) -> Iterable[Row]:
    """Rounds of crawls with each number of known URLs, in turns; each round reverses the order of the one before."""
    results: dict[int, list[Result]] = {known: [] for known in map(setting.count, _KNOWN)}
    with ExitStack() as running:
        jobs = {known: _loaded(known, setting, running) for known in results}
        for number in range(setting.rounds):
            for known, job in list(jobs.items())[:: -1 if number % 2 else 1]:
                result = goes_on(job)
                results[known].append(result)
                setting.say(
                    f"{known:,} known: {result.pages_per_s:,.0f} pages/s, {result.cpu_us:,.0f} µs of CPU a page"
                )
    yield from rows(results)


def rows(results: Mapping[int, Sequence[Result]]) -> Iterator[Row]:
    """CPU time of a page with few and with many known URLs, and the ratio of both: medians of the rounds."""
    for known, rounds in results.items():
        yield Row(
            name=f"grown/{known}",
            what=f"CPU time of a page, {known:,} URLs known",
            measured=statistics.median(result.cpu_us for result in rounds),
            unit="µs",
            note=f"{statistics.median(result.pages_per_s for result in rounds):,.0f} pages/s, "
            f"peak {max(result.peak_bytes for result in rounds) / 2**20:.0f} MiB",
        )
    (few, small), (many, large) = results.items()
    ratios = [more.cpu_us / less.cpu_us for less, more in zip(small, large, strict=True)]
    yield Row(
        name="grown/x",
        what=f"{many:,} known over {few:,}",
        measured=statistics.median(ratios),
        unit="x",
        target=_TARGET,
        is_bound=True,
        note=f"{min(ratios):.3g} to {max(ratios):.3g} in {len(ratios)} rounds",
    )


def _loaded(known: int, setting: Setting, running: ExitStack) -> Task:
    """A job with so many known URLs, and its server."""
    servers, _ = cores()
    server = running.enter_context(serving(Site(pages=setting.pages, known=known), servers))
    task = replace(task_of(server, setting), folder=setting.folder / str(known))
    task.folder.mkdir()
    setting.say(f"{known:,} URLs are loaded into a job")
    load(task, known)
    return task


def goes_on(loaded: Task) -> Result:
    """One crawl in a copy of the job, which is on the disk before it begins (blocks). Raises: CrawlFailed."""
    _, pinned = cores()
    task = replace(loaded, folder=loaded.folder.with_suffix(".copy"))
    try:
        shutil.copytree(loaded.folder, task.folder)
        os.sync()
        return crawled(Contestant(name="grown", what="", command=_command, environment=CLONE), task, pinned)
    finally:
        shutil.rmtree(task.folder)


def load(task: Task, known: int) -> None:
    """Make a job with so many known URLs (blocks). Raises: CrawlFailed."""
    servers, _ = cores()
    begun = crawl_command(task, [_origins(task.server)[0] + "/nothing.html"])
    observe(begun, servers, CLONE)
    dump = task.folder / "known.jsonl"
    _write(dump, known, _origins(task.server))
    observe([sys.executable, "-m", "anabranch", "frontier", "load", str(task.folder / JOB), str(dump)], servers, CLONE)
    dump.unlink()


def _write(dump: Path, known: int, begins: Sequence[str]) -> None:
    with dump.open("w", encoding="utf-8") as file:
        file.write('{"anabranch":"frontier","version":1,"policy":"bkdr:64"}\n')
        for one in range(known):
            url = origin(one, begins) + known_path(one)
            file.write(f'{{"url":"{url}","status":200,"outcome":"done","attempts":0}}\n')
        file.write(f'{{"end":true,"ended":{known},"queued":0}}\n')


def _origins(server: Server) -> list[str]:
    return origins(server.site, server.port)


def _command(task: Task) -> Sequence[str]:
    """From the first pages on, however long the chains of pages are that begin there."""
    begins, pages = _origins(task.server), task.server.site.pages
    seeds = [origin(page, begins) + path(page) for page in range(min(CHAINS, pages))]
    return crawl_command(task, seeds, ["--max-hops", str(pages)])
