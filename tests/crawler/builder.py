"""Leases, answers and visits as plain data, and a real Frontier in memory behind its asyncio face."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.archive.sink import JournalEntry, JournalSink
from anabranch.crawler.fetch.response import Body, Cut, Response
from anabranch.crawler.job.journal import Journal
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.visit import ChainDecision, Visit
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.records import Candidate, GateKey, Lease, QueueKey
from anabranch.frontier.scheduling.gates import Backoff, Politeness

#: 2026-01-01T00:00:00Z.
START_S = 1_767_225_600.0
#: When a fetch that began at START_S ended.
END_S = START_S + 0.25

#: Many slots, and rests of nothing at all.
HASTE = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=1000)

#: A host in trouble is left alone only as long as it asks for.
NO_BACKOFF = Backoff(base_s=0.0, cap_s=0.0)


def clock() -> float:
    """Time stands still, half a second after the last fetch began."""
    return START_S + 0.5


def lease(url: str = "http://a.test/", *, hops: str = "", via: str | None = None, attempts: int = 0) -> Lease:
    """A lease that no Frontier handed out."""
    return Lease(
        ordinal=1,
        url=url,
        key=url.encode(),
        hops=hops,
        via=via,
        attempts=attempts,
        payload=None,
        queue=QueueKey("queue"),
        gate=GateKey("a.test"),
        since_s=START_S,
    )


def response(status: int = 200, body: bytes = b"", *, cuts: tuple[Cut, ...] = (), **headers: str) -> Response:
    """An answer; `Retry_After="7"` is the header Retry-After."""
    named = CIMultiDict((name.replace("_", "-"), value) for name, value in headers.items())
    return Response(
        url="http://a.test/",
        status=status,
        reason="",
        version="1.1",
        headers=CIMultiDictProxy(named),
        raw_headers=tuple((name.encode(), value.encode()) for name, value in named.items()),
        sent=lambda: b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        body=Body.of(body),
        cuts=cuts,
        address="127.0.0.1",
        start_s=START_S,
        end_s=END_S,
    )


def visit(
    *,
    url: str = "http://a.test/",
    hops: str = "",
    attempts: int = 0,
    decision: ChainDecision = ChainDecision.NONE,
    answer: Response | None = None,
    failure: FetchError | None = None,
    broken: Exception | None = None,
) -> Visit:
    """A visit as a chain may leave it."""
    return Visit(
        lease(url, hops=hops, attempts=attempts), 1, decision=decision, response=answer, failure=failure, broken=broken
    )


@asynccontextmanager
async def memory_frontier(*urls: str, politeness: Politeness = HASTE) -> AsyncIterator[AsyncFrontier]:
    """A Frontier that forgets, with these URLs queued."""
    order = FrontierOrder(policy="host", politeness=politeness, backoff=NO_BACKOFF)
    async with AsyncFrontier(lambda on_change: open_frontier(None, order, on_change=on_change)) as frontier:
        frontier.schedule([Candidate(url=url) for url in urls])
        yield frontier


class HeldJournal(Journal):
    """A journal that writes when the test lets it."""

    def __init__(self, *sinks: JournalSink) -> None:
        super().__init__(*sinks)
        self.is_asked = asyncio.Event()
        self.may_write = asyncio.Event()

    async def write(self, entry: JournalEntry) -> None:
        self.is_asked.set()
        await self.may_write.wait()
        await super().write(entry)


@contextmanager
def timers_set() -> Iterator[list[asyncio.TimerHandle]]:
    """The timers that `call_later` sets inside; a loop in C shows none of those that it has."""
    loop, made = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def noted(*arguments: Any, **named: Any) -> asyncio.TimerHandle:
        made.append(call_later(*arguments, **named))
        return made[-1]

    loop.call_later = noted  # type: ignore[method-assign]
    try:
        yield made
    finally:
        del loop.call_later


async def settle() -> None:
    """Let everything run that can run without time."""
    for _ in range(10):
        await asyncio.sleep(0)


async def until(happened: Callable[[], object], wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Come back when it has happened; the test's time limit ends a wait for nothing."""
    while not happened():
        await wait(0.001)
