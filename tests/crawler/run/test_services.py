"""Services over a real Frontier in virtual time: outages of minutes and hours cost milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.failures import NAME_SERVERS, FetchError, NameTimeout, ProxyRefused, ServiceAway
from anabranch.crawler.processors.disposition import decide
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.run.run_state import Phase, RunState
from anabranch.crawler.run.service_gates import LONGEST_S, ServiceGates
from anabranch.crawler.run.services import Service, Services
from anabranch.crawler.run.workers import PageLimit, WorkerPool
from anabranch.crawler.visit import Step, Visit
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.records import Candidate, GateKey, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness
from tests.crawler.builder import memory_frontier, response
from tests.frontier.builder import START_S

HOSTS = [f"h{number}.test" for number in range(20)]
URLS = [f"http://{host}/{page}" for host in HOSTS for page in range(30)]
REST_S = 1.0
FETCH_S = 0.25


class _Idle(selectors.SelectSelector):
    """Waits for nothing: the time of the loop moves on instead."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now_s += timeout or 0.0
        return super().select(0 if timeout is not None else None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer."""

    def __init__(self) -> None:
        self.idle = _Idle()
        super().__init__(self.idle)

    def time(self) -> float:
        return self.idle.now_s


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def now_s() -> float:
    return START_S + asyncio.get_running_loop().time()
