"""Errors of files that cannot be written, and their meaning."""

from __future__ import annotations

import errno
import os

import pytest

from anabranch.frontier.errors import (
    FrontierError,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    errors_after,
    first_cause,
    unwritable,
)


def test_a_file_that_cannot_be_written_is_a_full_disk() -> None:
    """The system's words and the file say which."""
    error = unwritable("the filter", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "seen/24"))
    assert type(error) is StoreFull
    assert str(error) == "the filter cannot be written: No space left on device (seen/24)"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_no_full_disk(number: int) -> None:
    """Space is not what the operator must make; the line says what is."""
    error = unwritable("the filter", OSError(number, "Too many open files"))
    assert type(error) is StoreUnavailable
    assert str(error) == (
        "the filter cannot be written: Too many open files; raise the limit of open files (ulimit -n) and run again"
    )


def test_a_folder_that_has_the_name_of_a_file_is_damage() -> None:
    """No room would help."""
    error = unwritable("f.db", OSError(errno.EISDIR, os.strerror(errno.EISDIR), "f.db.seal"))
    assert type(error) is StoreDamaged


def test_a_failing_disk_is_no_full_disk() -> None:
    """No room would help, either, and nothing is damaged."""
    error = unwritable("the filter", OSError(errno.EIO, os.strerror(errno.EIO), "seen/24"))
    assert type(error) is StoreUnavailable
    assert str(error) == "the filter cannot be written: Input/output error (seen/24); look at the disk and run again"


def failure_of(file: str, before: BaseException | None = None) -> OSError:
    failure = OSError(errno.EIO, os.strerror(errno.EIO), file)
    failure.__context__ = before
    return failure


def test_the_first_file_that_failed_is_named() -> None:
    """Not the one whose closing failed because of the same disk; nor a file that was looked for and not found."""
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "absent")
    assert "(first)" in str(unwritable("the filter", failure_of("second", failure_of("first", missing))))


def is_ours(error: BaseException) -> bool:
    return isinstance(error, FrontierError)


def test_an_error_counts_that_was_there_before_another_one() -> None:
    """Parts are closed when something has failed, and fail, too; what is no error of the operator's does not count."""
    first, second = StoreFull("first"), StoreUnavailable("second")
    first.__context__, second.__context__ = KeyError(), first
    assert first_cause(second, is_ours) is first


def test_the_same_error_in_better_words_counts() -> None:
    """It was raised from the other one."""
    plain, better, best = failure_of("file"), StoreFull("of the store"), StoreUnavailable("of the crawl")
    better.__cause__ = better.__context__ = plain
    best.__cause__ = best.__context__ = better
    assert first_cause(best, is_ours) is best
    plain.__context__ = first = StoreFull("first")
    assert first_cause(best, is_ours) is first


def test_an_error_that_is_hidden_on_purpose_does_not_count() -> None:
    """`from None`."""
    error = StoreUnavailable("what matters")
    error.__context__, error.__suppress_context__ = StoreFull("an attempt"), True
    assert first_cause(error, is_ours) is error


@pytest.mark.parametrize("has_cause", [False, True])
def test_an_error_of_another_thread_comes_after_one_that_was_handled_already(has_cause: bool) -> None:
    """Python does not chain these."""
    first, second = StoreFull("first"), StoreUnavailable("second")
    if has_cause:
        second.__cause__ = failure_of("file")
    with pytest.raises(StoreUnavailable) as raised, errors_after(first):
        raise second
    assert raised.value is second
    assert first_cause(second, is_ours) is first
    with pytest.raises(StoreUnavailable), errors_after(second):
        raise second
    with pytest.raises(StoreUnavailable), errors_after(None):
        raise second
