"""Tests of failed experiments: each failure becomes one line for the operator, and an exit code."""

import errno

import pytest

from anabranch.crawler.lab import experiments
from anabranch.crawler.lab.experiments import EXPERIMENTS, run_experiment
from anabranch.crawler.lab.report import LabReport
from anabranch.crawler.outcomes.errors import CrawlerError, DiskFull, ExitCode, NotPermitted, StorageError, UsageError
from anabranch.dedup.errors import BadParameters, FilterClosed, StoreFull
from anabranch.extras import install_command

REPORT = LabReport(name="x", tables=(), panels=(), closing=())


def quiet(done, total, what):
    """Nobody watches."""


def raising(monkeypatch, error):
    """Run an experiment that raises it, and give what comes out."""

    def run(flags, tell):
        raise error

    monkeypatch.setitem(EXPERIMENTS, "smm", run)
    with pytest.raises(CrawlerError) as raised:
        run_experiment("smm", {}, quiet)
    return raised.value


def test_the_experiments_are_known_by_name() -> None:
    """Each is a verb of the command."""
    assert list(EXPERIMENTS) == ["smm", "fpr", "split", "redis", "balance", "filters", "policies", "simulate"]


def test_flags_and_progress_reach_the_experiment(monkeypatch) -> None:
    """And its report comes back."""
    told = []
    monkeypatch.setitem(experiments.EXPERIMENTS, "fpr", lambda flags, tell: tell(1, 2, flags["n"]) or REPORT)
    assert run_experiment("fpr", {"n": 7}, lambda *step: told.append(step)) is REPORT
    assert told == [(1, 2, 7)]


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (BadParameters("levels (9,)"), UsageError, ExitCode.USAGE),
        (StoreFull(errno.ENOSPC, "full", "/a"), DiskFull, ExitCode.DISK_FULL),
        (FilterClosed("closed"), CrawlerError, ExitCode.STORE_OR_JOB_IN_USE),
        (OSError(errno.ENOSPC, "No space left on device", "/a"), DiskFull, ExitCode.DISK_FULL),
        (PermissionError(errno.EACCES, "Permission denied", "/a"), NotPermitted, ExitCode.DISK_FULL),
        (ConnectionError("gone"), StorageError, ExitCode.STORE_OR_JOB_IN_USE),
        (UsageError("as it is"), UsageError, ExitCode.USAGE),
    ],
)
def test_each_error_has_its_kind(monkeypatch, error, kind, code) -> None:
    """The message is one line, and what it was made of is kept."""
    raised = raising(monkeypatch, error)
    assert type(raised) is kind
    assert raised.exit_code == code
    assert "\n" not in str(raised)
    assert raised is error or raised.__cause__ is error


def test_an_error_of_a_file_names_it(monkeypatch) -> None:
    """Else the experiment."""
    assert str(raising(monkeypatch, OSError(errno.EIO, "I/O error", "/a/b"))) == "/a/b: i/o error"
    assert str(raising(monkeypatch, ConnectionError("Gone"))) == "smm: gone"


def test_a_full_disk_comes_with_advice(monkeypatch) -> None:
    """Temporary folders may lie elsewhere."""
    error = raising(monkeypatch, OSError(errno.ENOSPC, "No space left on device", "/tmp/x"))
    assert str(error) == "/tmp/x: no space left on device; see to the disk, or name another folder in TMPDIR"


def test_a_missing_redis_client_is_named_with_the_way_to_get_it(monkeypatch) -> None:
    """It is an extra."""
    error = raising(monkeypatch, ModuleNotFoundError("No module named 'redis'", name="redis"))
    assert isinstance(error, UsageError)
    assert install_command("redis") in str(error)


def test_another_missing_module_is_a_defect(monkeypatch) -> None:
    """It is not hidden behind advice that does not help."""

    def run(flags, tell):
        raise ModuleNotFoundError("No module named 'numpi'", name="numpi")

    monkeypatch.setitem(EXPERIMENTS, "smm", run)
    with pytest.raises(ModuleNotFoundError):
        run_experiment("smm", {}, quiet)


def test_a_bad_option_is_refused_by_the_experiment_itself() -> None:
    """The experiment checks its options as soon as they are made."""
    with pytest.raises(UsageError, match="runs"):
        run_experiment("smm", {"runs": 0}, quiet)
