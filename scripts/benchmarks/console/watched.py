"""Measures the CPU cost of two windows on a crawl's page to that crawl, and the memory of a console of many jobs.

The windows ask what the page of a job asks, at its pace and through the console's cache, in this process. The crawl is the
product's own command, on a core of its own, in turns with one that nobody watches.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.cookiejar import CookieJar
from pathlib import Path
from threading import Event, Thread
from urllib.request import HTTPCookieProcessor, build_opener

from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.watch import EVERY_S, WatchedJobs
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.report.logtail import failures_logged
from anabranch.frontier.errors import FrontierError
from scripts.benchmarks.crawl.contestants import DURABLE, JOB
from scripts.benchmarks.crawl.race import raced
from scripts.benchmarks.rows import Row, Setting, rounds_row
from scripts.benchmarks.site.pages import Site

_PAGES = 20_000
_PAIRS = 9
_WINDOWS = 2
_JOBS = 100
_ROUNDS_OF_LOOKS = 3
_MOST_X = 1.02
_MOST_RSS_BYTES = 300 << 20
#: Redraws of a page between two of its tables.
_TABLES_EVERY = 10


def measured(setting: Setting) -> Iterator[Row]:
    """CPU of the crawl a page, watched over unwatched; and the memory of a console."""
    yield _cost(setting)
    yield _memory(setting)


def _cost(setting: Setting) -> Row:
    unwatched, watched = (replace(DURABLE, name=name) for name in ("unwatched", "watched"))
    pairs = 2 if setting.is_quick else _PAIRS
    with _windows(setting.folder / watched.name):
        site = Site(pages=setting.count(_PAGES))
        outcome = raced(site, (unwatched, watched), setting, rounds=pairs)
    both = [outcome.results.get(one.name, []) for one in (watched, unwatched)]
    ratios = [one.cpu_us / other.cpu_us for one, other in zip(*both, strict=False)]
    name, what = "watched-x", f"CPU of a crawl a page, watched by {_WINDOWS} windows over unwatched"
    if not ratios:
        return Row(name=name, what=what, measured=None, unit="x", note="; ".join(outcome.faults.values()))
    return rounds_row(name, what, ratios, "x", target=_MOST_X, is_bound=True)


@contextmanager
def _windows(folder: Path) -> Iterator[None]:
    """Windows on the job in a folder, whenever there is one."""
    ends, shared = Event(), dict[str, WatchedJobs]()
    windows = [Thread(target=_look, args=(folder, shared, ends)) for _ in range(_WINDOWS)]
    for window in windows:
        window.start()
    try:
        yield
    finally:
        ends.set()
        for window in windows:
            window.join()


def _look(folder: Path, shared: dict[str, WatchedJobs], ends: Event) -> None:
    """Request what the page of a job requests, through the cache that all windows share, until `ends` is set."""
    redraws = 0
    while not ends.wait(EVERY_S):
        if not (folder / JOB).is_dir():
            shared.clear()
            continue
        with suppress(CrawlerError, FrontierError):
            jobs = ConsoleJobs(str(folder))
            watch = shared.setdefault(JOB, WatchedJobs(jobs))
            if watch.row(JOB) is None:
                continue
            _ = watch.status(JOB), watch.samples(JOB), watch.version(JOB)
            if redraws % _TABLES_EVERY == 0:
                jobs.job(JOB).report({"name": "hosts", "limit": 10})
                failures_logged(folder / JOB, 10)
            redraws += 1


def _memory(setting: Setting) -> Row:
    """The resident memory of a console whose pages of all jobs were opened."""
    jobs = setting.folder / "many"
    names = [f"job-{number:03}" for number in range(_JOBS)]
    for name in names:
        with JobFolder.open(jobs / name) as folder:
            folder.write_order(dump_order(CrawlOrder()))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "anabranch", "console", str(jobs), "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen([*command, "--state", str(setting.folder / "state")], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"\S+/login\?\S+", process.stdout.readline())
        assert found is not None
        browser = build_opener(HTTPCookieProcessor(CookieJar()))
        while True:  # it says so just before it listens
            with suppress(OSError), browser.open(found[0]):
                break
            time.sleep(0.1)
        for _ in range(_ROUNDS_OF_LOOKS):
            for path in ("", *(f"jobs/{name}" for name in names)):
                with browser.open(f"http://127.0.0.1:{port}/{path}") as answer:
                    answer.read()
        status = Path(f"/proc/{process.pid}/status").read_text()
    finally:
        process.terminate()
        process.wait()
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    return Row(
        name="watched-rss",
        what=f"resident memory of a console with {_JOBS} jobs",
        measured=None if resident is None else 1024.0 * int(resident[1]),
        unit="bytes",
        target=float(_MOST_RSS_BYTES),
        is_bound=True,
        note=f"when the page of each was opened {_ROUNDS_OF_LOOKS} times, all within a minute",
    )
