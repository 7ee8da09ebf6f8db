"""What a crawl is doing right now: some lines on a terminal, drawn again and again; else a line every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from anabranch.crawler.orders.quantities import format_bytes
from anabranch.crawler.reporting.statistics import Rates, RateWindow
from anabranch.crawler.reporting.troubles import Trouble
from anabranch.frontier.models import WaitsFor
from anabranch.frontier.operating.timewords import duration_words

#: Seconds between two refreshes on a terminal, and between two plain lines.
LIVE_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 10.0
#: Rates "now" are over so many seconds.
WINDOW_S = 10.0


class CrawlSnapshot(NamedTuple):
    """One moment of a crawl. What is not given is as it is while nothing runs."""

    elapsed_s: float = 0.0  #: since this run began
    pages: int = 0  #: answered in this run
    failed: int = 0
    excluded: int = 0
    retries: int = 0
    fetched_bytes: int = 0
    active: int = 0  #: workers that hold a URL
    workers: int = 0
    pending: int = 0  #: URLs queued, waiting ones included
    waiting: int = 0  #: of these, waiting for a retry
    gates: int = 0
    queues: int = 0  #: work queues that the job has had so far
    wakes_in_s: float | None = None  #: until a gate opens or a retry comes due
    waits_for: WaitsFor = WaitsFor.NOTHING
    job: str = ""
    ready: int = 0  #: queues that may be served, parked ones included
    parked: int = 0  #: of these, those whose gates are all closed
    snoozed: int = 0  #: queues all of whose URLs wait for a retry
    gates_open: int = 0
    broken: int = 0  #: processors of ours that broke
    free_bytes: int | None = None  #: of the disk the job is on
    trouble: str = ""  #: what the store waits for, if it cannot write now
    paused: str = ""  #: who paused the crawl and why; empty if it is not paused
    failing: int = 0  #: URLs that are still queued, and whose last try in this run failed; 0 once a page was answered
    untried: int = 0  #: URLs that are queued or leased, and are not among these
    answered: int = 0  #: pages that were answered, earlier runs included
    last_trouble: Trouble | None = None  #: of a host that has not answered since
    shared_left: int | None = None  #: links left to other crawls with which the job shares a filter
    shared_twice: int | None = None  #: URLs that one of them took, too
    totals: Mapping[str, Any] | None = None  #: as `operating.verbs.totals`; None before the queue was opened

    @property
    def is_unanswered(self) -> bool:
        """All that is queued was tried in this run, and no page was ever answered."""
        return bool(self.failing) and not self.untried and not self.answered


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
    return " · ".join([*parts, *_troubled(now)])


def progress_lines(now: CrawlSnapshot, rates: Rates) -> list[str]:
    """What a terminal shows: how far, how fast, who works, what is queued, what went wrong, and if nobody works, why. Pure."""
    states = f"{now.ready:,} ready" + (f" ({now.parked:,} parked)" if now.parked else "")
    states += f", {now.snoozed:,} snoozed" if now.snoozed else ""
    waiting = f", {now.waiting:,} of them wait for a retry" if now.waiting else ""
    disk = [] if now.free_bytes is None else [f"{format_bytes(now.free_bytes)} free"]
    troubles = {"failed": now.failed, "excluded": now.excluded, "retries": now.retries, "broken": now.broken}
    rows = {
        "pages": f"{now.pages:,}, {rates.pages_now:.1f}/s now, {rates.pages_mean:.1f}/s mean",
        "bytes": f"{format_bytes(now.fetched_bytes)}, {_speed(rates.bytes_now)} now, {_speed(rates.bytes_mean)} mean",
        "workers": f"{now.active:,} of {now.workers:,} active",
        "queued": f"{now.pending:,} URLs{waiting}",
        "queues": f"{now.queues:,}: {states}",
        "gates": f"{now.gates:,} in memory, {now.gates_open:,} open",
        "troubles": ", ".join(f"{number:,} {word}" for word, number in troubles.items()),
    }
    head = " · ".join(filter(None, [now.job, duration_words(now.elapsed_s), *disk]))
    lines = [head, *(f"  {name:<9}{words}" for name, words in rows.items())]
    return [*lines, *(f"  {words}" for words in _troubled(now))]


def _speed(rate: float) -> str:
    return f"{format_bytes(int(rate))}/s"


def _troubled(now: CrawlSnapshot) -> Iterator[str]:
    """What keeps the crawl from going on: why nobody works, whether any seed has answered, and the last trouble."""
    idle = why_idle(now)
    if idle:
        yield idle
    if now.is_unanswered:
        yield "no seed has answered so far"
    if now.last_trouble is not None and (now.is_unanswered or (idle and not (now.active or now.paused))):
        yield f"last trouble, {duration_words(now.last_trouble.ago_s)} ago: {now.last_trouble.words()}"


def why_idle(now: CrawlSnapshot) -> str:
    """In words, why no worker holds a URL, or will soon hold none; empty if all is well."""
    if now.paused:
        ending = f"{now.active} fetches under way may end" if now.active else ""
        return "; ".join(filter(None, [now.paused, now.trouble, ending]))
    if now.trouble:
        return now.trouble
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


class Display(Enum):
    """How progress is shown; the values are the order's."""

    AUTO = "auto"  #: several lines on a terminal, else one at a time
    LINES = "lines"
    NONE = "none"


class DisplayConsole(Console):
    """A console whose reader may go away: that is an OSError, not the process's end, and standard output stays as it is."""

    def on_broken_pipe(self) -> None:
        """Let `Progress` hear of it."""
        raise BrokenPipeError


class Progress:
    """Shows snapshots until it is cancelled; what it cannot write any more costs the display, never the crawl."""

    def __init__(
        self,
        take: Callable[[], CrawlSnapshot],
        console: Console,
        display: Display = Display.AUTO,
        interval_s: float | None = None,
    ) -> None:
        self._take = take
        self._console = console
        self._display = display
        self._interval_s = PLAIN_INTERVAL_S if interval_s is None else interval_s

    async def show(self) -> None:
        """Run until cancelled."""
        is_live = self._display is Display.AUTO and self._console.is_terminal
        if self._display is not Display.NONE:
            with suppress(OSError):  # nobody looks any more
                await (self._show_live() if is_live else self._show_plain())
        await asyncio.Event().wait()

    async def _show_live(self) -> None:
        window = RateWindow(WINDOW_S)
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                now = self._take()
                rates = window.rates(now.elapsed_s, now.pages, now.fetched_bytes)
                live.update(_drawn(progress_lines(now, rates)), refresh=True)
                await asyncio.sleep(LIVE_INTERVAL_S)

    async def _show_plain(self) -> None:
        before: CrawlSnapshot | None = None
        while True:
            await asyncio.sleep(self._interval_s)
            now = self._take()
            self._console.out(progress_line(now, before), highlight=False)
            before = now


def _drawn(lines: Sequence[str]) -> Group:
    """One line of the terminal each, however narrow it is: lines that wrapped would leave their traces on it."""
    return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))
