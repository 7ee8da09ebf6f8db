"""How a run ends: why, with which exit code, and which of several errors is told. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from crawler.errors import CrawlerError
from crawler.exits import ExitCode
from crawler.reports import SeedFact
from frontier.errors import FormatMismatch, PolicyError, StoreUnavailable

#: What may end a run without being a defect of ours.
FORESEEABLE = (CrawlerError, StoreUnavailable, FormatMismatch, PolicyError)


class WhyEnded(Enum):
    """Why a run ended; the value is said in the reports."""

    FINISHED = "finished: nothing is queued"
    PAGE_LIMIT = "stopped by --limit; the same command with a higher limit goes on"
    TIME_LIMIT = "stopped by --time-limit; the same command goes on"
    SIGNAL = "stopped by a signal; the same command goes on"


def exit_code(ending: WhyEnded, seeds: Sequence[SeedFact]) -> ExitCode:
    """The exit code of a run that ended in order. Pure."""
    if ending is WhyEnded.SIGNAL:
        return ExitCode.DRAINED
    tried = [seed for seed in seeds if seed.status]
    if seeds and len(tried) == len(seeds) and not any(seed.is_answered for seed in tried):
        return ExitCode.NO_SEED_ANSWERED
    return ExitCode.DONE


def first_of(group: BaseExceptionGroup[Exception]) -> Exception:
    """The first single exception of a group."""
    error = group.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error
