"""`anabranch lab`: the frame around an experiment, and the whole command in processes of its own."""

from __future__ import annotations

import csv
import io
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from anabranch.crawler.cli import lab as lab_module
from anabranch.crawler.cli.lab import PLAIN_INTERVAL_S, progress_display, run_lab
from anabranch.crawler.lab.report import Curve, LabReport, Panel, Table
from anabranch.crawler.outcomes.errors import DiskFull, ExitCode
from tests.acceptance import blocking
from tests.acceptance.command import environment
from tests.patience import HANG_S

TABLE = Table(title="Times", columns=("what", "µs"), rows=(("query", 1.25), ("insert", 2_000.0)), note="A note.")
PANEL = Panel(title="P", x_label="x", y_label="y", curves=(Curve(label="a", x=(1.0,), y=(2.0,)),))
REPORT = LabReport(name="smm", tables=(TABLE,), panels=(PANEL,), closing=("It wins.",))
TINY = ("--count", "100", "--probes", "100", "--runs", "1", "--levels", "1,1")


def answer(monkeypatch, report=REPORT, error=None):
    """An experiment that answers at once; gives the calls that it got."""
    calls = []

    def run(name, flags, on_progress):
        calls.append((name, flags))
        if error:
            raise error
        return report

    monkeypatch.setattr(lab_module, "run_experiment", run)
    return calls


def lab(**more):
    return run_lab(**{"name": "smm", "flags": {}} | more)


