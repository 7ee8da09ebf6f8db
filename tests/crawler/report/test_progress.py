"""Progress: a pure line, and two ways to show it."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from anabranch.crawler.report import progress
from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.logtail import Trouble
from anabranch.crawler.report.progress import (
    Display,
    DisplayConsole,
    PageHistory,
    progress_line,
    progress_lines,
    show_progress,
    why_idle,
)
from anabranch.crawler.report.statistics import Rates
from anabranch.frontier.records import WaitsFor
from tests.rows import each_row

NOW = CrawlSnapshot(
    elapsed_s=65.0,
    pages=130,
    failed=0,
    excluded=0,
    retries=0,
    fetched_bytes=65 << 20,
    active=3,
    workers=100,
    pending=4000,
    waiting=0,
    gates=5,
    queues=997,
    wakes_in_s=1.5,
    waits_for=WaitsFor.TIME,
)
REFUSED = Trouble("http://a.test/", "connection refused", ago_s=20.0, is_final=False, again_in_s=40.0)
RATES = Rates(1.0, 2.0, 1024.0, 1024.0**2)


def now(**changed):
    return NOW._replace(**changed)


def block(moment, history=None, **more):
    """Return the lines of a terminal, without their colours."""
    return [line.plain.rstrip() for line in progress_lines(moment, RATES, history or PageHistory(), **more)]


def test_the_line_says_how_far_and_how_fast() -> None:
    """Without an earlier snapshot the rates are over the whole run."""
    assert progress_line(NOW) == (
        "1m 5s · 130 pages (2.0/s, 1.0 MiB/s) · 4,000 URLs queued · 5 hosts · 3 of 100 workers busy"
    )


def test_workers_on_slow_or_new_hosts_are_counted_when_there_are_any() -> None:
    """In the line, and in the block of a terminal."""
    assert "3 of 100 workers busy (2 on slow or new hosts)" in progress_line(now(on_slow_hosts=2))
    assert "  workers  3 of 100 busy (2 on slow or new hosts)" in block(now(on_slow_hosts=2))


def test_a_store_that_cannot_write_is_told_whoever_works() -> None:
    """Beside a pause, too."""
    trouble = "waits for the filter: it does not answer (12 s of 30 s)"
    assert why_idle(now(trouble=trouble)) == why_idle(now(trouble=trouble, active=0)) == trouble
    assert why_idle(now(trouble=trouble, paused="paused", active=0)) == f"paused; {trouble}"


def test_rates_are_since_the_earlier_snapshot() -> None:
    """A crawl that has slowed down shows it."""
    before = now(elapsed_s=60.0, pages=125, fetched_bytes=NOW.fetched_bytes - 5 * 1024)
    assert "130 pages (1.0/s, 1.0 KiB/s)" in progress_line(NOW, before)


def test_two_snapshots_of_one_moment_have_the_rate_of_the_whole_run() -> None:
    """No time has passed in between to divide by."""
    assert progress_line(NOW, NOW) == progress_line(NOW)


def test_at_the_very_beginning_there_is_no_rate() -> None:
    """Nothing is divided by no time."""
    assert progress_line(now(elapsed_s=0.0)).startswith("0ms · 130 pages (0.0/s, 0 B/s) · ")


def test_troubles_are_named_when_there_are_any() -> None:
    """Zero of a trouble is none."""
    assert progress_line(now(failed=1, retries=1)).endswith(" busy · 1 failed, 1 retry")
    assert progress_line(now(excluded=2, broken=2)).endswith(
        " busy · 2 excluded, 2 tries broken by an error of a processor"
    )


def test_the_line_ends_with_why_nobody_works() -> None:
    """An operator who sees nothing move must not wonder; a wait for politeness stands with the hosts."""
    assert progress_line(now(active=0, waiting=4000)).endswith(" · idle: all URLs wait for a retry, the next in 1.5s")
    assert " · 5 hosts: all resting, next in 1.5s · 0 of 100 workers busy" in progress_line(now(active=0))
    assert " · 1 host: resting, next in 0ms · " in progress_line(now(active=0, gates=1, wakes_in_s=-0.1))


@each_row(
    ("changed", "reason"),
    [
        ({"active": 1}, ""),
        ({"waits_for": WaitsFor.STORE, "wakes_in_s": None}, "idle: the store is catching up"),
        ({"waits_for": WaitsFor.STORE | WaitsFor.TIME}, ""),
        ({"pending": 0, "waits_for": WaitsFor.URLS, "wakes_in_s": None}, "idle: nothing is queued"),
        ({"waits_for": WaitsFor.FINISH, "wakes_in_s": None}, "idle: a leased URL must end first"),
        (
            {"waits_for": WaitsFor.NOTHING, "wakes_in_s": None},
            "idle: every host with queued URLs is blocked; `anabranch frontier ls` says why",
        ),
        ({"waits_for": WaitsFor.OPERATOR, "wakes_in_s": None}, "idle: all queued URLs are in paused queues"),
        ({"waiting": 4000}, "idle: all URLs wait for a retry, the next in 1.5s"),
        ({"waiting": 3999}, ""),
    ],
)
def test_every_reason_to_be_idle_has_its_words(changed, reason) -> None:
    """They name the cause of the wait, and its length if that is known; hosts that rest are no reason to act."""
    assert why_idle(now(**{"active": 0, **changed})) == reason


def test_while_it_idles_the_last_trouble_is_named() -> None:
    """In the plain line and on a terminal; not while somebody works, or the operator has paused it."""
    words = "last trouble, 20s ago: connection refused, tried again in 40s"
    idle = now(active=0, last_trouble=REFUSED)
    assert progress_line(idle).endswith(f" workers busy · {words} (http://a.test/)")
    assert block(idle)[-2:] == [f"  {words}", "    http://a.test/"]
    for other in (now(last_trouble=REFUSED), now(active=0, last_trouble=REFUSED, paused="paused by the operator")):
        assert words not in progress_line(other)
        assert f"  {words}" not in block(other)


def test_a_crawl_none_of_whose_seeds_has_answered_says_so_after_the_first_round() -> None:
    """Also while some are tried again; not before each was tried, nor once a page was answered."""
    words = "no seed has answered so far"
    unanswered = now(pages=0, failing=2, last_trouble=REFUSED)
    for one in (unanswered, unanswered._replace(active=0)):
        assert f" · {words} · last trouble, 20s ago: connection refused, " in progress_line(one)
        assert f"  {words}" in block(one)
    for changed in ({"untried": 1}, {"answered": 1}, {"failing": 0}):
        assert words not in progress_line(unanswered._replace(**changed))


class Crawl:
    """Gives a later snapshot at each call; sets an event at the last that the test waits for."""

    def __init__(self, snapshots, step_s) -> None:
        self.enough = asyncio.Event()
        self._taken = 0
        self._snapshots = snapshots
        self._step_s = step_s

    def take(self):
        self._taken += 1
        if self._taken == self._snapshots:
            self.enough.set()
        return now(elapsed_s=60.0 + self._taken * self._step_s, pages=100 + self._taken**2)


async def shown(monkeypatch, *, is_terminal, snapshots, step_s=1.0, interval_s=0.0):
    """Return the text that is written until so many snapshots are taken and the display is cancelled."""
    monkeypatch.setattr(progress, "LIVE_INTERVAL_S", interval_s)
    crawl, out = Crawl(snapshots, step_s), io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=200, color_system=None)
    task = asyncio.create_task(show_progress(crawl.take, console, interval_s=interval_s))
    await crawl.enough.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return out.getvalue()


async def test_without_a_terminal_there_are_plain_lines(monkeypatch) -> None:
    """One a time, each with the rate since the one before, and no control characters."""
    text = await shown(monkeypatch, is_terminal=False, snapshots=3)
    assert [line.split(" · ")[:2] for line in text.splitlines()] == [
        ["1m 1s", "101 pages (1.7/s, 1.1 MiB/s)"],
        ["1m 2s", "104 pages (3.0/s, 0 B/s)"],
        ["1m 3s", "109 pages (5.0/s, 0 B/s)"],
    ]
    assert "\x1b" not in text


async def test_on_a_terminal_some_lines_are_drawn_again_and_again(monkeypatch) -> None:
    """The cursor is hidden meanwhile, and is back when the display is cancelled."""
    text = await shown(monkeypatch, is_terminal=True, snapshots=4)
    assert text.index("104, ") < text.index("116, ")
    assert (text.count("\x1b[?25l"), text.count("\x1b[?25h")) == (1, 1)
    assert text.rindex("\x1b[?25h") > text.rindex("116, ")


async def test_a_narrow_terminal_cuts_lines_and_does_not_wrap_them() -> None:
    """A line that wrapped could not be drawn over."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=30, color_system=None)
    task = asyncio.create_task(show_progress(lambda: NOW, console))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first = out.getvalue().partition("\x1b[?25h")[0]
    assert first.count("\n") <= 2 * len(block(NOW))
    assert "…" in first


