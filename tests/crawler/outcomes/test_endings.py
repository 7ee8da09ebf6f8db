"""How a run ends."""

import pytest

from anabranch.crawler.outcomes.endings import (
    WhyEnded,
    biggest,
    ending_text,
    exit_code,
    failure_code,
    first_failure,
    first_of,
    is_over,
    with_failures,
)
from anabranch.crawler.outcomes.errors import ExitCode, JournalFull, UsageError
from anabranch.frontier.errors import FormatMismatch, PolicyError, StoreFull, StoreInUse, UnknownQueue
from tests.rows import each_row


def test_the_first_single_error_of_a_group_is_found_however_deep_it_lies() -> None:
    """Groups nest."""
    first = JournalFull("first")
    assert first_of(ExceptionGroup("", [ExceptionGroup("", [first]), JournalFull("second")])) is first
    assert first_of(ExceptionGroup("", [first, JournalFull("second")])) is first


def test_of_errors_that_follow_each_other_the_first_failure_one_is_reported() -> None:
    """Closing the filter failed by the disk that the log had found full; a defect in between says nothing to an operator."""
    first, defect, last = JournalFull("first"), KeyError("odd"), StoreFull("last")
    defect.__context__, last.__context__ = first, defect
    assert first_failure(last) is first
    assert first_failure(only := UsageError("x")) is only


def test_an_attempt_that_failed_before_does_not_count() -> None:
    """A command asks a running crawl first, then the job's files."""
    for attempt, then in (
        (UsageError("no worker is at work"), StoreFull("x")),
        (StoreInUse("x"), StoreFull("x")),
        (StoreFull("x"), UsageError("better")),
    ):
        then.__context__ = attempt
        assert first_failure(then) is then


@each_row(
    ("ending", "statuses", "code"),
    [
        (WhyEnded.FINISHED, [200], ExitCode.DONE),
        (WhyEnded.FINISHED, [404, -1], ExitCode.DONE),
        (WhyEnded.FINISHED, [-1, -5001], ExitCode.NO_SEED_ANSWERED),
        (WhyEnded.FINISHED, [-1, 0], ExitCode.DONE),  # one was not tried yet
        (WhyEnded.FINISHED, [], ExitCode.DONE),
        (WhyEnded.PAGE_LIMIT, [200], ExitCode.DONE),
        (WhyEnded.TIME_LIMIT, [200, 0], ExitCode.DONE),
        (WhyEnded.TIME_LIMIT, [-1], ExitCode.NO_SEED_ANSWERED),
        (WhyEnded.SIGNAL, [200], ExitCode.DRAINED),
        (WhyEnded.SIGNAL, [-1], ExitCode.DRAINED),
    ],
)
def test_the_exit_code_tells_how_it_ended(ending, statuses, code) -> None:
    """A signal weighs most; no answer at all is said when every seed was tried."""
    assert exit_code(ending, statuses) is code


@each_row(
    ("ending", "done", "failed", "seeds", "verdict", "code"),
    [
        # At least half of what was tried.
        (WhyEnded.FINISHED, 5, 5, [200], WhyEnded.MOSTLY_FAILED, ExitCode.MOSTLY_FAILED),
        (WhyEnded.FINISHED, 6, 5, [200], WhyEnded.FINISHED, ExitCode.DONE),
        (WhyEnded.FINISHED, 0, 1, [200], WhyEnded.MOSTLY_FAILED, ExitCode.MOSTLY_FAILED),
        (WhyEnded.FINISHED, 1, 0, [200], WhyEnded.FINISHED, ExitCode.DONE),
        # Nothing was tried: all is excluded, or in retired queues.
        (WhyEnded.FINISHED, 0, 0, [-9998, 200], WhyEnded.FINISHED, ExitCode.DONE),
        (WhyEnded.RETIRED, 0, 0, [0], WhyEnded.RETIRED, ExitCode.DONE),
        # A limit would have been 0, too.
        (WhyEnded.PAGE_LIMIT, 10, 90, [200, 0], WhyEnded.MOSTLY_FAILED, ExitCode.MOSTLY_FAILED),
        (WhyEnded.TIME_LIMIT, 10, 9, [200], WhyEnded.TIME_LIMIT, ExitCode.DONE),
        (WhyEnded.SIZE_LIMIT, 1, 1, [200], WhyEnded.MOSTLY_FAILED, ExitCode.MOSTLY_FAILED),
        (WhyEnded.RETIRED, 1, 2, [200], WhyEnded.MOSTLY_FAILED, ExitCode.MOSTLY_FAILED),
        # Every seed refused access: few pages, no failure.
        (WhyEnded.FINISHED, 2, 0, [401, 403], WhyEnded.ACCESS_REFUSED, ExitCode.MOSTLY_FAILED),
        (WhyEnded.FINISHED, 1, 0, [407], WhyEnded.ACCESS_REFUSED, ExitCode.MOSTLY_FAILED),
        (WhyEnded.FINISHED, 2, 0, [403, 200], WhyEnded.FINISHED, ExitCode.DONE),
        (WhyEnded.FINISHED, 1, 1, [403, -1], WhyEnded.MOSTLY_FAILED, ExitCode.MOSTLY_FAILED),
        (WhyEnded.PAGE_LIMIT, 1, 0, [403, 0], WhyEnded.PAGE_LIMIT, ExitCode.DONE),
        (WhyEnded.FINISHED, 9, 0, [], WhyEnded.FINISHED, ExitCode.DONE),
        # No seed got an answer: that is 5, whatever else failed.
        (WhyEnded.FINISHED, 0, 9, [-1, -2], WhyEnded.FINISHED, ExitCode.NO_SEED_ANSWERED),
        # Signals and stops keep theirs.
        (WhyEnded.SIGNAL, 0, 9, [200], WhyEnded.SIGNAL, ExitCode.DRAINED),
        (WhyEnded.OPERATOR, 0, 9, [403], WhyEnded.OPERATOR, ExitCode.DRAINED),
        (WhyEnded.OPERATOR_NOW, 0, 9, [200], WhyEnded.OPERATOR_NOW, ExitCode.FORCED),
    ],
)
def test_failures_that_dominate_are_an_ending_of_their_own(ending, done, failed, seeds, verdict, code) -> None:
    """Only where the exit code would be 0."""
    assert with_failures(ending, done, failed, seeds) is verdict
    assert exit_code(with_failures(ending, done, failed, seeds), seeds) is code


