"""What a page costs in a long crawl: with ten thousand URLs known, and with ten million. Each page has one link that is new.

The known URLs come by `anabranch frontier load`, as ended ones, into a job that has fetched nothing yet but what is not there;
so the store and the filter hold them as a crawl leaves them. The crawl then goes on in that job.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
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
    """One crawl with each number of known URLs."""
    yield from rows({known: _crawled(known, setting) for known in map(setting.count, _KNOWN)})


def rows(results: dict[int, Result]) -> Iterator[Row]:
    """CPU time of a page with few and with many, and how much dearer the latter is."""
    for known, result in results.items():
        yield Row(
            name=f"grown/{known}",
            what=f"CPU time of a page, {known:,} URLs known",
            measured=result.cpu_us,
            unit="µs",
            note=f"{result.pages_per_s:,.0f} pages/s, peak {result.peak_bytes / 2**20:.0f} MiB",
        )
    (few, small), (many, large) = results.items()
    yield Row(
        name="grown/x",
        what=f"{many:,} known over {few:,}",
        measured=large.cpu_us / small.cpu_us,
        unit="x",
        target=_TARGET,
        is_bound=True,
    )


def _crawled(known: int, setting: Setting) -> Result:
    servers, pinned = cores()
    with serving(Site(pages=setting.pages, known=known), servers) as server:
        task = replace(task_of(server, setting), folder=setting.folder / str(known))
        task.folder.mkdir()
        setting.say(f"{known:,} URLs are loaded into a job")
        load(task, known)
        return crawled(Contestant(name="grown", what="", command=_goes_on, environment=CLONE), task, pinned)


def load(task: Task, known: int) -> None:
    """Make a job that knows so many URLs (blocks). Raises: CrawlFailed."""
    servers, _ = cores()
    begun = crawl_command(task, [_origins(task.server)[0] + "/nothing.html"])
    observe(begun, servers, CLONE)
    dump = task.folder / "known.jsonl"
    _write(dump, known, _origins(task.server))
    observe([sys.executable, "-m", "crawler", "frontier", "load", str(task.folder / JOB), str(dump)], servers, CLONE)
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


def _goes_on(task: Task) -> Sequence[str]:
    """From the first pages on, however long the chains of pages are that begin there."""
    begins, pages = _origins(task.server), task.server.site.pages
    seeds = [origin(page, begins) + path(page) for page in range(min(CHAINS, pages))]
    return crawl_command(task, seeds, ["--max-hops", str(pages)])