async def test_the_order_may_ask_for_lines_or_nothing(monkeypatch) -> None:
    """A terminal that is recorded wants lines; a service wants none."""
    monkeypatch.setattr(progress, "LIVE_INTERVAL_S", 0.0)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200, color_system=None)
    crawl = Crawl(2, 1.0)
    lines = asyncio.create_task(show_progress(crawl.take, console, Display.LINES, interval_s=0.0))
    none = asyncio.create_task(show_progress(pytest.fail, console, Display.NONE))  # type: ignore[arg-type]
    await crawl.enough.wait()
    for task in (lines, none):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert "1m 1s · 101 pages" in out.getvalue()
    assert "\x1b" not in out.getvalue()


async def test_a_terminal_that_has_gone_costs_the_display_alone() -> None:
    """The crawl goes on; the display waits to be cancelled."""

    class Gone(io.StringIO):
        def __init__(self) -> None:
            super().__init__()
            self.is_asked = asyncio.Event()

        def write(self, _: str) -> int:
            self.is_asked.set()
            raise BrokenPipeError

    out = Gone()
    task = asyncio.create_task(
        show_progress(lambda: NOW, DisplayConsole(file=out, force_terminal=False), interval_s=0.0)
    )
    await out.is_asked.wait()
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_lines_of_a_terminal_say_all_that_an_operator_asks() -> None:
    """Rates now and in the mean, hosts, workers, troubles, the disk; what is nothing is left out."""
    moment = now(job="portals", waiting=3, failed=1, retries=7, free_bytes=5 << 30)
    assert block(moment) == [
        "portals · 1m 5s · 5.0 GiB free",
        "  pages    130, 1.0/s now, 2.0/s mean",
        "  fetched  65.0 MiB, 1.0 KiB/s now, 1.0 MiB/s mean",
        "  queued   4,000 URLs, 3 of them waiting for a retry",
        "  hosts    5",
        "  workers  3 of 100 busy",
        "  troubles 1 failed, 7 retries",
    ]
    assert block(now(active=0))[4] == "  hosts    5: all resting, next in 1.5s"
    assert not any("troubles" in line for line in block(NOW))


