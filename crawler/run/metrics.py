"""The metrics of a run: its numbers, read when they are asked for, and the port at which Prometheus asks.

The server answers in the event loop of the crawl, so no other thread looks at its state. One scrape takes 0.4 ms of it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from anabranch.crawler.fetch.addresses import parse_address
from anabranch.crawler.order.sections import VERSION
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.report.metrics import BUILD, FILTER_METRICS, KNOWN_BY, PHASE, Numbers, ended_by_class, of_running
from anabranch.crawler.report.progress_log import memory_of_process
from anabranch.crawler.report.statistics import StepTime
from anabranch.frontier.errors import FrontierError

if TYPE_CHECKING:
    from anabranch.crawler.run.composition import RunContext, RunParts
    from anabranch.crawler.run.status import RunStatus

log = structlog.get_logger(__name__)

#: A request that is not complete by then, or an answer that is not read, is given up.
PATIENCE_S = 10.0
#: The longest head of a request, and the most connections at once.
_MAX_HEAD_BYTES = 8192
_MAX_CONNECTIONS = 16
#: Seconds between two measures of the event loop's lag, and the number of measures that are kept.
_LAG_INTERVAL_S = 1.0
_LAGS_KEPT = 15


class LoopLag:
    """How late the event loop is."""

    def __init__(self) -> None:
        self._lags_s: deque[float] = deque(maxlen=_LAGS_KEPT)

    @property
    def longest_s(self) -> float | None:
        """The largest of the last measures; None before the first."""
        return max(self._lags_s, default=None)

    async def watch(self) -> None:
        """Measure each second until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due_s = clock() + _LAG_INTERVAL_S
            await asyncio.sleep(_LAG_INTERVAL_S)
            self._lags_s.append(max(clock() - due_s, 0.0))


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """Reads the numbers of an open run. Cost: 60 µs, O(1) but for the number of different statuses."""

    context: RunContext
    parts: RunParts
    status: RunStatus
    lag: LoopLag

    def numbers(self) -> dict[str, Any]:
        """The numbers now. Raises: StoreUnavailable."""
        now, run, core = self.status.snapshot(), self.context.statistics, self.parts.frontier.core
        resolver, behind = self.parts.resolver, core.unacknowledged.behind
        fetch = self.context.board.times.get("fetch", StepTime())
        others = 0 if core.hosting is None else core.hosting.others.waiting  # of the job's other workers
        numbers = {
            **process_numbers(),
            BUILD: VERSION,
            PHASE: self.context.run_state.phase.value,
            "anabranch_processes": 1,
            "anabranch_workers": now.workers,
            "anabranch_workers_active": run.active,
            "anabranch_pages_total": run.pages,
            "anabranch_fetched_bytes_total": run.fetched_bytes,
            "anabranch_ended_urls_total": ended_by_class(run.by_status),
            "anabranch_failed_urls_total": run.failed,
            "anabranch_excluded_urls_total": run.excluded,
            "anabranch_skipped_urls_total": run.skipped,
            "anabranch_retries_total": run.retries,
            "anabranch_broken_tries_total": run.broken,
            "anabranch_cdx_unanswered_total": run.cdx_unanswered,
            "anabranch_robots_fetched_total": run.robots,
            "anabranch_fetches_total": fetch.visits,
            "anabranch_fetching_seconds_total": fetch.total_s,
            "anabranch_dns_lookups_total": resolver.lookups,
            "anabranch_dns_failures_total": resolver.failures,
            "anabranch_dns_cache_hits_total": resolver.cache_hits,
            "anabranch_queued_urls": core.pending,
            "anabranch_waiting_urls": max(now.waiting - others, 0),
            "anabranch_queues": {} if now.totals is None else dict(now.totals["queues"]),
            "anabranch_gates": now.gates,
            "anabranch_gates_open": now.gates_open,
            "anabranch_lease_seconds": self.context.board.leases.numbers(),
            "anabranch_store_lag_rows": behind.rows,
            "anabranch_store_full": int(behind.is_full),
            "anabranch_store_waiting": int(bool(now.trouble)),
            "anabranch_service_up": self.parts.services.up(),
            "anabranch_service_away_since_seconds": {
                **dict.fromkeys(self.parts.services.up(), 0.0),
                **{one["service"]: one["since_s"] for one in now.services},
            },
            "anabranch_disk_free_bytes": now.free_bytes,
            "anabranch_event_loop_lag_seconds": self.lag.longest_s,
            **filter_numbers(now.filter or {}),
        }
        return of_running({name: number for name, number in numbers.items() if number is not None})


