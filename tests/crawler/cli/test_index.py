"""`anabranch index JOB`."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from anabranch.crawler.cli.index import index
from anabranch.crawler.jobs.job import JobFolder
from tests.crawler.archiving.test_files import opened, write

app = typer.Typer()
app.command()(index)


def run(folder: Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(folder)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def job(tmp_path: Path) -> Path:
    files = opened(tmp_path)
    write(files, "http://a.test/1", "http://a.test/2")
    files.close()
    return tmp_path


def test_each_file_is_indexed_and_told(job: Path) -> None:
    """By the job's folder or that of its files; open ones are named."""
    index_file = next((job / "warc").glob("*.cdxj"))
    for folder in (job, job / "warc"):
        index_file.unlink()
        code, out, _ = run(folder)
        assert (code, out.strip().endswith("warc.gz: 2 answers")) == (0, True)
        assert index_file.exists()
    files = opened(job)
    write(files, "http://a.test/3")
    assert "still open" in run(job)[1]
    files.close()


def test_a_damaged_file_is_told_with_the_place_and_an_exit_code(job: Path) -> None:
    """What is whole is indexed."""
    path = next((job / "warc").glob("*.warc.gz"))
    path.write_bytes(path.read_bytes() + b"noise")
    code, _, err = run(job)
    assert (code, "no whole record from byte" in err) == (1, True)


def test_what_is_no_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    """A folder without WARC files is none to complain about."""
    code, _, err = run(tmp_path / "gone")
    assert code == 2
    assert err.startswith(f"anabranch: '{tmp_path}/gone': is not a folder, and there is no such job")
    assert err.count("\n") == 1
    assert run(tmp_path) == (0, f"{tmp_path}: no finished WARC file\n", "")


def test_a_job_is_named_as_in_every_other_command(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name below jobs/; a folder of that name in the way is no job, unless it has WARC files."""
    monkeypatch.chdir(job)
    with JobFolder.open(Path("jobs/news")) as named:
        Path("warc").rename(named.warc)
    Path("news").mkdir()
    code, out, err = run(Path("news"))
    assert (code, out.endswith("warc.gz: 2 answers\n"), err) == (0, True, "")
    Path("jobs/news/warc").rename("news/warc")
    assert run(Path("news"))[1] == out
    assert run(Path("jobs/news")) == (0, "jobs/news: no finished WARC file\n", "")
