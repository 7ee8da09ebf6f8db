"""`anabranch lab`: the frame around an experiment, and the whole command in processes of its own."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from anabranch.crawler.cli import lab as lab_module
from anabranch.crawler.cli.app import app
from anabranch.crawler.cli.lab import PLAIN_INTERVAL_S, progress_display, run_lab
from anabranch.crawler.lab.report import Curve, LabReport, Panel, Table
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.lab.web.shape import make_web
from anabranch.crawler.outcomes.errors import DiskFull, ExitCode
from tests.acceptance import blocking, forkserver
from tests.acceptance.blocking import Process
from tests.acceptance.command import environment
from tests.crawler.lab.web.test_miniweb import fetch
from tests.crawler.lab.web.test_shape import walked
from tests.patience import HANG_S
from tests.site.processes import started_by

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


SMALL = ("--pages", "60", "--hosts", "6", "--latency", "1ms")
ADDRESS_LINE = "2026-11-22T07:00:00.001Z 200 900 http://[::1]:8080/x - - text/html #001 20261122070000001+40 - - -\n"
SMALL_WEB = WebOptions(pages=60, hosts=6, latency_s=0.001)


@contextmanager
def started_web(*arguments: str | Path, cwd: Path) -> Iterator[tuple[Process | subprocess.Popen[str], int, str]]:
    """`anabranch lab web`, serving, its port, and what it says in the beginning."""
    process = blocking.Process(
        ["-m", "anabranch", "lab", "web", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
    )
    with process:
        try:
            assert process.stdout is not None
            said = ""
            while "by name" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            found = re.search(r" at http://127\.0\.0\.1:(\d+);", said)
            assert found, said
            yield process, int(found[1]), said
        finally:
            process.kill()


def ended(process: Process | subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    return out, err


def crawled(job: Path, order: Path) -> Path:
    """The crawl.log of a crawl by an order that finds the web."""
    command = ["crawl", "-c", str(order), "--job", str(job), "--contact", "a@example.org"]
    quick = ["--min-delay", "0", "--max-delay", "0", "--max-connections", "8"]
    arguments = ["-m", "anabranch", *command, *quick]
    done = forkserver.run(arguments, cwd=job.parent, env=environment(), timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return job / "logs" / "crawl.log"


def urls_in(log: Path) -> set[str]:
    found = {line.split()[3] for line in log.read_text().splitlines()}
    return {url for url in found if url.startswith("http") and not url.endswith("/robots.txt")}


def test_it_serves_until_it_is_interrupted_and_shows_its_ledger(tmp_path: Path) -> None:
    """That is its usual end. It says how others are pointed at it, and then what each host has borne."""
    with started_web(*SMALL, "--connections", "2", cwd=tmp_path) as (process, port, said):
        asyncio.run(fetch(port, ["http://www.qq.com/", "http://www.qq.com/", "http://www.sohu.com/"]))
        out, err = ended(process)
    assert err == ""
    for hint in (
        f"http_proxy=http://127.0.0.1:{port} wget",
        f"curl --resolve www.sina.com.cn:{port}:127.0.0.1 http://www.sina.com.cn:{port}/",
        f"--proxy http://127.0.0.1:{port} -s fetch.proxy_resolves=true",
        f'"www.sina.com.cn" = "127.0.0.1:{port}" below [dns.hosts]',
    ):
        assert hint in said
    assert "What the server saw of 2 hosts" in out
    assert re.search(r"^www\.qq\.com +2 +1 ", out, re.MULTILINE)
    assert "* Politeness kept on 2 hosts (at most 2 at once" in out


def test_a_broken_rule_is_said_in_the_end(tmp_path: Path) -> None:
    """A client that does not wait breaks the rule. SIGTERM is a usual end, too."""
    with started_web(*SMALL, "--min-delay", "10s", cwd=tmp_path) as (process, port, _):
        asyncio.run(fetch(port, ["http://www.qq.com/"] * 3))
        out, err = ended(process, signal.SIGTERM)
    assert err == ""
    assert "Politeness BROKEN on 1 of 1 hosts" in out
    assert "2 too early" in out


def test_a_web_that_nobody_came_to_says_so(tmp_path: Path) -> None:
    """In place of an empty table. A closed terminal is a usual end, too."""
    with started_web(*SMALL, cwd=tmp_path) as (process, _, _):
        out, err = ended(process, signal.SIGHUP)
    assert (out.endswith("* No request came.\n"), err) == (True, "")


def test_a_crawl_of_it_and_a_crawl_of_its_replay_find_the_same(tmp_path: Path) -> None:
    """By an order that it writes; the log of that crawl, served again, is the same web to the next crawl."""
    with started_web(*SMALL, "--order", "web.toml", cwd=tmp_path) as (process, _, _):
        log = crawled(tmp_path / "one", tmp_path / "web.toml")
        assert "What the server saw of 6 hosts" in ended(process)[0]
    made = walked(make_web(SMALL_WEB))
    assert urls_in(log) == made.keys()
    with started_web("--replay", log, "--order", "replay.toml", cwd=tmp_path) as (_, _, said):
        again = crawled(tmp_path / "two", tmp_path / "replay.toml")
    assert "\n6 URLs are left out: no HTTP answer, robots.txt or dns:\n" in said
    assert urls_in(again) == made.keys()


def test_the_order_has_a_line_for_each_host(tmp_path: Path) -> None:
    """And opens the scope and loopback."""
    with started_web(*SMALL, "--order", "web.toml", cwd=tmp_path) as (_, port, _):
        order = tomllib.loads((tmp_path / "web.toml").read_text())
    assert order["dns"]["hosts"] == {site.host: f"127.0.0.1:{port}" for site in make_web(SMALL_WEB).sites}
    assert tuple(order["job"]["seeds"]) == make_web(SMALL_WEB).seeds
    assert order["fetch"]["allow_private"] is True
    assert order["scope"]["scope"] == "any"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kind", "ring"), "kind 'ring': choose one of portals, subdomains, hosts"),
        (("--hosts", "50", "--pages", "20"), "pages 20: give at least one for each of the 50 hosts"),
        (("--replay", "nowhere.log"), "nowhere.log: no such file or directory"),
        (("--replay", "empty.log"), "empty.log: no answer of a page in 0 lines"),
        (
            ("--replay", "empty.log", "--pages", "9", "--latency", "1s"),
            "--pages, --latency: cannot be combined with --replay",
        ),
        (
            ("--replay", "address.log", "--order", "web.toml"),
            "--order: [::1] is an address, which a crawl does not look up",
        ),
        (("--order", "no/where.toml"), "no/where.toml: no such file or directory; name another file with --order"),
        (("--order", "mine.toml"), "mine.toml: was not written by this command, and would be lost"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    """Nothing is served."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.log").touch()
    (tmp_path / "address.log").write_text(ADDRESS_LINE)
    (tmp_path / "mine.toml").write_text("[limits]\npages = 5\n")
    done = CliRunner().invoke(app, ["lab", "web", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("anabranch: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_log_of_an_address_is_served_to_proxy_s_clients_alone(tmp_path: Path) -> None:
    """No name leads to it, so none is shown, and no order is written."""
    (tmp_path / "crawl.log").write_text(ADDRESS_LINE)
    with started_web("--replay", "crawl.log", cwd=tmp_path) as (process, port, said):
        assert asyncio.run(fetch(port, ["http://[::1]:8080/x"])) == [900]
        out, _ = ended(process)
    assert f"--proxy http://127.0.0.1:{port}" in said
    assert "dns.hosts" not in said
    assert re.search(r"^\[::1\] +1 ", out, re.MULTILINE)


def test_the_end_of_its_server_ends_it(tmp_path: Path) -> None:
    """With one line, not with a ledger of nothing."""
    with started_web(*SMALL, cwd=tmp_path) as (process, _, _):
        (server,) = started_by(process.pid, "web.server")
        os.kill(server, signal.SIGKILL)
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 1
    assert "has ended; run it again" in err


def test_the_help_names_the_defaults() -> None:
    """They are those of the web's options."""
    shown = CliRunner().invoke(app, ["lab", "web", "--help"], env={"COLUMNS": "200"}).output
    default = WebOptions()
    for said in ("20k", str(default.hosts), str(default.links), "100ms", str(int(default.bandwidth)), default.kind):
        assert f"(default {said})" in shown
    assert (default.pages, default.latency_s) == (20_000, 0.1)
