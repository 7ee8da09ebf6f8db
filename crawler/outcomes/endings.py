"""Why a run ended, its exit code, and which of several errors is reported. Pure; the exit codes are in `errors`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, JournalFailed, StorageError
from anabranch.frontier.errors import (
    FormatMismatch,
    FrontierError,
    PolicyError,
    StoreDamaged,
    StoreFull,
    StoreInUse,
    StoreUnavailable,
    UnknownQueue,
    first_cause,
)

#: Errors that may end a run without being a defect of ours.
FORESEEABLE = (CrawlerError, StoreUnavailable, FormatMismatch, PolicyError)

#: Exit codes of the Frontier's foreseeable errors; the first match counts. Other errors are defects.
FRONTIER_EXITS: Mapping[type[FrontierError], ExitCode] = {
    StoreFull: ExitCode.DISK_FULL,
    StoreDamaged: ExitCode.BAD_ORDER,
    StoreUnavailable: ExitCode.STORE_OR_JOB_IN_USE,
    FormatMismatch: ExitCode.BAD_ORDER,
    PolicyError: ExitCode.BAD_ORDER,
    UnknownQueue: ExitCode.USAGE,
}


class WhyEnded(Enum):
    """Why a run ended; reports show the value."""

    FINISHED = "finished: nothing is queued"
    RETIRED = "all URLs left are in retired queues; raise total_budget and start the job again"
    PAGE_LIMIT = "stopped by the page limit, which the job keeps; a higher limit continues it (0: no limit)"
    TIME_LIMIT = "stopped by the time limit; start the job again to crawl for as long again"
    SIZE_LIMIT = "stopped by the byte limit, which the job keeps; a higher limit continues it (0: no limit)"
    MOSTLY_FAILED = "most URLs failed; see to the reason, then `anabranch retry` queues them again"
    ACCESS_REFUSED = "every seed refused access with 401/403/407; see to that, then begin another round"
    SIGNAL = "stopped by a signal; start the job again to resume"
    OPERATOR = (
        "stopped by the operator; start the job again to resume; if it is in a database, run `anabranch resume` first"
    )
    SERVICE_NEVER_THERE = "stopped: a service was never reached; start the job again when it is there"
    SERVICE_AWAY = "stopped: a service was away for too long; start the job again to resume"
    PROXY_REFUSED = "stopped: the proxy refuses the crawl; correct [fetch] proxy, then start the job again"
    LOGIN_REFUSED = "stopped: a login failed; correct the [[site]] with its login_page, then start the job again"
    OPERATOR_NOW = (
        "stopped at once by the operator; interrupted fetches are queued again; start the job again to resume; if it is in a "
        "database, run `anabranch resume` first"
    )


#: Endings of runs whose round is over. Others were interrupted: the next run goes on.
OF_ROUNDS = frozenset({
    WhyEnded.FINISHED, WhyEnded.RETIRED, WhyEnded.PAGE_LIMIT, WhyEnded.TIME_LIMIT, WhyEnded.SIZE_LIMIT,
    WhyEnded.MOSTLY_FAILED, WhyEnded.ACCESS_REFUSED,
})  # fmt: skip
#: Endings of runs in which failures dominate.
DOMINATED = frozenset({WhyEnded.MOSTLY_FAILED, WhyEnded.ACCESS_REFUSED})


def is_dominated(text: str) -> bool:
    """The text of an ending says that failures dominate. Pure."""
    return any(ending.value.partition(";")[0] in text for ending in DOMINATED)


def is_over(text: str) -> bool:
    """The text of an ending says that nothing was queued any more, or nearly so. Pure."""
    return text == WhyEnded.FINISHED.value or is_dominated(text)


def ending_text(ending: WhyEnded, *, lasts: bool, detail: str = "", verdict: WhyEnded | None = None) -> str:
    """The text for the end of a run; it promises no continuation if the queue does not last. `detail` names the cause.

    `verdict`: as `with_failures` judges the ending. Pure.
    """
    why, _, then = ending.value.partition(";")
    if verdict is not None and verdict in DOMINATED:
        before = "" if ending is WhyEnded.FINISHED else f"{why.partition(',')[0]}; "
        return before + (verdict.value if lasts else verdict.value.partition(";")[0])
    named = f"{why}: {detail}" if detail else why
    if lasts or ending is WhyEnded.FINISHED:
        return f"{named};{then}" if then else named
    if not detail:
        named = why.partition(",")[0]
    return f"{named}; its queue was in memory, so the job cannot be resumed"


#: Exit codes of runs that were asked to end, whatever is left.
ASKED_FOR: Mapping[WhyEnded, ExitCode] = {
    WhyEnded.SIGNAL: ExitCode.DRAINED,
    WhyEnded.OPERATOR: ExitCode.DRAINED,
    WhyEnded.OPERATOR_NOW: ExitCode.FORCED,
}


#: Exit codes of runs that a service has ended; nothing has failed by it.
SERVICE_EXITS: Mapping[WhyEnded, ExitCode] = {
    WhyEnded.SERVICE_NEVER_THERE: ExitCode.NO_SEED_ANSWERED,
    WhyEnded.SERVICE_AWAY: ExitCode.SERVICE_AWAY,
    WhyEnded.PROXY_REFUSED: ExitCode.BAD_ORDER,
    WhyEnded.LOGIN_REFUSED: ExitCode.BAD_ORDER,
}


def exit_code(ending: WhyEnded, seed_statuses: Sequence[int]) -> ExitCode:
    """The exit code of a run that ended in order; a seed that was not tried has the status 0. Pure."""
    if ending in ASKED_FOR:
        return ASKED_FOR[ending]
    if ending in SERVICE_EXITS:
        return SERVICE_EXITS[ending]
    if seed_statuses and all(seed_statuses) and max(seed_statuses) < 0:
        return ExitCode.NO_SEED_ANSWERED
    return ExitCode.MOSTLY_FAILED if ending in DOMINATED else ExitCode.DONE


#: Answers of a server, or of a proxy, that wants credentials or lets nobody in.
REFUSALS = frozenset({401, 403, 407})


def mostly_failed(done: int, failed: int) -> bool:
    """At least half of the URLs that were tried have failed. Pure."""
    return failed > 0 and 2 * failed >= done + failed


def with_failures(ending: WhyEnded, done: int, failed: int, seed_statuses: Sequence[int]) -> WhyEnded:
    """The ending of a run, or another one if failures dominate in its job and the exit code would be 0. Pure.

    `done` and `failed` are the job's tried URLs now, so a successful retry brings 0; what was excluded was not tried.
    """
    if exit_code(ending, seed_statuses) is not ExitCode.DONE:
        return ending
    if seed_statuses and REFUSALS.issuperset(seed_statuses):
        return WhyEnded.ACCESS_REFUSED
    return WhyEnded.MOSTLY_FAILED if mostly_failed(done, failed) else ending


#: Reasons of failures that are shown.
REASONS = 3


def biggest(failures: Mapping[int, int]) -> list[tuple[int, int]]:
    """The statuses that most failures have, with their numbers. Pure."""
    return sorted(failures.items(), key=lambda one: (-one[1], one[0]))[:REASONS]


def failure_code(error: Exception) -> ExitCode:
    """The exit code of an error; one that is in no table counts as that of a store or file. Pure."""
    if isinstance(error, CrawlerError):
        return error.exit_code
    return next(
        (code for kind, code in FRONTIER_EXITS.items() if isinstance(error, kind)), ExitCode.STORE_OR_JOB_IN_USE
    )


def first_failure(error: Exception) -> Exception:
    """The first of the failures of files and stores that led to this one. It counts, because it may have caused the later ones.

    Any other error is returned as it is: a command may try one way, and then say more of another. Pure.
    """
    return first_cause(error, _is_failure) if _is_failure(error) else error


def _is_failure(error: BaseException) -> bool:
    return isinstance(error, StorageError | JournalFailed | StoreUnavailable) and not isinstance(error, StoreInUse)


def first_of(group: BaseExceptionGroup[Exception]) -> Exception:
    """The first single exception of a group."""
    error = group.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error
