"""The progress of a running crawl: a block of lines that is redrawn on a terminal, else one line every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.statistics import Rates, RateWindow
from anabranch.crawler.report.table import escaped
from anabranch.frontier.records import WaitsFor
from anabranch.frontier.times import counted, duration_words

#: Seconds between two refreshes on a terminal, and between two plain lines.
LIVE_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 10.0
#: Rates "now" are means over so many seconds.
WINDOW_S = 10.0


def progress_line(now: CrawlSnapshot, before: CrawlSnapshot | None = None) -> str:
    """One line: counts, rates since `before`, and why no worker is active if so. Pure."""
    since = before if before is not None and before.elapsed_s < now.elapsed_s else None
    span_s = now.elapsed_s - (since.elapsed_s if since else 0.0)
    rate = (now.pages - (since.pages if since else 0)) / span_s if span_s > 0 else 0.0
    speed = (now.fetched_bytes - (since.fetched_bytes if since else 0)) / span_s if span_s > 0 else 0.0
    parts = [
        duration_words(now.elapsed_s),
        f"{now.pages} pages ({rate:.1f}/s, {_speed(speed)})",
        f"{now.pending} queued in {now.queues} queues",
        f"{now.active}/{now.workers} active" + _on_slow(now),
        counted(now.gates, "gate"),
    ]
    troubles = {
        "failed": now.failed,
        "excluded": now.excluded - now.skipped,
        "skipped": now.skipped,
        "waiting for a retry": now.waiting,
    }
    parts += [f"{number} {word}" for word, number in troubles.items() if number]
    return " · ".join([*parts, *_warnings(now)])


def _on_slow(now: CrawlSnapshot) -> str:
    return f" ({now.on_slow_hosts:,} on slow or new hosts)" if now.on_slow_hosts else ""


def progress_lines(now: CrawlSnapshot, rates: Rates) -> list[str]:
    """The block of lines on a terminal: counts, rates, workers, queues, troubles, and why no worker is active if so. Pure."""
    states = f"{now.ready:,} ready" + (f" ({now.parked:,} parked)" if now.parked else "")
    states += f", {now.snoozed:,} snoozed" if now.snoozed else ""
    waiting = f", {now.waiting:,} of them wait for a retry" if now.waiting else ""
    disk = [] if now.free_bytes is None else [f"{format_bytes(now.free_bytes)} free"]
    troubles = {
        "failed": now.failed,
        "excluded": now.excluded - now.skipped,
        "skipped": now.skipped,
        "retries": now.retries,
        "broken": now.broken,
    }
    rows = {
        "pages": f"{now.pages:,}, {rates.pages_now:.1f}/s now, {rates.pages_mean:.1f}/s mean",
        "bytes": f"{format_bytes(now.fetched_bytes)}, {_speed(rates.bytes_now)} now, {_speed(rates.bytes_mean)} mean",
        "workers": f"{now.active:,} of {now.workers:,} active" + _on_slow(now),
        "queued": f"{now.pending:,} URLs{waiting}",
        "queues": f"{now.queues:,}: {states}",
        "gates": f"{now.gates:,} in memory, {now.gates_open:,} open",
        "troubles": ", ".join(f"{number:,} {word}" for word, number in troubles.items()),
    }
    head = " · ".join(filter(None, [escaped(now.job), duration_words(now.elapsed_s), *disk]))
    lines = [head, *(f"  {name:<9}{value}" for name, value in rows.items())]
    return [*lines, *(f"  {warning}" for warning in _warnings(now))]


def _speed(rate: float) -> str:
    return f"{format_bytes(int(rate))}/s"


def _warnings(now: CrawlSnapshot) -> Iterator[str]:
    """Why no worker is active, that no seed has answered, and the last trouble; each only if it is so."""
    idle = why_idle(now)
    if idle:
        yield idle
    elif now.awaits:  # what does not need it goes on
        yield now.awaits
    if now.is_unanswered:
        yield "no seed has answered so far"
    if now.last_trouble is not None and (now.is_unanswered or (idle and not (now.active or now.paused))):
        yield f"last trouble, {duration_words(now.last_trouble.ago_s)} ago: {now.last_trouble.describe()}"


#: What a crawl waits for, the strongest first, if time alone does not help.
_IDLE = {
    WaitsFor.STORE: "idle: the store is catching up",
    WaitsFor.OPERATOR: "idle: all queued URLs are in paused queues",
    WaitsFor.FINISH: "idle: a leased URL must end first",
}
_CLOSED = "idle: every host with queued URLs is closed without a time; `anabranch frontier ls` says why"


def why_idle(now: CrawlSnapshot) -> str:
    """Why no worker holds a URL, or soon none will, in words; empty if all is well."""
    if now.paused:
        ending = f"{now.active} fetches under way may end" if now.active else ""
        return "; ".join(filter(None, [now.paused, now.trouble, ending]))
    if now.trouble or now.active:
        return now.trouble
    return now.awaits or _idle(now)


def _idle(now: CrawlSnapshot) -> str:
    is_reading = now.wakes_in_s is None and WaitsFor.STORE in now.waits_for
    if not (now.pending or is_reading):
        return "idle: nothing is queued"
    if now.wakes_in_s is None:
        return next((words for event, words in _IDLE.items() if event in now.waits_for), _CLOSED)
    what = "retries wait" if now.waiting == now.pending else "all gates are closed"
    return f"idle: {what}, next in {duration_words(max(now.wakes_in_s, 0.0))}"


class Display(Enum):
    """How progress is shown; the values are the order's."""

    AUTO = "auto"  #: several lines on a terminal, else one at a time
    LINES = "lines"
    NONE = "none"


class DisplayConsole(Console):
    """A console that raises OSError when its reader has gone away, instead of ending the process."""

    def on_broken_pipe(self) -> None:
        """Raise an error that `show_progress` catches."""
        raise BrokenPipeError


async def show_progress(
    take: Callable[[], CrawlSnapshot],
    console: Console,
    display: Display = Display.AUTO,
    interval_s: float = PLAIN_INTERVAL_S,
) -> None:
    """Show snapshots until cancelled. If the output fails, the display ends and the crawl goes on."""
    with suppress(OSError):  # the reader has gone away
        if display is Display.AUTO and console.is_terminal:
            window = RateWindow(WINDOW_S)
            with Live(console=console, auto_refresh=False, transient=True) as live:
                while True:
                    now = take()
                    rates = window.rates(now.elapsed_s, now.pages, now.fetched_bytes)
                    # One line of the terminal each: rich could not redraw lines that wrap.
                    lines = (Text(line, no_wrap=True, overflow="ellipsis") for line in progress_lines(now, rates))
                    live.update(Group(*lines), refresh=True)
                    await asyncio.sleep(LIVE_INTERVAL_S)
        before: CrawlSnapshot | None = None
        while display is not Display.NONE:
            await asyncio.sleep(interval_s)
            now = take()
            console.out(progress_line(now, before), highlight=False)
            before = now
    await asyncio.Event().wait()