@pytest.mark.parametrize(
    ("ending", "lasts", "words"),
    [
        (WhyEnded.FINISHED, True, WhyEnded.MOSTLY_FAILED.value),
        (WhyEnded.PAGE_LIMIT, True, f"stopped by the page limit; {WhyEnded.MOSTLY_FAILED.value}"),
        (WhyEnded.FINISHED, False, "most URLs failed"),
    ],
)
def test_a_limit_is_named_too_where_failures_dominate(ending, lasts, words) -> None:
    """A queue in memory is gone, so nothing can be queued again."""
    assert ending_text(ending, lasts=lasts, verdict=WhyEnded.MOSTLY_FAILED) == words
    assert ending_text(WhyEnded.PAGE_LIMIT, lasts=True, verdict=WhyEnded.PAGE_LIMIT) == WhyEnded.PAGE_LIMIT.value
    assert (is_over(words), is_over(WhyEnded.SIGNAL.value), is_over("")) == (True, False, False)


def test_the_three_biggest_reasons_come_first() -> None:
    """Among equal numbers, the smaller status comes first."""
    assert biggest({-1: 5, -2: 9, 503: 5, -4: 1}) == [(-2, 9), (-1, 5), (503, 5)]


@each_row(
    ("error", "code"),
    [
        (UsageError("x"), ExitCode.USAGE),
        (JournalFull("x"), ExitCode.DISK_FULL),
        (StoreFull("x"), ExitCode.DISK_FULL),
        (StoreInUse("x"), ExitCode.STORE_OR_JOB_IN_USE),
        (FormatMismatch("x"), ExitCode.BAD_ORDER),
        (PolicyError("x"), ExitCode.BAD_ORDER),
        (UnknownQueue("x"), ExitCode.USAGE),
    ],
)
def test_an_error_of_any_room_has_its_exit_code(error, code) -> None:
    """The most special kind counts: a full disk is no store that failed somehow."""
    assert failure_code(error) is code


@each_row("ending", WhyEnded)
def test_an_ending_names_no_flag(ending) -> None:
    """The console shows it, too."""
    assert "--" not in ending.value


@each_row("ending", WhyEnded)
def test_a_run_whose_queue_is_gone_promises_nothing(ending) -> None:
    """It says why the run ended, and not how to resume it."""
    words = ending_text(ending, lasts=False)
    if ending is WhyEnded.FINISHED:
        assert words == ending.value
        return
    why, gone = words.split("; ")
    assert ending.value.startswith(why)
    assert gone == "its queue was in memory, so the job cannot be resumed"
    assert not any(promise in why for promise in ("again", "resume", "continue", "keeps"))
    assert ending_text(ending, lasts=True) == ending.value


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (WhyEnded.SERVICE_NEVER_THERE, ExitCode.NO_SEED_ANSWERED),
        (WhyEnded.SERVICE_AWAY, ExitCode.SERVICE_AWAY),
        (WhyEnded.PROXY_REFUSED, ExitCode.BAD_ORDER),
    ],
)
def test_a_run_that_a_service_has_ended_has_a_code_of_its_own(ending: WhyEnded, code: ExitCode) -> None:
    """Whatever its seeds answered."""
    assert {exit_code(ending, seeds) for seeds in ([], [200], [-2], [0])} == {code}
    assert "; its queue was in memory" in ending_text(ending, lasts=False, detail="x")
    assert ": x" in ending_text(ending, lasts=False, detail="x")
