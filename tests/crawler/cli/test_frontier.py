"""`anabranch frontier` and `why` on a stopped job: it is opened as a crawl opens it, changed, and closed in order."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anabranch.crawler.accounts.crawl_log import parse_crawl_log_line
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.cli import frontier
from anabranch.crawler.cli.app import app
from anabranch.crawler.cli.frontier import run_frontier
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.inspection import opened
from anabranch.crawler.job.journal import LineFile
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import ExitCode
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind
from tests.acceptance.command import SMALL_FILTER

SLOW = {"min_delay": "100s", "max_delay": "100s"}
URLS = [f"http://a.test/{number}" for number in range(3)]


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


def make_job(directory: Path, urls: list[str], fetched: int = 0) -> Path:
    """A job that was stopped after so many pages."""
    order = CrawlOrder.model_validate({"politeness": SLOW, "frontier": {"policy": "host"}, "dedup": SMALL_FILTER})
    with JobFolder.open(directory) as job:
        job.write_order(dump_order(order))
        with open_job(job.state, order) as frontier:
            frontier.schedule([Candidate(url) for url in urls])
            for _ in range(fetched):
                while (lease := frontier.lease()) is None:
                    frontier.flush()
                now_s = frontier.now_s()
                frontier.finish(lease, Outcome(OutcomeKind.DONE, 200, now_s, now_s))
    return directory


@pytest.fixture(scope="module")
def made_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that no test changes; a copy takes a tenth of the time of making one."""
    return make_job(tmp_path_factory.mktemp("made") / "news", URLS, fetched=1)


@pytest.fixture
def job(made_job: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_job, tmp_path / "jobs" / "news")


def run(verb: str, job: str = "news", *, as_json: bool = False, **arguments: object) -> int:
    defaults: Mapping[str, Mapping[str, Any]] = {
        "ls": {"limit": 20, "state": None},
        "dump": {"file": None},
        "load": {"failures": False, "disregarded": False},
        "rm": {"url": None, "queue": None, "yes": False},
    }
    arguments = {**defaults.get(verb, {}), **arguments}
    return run_frontier(verb, job, arguments, as_json=as_json)


def out(capsys) -> str:
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys, code: int) -> str:
    """The one line of a command that ended with a code."""
    assert code == ExitCode.USAGE
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert captured.out == ""
    return line


@pytest.mark.parametrize("typed", ["", "nosuch", "/dev/null", ".", "jobs", "x\0y", "x" * 5000])
def test_what_is_no_job_is_refused(typed: str, capsys) -> None:
    """One line, exit code 2, and nothing is made."""
    assert "there is no such job" in refused(capsys, run("ls", typed))


def test_ls_tells_what_the_job_holds_and_waits_for(job: Path, capsys) -> None:
    """A job stopped right after a fetch waits for its gate."""
    assert run("ls") == 0
    lines = out(capsys).splitlines()
    assert lines[1].split()[:3] == ["a.test", "inactive", "2"]
    assert "rests for another" in lines[1]
    assert lines[-2].startswith("2 URLs queued")
    assert "Not running. If started now: " in lines[-1]
    assert "; the first opens at " in lines[-1]


def test_json_is_json_even_for_what_never_ends(job: Path, capsys) -> None:
    """A rate without limit is null."""
    assert run("block", host="a.test") == 0
    capsys.readouterr()
    for verb, arguments in {"ls": {}, "show": {"subject": "a.test"}, "why": {"url": URLS[1]}}.items():
        assert run(verb, as_json=True, **arguments) == 0
        text = out(capsys)
        assert "Infinity" not in text
        assert json.loads(text)["now_s"] > 0


def test_orders_last(job: Path, capsys) -> None:
    """Each command opens and closes the job; what it ordered is there for the next one."""
    assert run("pause", queue="a.test") == 0
    assert run("block", host="a.test", for_s=3600.0) == 0
    capsys.readouterr()
    assert run("why", url=URLS[1]) == 0
    text = out(capsys)
    assert "its queue is paused by the operator" in text
    assert "blocked for another " in text
    assert run("unblock", host="a.test") == 0
    assert run("resume", queue="a.test") == 0
    capsys.readouterr()
    assert run("why", url=URLS[1]) == 0
    assert "paused" not in out(capsys)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("notaurl", "'notaurl' is neither a URL nor a host of this job; write the full URL, like http://notaurl/"),
        ("/etc/hosts", "'/etc/hosts': it is not an http or https URL"),
        ("not a url", "'not a url': the host 'not a url' has a space"),
        ("", "url is empty; give one"),
    ],
)
def test_why_refuses_what_is_no_url(job: Path, capsys, typed: str, words: str) -> None:
    """One line, exit code 2."""
    assert refused(capsys, run("why", url=typed)) == f"anabranch: {words}"


