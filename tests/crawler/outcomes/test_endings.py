"""How a run ends."""

import pytest

from anabranch.crawler.outcomes.endings import WhyEnded, ending_text, exit_code, failure_code, first_of
from anabranch.crawler.outcomes.errors import ExitCode, JournalFull, UsageError
from anabranch.frontier.errors import FormatMismatch, PolicyError, StoreFull, StoreInUse, UnknownQueue


def test_the_first_single_error_of_a_group_is_found_however_deep_it_lies() -> None:
    """Groups nest."""
    first = JournalFull("first")
    assert first_of(ExceptionGroup("", [ExceptionGroup("", [first]), JournalFull("second")])) is first
    assert first_of(ExceptionGroup("", [first, JournalFull("second")])) is first


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("ending", WhyEnded)
def test_an_ending_names_no_flag(ending) -> None:
    """The console shows it, too."""
    assert "--" not in ending.value


@pytest.mark.parametrize("ending", WhyEnded)
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
