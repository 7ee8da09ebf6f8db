"""The folders of a job's workers."""

from pathlib import Path

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.workerfolders import refuse_worker, worker_folders
from anabranch.crawler.outcomes.errors import UsageError


def test_workers_are_listed_by_their_number(tmp_path: Path) -> None:
    """Other folders beside them are ignored."""
    for name in ("10", "2", "notes"):
        (tmp_path / "workers" / name).mkdir(parents=True)
    assert [folder.name for folder in worker_folders(tmp_path)] == ["2", "10"]
    assert worker_folders(tmp_path / "other") == []


def test_the_folder_of_a_worker_is_no_job_of_its_own(tmp_path: Path) -> None:
    """The job is named."""
    with JobFolder.open(tmp_path / "job"), JobFolder.open(tmp_path / "job" / "workers" / "1"):
        pass
    with pytest.raises(UsageError, match=r"is the folder of a worker; name its job, .*/job$"):
        refuse_worker(tmp_path / "job" / "workers" / "1")
    refuse_worker(tmp_path / "job")
