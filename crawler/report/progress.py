"""The progress of a running crawl: a block of lines that is redrawn on a terminal, else one line every few seconds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from itertools import pairwise

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.logtail import Trouble
from anabranch.crawler.report.statistics import Rates, RateWindow
from anabranch.crawler.report.table import escaped
from anabranch.frontier.records import WaitsFor
from anabranch.frontier.times import counted, duration_words

#: Seconds between two refreshes on a terminal, and between two plain lines.
LIVE_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 10.0
#: Rates "now" are means over so many seconds.
WINDOW_S = 10.0

_SPARKS = "▁▂▃▄▅▆▇█"
_LABEL_CHARS = 9
_BAR_CHARS = 40
#: Totals of URLs that have ended, and of all that are known.
_ENDED = ("done", "failed", "disregarded")
_KNOWN = (*_ENDED, "pending", "in_flight", "retired")


class PageHistory:
    """How many pages a second were answered in the last minutes, for a spark line."""

    def __init__(self, step_s: float = 5.0, steps: int = 36) -> None:
        self._step_s = step_s
        self._samples: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=steps + 1)

    def add(self, elapsed_s: float, pages: int) -> None:
        """Record how far the run is, if the last sample is a step old."""
        if elapsed_s - self._samples[-1][0] >= self._step_s:
            self._samples.append((elapsed_s, pages))

    def spark(self) -> str:
        """A character a step, the highest for the quickest one; empty before two steps."""
        speeds = [(pages - pages_0) / (at_s - at_0_s) for (at_0_s, pages_0), (at_s, pages) in pairwise(self._samples)]
        most = max(speeds, default=0.0)
        if len(speeds) < 2 or not most:
            return ""
        return "".join(_SPARKS[round(speed / most * (len(_SPARKS) - 1))] for speed in speeds)


def progress_line(now: CrawlSnapshot, before: CrawlSnapshot | None = None) -> str:
    """One line: counts, rates since `before`, and why no worker is busy if so. Pure."""
    since = before if before is not None and before.elapsed_s < now.elapsed_s else None
    span_s = now.elapsed_s - (since.elapsed_s if since else 0.0)
    rate = (now.pages - (since.pages if since else 0)) / span_s if span_s > 0 else 0.0
    speed = (now.fetched_bytes - (since.fetched_bytes if since else 0)) / span_s if span_s > 0 else 0.0
    parts = [
        duration_words(now.elapsed_s),
        f"{counted(now.pages, 'page')} ({rate:.1f}/s, {_speed(speed)})",
        f"{counted(now.pending, 'URL')} queued",
        _hosts(now, counted(now.gates, "host")),
        f"{now.active:,} of {counted(now.workers, 'worker')} busy{_on_slow(now)}",
        _troubles(now),
    ]
    trouble = _last_trouble(now)
    last = "" if trouble is None else _trouble_words(trouble, trouble.describe())
    return " · ".join(filter(None, [*parts, *_warnings(now), last]))


def progress_lines(now: CrawlSnapshot, rates: Rates, history: PageHistory, *, is_plain: bool = False) -> list[Text]:
    """The block of lines on a terminal: how far, how fast, what waits for what, and why no worker is busy if so. Pure.

    `is_plain`: the terminal shows ASCII alone.
    """
    waiting = f", {now.waiting:,} of them waiting for a retry" if now.waiting else ""
    disk = [] if now.free_bytes is None else [f"{format_bytes(now.free_bytes)} free"]
    spark = "" if is_plain else history.spark()
    rows = {
        "pages": f"{now.pages:,}, {rates.pages_now:.1f}/s now, {rates.pages_mean:.1f}/s mean",
        "fetched": f"{format_bytes(now.fetched_bytes)}, {_speed(rates.bytes_now)} now, {_speed(rates.bytes_mean)} mean",
        "queued": f"{counted(now.pending, 'URL')}{waiting}",
        "hosts": _hosts(now, f"{now.gates:,}"),
        "workers": f"{now.active:,} of {now.workers:,} busy{_on_slow(now)}",
    }
    lines = [_line((" · ".join([escaped(now.job), duration_words(now.elapsed_s), *disk]), "bold"))]
    for name, value in rows.items():
        line = _line(("  " + name.ljust(_LABEL_CHARS), "dim"), value)
        if name == "pages":
            line.append(f"  {spark}", "green")
            lines += [line, *_bar(now, is_plain)]
        else:
            lines.append(line)
    if troubles := _troubles(now):
        lines.append(_line(("  troubles".ljust(_LABEL_CHARS + 2), "dim"), (troubles, "red" if now.failed else "")))
    for number, (host, what) in enumerate(now.busiest):
        label = "" if number else "busiest"
        lines.append(_line((f"  {label.ljust(_LABEL_CHARS)}", "dim"), f"{escaped(host)}: {what}"))
    warnings, trouble = list(_warnings(now)), _last_trouble(now)
    if trouble is not None:  # its URL has a line of its own, which may be cut
        warnings += [_trouble_words(trouble, trouble.cause()), f"  {trouble.url}"]
    return [*lines, *(_line((f"  {warning}", "yellow")) for warning in warnings)]


def _line(*parts: str | tuple[str, str]) -> Text:
    """Make one line of the terminal: rich could not redraw lines that wrap."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _bar(now: CrawlSnapshot, is_plain: bool) -> Iterator[Text]:
    """A bar where a limit of pages, or the URLs that are known, say how much is left."""
    known = sum((now.totals or {}).get(name, 0) for name in _KNOWN)
    if now.page_limit:
        part, words = now.answered / now.page_limit, f"of at most {counted(now.page_limit, 'page')}"
    elif known:
        part = sum((now.totals or {}).get(name, 0) for name in _ENDED) / known
        words = f"of {counted(known, 'known URL')}"
    else:
        return
    full = round(min(part, 1.0) * _BAR_CHARS)
    done, rest = ("#", ".") if is_plain else ("━", "─")
    bar = _line(" " * (_LABEL_CHARS + 2), (done * full, "green"), (rest * (_BAR_CHARS - full), "dim"))
    yield bar.append(f" {min(part, 1.0):.0%} {words}")


