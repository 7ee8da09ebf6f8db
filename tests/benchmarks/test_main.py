"""The command `scripts/bench`: which groups run, and what becomes of one that fails."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.benchmarks import __main__ as bench
from scripts.benchmarks.rows import Group, Row, Setting, Wishes
from tests.acceptance import blocking
from tests.acceptance.command import REPOSITORY, environment
from tests.patience import HANG_S


def sound(setting: Setting) -> Iterator[Row]:
    (setting.folder / "file").write_bytes(b"x")
    yield Row(name="sound-1", what=str(setting.folder), measured=1.0, unit="")


def broken(setting: Setting) -> Iterator[Row]:
    yield Row(name="broken-1", what="before", measured=1.0, unit="")
    raise OSError("no server")


GROUPS = (Group(name="sound", what="sound", run=sound), Group(name="broken", what="broken", run=broken))


def test_without_a_choice_all_groups_run() -> None:
    """In the order of the subject, whatever order they are asked for in."""
    assert bench.chosen(GROUPS, []) == list(GROUPS)
    assert bench.chosen(GROUPS, ["broken", "sound"]) == list(GROUPS)
    assert bench.chosen(GROUPS, ["broken"]) == [GROUPS[1]]


def test_an_unknown_group_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name never means that nothing is measured."""
    assert bench.main(["dedup", "--only", "unique"]) == 2
    told = capsys.readouterr().err
    assert "--only unique" in told
    assert "uniq-64" in told


def test_folders_that_cannot_serve_are_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line each."""
    file = tmp_path / "file"
    file.write_bytes(b"")
    for option, path in (("--folder", file), ("--folder", tmp_path / "gone"), ("--peers", file)):
        assert bench.main(["crawl", option, str(path)]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"bench: {option} {path}: ")
        assert told.count("\n") == 1


def test_a_small_version_has_pages_enough_for_a_rate(tmp_path: Path) -> None:
    """Between two requests at least."""
    setting = Setting(folder=tmp_path, is_quick=True, say=lambda _: None, wishes=Wishes(pages=10))
    assert setting.pages == 2


def test_a_group_that_fails_costs_no_other_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own earlier rows stay, the reason becomes a row without a figure, and the next group runs."""
    rows = bench.judged_rows(reversed(GROUPS), False, tmp_path)
    assert [(row.row.name, row.verdict) for row in rows] == [("broken-1", ""), ("broken", "not run"), ("sound-1", "")]
    assert rows[1].row.note == "OSError: no server"
    assert "Traceback" in capsys.readouterr().err


def test_rows_are_scaled_by_the_fastest_calibration_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disturbance slows the calibration loop and the rows alike; scaled by the fastest loop, rows never look too good."""
    speeds = iter([80.0, 100.0, 60.0])
    monkeypatch.setattr(bench, "rounds_per_s", lambda: next(speeds))
    rows = bench.judged_rows([GROUPS[0], GROUPS[0]], False, tmp_path)
    assert [(row.calibration, row.fastest) for row in rows] == [(90.0, 100.0), (80.0, 100.0)]


def test_temporary_folders_are_removed(tmp_path: Path) -> None:
    """A group works in a folder of its own below the one named, which is gone afterwards."""
    row = bench.rows_of(GROUPS[0], False, tmp_path)[0]
    assert Path(row.what).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Servers and child processes are ended, temporary folders removed; 130."""
    command = ["-m", "scripts.benchmarks", "dedup", "--only", "processes", "--folder", str(tmp_path)]
    with blocking.Process(command, cwd=REPOSITORY, env=environment()) as process:
        assert process.stderr
        while "4 processes," not in (line := process.stderr.readline()):
            assert line, "it has ended"
        assert list(tmp_path.iterdir())
        process.send_signal(number)
        assert process.wait(timeout=HANG_S) == 130
    assert list(tmp_path.iterdir()) == []


def test_the_exit_status_tells_whether_targets_were_met(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 if all were, 1 if one was not; JSON goes to stdout alone."""
    monkeypatch.setitem(bench.SUBJECTS, "dedup", GROUPS)
    assert bench.main(["dedup", "--only", "sound", "--json"]) == 0
    assert capsys.readouterr().out.startswith("{")
    assert bench.main(["dedup"]) == 1