def process_numbers() -> dict[str, float]:
    """Return the memory and the CPU time of this process as metrics."""
    memory = memory_of_process()
    return {
        "anabranch_process_resident_memory_bytes": memory.resident * 1024,
        "anabranch_process_anonymous_memory_bytes": memory.in_bytes()["anonymous"],
        "anabranch_process_mapped_memory_bytes": memory.in_bytes()["mapped"],
        "anabranch_process_cpu_seconds_total": time.process_time(),
    }


def filter_numbers(figures: Mapping[str, float | str]) -> dict[str, Any]:
    """The filter's figures that are metrics. Pure."""
    numbers: dict[str, Any] = {name: figures[key] for key, name in FILTER_METRICS.items() if key in figures}
    if "recent_known" in figures:
        numbers["anabranch_known_links_total"] = {
            by: sum(float(figures.get(name, 0)) for name in names) for by, names in KNOWN_BY.items()
        }
    planned = figures.get("planned_keys")
    if isinstance(planned, int | float) and planned:
        numbers["anabranch_filter_planned_ratio"] = float(figures.get("keys", 0)) / planned
    return numbers


#: Job -> its numbers, for a scrape. Raises: CrawlerError, FrontierError while they cannot be read.
Take = Callable[[], Mapping[str, Numbers]]


@asynccontextmanager
async def metrics_served(address: str, take: Take, notify: Callable[[str], None]) -> AsyncIterator[None]:
    """While entered, serve what `take` reads at this IP:PORT; an empty address serves nothing.

    If the port is taken, the log and `notify` get a line, and the crawl goes on without metrics.
    """
    if not address:
        yield
        return
    place = parse_address(address)
    server = _MetricsServer(take)
    try:
        listener = await asyncio.start_server(server.serve, place.host, place.port, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        log.warning("no metrics: the address cannot be listened on", address=address, reason=reason)
        notify(f"no metrics at {address}: {reason}; the crawl goes on without them")
        yield
        return
    try:
        yield
    finally:
        listener.close()
        await server.close()


class _MetricsServer:
    """HTTP/1.1 with one request a connection: GET and HEAD of /metrics."""

    def __init__(self, take: Take) -> None:
        from anabranch.crawler.report.exposition import CONTENT_TYPE, exposition  # noqa: PLC0415 - only crawls with metrics need it

        self._take = take
        self._exposition = exposition
        self._content_type = CONTENT_TYPE
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection. Never raises: a client that is slow, broken or gone is disconnected."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(await self._answer(reader))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        except asyncio.CancelledError:  # the run ends
            writer.transport.abort()
        finally:
            self._serving.discard(task)
            writer.close()

    async def close(self) -> None:
        """Disconnect the clients that are being served."""
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        if len(self._serving) > _MAX_CONNECTIONS:
            return _response("503 Service Unavailable", b"too many scrapes at once\n")
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", b"the request is too long\n")
        match head.partition(b"\r\n")[0].split(b" "):
            case [b"GET" | b"HEAD" as method, target, b"HTTP/1.0" | b"HTTP/1.1"]:
                is_found = target.partition(b"?")[0] == b"/metrics"
                answer = self._metrics() if is_found else _response("404 Not Found", b"metrics are at /metrics\n")
                return answer if method == b"GET" else answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
            case [_, _, b"HTTP/1.0" | b"HTTP/1.1"]:
                return _response("405 Method Not Allowed", b"only GET and HEAD\n", "Allow: GET, HEAD\r\n")
        return _response("400 Bad Request", b"no HTTP/1.1 request\n")

    def _metrics(self) -> bytes:
        try:
            text = self._exposition(self._take())
        except (CrawlerError, FrontierError) as error:
            return _response("503 Service Unavailable", f"{error}\n".encode())
        except Exception as error:  # a defect: Prometheus shows that the scrape fails, and the crawl goes on
            log.exception("metrics cannot be read")
            return _response("500 Internal Server Error", f"{error!r}; see the crawl's log\n".encode())
        return _response("200 OK", text, kind=self._content_type)


def _response(status: str, body: bytes, more: str = "", kind: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + body