def _hosts(now: CrawlSnapshot, words: str) -> str:
    """How many hosts are in memory; if all that have URLs rest, until when."""
    if not _rests(now):
        return words
    return f"{words}: {'resting' if now.gates == 1 else 'all resting'}, next in {_until_next(now)}"


def _rests(now: CrawlSnapshot) -> bool:
    """Only politeness is waited for: nothing is fetched, and time alone helps."""
    held = now.paused or now.trouble or now.active or now.awaits
    return not held and bool(now.pending) and now.wakes_in_s is not None and now.waiting < now.pending


def _until_next(now: CrawlSnapshot) -> str:
    return duration_words(max(now.wakes_in_s or 0.0, 0.0))


def _on_slow(now: CrawlSnapshot) -> str:
    return f" ({now.on_slow_hosts:,} on slow or new hosts)" if now.on_slow_hosts else ""


def _troubles(now: CrawlSnapshot) -> str:
    """Count what went wrong and what was left out; empty if nothing."""
    counts = {
        "failed": now.failed,
        "excluded": now.excluded - now.skipped,
        "skipped": now.skipped,
    }
    words = [f"{number:,} {word}" for word, number in counts.items() if number]
    words += [counted(now.retries, "retry", "retries")] if now.retries else []
    words += [f"{counted(now.broken, 'try', 'tries')} broken by an error of a processor"] if now.broken else []
    return ", ".join(words)


def _speed(rate: float) -> str:
    return f"{format_bytes(int(rate))}/s"


def _warnings(now: CrawlSnapshot) -> Iterator[str]:
    """Why no worker is busy, and that no seed has answered; each only if it is so."""
    idle = why_idle(now)
    if idle:
        yield idle
    elif now.awaits:  # what does not need it goes on
        yield now.awaits
    if now.is_unanswered:
        yield "no seed has answered so far"


def _last_trouble(now: CrawlSnapshot) -> Trouble | None:
    """The last trouble, if nothing is done because of it."""
    is_idle = (why_idle(now) or _rests(now)) and not (now.active or now.paused)
    return now.last_trouble if now.is_unanswered or is_idle else None


def _trouble_words(trouble: Trouble, cause: str) -> str:
    return f"last trouble, {duration_words(trouble.ago_s)} ago: {cause}"


#: What a crawl waits for, the strongest first, if time alone does not help.
_IDLE = {
    WaitsFor.STORE: "idle: the store is catching up",
    WaitsFor.OPERATOR: "idle: all queued URLs are in paused queues",
    WaitsFor.FINISH: "idle: a leased URL must end first",
}
_CLOSED = "idle: every host with queued URLs is blocked; `anabranch frontier ls` says why"


def why_idle(now: CrawlSnapshot) -> str:
    """Why no worker holds a URL, or soon none will, in words; empty if all is well, or if hosts rest."""
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
    return "" if _rests(now) else f"idle: all URLs wait for a retry, the next in {_until_next(now)}"


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
            window, history = RateWindow(WINDOW_S), PageHistory()
            is_plain = console.options.ascii_only
            with Live(console=console, auto_refresh=False, transient=True) as live:
                while True:
                    now = take()
                    rates = window.rates(now.elapsed_s, now.pages, now.fetched_bytes)
                    history.add(now.elapsed_s, now.pages)
                    lines = progress_lines(now, rates, history, is_plain=is_plain)
                    live.update(Group(*lines), refresh=True)
                    await asyncio.sleep(LIVE_INTERVAL_S)
        before: CrawlSnapshot | None = None
        while display is not Display.NONE:
            await asyncio.sleep(interval_s)
            now = take()
            console.out(progress_line(now, before), highlight=False)
            before = now
    await asyncio.Event().wait()
