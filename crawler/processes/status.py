"""How a job of several processes is doing at this moment: the sum of what its shares said last."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import structlog

from anabranch.crawler.processes.limits import JobLimits
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.report.progress import CrawlSnapshot, progress_line
from anabranch.crawler.run.run_state import Cause, Phase
from anabranch.crawler.run.status import status_facts
from anabranch.crawler.run.summing import summed_snapshot
from anabranch.crawler.run.verbs import Facts
from anabranch.frontier.inspect.statistics import FrontierCounts

log = structlog.get_logger(__name__)

#: Pauses that the parent orders. What a share says of them is as old as its last snapshot.
_ORDERED = frozenset(cause.value for cause in Cause if cause is not Cause.DISK)
_COUNTS = ("pending", "done", "failed", "disregarded", "retired")
#: What a run counts, and what a share that is open has of it durably.
_OF_RUN: Final = MappingProxyType(
    {"pages": "done", "failed": "failed", "excluded": "disregarded", "fetched_bytes": "bytes"}
)


class JobStatus:
    """Takes snapshots; each costs O(shares)."""

    def __init__(self, shares: Shares, limits: JobLimits, job: str, clock: Callable[[], float]) -> None:
        self._shares = shares
        self._limits = limits
        self.job = job  #: its name
        self._clock = clock
        self._started_s = clock()
        self._said: dict[int, Mapping[str, Any]] = {}
        self._begun: dict[int, Mapping[str, Any]] = {}
        self._reopened: dict[int, Mapping[str, Any]] = {}
        self.died: Counter[str] = Counter()  #: what processes of this run did that have died, as far as it is durable

    def begin(self, share: int, facts: Mapping[str, Any]) -> None:
        """A share is open, and has this. If it was before, what it has more is the work of a process that died."""
        self._begun.setdefault(share, facts)
        before = self._reopened.get(share, facts)
        self._reopened[share] = facts
        self._said.pop(share, None)
        self.died.update({name: facts[has] - before[has] for name, has in _OF_RUN.items()})

    def take(self, share: int, facts: Mapping[str, Any]) -> None:
        """A share's snapshot."""
        self._said[share] = facts

    @property
    def counts(self) -> FrontierCounts:
        """What the job had when its shares were opened."""
        sums = {name: sum(facts[name] for facts in self._begun.values()) for name in _COUNTS}
        return FrontierCounts(**sums, waiting=0, in_flight=0, queues={}, gates=0)

    def snapshot(self) -> CrawlSnapshot:
        """All shares together."""
        now = summed_snapshot(list(self._said.values()), self.job, self._clock() - self._started_s)
        counts = {name: getattr(now, name) + self.died[name] for name in _OF_RUN}
        return now._replace(**counts, paused=self.paused)

    @property
    def paused(self) -> str:
        """Why no fetch begins; empty if none is kept from it."""
        said = (_own_pause(share["paused"]) for share in self._said.values())
        return self._limits.words or next(filter(None, said), "")

    @property
    def phase(self) -> Phase:
        """How far the run is."""
        if self._shares.ending is not None:
            return Phase.DRAINING
        if not self._said:
            return Phase.STARTING
        return Phase.PAUSED if self.paused else Phase.RUNNING

    def facts(self) -> Facts:
        """The same as `status --json` shows it, with the processes."""
        now = self.snapshot()
        pids = {str(share): child.pid for share, child in sorted(self._shares.ready.items())}
        return status_facts(now, self.phase.value, progress_line(now), pid=os.getpid(), processes=pids)

    def log(self) -> None:
        """Say it in the log: somebody asks by a signal."""
        facts = self.facts()
        log.warning("status", **{name: facts[name] for name in ("phase", "paused", "pid", "line")})


def _own_pause(words: str) -> str:
    """Why a share has paused by itself: there is too little room on its disk."""
    return "; ".join(word for word in words.split("; ") if word not in _ORDERED)
