"""`anabranch status` and `jobs`: quick for a stopped job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.crawler.cli.app import app
from anabranch.crawler.report import jobstatus
from tests.crawler.cli.test_frontier import URLS, make_job
from tests.patience import HANG_S

#: Modules of ours that `status` may import: each costs a millisecond or more.
MOST_MODULES = 40
#: Libraries that take long to import.
HEAVY = {"aiohttp", "numpy", "sqlalchemy", "structlog"}

_PROGRAM = """
import atexit, json, sys
@atexit.register
def write():
    sys.stderr.write(json.dumps([name for name, module in sys.modules.items() if getattr(module, "__file__", None)]))
from anabranch.crawler.cli import main
sys.argv[0] = "anabranch"
main()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was stopped after a page. No test changes it."""
    return make_job(tmp_path_factory.mktemp("jobs") / "news", URLS, fetched=1)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_status_of_a_stopped_job_imports_little(job: Path) -> None:
    """Neither the Frontier nor the filter, nor a library of the store, of orders or of logs."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "status", str(job)], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    imported = json.loads(done.stderr)
    ours = [name for name in imported if name.partition(".")[0] == "anabranch"]
    assert len(ours) <= MOST_MODULES, ours
    assert not HEAVY & {name.partition(".")[0] for name in imported}
    assert done.stdout.startswith("not running; `anabranch crawl` resumes it\n1 page; 2 URLs queued")


def test_the_lines_tell_how_the_job_was_left_and_its_totals(job: Path) -> None:
    """The filter and closed hosts are not looked up; what is nothing is left out."""
    assert run("status", job).splitlines() == ["not running; `anabranch crawl` resumes it", "1 page; 2 URLs queued"]


def test_json_is_on_one_line_for_a_watcher(job: Path) -> None:
    """A running crawl has one, too; a stopped job is shown once."""
    (line,) = run("status", job, "--json", "--watch").splitlines()
    assert json.loads(line) == json.loads(run("status", job, "--json"))


def test_a_job_whose_files_do_not_tell_is_opened(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then its filter is shown, too."""
    monkeypatch.setattr(jobstatus, "is_plain", lambda _: False)
    lines = run("status", job).splitlines()
    assert lines[1].startswith("1 page; 2 URLs queued")
    assert lines[2].endswith(" URLs known; none expected lost")


def test_jobs_lists_stopped_jobs(job: Path) -> None:
    """Their totals are those of the store."""
    heads, line = run("jobs", job.parent).splitlines()
    assert heads.split()[:3] == ["job", "state", "pages"]
    assert line.split()[:5] == ["news", "stopped", "1", "0.0", "2"]
