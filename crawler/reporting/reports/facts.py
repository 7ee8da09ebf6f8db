"""What the reports of a job are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.crawler.jobs.rounds import FIRST, Round
from anabranch.crawler.reporting.account_reading import AccountsView
from anabranch.crawler.reporting.reports.seeds import SeedFact
from anabranch.crawler.reporting.statistics import StepTime, WorkerFact
from anabranch.frontier.operating.explain import QueueView
from anabranch.frontier.operating.statistics import FrontierStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One moment of a job, running or not. What nobody asked for is empty."""

    name: str
    status: str  #: why it ended, or that it runs, in words
    now_s: float  #: epoch seconds
    accounts: AccountsView
    round: Round = FIRST  #: of the job's rounds
    seeds: Sequence[SeedFact] = ()
    frontier: FrontierStatistics | None = None
    longest: Sequence[QueueView] = ()  #: the longest queues
    queues: Sequence[QueueView] = ()  #: queues that hold URLs, in no order
    workers: Sequence[WorkerFact] = ()  #: of this run
    steps: Mapping[str, StepTime] = field(default_factory=dict)  #: time by processor, of this run