def test_why_takes_a_host_without_a_dot_that_the_job_knows(tmp_path: Path, capsys) -> None:
    """An intranet has such names; in full, or as localhost, one need not be known."""
    make_job(tmp_path / "jobs" / "news", ["http://wiki/"])
    for typed, state in {"wiki": "queued", "http://other/": "never scheduled", "localhost": "never scheduled"}.items():
        assert run("why", url=typed) == 0
        assert state in out(capsys).splitlines()[0]


def test_a_block_of_a_host_without_urls_says_so(job: Path, capsys) -> None:
    """It is kept for the first URL."""
    assert run("block", host="new.test") == 0
    last = out(capsys).splitlines()[-1]
    assert last == "no URL of new.test is known yet; it is blocked as soon as one is found"
    assert run("block", host="a.test") == 0
    assert "no URL yet" not in out(capsys)
    with opened(job) as (frontier, _):
        frontier.schedule([Candidate("http://new.test/")])
    assert run("why", url="http://new.test/") == 0
    assert "blocked until it is unblocked" in out(capsys)


def test_an_order_for_an_unknown_queue_is_refused(job: Path, capsys) -> None:
    """Each in one line."""
    for verb in ("pause", "resume", "retire", "set-budget"):
        assert "there is no queue b.test" in refused(capsys, run(verb, queue="b.test", units=None))
    assert "there is no queue b.test" in refused(capsys, run("rm", queue="b.test", yes=True))


@pytest.mark.parametrize("name", ["dump.jsonl", "dump.jsonl.gz"])
def test_a_dump_can_be_loaded_into_another_job(job: Path, tmp_path: Path, capsys, name: str) -> None:
    """Compressed by its name; what ended there is never fetched here."""
    assert run("dump", file=name) == 0
    assert out(capsys) == ""
    assert not list(tmp_path.glob("*.new"))
    data = (tmp_path / name).read_bytes()
    header = json.loads((gzip.decompress(data) if name.endswith("gz") else data).splitlines()[0])
    assert header["policy"] == "host"
    make_job(tmp_path / "jobs" / "other", ["http://b.test/"])
    assert run("load", "other", file=name) == 0
    assert out(capsys) == "loaded: 2 queued, 1 kept as ended\n"
    assert run("load", "other", file=name) == 0
    assert out(capsys) == "loaded: 0 queued, 3 known before\n"
    with opened(tmp_path / "jobs" / "other") as (frontier, _):
        frontier.operations.check()
        assert (frontier.counts().pending, frontier.counts().done) == (3, 1)


def test_a_dump_goes_to_standard_output(job: Path, capsys) -> None:
    """For pipes."""
    assert run("dump") == 0
    lines = [json.loads(line) for line in out(capsys).splitlines()]
    assert (lines[0]["anabranch"], lines[-1]["end"], len(lines)) == ("frontier", True, 5)