@pytest.mark.parametrize(
    ("changed", "bar"),
    [
        ({"page_limit": 200, "answered": 50}, "━" * 10 + "─" * 30 + " 25% of at most 200 pages"),
        ({"page_limit": 1, "answered": 5}, "━" * 40 + " 100% of at most 1 page"),
        ({"totals": {"done": 1, "failed": 1, "pending": 2}}, "━" * 20 + "─" * 20 + " 50% of 4 known URLs"),
    ],
)
def test_a_bar_shows_how_much_is_done(changed, bar) -> None:
    """It is the part of the limit of pages, else of the known URLs; in ASCII where a terminal shows no more."""
    assert block(now(**changed))[2] == f"           {bar}"
    assert block(now(**changed), is_plain=True)[2].isascii()
    assert block(now(totals={"done": 0}))[2].startswith("  fetched")


def test_the_busiest_hosts_are_named_with_what_each_waits_for() -> None:
    """A name from the web is escaped."""
    lines = block(now(busiest=(("a.test", "2 fetches under way"), ("b\x1b.test", "rests for another 4s"))))
    assert lines[-2:] == ["  busiest  a.test: 2 fetches under way", "           b\\x1b.test: rests for another 4s"]


def test_the_speed_of_the_last_minutes_is_a_line_of_sparks() -> None:
    """A character each five seconds, from the second on; the oldest go. None for a crawl that answered nothing."""
    history = PageHistory(steps=3)
    for elapsed_s, pages in ((1.0, 9), (5.0, 10), (9.0, 15), (10.0, 30), (15.0, 30), (20.0, 40)):
        history.add(elapsed_s, pages)
    assert history.spark() == "█▁▅"
    assert block(NOW, history)[1].endswith("2.0/s mean  █▁▅")
    idle = PageHistory()
    for elapsed_s in (5.0, 10.0):
        idle.add(elapsed_s, 0)
    assert (idle.spark(), PageHistory().spark()) == ("", "")


def test_the_last_line_says_why_nothing_runs() -> None:
    """And when it goes on."""
    assert block(now(active=0, waiting=4000))[-1] == "  idle: all URLs wait for a retry, the next in 1.5s"
    assert block(now(paused="paused by the operator"))[-1] == "  paused by the operator; 3 fetches under way may end"
    assert why_idle(now(paused="paused: the disk is full", active=0)) == "paused: the disk is full"