def started(*arguments, cwd, **how):
    """`anabranch lab ARGUMENTS` with a folder of temporary files of its own, `tmp` in `cwd`."""
    (cwd / "tmp").mkdir(exist_ok=True)
    command = ["-m", "anabranch", "lab", *map(str, arguments)]
    return blocking.Process(command, cwd=cwd, env=environment(TMPDIR=str(cwd / "tmp")), **how)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupt_ends_it_quietly_and_leaves_nothing(tmp_path, number, code) -> None:
    """No traceback, no temporary folder; the codes are what shells expect. A closed terminal (SIGHUP) is one, too."""
    with started("smm", "--count", "2M", cwd=tmp_path) as process:
        told = process.stderr.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=HANG_S)
    assert told.startswith("anabranch: lab smm: ")
    assert (process.returncode, out, err) == (code, "", "")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_whole_command(tmp_path) -> None:
    """Tables and closing on standard output, progress on standard error, numbers and picture in files, nothing else."""
    with started("smm", *TINY, "--csv", "a.csv", "--plot", "a.png", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert "Table 1, SMM, every run on a fresh store: microseconds for 100 URLs" in out
    assert "* No method forgot a URL" in out
    assert max(map(len, out.splitlines())) <= 100
    assert err.startswith("anabranch: lab smm: 0 of 1 steps done; now: making the URLs\n")
    rows = list(csv.reader(io.StringIO((tmp_path / "a.csv").read_text(), newline="")))
    assert [row[0] for row in rows if row[:1] == ["SMM"]] == ["SMM"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.png", "tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_interrupt_of_the_experiment_is_its_exit_code(monkeypatch, capsys) -> None:
    """Whatever runs the command."""
    answer(monkeypatch, error=KeyboardInterrupt())
    assert lab() == ExitCode.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_has_gone_costs_no_file(tmp_path) -> None:
    """The measuring took minutes: the CSV is written, and the exit code is that of SIGPIPE."""
    with started("smm", *TINY, "--quick", "--csv", "a.csv", cwd=tmp_path) as process:
        process.stdout.close()
        err = process.stderr.read()
        code = process.wait(timeout=HANG_S)
    assert code == ExitCode.READER_GONE
    assert "Error" not in err
    assert (tmp_path / "a.csv").read_text().startswith('"Table 1')


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_standard_output_costs_no_file(tmp_path) -> None:
    """One line says so, and the CSV is written."""
    with (
        Path("/dev/full").open("w") as full,
        started("smm", *TINY, "--quick", "--csv", "a.csv", cwd=tmp_path, stdout=full) as process,
    ):
        err = process.stderr.read()
        assert process.wait(timeout=HANG_S) == ExitCode.DISK_FULL
    assert err.splitlines()[1:] == ["anabranch: standard output: no space left on device; --csv FILE keeps the numbers"]
    assert (tmp_path / "a.csv").read_text().startswith('"Table 1')


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_csv_costs_no_table(monkeypatch, capsys, tmp_path) -> None:
    """Nor the picture."""
    answer(monkeypatch)
    assert lab(csv=Path("/dev/full"), plot=tmp_path / "a.svg") == ExitCode.DISK_FULL
    out, err = capsys.readouterr()
    assert "insert  2,000" in out
    assert err == "anabranch: /dev/full: no space left on device; the tables above have all that was measured\n"
    assert (tmp_path / "a.svg").exists()


def test_tables_notes_and_closing_are_shown(monkeypatch, capsys) -> None:
    """On standard output; what was not given is not passed on."""
    calls = answer(monkeypatch)
    assert lab(flags={"seed": 7, "count": None, "quick": False}) == 0
    assert capsys.readouterr().out == (
        "Times\nwhat       µs\n-------------\nquery    1.25\ninsert  2,000\nA note.\n\n* It wins.\n"
    )
    assert calls == [("smm", {"seed": 7, "quick": False})]


def test_all_that_was_measured_is_written_as_json(monkeypatch, capsys, tmp_path) -> None:
    """Into a file beside the tables, or on standard output in their place; long tables go into the CSV file alone."""
    long = Table(title="Seconds", columns=("s",), rows=((1,), (2,)))
    answer(monkeypatch, replace(REPORT, data={"runs": [1, 2]}, csv_tables=(long,)))
    assert lab(json=tmp_path / "a.json", csv=tmp_path / "a.csv") == 0
    assert json.loads((tmp_path / "a.json").read_text()) == {"runs": [1, 2]}
    assert (tmp_path / "a.csv").read_text().endswith("Seconds\ns\n1\n2\n")
    out = capsys.readouterr().out
    assert "It wins." in out
    assert "Seconds" not in out
    assert lab(json=Path("-")) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": [1, 2]}


def test_a_json_file_that_cannot_be_written_is_told_before_the_experiment(monkeypatch, tmp_path) -> None:
    """A JSON file is refused like any other file that cannot be written."""
    calls = answer(monkeypatch)
    assert lab(json=tmp_path / "no" / "a.json") == ExitCode.USAGE
    assert not calls


@pytest.mark.parametrize(
    ("option", "name", "reason"),
    [
        ("csv", "none/a.csv", "no such file or directory; name another file with --csv"),
        ("plot", "none/a.png", "no such file or directory; name another file with --plot"),
        ("csv", "", "is a directory; name another file with --csv"),
        ("plot", "a.bmp", "a picture is one of .png, .svg, .pdf; name the file so"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_before_the_experiment(
    monkeypatch, capsys, tmp_path, option, name, reason
) -> None:
    """In one line, with the exit code of a wrong command line."""
    calls = answer(monkeypatch)
    assert lab(**{option: tmp_path / name}) == ExitCode.USAGE
    assert capsys.readouterr() == ("", f"anabranch: {tmp_path / name}: {reason}\n")
    assert calls == []


def test_without_matplotlib_no_experiment_is_run(monkeypatch, capsys, tmp_path) -> None:
    """Minutes of measuring for a picture that cannot be drawn help nobody."""
    calls = answer(monkeypatch)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert lab(plot=tmp_path / "a.png", csv=tmp_path / "a.csv") == ExitCode.USAGE
    assert (
        capsys.readouterr().err
        == f"anabranch: plots need matplotlib: pip --python {sys.executable} install matplotlib\n"
    )
    assert calls == []
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_that_fails_costs_no_old_result(monkeypatch, capsys, tmp_path) -> None:
    """Existing files keep their content, and no new file is made."""
    answer(monkeypatch, error=DiskFull("/tmp: no space left on device"))
    old, new = tmp_path / "old.csv", tmp_path / "new.png"
    old.write_text("last week's")
    assert lab(csv=old, plot=new) == ExitCode.DISK_FULL
    assert capsys.readouterr().err == "anabranch: /tmp: no space left on device\n"
    assert old.read_text() == "last week's"
    assert not new.exists()


def test_a_result_replaces_an_older_one(monkeypatch, capsys, tmp_path) -> None:
    """It is not added to it."""
    answer(monkeypatch)
    (tmp_path / "a.csv").write_text("old\n" * 100)
    assert lab(csv=tmp_path / "a.csv") == 0
    assert (tmp_path / "a.csv").read_bytes() == "Times\r\nwhat,µs\r\nquery,1.25\r\ninsert,2000.0\r\n".encode()


def test_standard_output_takes_what_it_can(monkeypatch) -> None:
    """An encoding without µ is no reason to fail after the experiment."""
    answer(monkeypatch)
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert lab() == 0
    assert written.getvalue().startswith(b"Times\nwhat       ?s\n")


def handlers():
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]


def test_a_signal_that_comes_after_the_run_is_ignored(monkeypatch) -> None:
    """It has its exit code."""
    before = handlers()
    monkeypatch.setattr(lab_module, "run_experiment", lambda *_: met.append(handlers()) or REPORT)
    met: list[list[object]] = []
    assert lab() == 0
    assert handlers() == [signal.SIG_IGN, signal.SIG_IGN]
    assert not set(met[0]) & {*before, signal.SIG_IGN}


def test_a_signal_that_is_to_be_ignored_is_ignored(monkeypatch) -> None:
    """`nohup anabranch lab` goes on when its terminal is closed."""
    monkeypatch.setattr(lab_module, "run_experiment", lambda *_: signal.raise_signal(signal.SIGHUP) or REPORT)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert lab() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_closed_standard_output_is_told_before_the_experiment(monkeypatch, capsys) -> None:
    """Minutes of measuring would end at a table that cannot be shown."""
    calls = answer(monkeypatch)
    monkeypatch.setattr(sys, "stdout", None)
    assert lab() == ExitCode.USAGE
    assert capsys.readouterr().err == "anabranch: standard output is closed; redirect it\n"
    assert calls == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_progress_that_nobody_can_read_costs_no_experiment(tmp_path) -> None:
    """The tables come all the same."""
    with Path("/dev/full").open("w") as full, started("smm", *TINY, "--quick", cwd=tmp_path, stderr=full) as process:
        out = process.stdout.read()
        assert process.wait(timeout=HANG_S) == 0
    assert "* No method forgot a URL" in out


def test_progress_in_a_pipe_is_a_line_now_and_then(monkeypatch) -> None:
    """The first step at once, then one line per interval."""
    clock = [100.0]
    monkeypatch.setattr(lab_module.time, "monotonic", lambda: clock[0])
    said = io.StringIO()
    with progress_display("fpr", Console(file=said, force_terminal=False)) as on_progress:
        for step, later_s in enumerate([0.0, PLAIN_INTERVAL_S - 1, 1.0, 0.5]):
            clock[0] += later_s
            on_progress(step, 4, f"step [{step}]")
    assert said.getvalue().splitlines() == [
        "anabranch: lab fpr: 0 of 4 steps done; now: step [0]",
        "anabranch: lab fpr: 2 of 4 steps done; now: step [2]",
    ]


def test_progress_on_a_terminal_is_live_and_goes_away(monkeypatch) -> None:
    """It shows the current step and the progress; brackets are no markup."""
    monkeypatch.setenv("TERM", "xterm")
    said = io.StringIO()
    with progress_display("fpr", Console(file=said, force_terminal=True, width=100)) as on_progress:
        on_progress(3, 4, "leaf [c]")
    assert "leaf [c]" in said.getvalue()
    assert "3/4" in said.getvalue()
    assert said.getvalue().rstrip().endswith("\x1b[2K")


@pytest.mark.parametrize("verb", ["smm", "fpr", "redis", "balance"])
def test_urls_that_cannot_be_read_are_told_before_anything_is_done(tmp_path, capfd, verb) -> None:
    """One line, no progress, no file."""
    flags = {"urls": tmp_path / "none"}
    assert lab(name=verb, flags=flags, csv=tmp_path / "a.csv") == 2
    out, err = capfd.readouterr()
    assert (out, list(tmp_path.iterdir())) == ("", [])
    assert err == (
        f"anabranch: --urls: {tmp_path / 'none'}: no such file or directory; name a file with one URL a line\n"
    )


def test_a_parameter_that_makes_no_filter_is_told_by_its_option(capfd) -> None:
    """Not by the name that the filter has for it."""
    assert lab(name="smm", flags={"count": 100, "probes": 1, "levels": (9, 9)}) == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith("anabranch: --levels (9, 9): ")
