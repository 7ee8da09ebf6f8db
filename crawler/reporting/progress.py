"""What a crawl is doing right now: a line of facts, live on a terminal, every few seconds otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.text import Text

from crawler.orders.quantities import format_bytes
from frontier.models import WaitsFor
from frontier.operating.timewords import duration_words

#: Seconds between two refreshes on a terminal, and between two plain lines.
LIVE_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 10.0


class CrawlSnapshot(NamedTuple):
    """One moment of a crawl."""

    elapsed_s: float  #: since this run began
    pages: int  #: answered in this run
    failed: int
    excluded: int
    retries: int
    fetched_bytes: int
    active: int  #: workers that hold a URL
    workers: int
    pending: int  #: URLs queued, waiting ones included
    waiting: int  #: of these, waiting for a retry
    gates: int
    queues: int  #: work queues that the job has had so far
    wakes_in_s: float | None  #: until a gate opens or a retry comes due
    waits_for: WaitsFor
    paused: str = ""  #: why no fetch begins, in words


def progress_line(now: CrawlSnapshot, before: CrawlSnapshot | None = None) -> str:
    """One line: how far, how fast, and if nobody works, why. Pure."""
    since = before if before is not None and before.elapsed_s < now.elapsed_s else None
    span_s = now.elapsed_s - (since.elapsed_s if since else 0.0)
    rate = (now.pages - (since.pages if since else 0)) / span_s if span_s > 0 else 0.0
    speed = (now.fetched_bytes - (since.fetched_bytes if since else 0)) / span_s if span_s > 0 else 0.0
    parts = [
        duration_words(now.elapsed_s),
        f"{now.pages} pages ({rate:.1f}/s, {format_bytes(int(speed))}/s)",
        f"{now.pending} queued in {now.queues} queues",
        f"{now.active}/{now.workers} active",
        f"{now.gates} gates",
    ]
    troubles = {"failed": now.failed, "excluded": now.excluded, "waiting for a retry": now.waiting}
    parts += [f"{number} {word}" for word, number in troubles.items() if number]
    if reason := why_idle(now):
        parts.append(reason)
    return " · ".join(parts)


def why_idle(now: CrawlSnapshot) -> str:
    """In words, why no worker holds a URL, or will soon; empty if they work on."""
    if now.paused:
        return now.paused
    if now.active:
        return ""
    if WaitsFor.STORE in now.waits_for and now.wakes_in_s is None:
        return "idle: the store is catching up"
    if not now.pending:
        return "idle: nothing is queued"
    if now.wakes_in_s is None and WaitsFor.OPERATOR in now.waits_for:
        return "idle: what is left stands in paused queues"
    if now.wakes_in_s is None:
        return "idle: no gate can open"
    what = "retries wait" if now.waiting == now.pending else "all gates are closed"
    return f"idle: {what}, next in {duration_words(max(now.wakes_in_s, 0.0))}"


class Progress:
    """Shows snapshots until it is cancelled: a live line on a terminal, plain lines otherwise."""

    def __init__(self, take: Callable[[], CrawlSnapshot], console: Console) -> None:
        self._take = take
        self._console = console

    async def show(self) -> None:
        """Run until cancelled."""
        if self._console.is_terminal:
            await self._show_live()
        else:
            await self._show_plain()

    async def _show_live(self) -> None:
        before = self._take()
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                now = self._take()
                live.update(Text(progress_line(now, before)), refresh=True)
                if now.elapsed_s - before.elapsed_s >= 10 * LIVE_INTERVAL_S:
                    before = now  # rates are over the last few seconds
                await asyncio.sleep(LIVE_INTERVAL_S)

    async def _show_plain(self) -> None:
        before: CrawlSnapshot | None = None
        while True:
            await asyncio.sleep(PLAIN_INTERVAL_S)
            now = self._take()
            self._console.out(progress_line(now, before), highlight=False)
            before = now
