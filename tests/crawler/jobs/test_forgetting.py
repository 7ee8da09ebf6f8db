"""Jobs whose queue is in memory are known by a mark, and stay as they ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.jobs.forgetting import FORGETS_MARK, forgets, is_finished, note_forgetting
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.outcomes.errors import StorageError


def test_the_mark_is_made_with_its_folder_and_stands(tmp_path: Path) -> None:
    """Made twice it is the same."""
    state = tmp_path / "job" / "state"
    assert not forgets(state)
    note_forgetting(state)
    note_forgetting(state)
    assert forgets(state)


def test_a_mark_that_cannot_be_made_is_told_as_a_file(tmp_path: Path) -> None:
    """Nothing may be crawled then: the next run would take the job for one to go on with."""
    (tmp_path / "state").touch()
    with pytest.raises(StorageError, match="state"):
        note_forgetting(tmp_path / "state")


@pytest.mark.parametrize(("in_memory", "stays"), [(True, True), (False, False)])
def test_opening_such_a_job_does_not_take_back_that_it_finished(tmp_path: Path, in_memory: bool, stays: bool) -> None:
    """Nothing in it begins again; of any other job an opening does."""
    with JobFolder.open(tmp_path / "job") as job:
        if in_memory:
            note_forgetting(job.state)
        job.mark_finished()
    JobFolder.open(tmp_path / "job").close()
    assert is_finished(job.state) is stays


@pytest.mark.parametrize("how", ["fresh", "again"])
def test_a_job_that_begins_anew_has_no_mark(tmp_path: Path, how: str) -> None:
    """Neither that its queue is in memory, nor that it is finished."""
    with JobFolder.open(tmp_path / "job") as job:
        note_forgetting(job.state)
        job.mark_finished()
    JobFolder.open(tmp_path / "job", delete_old=how == "fresh", again=how == "again", even_unfinished=False).close()
    assert not (job.state / FORGETS_MARK).exists()
    assert not is_finished(job.state)
