"""What is compared: runs of several policies on one web, and how many workers each of them could keep busy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crawler.lab.policies.series import Busy, Means, RunResult, compared_s, means

#: The set-ups: what the published experiment had; ours; no delays at all.
PAPER, POLITE, OFF = "paper", "polite", "off"
POLITENESSES = (PAPER, POLITE, OFF)


#: A process that takes more than this share of a core, or is later than this, has no time to spare.
MOST_BUSY = 0.8
LONGEST_LAG_S = 0.25


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Policies on one web."""

    setting: Setting
    runs: tuple[RunResult, ...]  #: one for each policy, in the order in which they were named
    simulated: tuple[RunResult, ...] = ()  #: of the same policies, drawn dashed beside the others


def possible(setting: Setting, run: RunResult) -> int:
    """How many workers could hold a URL at once, if none of them had to rest.

    A queue has one URL in flight, and under `polite` a host has as many as its gate has slots.
    """
    most = min(setting.workers, run.queue_lengths.queues)
    if setting.politeness == POLITE and setting.hosts:
        most = min(most, setting.hosts * setting.connections)
    return most


def has_no_time(process: Busy | None) -> bool:
    """The process was the limit: busy all the time, or its event loop came late."""
    return process is not None and (process.share > MOST_BUSY or process.longest_lag_s > LONGEST_LAG_S)


def ranked(runs: Sequence[RunResult]) -> list[tuple[RunResult, Means]]:
    """The runs with their means over the interval that they are compared over, most active workers first."""
    until_s = compared_s(runs)
    return sorted(((run, means(run, until_s)) for run in runs), key=lambda ranked: -ranked[1].active)
