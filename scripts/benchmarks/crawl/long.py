"""A long crawl: what a page costs in each tenth of it, what it takes in memory, and how fast its job is opened again.

A million pages on 10,000 names; and a job of which half a million URLs are queued, stopped in order and by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from anabranch.crawler.lab.plots import draw
from anabranch.crawler.lab.report import Curve, LabReport, Panel
from scripts.benchmarks.crawl.contestants import CLONE, DURABLE, Task, crawl_command
from scripts.benchmarks.crawl.observing import CrawlFailed, family
from scripts.benchmarks.crawl.race import Result, Tenth, cores, raced, task_of
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import Site
from scripts.benchmarks.site.process import serving
from scripts.benchmarks.site.tally import Tally

_PAGES, _HOSTS = 1_000_000, 10_000
_QUEUED = 500_000
_FETCHED = 10_000  #: before the job is stopped; its pages lead to all others
_CPU_FACTOR = 1.1
_ADDED_BYTES = 80_000_000
_REOPENED_S, _AFTER_KILL_S = 3.0, 15.0
_FIRST_REQUEST_S = 120.0  #: a crawl that has asked for nothing by then does not begin


def long(setting: Setting) -> Iterable[Row]:
    """One durable crawl of a million pages, by the small server, which makes them on request."""
    pages = setting.count(_PAGES)
    site = Site(pages=pages, hosts=setting.count(_HOSTS), is_named=True)
    outcome = raced(site, (DURABLE,), setting, rounds=1, serve=serving)
    if outcome.faults:
        raise CrawlFailed(outcome.faults[DURABLE.name])
    (result,) = outcome.results[DURABLE.name]
    if setting.wishes.picture is not None:
        draw(picture(pages, result.tenths), setting.wishes.picture)
    yield from rows(pages, result)


def rows(pages: int, result: Result) -> Iterator[Row]:
    """The last tenth beside the second: CPU time of a page, and RssAnon."""
    second, last = result.tenths[1], result.tenths[-1]
    curve = ", ".join(f"{tenth.cpu_us:,.0f}" for tenth in result.tenths)
    yield Row(
        name="long/cpu",
        what=f"CPU of a page, last tenth of {pages:,} over the second",
        measured=last.cpu_us / max(second.cpu_us, 0.01),
        unit="x",
        target=_CPU_FACTOR,
        is_bound=True,
        note=f"µs by tenths: {curve}; {result.pages_per_s:,.0f} pages/s",
    )
    yield Row(
        name="long/memory",
        what="RssAnon, what the last tenth takes beyond the second",
        measured=last.own_bytes - second.own_bytes,
        unit="bytes",
        target=float(_ADDED_BYTES),
        is_bound=True,
        note="MiB by tenths: " + ", ".join(f"{tenth.own_bytes / 2**20:.0f}" for tenth in result.tenths),
    )


def picture(pages: int, tenths: Sequence[Tenth]) -> LabReport:
    """Two panels: CPU time of a page, and RssAnon, as the crawl goes on."""
    x = tuple(pages * number / 10 for number in range(1, 11))
    panels = (
        Panel(
            title=f"A crawl of {pages:,} pages",
            x_label="pages",
            y_label="CPU time of a page in this tenth, µs",
            curves=(Curve(label="durable", x=x, y=tuple(tenth.cpu_us for tenth in tenths)),),
        ),
        Panel(
            title="Memory of its own",
            x_label="pages",
            y_label="RssAnon, MiB",
            curves=(Curve(label="durable", x=x, y=tuple(tenth.own_bytes / 2**20 for tenth in tenths)),),
        ),
    )
    return LabReport(name="long", tables=(), panels=panels, closing=())


def reopened(setting: Setting) -> Iterable[Row]:
    """From the start of the command to its first request: after a stop in order, and after SIGKILL."""
    queued = setting.count(_QUEUED)
    servers, _ = cores()
    site = Site(pages=queued + 2 * setting.count(_FETCHED), hosts=setting.count(_HOSTS), is_named=True)
    with serving(site, servers) as server:
        task = task_of(server, setting)
        setting.say(f"a crawl until {queued:,} URLs are queued")
        with _crawling(task, "--limit", str(setting.count(_FETCHED))) as process:
            if process.wait():
                raise CrawlFailed(f"exit status {process.returncode}")
        for name, what, bound_s in (
            ("stop", "after a stop in order", _REOPENED_S),
            ("kill", "after SIGKILL", _AFTER_KILL_S),
        ):
            server.tally()
            began_s = time.time()
            with _crawling(task, "--limit", "0"):
                first_s = _first_request_s(server.tally)
            yield Row(
                name=f"reopened/{name}",
                what=f"first request of a job with {queued:,} queued URLs, {what}",
                measured=first_s - began_s,
                unit="s",
                target=bound_s,
                is_bound=True,
            )


@contextmanager
def _crawling(task: Task, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A crawl in the task's folder, killed at the end of the block if it still runs."""
    command = crawl_command(task, [task.server.seed], options)
    with subprocess.Popen(
        command, env=os.environ | CLONE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            for one in reversed(family(process.pid)) if process.poll() is None else ():
                os.kill(one, signal.SIGKILL)


def _first_request_s(tally: Callable[[], Tally]) -> float:
    began_s = time.monotonic()
    while time.monotonic() - began_s < _FIRST_REQUEST_S:
        if first_s := tally().first_s:
            return first_s
        time.sleep(0.05)
    raise CrawlFailed(f"it requested nothing in {_FIRST_REQUEST_S:.0f} s")
