"""The port at which Prometheus asks, and the numbers of a run."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import cast

import pytest

from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.report.metrics import METRICS, OF_CONSOLES, PHASE, UP
from anabranch.crawler.run import metrics
from anabranch.crawler.run.composition import RunParts
from anabranch.crawler.run.control import ask
from anabranch.crawler.run.crawl_verbs import METRICS as VERB
from anabranch.crawler.run.metrics import LoopLag, RunMetrics, filter_numbers, metrics_served
from anabranch.crawler.run.run_state import Cause
from anabranch.frontier.errors import StoreUnavailable
from tests.crawler.builder import memory_frontier, until
from tests.crawler.run.test_controller import SITE, Run, web_of
from tests.crawler.run.test_status import Run as StatusRun
from tests.patience import HANG_S
from tests.ports import free_port

JOBS = {"job": {"anabranch_pages_total": 3}}


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is closed in the end, even if the server has cut it off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def sent(port: int, request: bytes) -> bytes:
    """The whole answer to a request."""
    async with connected(port) as (reader, writer):
        writer.write(request)
        return await reader.read()


async def scraped(port: int) -> str:
    """The text of a scrape."""
    head, _, body = (await sent(port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
    return body.decode()


@asynccontextmanager
async def served(take=lambda: JOBS) -> AsyncIterator[int]:
    """The port of a server."""
    port = free_port()
    said: list[str] = []
    async with metrics_served(f"127.0.0.1:{port}", take, said.append):
        yield port
    assert said == []


async def test_a_scrape_gets_the_numbers_as_text() -> None:
    """With the length and the type that Prometheus wants."""
    async with served() as port:
        answer = await sent(port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.splitlines() == [
        "HTTP/1.1 200 OK",
        "Content-Type: text/plain; version=0.0.4; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    assert body.endswith('anabranch_pages_total{job="job"} 3.0\n')


async def test_a_head_is_a_scrape_without_its_text() -> None:
    """The length is that of the text."""
    async with served() as port:
        answer = await sent(port, b"HEAD /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        text = await scraped(port)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metricsx HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
    ],
)
async def test_what_is_no_scrape_is_refused(request_, status) -> None:
    """Each in one answer, and the next scrape is answered."""
    async with served() as port:
        assert (await sent(port, request_)).startswith(b"HTTP/1.1 " + status)
        assert await scraped(port)


async def test_a_client_that_sends_nothing_holds_nobody_up() -> None:
    """Scrapes at the same time are answered."""
    async with served() as port, connected(port):
        assert all(await asyncio.gather(*(scraped(port) for _ in range(5))))


async def test_a_client_that_sends_nothing_is_cut_off(monkeypatch) -> None:
    """After the time that a request may take."""
    monkeypatch.setattr(metrics, "PATIENCE_S", 0.01)
    async with served() as port, connected(port) as (reader, _):
        assert await reader.read() == b""


def being_served() -> int:
    """Connections that the server has accepted and not closed."""
    return sum("_MetricsServer.serve" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_too_many_clients_at_once_are_refused() -> None:
    """At most 16 clients are served at once; another one gets 503."""
    async with served() as port, AsyncExitStack() as held:
        for _ in range(16):
            await held.enter_async_context(connected(port))
        await until(lambda: being_served() == 16)
        assert (await sent(port, b"")).startswith(b"HTTP/1.1 503")


async def test_the_end_of_a_run_does_not_wait_for_its_clients() -> None:
    """One that has sent nothing is disconnected."""
    async with AsyncExitStack() as held:
        async with served() as port:
            await held.enter_async_context(connected(port))
            await until(lambda: being_served() == 1)
        assert being_served() == 0


async def test_numbers_that_cannot_be_read_fail_the_scrape_alone() -> None:
    """Prometheus sees an error and asks again; a defect says where to look."""

    def unavailable():
        raise StoreUnavailable("the store is away")

    def broken():
        raise KeyError("pages")

    async with served(unavailable) as port:
        assert (await sent(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nthe store is away\n")
    async with served(broken) as port:
        assert (await sent(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500 ")


async def test_a_port_that_is_taken_is_a_warning() -> None:
    """One line names it, and the run goes on; without an address nothing is said."""
    said: list[str] = []
    async with served() as port, metrics_served(f"127.0.0.1:{port}", lambda: JOBS, said.append):
        assert await scraped(port)
    reason = os.strerror(errno.EADDRINUSE)
    assert said == [f"no metrics at 127.0.0.1:{port}: {reason}; the crawl goes on without them"]
    async with metrics_served("", lambda: JOBS, said.append):
        assert len(said) == 1


async def test_a_loop_that_is_held_up_is_late() -> None:
    """The longest of the last measures counts."""
    lag = LoopLag()
    assert lag.longest_s is None
    watching = asyncio.create_task(lag.watch())
    await until(lambda: lag.longest_s is not None)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert lag.longest_s is not None
    assert lag.longest_s >= 0.0


def test_a_filter_has_the_figures_that_it_has() -> None:
    """How full it is needs the size that it was planned for."""
    assert filter_numbers({"filter": "exact", "keys": 4, "asked": 9}) == {
        "anabranch_filter_urls": 4,
        "anabranch_filter_questions_total": 9,
    }
    known = {"recent_known": 7, "pending_known": 2, "memory_known": 3, "dropped": 4, "store_known": 1}
    assert filter_numbers(known)["anabranch_known_links_total"] == {"recent": 7, "pending": 2, "filter": 7, "store": 1}
    assert filter_numbers({"keys": 5, "planned_keys": 10})["anabranch_filter_planned_ratio"] == 0.5


async def test_each_number_is_read_where_it_is_counted(tmp_path) -> None:
    """Each metric has the number that this run and this worker count for it."""
    async with memory_frontier("http://a.test/", "http://b.test/") as frontier:
        run = StatusRun(frontier, tmp_path)
        resolver = Resolver([], {}, clock=frontier.core.now_s)
        resolver.lookups, resolver.failures, resolver.cache_hits = 11, 12, 13
        counts = {
            "pages": 1,
            "failed": 2,
            "excluded": 3,
            "retries": 4,
            "robots": 5,
            "fetched_bytes": 6,
            "broken": 7,
            "active": 8,
        }
        for name, count in counts.items():
            setattr(run.statistics, name, count)
        run.context.board.leases.add(0.5)
        parts = cast("RunParts", SimpleNamespace(frontier=frontier, resolver=resolver, services=run.services))
        reader = RunMetrics(run.context, parts, run.status, LoopLag())
        starting = reader.numbers()
        run.open()
        run.run_state.pause(Cause.OPERATOR)
        numbers = reader.numbers()
    assert (starting[PHASE], numbers[PHASE]) == ("starting", "paused")
    found = {name.removeprefix("anabranch_").removesuffix("_total"): number for name, number in numbers.items()}
    assert {name: found[name] for name in ("pages", "failed_urls", "excluded_urls", "retries", "robots_fetched")} == {
        "pages": 1, "failed_urls": 2, "excluded_urls": 3, "retries": 4, "robots_fetched": 5,
    }  # fmt: skip
    assert (found["fetched_bytes"], found["broken_tries"], found["workers_active"], found["workers"]) == (6, 7, 8, 100)
    assert (found["dns_lookups"], found["dns_failures"], found["dns_cache_hits"]) == (11, 12, 13)
    assert (found["queued_urls"], found["waiting_urls"], found["lease_seconds"]["sum"]) == (2, 0, 0.5)
    assert "disk_free_bytes" not in found  # it is not watched here
    assert "event_loop_lag_seconds" not in found  # nor measured yet


async def test_a_run_serves_every_metric(tmp_path) -> None:
    """At its port and through its control socket; what a closer look finds comes with the first look."""
    port = free_port()
    async with web_of(SITE) as web:
        web.delay_s = HANG_S
        with JobFolder.open(tmp_path / "job") as job:
            run = Run(web, job, report={"metrics": f"127.0.0.1:{port}"})
            crawling = asyncio.create_task(run.controller.run())
            await until(lambda: run.take is not None and run.take().filter is not None)
            run.controller._lag._lags_s.append(0.0)  # it is measured each second
            text = await scraped(port)
            numbers = await asyncio.to_thread(ask, job.state, VERB, {})
            run.controller.stop(WhyEnded.OPERATOR_NOW, at_once=True)
            await crawling
    assert [name for name in METRICS if f"# HELP {name} " not in text] == [one for one in METRICS if one in OF_CONSOLES]
    assert 'anabranch_phase{job="job",phase="running"} 1.0\n' in text
    assert numbers is not None
    assert numbers.keys() == METRICS.keys() - {UP} - OF_CONSOLES  # the first answers by being there
