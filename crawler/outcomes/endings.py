"""How a run ends: why, with which exit code, and which of several errors is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType

from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.crawler.reporting.reports import SeedFact
from anabranch.frontier.errors import (
    FormatMismatch,
    FrontierError,
    PolicyError,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    UnknownQueue,
)

#: What may end a run without being a defect of ours.
FORESEEABLE = (CrawlerError, StoreUnavailable, FormatMismatch, PolicyError)

#: What a foreseeable error of the Frontier means for the caller; the first that fits counts. Others are defects.
FRONTIER_EXITS: Mapping[type[FrontierError], ExitCode] = MappingProxyType(
    {
        StoreFull: ExitCode.DISK_FULL,
        StoreDamaged: ExitCode.BAD_ORDER,
        StoreUnavailable: ExitCode.STORE_OR_JOB_IN_USE,
        FormatMismatch: ExitCode.BAD_ORDER,
        PolicyError: ExitCode.BAD_ORDER,
        UnknownQueue: ExitCode.USAGE,
    }
)


class WhyEnded(Enum):
    """Why a run ended; the value is said in the reports."""

    FINISHED = "finished: nothing is queued"
    RETIRED = "all that is left stands in retired queues; raise total_budget, and the same command goes on"
    PAGE_LIMIT = "stopped by --limit, which the job keeps; it goes on with a higher one (0: no limit)"
    TIME_LIMIT = "stopped by --time-limit; the same command goes on for as long again"
    SIZE_LIMIT = "stopped by --size-limit, which the job keeps; it goes on with a higher one (0: no limit)"
    SIGNAL = "stopped by a signal; the same command goes on"
    OPERATOR = "stopped by the operator; the same command goes on"
    OPERATOR_NOW = "stopped at once by the operator; what was being fetched is queued again, the same command goes on"


def told(ending: WhyEnded, *, lasts: bool) -> str:
    """Why a run ended, in words. A queue that does not last beyond the run leaves nothing to go on with. Pure."""
    if lasts or ending is WhyEnded.FINISHED:
        return ending.value
    why = ending.value.partition(";")[0].partition(",")[0]
    return f"{why}; its queue was in memory, so the job cannot go on"


#: Somebody wanted the run to end, whatever is left: the exit code says so.
ASKED_FOR: Mapping[WhyEnded, ExitCode] = MappingProxyType(
    {
        WhyEnded.SIGNAL: ExitCode.DRAINED,
        WhyEnded.OPERATOR: ExitCode.DRAINED,
        WhyEnded.OPERATOR_NOW: ExitCode.FORCED,
    }
)


def exit_code(ending: WhyEnded, seeds: Sequence[SeedFact]) -> ExitCode:
    """The exit code of a run that ended in order. Pure."""
    if ending in ASKED_FOR:
        return ASKED_FOR[ending]
    tried = [seed for seed in seeds if seed.status]
    if seeds and len(tried) == len(seeds) and not any(seed.is_answered for seed in tried):
        return ExitCode.NO_SEED_ANSWERED
    return ExitCode.DONE


def failure_code(error: Exception) -> ExitCode:
    """What an error means for the caller; whatever is not in the tables is told as a store's or a file's. Pure."""
    if isinstance(error, CrawlerError):
        return error.exit_code
    return next(
        (code for kind, code in FRONTIER_EXITS.items() if isinstance(error, kind)), ExitCode.STORE_OR_JOB_IN_USE
    )


def first_of(group: BaseExceptionGroup[Exception]) -> Exception:
    """The first single exception of a group."""
    error = group.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error
