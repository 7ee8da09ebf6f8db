"""What a file that cannot be written means."""

from __future__ import annotations

import errno
import os

import pytest

from anabranch.frontier.errors import StoreDamaged, StoreFull, StoreUnavailable, unwritable


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