def test_a_dump_that_cannot_be_written_leaves_what_was_there(job: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    """A backup is not lost to a newer one that failed half way."""
    (tmp_path / "old").write_text("the old dump")

    def torn(path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(frontier, "sync_folder", torn)
    assert run("dump", file="nowhere/x") == ExitCode.STORE_OR_JOB_IN_USE
    assert capsys.readouterr().err.endswith("nowhere/x: no such file or directory; choose another --output\n")
    monkeypatch.setattr(Path, "replace", lambda self, target: torn(target))
    assert run("dump", file="old") == ExitCode.DISK_FULL
    assert (tmp_path / "old").read_text() == "the old dump"
    assert not list(tmp_path.glob("*.new"))


def test_a_dump_to_a_pipe_goes_through_it(job: Path, tmp_path: Path) -> None:
    """A pipe or a device is written to directly: a rename would replace it by a file."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)  # both ends: neither side waits for the other
    assert run("dump", file="pipe") == 0
    lines = os.read(reader, 1 << 16).splitlines()
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    assert json.loads(lines[-1])["end"]


def test_a_dump_to_a_link_replaces_what_it_leads_to(job: Path, tmp_path: Path) -> None:
    """The link stays: it says where backups are kept."""
    (tmp_path / "kept").write_text("the old dump")
    (tmp_path / "link").symlink_to("kept")
    assert run("dump", file="link") == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept").read_text().startswith('{"anabranch":"frontier"')


def test_an_error_does_not_repeat_all_of_a_long_name(job: Path, capsys) -> None:
    """The reason stays on the screen."""
    said = refused(capsys, run("show", subject="x" * 100_000))
    assert len(said) < 1100
    assert said.startswith("anabranch: there is no queue xxx")
    assert said.rstrip().endswith("`frontier ls` shows those that hold URLs")


def test_an_argument_that_is_empty_is_said_to_be_so(job: Path, capsys) -> None:
    """An unset variable of a script is the usual cause."""
    assert "host is empty" in refused(capsys, run("block", host="", for_s=None, until_s=None))


JOURNAL = """F+ http://a.test/0 - -
F+ http://c.test/1 L http://c.test/
Fs http://c.test/2 L http://c.test/
Ff http://c.test/3 L http://c.test/
Fd http://c.test/4
F+ http://c.test/3 L http://c.test/
F+ http://c.test/4 L http://c.test/
F+ dns:c.test P http://c.test/
"""


@pytest.mark.parametrize(
    ("options", "said", "is_gzip"),
    [
        ({}, "loaded: 3 queued, 1 kept as ended, 1 known before, 1 skipped\n", False),
        (
            {"failures": True, "disregarded": True},
            "loaded: 1 queued, 3 kept as ended, 3 known before, 1 skipped\n",
            True,
        ),
    ],
)
def test_heritrix_s_journal_is_loaded(job: Path, tmp_path: Path, capsys, options, said, is_gzip) -> None:
    """Told by its content, whatever it is called, compressed or not."""
    data = JOURNAL.encode()
    (tmp_path / "backup").write_bytes(gzip.compress(data) if is_gzip else data)
    assert run("load", file="backup", **options) == 0
    assert out(capsys) == said


def test_lines_of_a_journal_that_are_not_understood_are_told(job: Path, tmp_path: Path, capsys) -> None:
    """Nobody should take a damaged journal for a whole one."""
    (tmp_path / "backup").write_text("F+ http://c.test/1 L http://c.test/\nF? http://c.test/2\n")
    assert run("load", file="backup") == 0
    assert out(capsys) == "loaded: 1 queued, 1 not understood\n"


def test_a_dump_that_was_cut_is_loaded_as_far_as_it_goes(job: Path, tmp_path: Path, capsys) -> None:
    """And its cut is told."""
    assert run("dump", file="whole.gz") == 0
    data = gzip.decompress((tmp_path / "whole.gz").read_bytes())
    (tmp_path / "cut.gz").write_bytes((tmp_path / "whole.gz").read_bytes()[:-30])
    (tmp_path / "cut").write_bytes(data[: data.rindex(b'{"end"')])
    make_job(tmp_path / "jobs" / "other", ["http://b.test/"])
    assert run("load", "other", file="cut") == ExitCode.NO_SEED_ANSWERED
    captured = capsys.readouterr()
    assert captured.out == "loaded: 2 queued, 1 kept as ended\n"
    assert "cut: cut after line 4" in captured.err
    assert run("load", "other", file="cut.gz") == ExitCode.NO_SEED_ANSWERED
    assert "cut" in capsys.readouterr().err


def test_a_journal_that_was_cut_is_none_the_less_done(job: Path, tmp_path: Path, capsys) -> None:
    """Heritrix leaves it so when it is killed."""
    whole = gzip.compress("".join(f"F+ http://b.test/{number}\n" for number in range(3)).encode())
    (tmp_path / "cut.gz").write_bytes(whole[:-8])
    assert run("load", file="cut.gz") == 0
    assert "cut.gz: " in capsys.readouterr().err


def test_refused_entries_are_named(job: Path, tmp_path: Path, capsys) -> None:
    """Standard error names the line of each entry and the reason."""
    lines = ['{"anabranch":"frontier","version":1}', '{"url":"nohost"}', '{"end":true,"ended":0,"queued":1}']
    (tmp_path / "d").write_text("\n".join(lines) + "\n")
    assert run("load", file="d") == 0
    captured = capsys.readouterr()
    assert captured.out == "loaded: 0 queued, 1 refused\n"
    assert captured.err == "anabranch: d:2: nohost: it has no host; an absolute URL is needed; not loaded\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither a dump nor a Heritrix recovery journal"),
        (b"http://a.test/\n", "neither a dump nor a Heritrix recovery journal"),
        (b"\x1f\x8bnonsense", "neither a dump nor a Heritrix recovery journal"),
        (b'{"anabranch":"frontier","version":1}\n{"url":1}\n{"end":true}\n', "bad:2: "),
        (None, "cannot be read: no such file"),
    ],
)
def test_a_file_that_is_neither_is_refused(job: Path, tmp_path: Path, capsys, content, words) -> None:
    """One line that names it."""
    if content is not None:
        (tmp_path / "bad").write_bytes(content)
    assert words in refused(capsys, run("load", file="bad"))


def test_a_dump_has_no_switches_of_the_journal(job: Path, tmp_path: Path, capsys) -> None:
    """They would be ignored silently."""
    assert run("dump", file="d") == 0
    assert "for Heritrix's journal" in refused(capsys, run("load", file="d", failures=True))


def test_rm_removes_what_matches(job: Path, tmp_path: Path, capsys) -> None:
    """Found anywhere in the URL; they count as disregarded and are not queued again."""
    assert run("rm", url=r"/1$", yes=True) == 0
    assert out(capsys) == "removed 1 URL\n"
    assert run("rm", url=r"nothing like it") == 0
    assert out(capsys) == "removed 0 URLs\n"
    assert run("rm", queue="a.test", url="a", yes=True) == 0
    assert out(capsys) == "removed 1 URL\n"
    with opened(job) as (frontier, _):
        frontier.operations.check()
        assert (frontier.counts().pending, frontier.counts().disregarded) == (0, 2)


def test_what_rm_removes_has_its_line_in_the_log_and_is_counted(job: Path) -> None:
    """A removed URL counts like every ended URL: the accounts and the Frontier agree on the number."""
    with opened(job) as (frontier, _):
        frontier.schedule([Candidate("http://b.test/x?y=%0A", hops="LE")])
    assert run("rm", queue="b.test", url="", yes=True) == 0
    assert run("rm", queue="a.test", url="", yes=True) == 0
    lines = [parse_crawl_log_line(line) for line in (job / "logs" / "crawl.log").read_bytes().splitlines(keepends=True)]
    assert [(line.status, line.url, line.hops) for line in lines] == [
        (-6000, "http://b.test/x?y=%0A", "LE"),
        (-6000, URLS[1], ""),
        (-6000, URLS[2], ""),
    ]
    with AccountsView(job / "state") as view:
        assert view.total().disregards == 3
    with opened(job) as (frontier, _):
        assert frontier.counts().disregarded == 3


def test_what_cannot_be_logged_is_not_removed(job: Path, capsys, monkeypatch) -> None:
    """Nor counted."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no")

    with monkeypatch.context() as patch:
        patch.setattr(LineFile, "append", refuse)
        assert run("rm", queue="a.test", yes=True) == ExitCode.DISK_FULL
    with opened(job) as (frontier, _):
        assert frontier.counts().pending == 2
    with AccountsView(job / "state") as view:
        assert view.total().disregards == 0


@pytest.mark.parametrize(("answer", "removed"), [("Yes\n", True), ("\n", False), ("", False)])
def test_rm_asks_first(job: Path, capsys, monkeypatch, answer: str, removed: bool) -> None:
    """Only a yes is one; the end of input is none."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    code = run("rm", queue="a.test")
    captured = capsys.readouterr()
    assert captured.err.startswith("remove 2 queued URLs? [y/N] ")
    assert code == (ExitCode.DONE if removed else ExitCode.USAGE)
    assert ("nothing was removed" in captured.err) is not removed


def test_a_pattern_that_is_none_is_refused(job: Path, capsys) -> None:
    """Before anything is opened or asked."""
    assert "--url '/[': no regular expression" in refused(capsys, run("rm", url="/["))


def test_a_finished_job_stays_finished_and_one_that_got_urls_does_not(tmp_path: Path, capsys) -> None:
    """`--fresh` asks for no consent exactly as long as nothing is left."""
    job = make_job(tmp_path / "jobs" / "news", URLS[:1], fetched=1)
    mark = job / "state" / "finished"
    mark.touch()
    assert run("ls") == 0
    assert mark.exists()
    (tmp_path / "d").write_text('{"anabranch":"frontier","version":1}\n{"url":"http://b.test/"}\n{"end":true}\n')
    assert run("load", file="d") == 0
    assert not mark.exists()


def test_a_job_that_has_not_begun_is_told_so(tmp_path: Path, capsys) -> None:
    """It has no order yet, or no queue."""
    JobFolder.open(tmp_path / "jobs" / "news").close()
    assert "the job has not begun" in refused(capsys, run("ls"))
    with JobFolder.open(tmp_path / "jobs" / "news") as job:
        job.write_order(dump_order(CrawlOrder()))
    assert "the job has no queue yet" in refused(capsys, run("ls"))


@pytest.mark.parametrize("verb", ["ls", "dump", "block", "why"])
def test_a_lost_queue_is_told_as_a_crawl_tells_it(job: Path, capsys, verb: str) -> None:
    """No advice to begin the job again: it has begun, and its queue can be restored from a copy."""
    with opened_seeds(job / "state") as recorded:
        recorded.add_all([Seed(url=URLS[0], source="command line")])
    (job / "state" / "frontier.db").write_bytes(b"")
    assert run(verb, subject="a.test") == ExitCode.BAD_ORDER
    assert "frontier.db is missing or empty, and with it the queue" in capsys.readouterr().err


def test_a_job_in_use_names_its_owner(job: Path, capsys, impatient) -> None:
    """Held without a control socket: by a crawl that is just beginning, or by another command."""
    with JobFolder.open(job):
        assert run("ls") == ExitCode.STORE_OR_JOB_IN_USE
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err


def test_a_reader_that_has_gone_is_no_error(job: Path, monkeypatch, capfd) -> None:
    """`frontier dump | head` ends quietly, with what a shell says of SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert run("dump") == ExitCode.READER_GONE
    assert capfd.readouterr().err == ""


#: What a terminal obeys: it clears the screen, rings, sets the title, and turns the direction of text.
OBEYED = "e\x1b[2J\a\x1b]0;x\a\u202e\x9b1m"


@pytest.mark.parametrize(
    "command",
    [
        ["status"], ["frontier", "ls"], ["report"], ["why", "http://a.test/"], ["pause"], ["stop"], ["workers"],
        ["set", "limits.pages=7"], ["add", "http://b.test/"], ["index"], ["divide"], ["requeue", "--lost", OBEYED],
        ["frontier", "show", OBEYED], ["frontier", "block", OBEYED], ["why", OBEYED], ["set", OBEYED], ["add", OBEYED],
        ["report", OBEYED],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_word_of_a_command_line_reaches_the_terminal_unescaped(tmp_path: Path, command: list[str]) -> None:
    """Neither the job's name nor an argument: somebody else may have made the folder, or sent the line."""
    job = make_job(tmp_path / OBEYED, ["http://a.test/"])
    at = 2 if command[0] == "frontier" else 1
    result = CliRunner().invoke(app, [*command[:at], str(job), *command[at:]])
    assert result.output
    assert not {"\x1b", "\a", "\u202e", "\x9b"} & {*result.output}


@pytest.mark.parametrize("command", [[OBEYED], [f"--{OBEYED}"], ["status", f"--{OBEYED}"], ["status", OBEYED]])
def test_what_no_command_knows_is_quoted_escaped(command: list[str]) -> None:
    """Also by the parser of the command line."""
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert not {"\x1b", "\a", "\u202e", "\x9b"} & {*result.output}


def test_the_status_of_a_stopped_job_counts_all_its_runs(tmp_path: Path) -> None:
    """No run goes on whose counts it could show."""
    job = make_job(tmp_path / "news", ["http://a.test/", "http://b.test/"], fetched=1)
    facts = json.loads(CliRunner().invoke(app, ["status", str(job), "--json"]).output)
    assert (facts["phase"], facts["pages"], facts["failed"], facts["excluded"]) == ("stopped", 1, 0, 0)
