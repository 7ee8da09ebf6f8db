"""What is compared: runs of several policies on one web, and how many workers each of them could keep busy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.crawler.lab.policies.series import Busy, Means, RunResult, compared_s, means

#: The set-ups: what the published experiment had; ours; no delays at all.
PAPER, POLITE, OFF = "paper", "polite", "off"
POLITENESSES = (PAPER, POLITE, OFF)


#: A process that takes more than this share of a core has no time to spare.
MOST_BUSY = 0.8
#: Nor a crawler that was once later than this, or than the median latency, when a second began: a fetch takes hardly longer.
LATE_CRAWLER_S = 0.1
#: Nor a server that was once later than this with one of some ten thousand answers.
LATE_SERVER_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all runs of a comparison have in common."""

    web: str  #: what was crawled, in two or three words
    size: str  #: of the web, in words
    hosts: int  #: 0: nobody knows
    workers: int
    politeness: str  #: one of `POLITENESSES`
    connections: int  #: slots of a host's gate, under `polite`
    delays: str  #: in words, with how they are scaled
    machine: str = ""  #: how busy the machine was besides, in words
    latency_s: float = 0.0  #: median, of a made web; 0: nobody knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Policies on one web."""

    setting: Setting
    runs: tuple[RunResult, ...]  #: one for each policy, in the order in which they were named
    simulated: tuple[RunResult, ...] = ()  #: of the same policies, drawn dashed beside the others


class Bound(NamedTuple):
    """How many fetches there can be at once, if nothing has to rest."""

    fetches: int
    words: str  #: what bounds them


def bound(setting: Setting, run: RunResult) -> Bound:
    """A worker fetches one URL, a queue has one in flight, and under `polite` a host has as many as its gate has slots.

    Where nobody knows the hosts, workers and queues are all that is known to bound them.
    """
    bounds = [
        Bound(setting.workers, _many(setting.workers, "worker")),
        Bound(run.queue_lengths.queues, _many(run.queue_lengths.queues, "queue")),
    ]
    if setting.politeness == POLITE and setting.hosts:
        slots = _many(setting.connections, "slot")
        bounds.append(Bound(setting.hosts * setting.connections, f"{_many(setting.hosts, 'host')} with {slots} each"))
    return min(bounds)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def is_crawler_limit(setting: Setting, run: RunResult) -> bool:
    """The crawler itself was the limit: its workers waited for the processor, too."""
    return _has_no_time(run.crawler, max(LATE_CRAWLER_S, setting.latency_s))


def is_server_limit(run: RunResult) -> bool:
    """The server may have been the limit."""
    return _has_no_time(run.server, LATE_SERVER_S)


def _has_no_time(process: Busy | None, late_s: float) -> bool:
    return process is not None and (process.share > MOST_BUSY or process.longest_lag_s > late_s)


def ranked(runs: Sequence[RunResult]) -> list[tuple[RunResult, Means]]:
    """The runs with their means over the interval that they are compared over, most active workers first."""
    until_s = compared_s(runs)
    return sorted(((run, means(run, until_s)) for run in runs), key=lambda ranked: -ranked[1].active)
