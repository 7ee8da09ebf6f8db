"""A small crawl with WARC files whose processes meet faults of the disk, and what must hold after it was resumed."""

from __future__ import annotations

import random
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from anabranch.dedup.uniq import UniqFilter, recorded
from tests.acceptance import forkserver
from tests.acceptance.command import Ended, ended, environment, write_order
from tests.faults import shim
from tests.faults.agreement import disagreements, urls_of
from tests.site.page import Host, Page, go, redirect
from tests.site.server import SmallWeb

#: Two hosts with a redirect, a payload that comes twice, and one that fills a WARC file.
LARGE = Page(body=random.Random(1).randbytes(1_100_000), content_type="application/octet-stream")
TWICE = Page(body=b"the same" * 20, content_type="image/png")
SITE = {
    "a.test": Host(
        pages={
            "/": Page(links=go("/1", "/2", "http://b.test/", "/same.png")),
            "/1": Page(links=go("/2", "/gone"), filler_bytes=3000),
            "/2": redirect(302, "/3", "/3"),
            "/3": LARGE,
            "/same.png": TWICE,
        }
    ),
    "b.test": Host(pages={"/": Page(links=go("/1", "/same.png")), "/1": Page(links=go("/")), "/same.png": TWICE}),
}
SEED = "http://a.test/"
URLS = {f"http://a.test{path}" for path in ("/", "/1", "/2", "/3", "/gone", "/same.png")} | {
    f"http://b.test{path}" for path in ("/", "/1", "/same.png")
}
#: `anabranch ARGUMENTS`, which tries failing writes of the store again for 0.3 s in place of 30 s.
_IMPATIENT = """
import runpy, sys
from anabranch.frontier.stores.sql import store
store.RETRY_S = 0.3
runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
"""


class Job:
    """A crawl of the site in a folder, run again and again."""

    def __init__(self, folder: Path, web: SmallWeb) -> None:
        folder.mkdir()
        self.folder, self.path, self.log = folder, folder / "job", folder / "calls"
        order = write_order(
            folder, web.hosts, crawl={"workers": 3}, write={"warc": True, "warc_size": "1MiB"}, scope={"scope": "any"}
        )
        self._arguments = ("crawl", SEED, "-c", str(order), "--job", str(self.path))

    async def run(self) -> Ended:
        """Without faults."""
        return await self._ended(("-m", "anabranch"), environment(), forkserver.ROOMS)

    async def run_with(self, **fault: str) -> tuple[Ended, list[shim.Call]]:
        """With variables for the shim (`shim.fault`): how it ended, and its calls."""
        watched = shim.variables(self.path, self.log) | fault
        done = await self._ended(("-c", _IMPATIENT), environment(**watched), shim.PRELOAD)
        return done, shim.calls_in(self.log)

    async def _ended(self, command: tuple[str, str], variables: dict[str, str], preload: tuple[str, ...]) -> Ended:
        return await ended(
            await forkserver.start((*command, *self._arguments), cwd=self.folder, env=variables, preload=preload)
        )


def lacks(job: Path) -> list[str]:
    """List the faults of a job that has ended, in its URLs, files, WARC files, rows of the store, and filter."""
    try:
        found = disagreements(job)
    except (AssertionError, ValueError, OSError, EOFError, zlib.error) as error:
        found = [f"unreadable: {type(error).__name__}: {error}"]
    if (answered := urls_of(job)) != URLS:
        found.append(f"URLs: {sorted(answered ^ URLS)}")
    with closing(sqlite3.connect(f"{(job / 'state' / 'frontier.db').as_uri()}?mode=ro", uri=True)) as store:
        (damage,) = store.execute("PRAGMA integrity_check").fetchone()
        ended_urls = {url for (url,) in store.execute("SELECT url FROM done")}
        (queued,) = store.execute("SELECT count(*) FROM url").fetchone()
    if damage != "ok" or ended_urls != URLS or queued:
        found.append(f"the store: {damage}, {queued} queued, ended or not: {sorted(ended_urls ^ URLS)}")
    return found + _lacking_in_filter(job / "state" / "seen", sorted(URLS))


def _lacking_in_filter(folder: Path, urls: list[str]) -> list[str]:
    given = recorded(folder)
    if given is None:
        return ["the filter has no record"]
    with UniqFilter.open(folder, given, alone=True) as seen:
        seen.check()
        unseen = seen.unseen([url.encode() for url in urls])
    return [f"the filter lacks {url}" for url, is_unseen in zip(urls, unseen, strict=True) if is_unseen]
