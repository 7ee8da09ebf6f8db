"""Which job a name means."""

from pathlib import Path

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.operate.finding import find_job, operated
from anabranch.crawler.operate.job import Job
from anabranch.crawler.outcomes.errors import UsageError


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    JobFolder.open(tmp_path / "jobs" / "news").close()
    return tmp_path / "jobs" / "news"


def test_a_job_is_named_as_a_folder_or_by_its_name(job: Path, tmp_path: Path) -> None:
    """A name is looked up below `jobs`, as `crawl` does; a folder of that name that holds no job does not hide the job."""
    (tmp_path / "news").mkdir()
    assert find_job("news") == Path("jobs/news")
    assert find_job(str(job)) == job
    assert operated("news") == Job(Path("jobs/news"))


@pytest.mark.parametrize("typed", ["", "nosuch", "/dev/null", ".", "jobs", "x\0y", "x" * 5000])
def test_what_is_no_job_is_refused(typed: str) -> None:
    """Nothing is made."""
    with pytest.raises(UsageError, match="there is no such job"):
        find_job(typed)


def test_a_password_in_the_url_of_a_database_is_refused() -> None:
    """Other users can see it."""
    with pytest.raises(UsageError, match="the URL holds a password"):
        operated("postgresql://me:secret@db/crawl")
