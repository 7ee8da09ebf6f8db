"""pause, resume, stop, status and add: from the command line to the control socket, and to lines for the eye."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import structlog
import typer
from typer.testing import CliRunner

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.archive.compression import Zstd, compression_of
from anabranch.crawler.cli import operate
from anabranch.crawler.cli.app import app
from anabranch.crawler.cli.job_options import archive, index
from anabranch.crawler.cli.operate import run_report
from anabranch.crawler.job import seeds
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.operate import job as operated_job
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import ExitCode, UsageError
from anabranch.crawler.outcomes.failures import ConnectFailed
from anabranch.crawler.report.troubles import Failure, error_line
from anabranch.crawler.run.control import Control
from anabranch.frontier.records import Candidate
from tests.acceptance.command import SMALL_FILTER
from tests.crawler.archive.exchanges import warcs
from tests.crawler.archive.folders import opened, write
from tests.crawler.cli.test_frontier import URLS, make_job
from tests.facts_schema import checked

ORDER = CrawlOrder.model_validate({"dedup": SMALL_FILTER})
RUNNING = {"phase": "running", "paused": "", "pid": 7, "line": "1.0s · 3 pages", "active": 0}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """In an empty folder, with the logs as they were afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)
    yield
    structlog.reset_defaults()


@pytest.fixture
def job(tmp_path):
    """A job with one URL, that nobody crawls."""
    with JobFolder.open(tmp_path / "job") as folder:
        folder.write_order(dump_order(ORDER))
        with open_job(folder.state, ORDER) as frontier:
            frontier.schedule([Candidate(url="http://a.test/")])
            frontier.flush()
    return tmp_path / "job"


@contextmanager
def running(job, answers):
    """A crawl that answers so, in a thread of its own; what it was asked."""
    asked = []

    async def answer(verb, arguments):
        asked.append((verb, arguments))
        answered = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answered, Exception):
            raise answered
        return answered(arguments) if callable(answered) else answered

    async def serve():
        async with Control(job / "state", answer):
            is_up.set()
            await asyncio.to_thread(may_end.wait)

    is_up, may_end = threading.Event(), threading.Event()
    with JobFolder.open(job):
        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        is_up.wait()
        try:
            yield asked
        finally:
            may_end.set()
            thread.join()


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("pause",), ("crawl-pause", {})),
        (("resume",), ("crawl-resume", {})),
        (("stop",), ("crawl-stop", {"now": False})),
        (("stop", "--now"), ("crawl-stop", {"now": True})),
        (("status",), ("crawl-status", {})),
    ],
)
def test_each_verb_asks_the_running_crawl_and_says_how_it_goes(job, arguments, asked) -> None:
    """One line, whatever was asked."""
    with running(job, [RUNNING]) as heard:
        verb, *more = arguments
        result = run(verb, job, *more)
    assert (result.exit_code, result.output) == (0, "running (process 7): 1.0s · 3 pages\n")
    assert heard == [asked]


def test_status_says_how_much_memory_the_crawl_has(job) -> None:
    """Its own memory, and pages of files; nothing on a system that does not tell."""
    for memory, lines in (
        ({"anonymous": 150 << 20, "mapped": 560 << 20}, ["memory: 150.0 MiB of its own, 560.0 MiB of mapped files"]),
        ({"anonymous": 0, "mapped": 0}, []),
        (None, []),
    ):
        with running(job, [{**RUNNING, "memory_bytes": memory}]):
            assert run("status", job).output.splitlines() == ["running (process 7): 1.0s · 3 pages", *lines]


def test_a_crawl_that_is_being_opened_has_no_line_yet(job) -> None:
    """Only its phase."""
    with running(job, [{"phase": "starting", "paused": "", "pid": 7, "line": ""}]):
        assert run("status", job).output == "starting (process 7)\n"


def test_what_the_crawl_refuses_is_one_line_and_its_exit_code(job) -> None:
    """An error of the crawl reads like an error of the command itself."""
    with running(job, [UsageError("the crawl is ending")]):
        result = run("pause", job)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "anabranch: the crawl is ending\n")


def test_json_is_what_the_crawl_says(job) -> None:
    """All of it."""
    with running(job, [RUNNING]):
        assert json.loads(run("status", job, "--json").output) == RUNNING


def test_watch_looks_again_until_the_crawl_ends(job, monkeypatch) -> None:
    """A line for each look; JSON is one object a line."""
    monkeypatch.setattr(operate, "WATCH_S", 0.001)
    answers = [RUNNING, {**RUNNING, "phase": "draining"}, RUNNING]
    asked = iter([*answers, None])
    monkeypatch.setattr(operated_job, "ask", lambda *_: next(asked))
    with JobFolder.open(job):  # a crawl holds it
        lines = run("status", job, "--watch", "--json").output.splitlines()
    assert [json.loads(line) for line in lines] == answers


def test_a_job_that_is_held_but_does_not_answer_is_in_use(job, impatient) -> None:
    """It is being opened or closed: neither `not running` nor a second process in its files."""
    with JobFolder.open(job):
        for arguments in (("pause", job), ("status", job), ("add", job, "http://b.test/")):
            result = run(*arguments)
            assert result.exit_code == 1
            assert f"in use by process {os.getpid()}" in result.stderr


@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "status"])
def test_a_job_that_does_not_exist_is_one_line(tmp_path, verb) -> None:
    """No folder is made."""
    result = run(verb, "nowhere")
    assert result.exit_code == 2
    assert "there is no such job" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_stop_can_wait_until_the_job_is_free(job, monkeypatch) -> None:
    """Whoever scripts it wants the job for himself then."""
    is_answered, wait_until_free = threading.Event(), operated_job.wait_until_free

    def waits(directory) -> None:
        is_answered.set()
        wait_until_free(directory)

    monkeypatch.setattr(operated_job, "wait_until_free", waits)
    with running(job, [RUNNING]):
        waiting = threading.Thread(target=lambda: codes.append(run("stop", job, "--wait").exit_code))
        codes: list[int] = []
        waiting.start()
        is_answered.wait()
        waiting.join(0.2)
        assert waiting.is_alive()
    waiting.join()
    assert codes == [0]


def test_the_status_of_a_job_that_nobody_crawls_is_how_it_was_left(job) -> None:
    """Its counts are those of `frontier ls`."""
    result = run("status", job)
    assert result.exit_code == 0
    assert result.output.startswith("not running; `anabranch crawl` resumes it\n0 pages; 1 URL queued")
    facts = checked(json.loads(run("status", job, "--json").output))
    assert (facts["phase"], facts["is_finished"], facts["totals"]["pending"]) == ("stopped", False, 1)


def test_many_seeds_are_asked_in_parts_that_fit(job, monkeypatch, tmp_path) -> None:
    """None is lost between two of them, and their order is kept."""
    monkeypatch.setattr(seeds, "_QUESTION_BYTES", 1000)
    urls = [f"http://{number}.b.test/" for number in range(50)]
    (tmp_path / "seeds.txt").write_text("\n".join(urls))

    def answer(arguments):
        return {"seeds": [{"url": seed["url"], "verdict": "new", "reason": ""} for seed in arguments["seeds"]]}

    with running(job, [answer]) as heard:
        result = run("add", job, "seeds.txt")
    assert result.output.split() == [word for url in urls for word in ("new", url)]
    assert len(heard) > 3


def test_a_refused_seed_says_why(job) -> None:
    """Beside those that are taken."""
    answered = [{"url": "http://b.test/", "verdict": "refused", "reason": "too \x1b long"}]
    with running(job, [{"seeds": answered}]):
        result = run("add", job, "http://b.test/")
        as_json = json.loads(run("add", job, "http://b.test/", "--json").stdout)
    assert result.stdout == "refused  http://b.test/ (too \\x1b long)\n"
    assert (result.exit_code, result.stderr) == (5, "anabranch: 1 of 1 seeds could not be added\n")
    assert as_json == {"running": True, "start": "", "seeds": answered}


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_good_seeds_are_added_beside_bad_ones_and_the_exit_code_tells(job, tmp_path, flags) -> None:
    """The bad ones are named, as `crawl` names them; a script hears that not all were added."""
    (tmp_path / "seeds.txt").write_text("http://b.test/\n::\nhttp://c.test/\n")
    result = run("add", job, "http://d.test/", "seeds.txt", "no-such-file.txt", *flags)
    assert result.exit_code == 5
    told = result.stderr.splitlines()
    assert len(told) == 3
    assert any("seeds.txt:2: '::'" in line and line.endswith("; skipped") for line in told)
    assert any("no-such-file.txt" in line and line.endswith("; skipped") for line in told)
    assert told[-1] == "anabranch: 2 of 5 seeds could not be added"
    if flags:
        assert [seed["verdict"] for seed in json.loads(result.stdout)["seeds"]] == ["new", "new", "new"]
    for name in "bcd":
        assert "queued" in run("why", job, f"http://{name}.test/").stdout
    assert run("add", job, "http://e.test/").exit_code == 0


def test_seeds_of_which_none_is_one_are_refused(job) -> None:
    """With the exit code of a crawl that has none."""
    result = run("add", job, "::")
    assert result.exit_code == 5
    assert "no seed is left; command line: '::'" in result.stderr
    assert run("add", job).exit_code == 2


def test_a_job_that_has_not_begun_takes_no_seeds(tmp_path) -> None:
    """There is no order to open it by."""
    JobFolder.open(tmp_path / "new").close()
    result = run("add", tmp_path / "new", "http://b.test/")
    assert result.exit_code == 2
    assert "the job has not begun" in result.stderr


class Logged(NamedTuple):
    """The part of a journal entry that the accounts read."""

    crawl_log: bytes | None


@pytest.fixture
def killed_job(tmp_path: Path, monkeypatch) -> Path:
    """A job that was killed: lines were logged that the rows of its accounts do not count yet."""
    monkeypatch.chdir(tmp_path)
    directory = make_job(tmp_path / "jobs" / "news", URLS, fetched=1)
    lines = [
        CrawlLogEntry(logged_s=0.0, status=200, size_bytes=5, url=f"http://{host}.test/", mime="a/b", worker=1)
        for host in "aab"
    ]
    accounts = Accounts(directory / "state", directory / "logs" / "crawl.log", lambda: 0.0)
    accounts.append([Logged(crawl_log_line(line)) for line in lines])
    accounts.keep()
    with opened_seeds(directory / "state") as recorded:
        recorded.add_all([Seed(url=URLS[0], source="given")])
    return directory


def printed(capsys, *, name="crawl-summary", job="news", limit=1000, as_json=False, code=ExitCode.DONE) -> str:
    assert run_report(job, name, limit=limit, as_json=as_json) == code
    out, err = capsys.readouterr()
    assert (err == "") == (code == ExitCode.DONE)
    return out or err


def test_the_summary_of_a_stopped_job_is_of_all_its_runs(killed_job, capsys) -> None:
    """Lines that a crash kept from being counted are in it."""
    text = printed(capsys)
    assert "Crawl Name: news\nCrawl Status: Stopped: 2 URLs are queued\n" in text
    assert "Total Seeds Crawled: 1\n" in text
    assert "URIs Crawled successfully: 3\n" in text
    assert printed(capsys) == text  # asking counts nothing


@pytest.mark.parametrize("log", ["logs", "workers/1/logs"])
def test_a_seed_that_failed_has_the_reason_that_was_logged(killed_job, capsys, log) -> None:
    """Unless it was answered later."""
    (killed_job / log).mkdir(parents=True, exist_ok=True)
    with opened_seeds(killed_job / "state") as recorded:
        recorded.add_all([Seed(url=URLS[1], source="given")])
    failures = [
        Failure(time_s=0.0, url=url, status=-2, attempt=1, is_final=False, error=ConnectFailed(why))
        for url, why in ((URLS[0], "refused"), (URLS[1], "timed out"), (URLS[1], "refused"))
    ]
    (killed_job / log / "errors.jsonl").write_bytes(b"".join(map(error_line, failures)))
    rows = [line.split(maxsplit=3) for line in printed(capsys, name="seeds").splitlines()[1:]]
    assert rows == [["0", "NOTCRAWLED", URLS[1], "refused"], ["200", "CRAWLED", URLS[0]]]


def test_no_report_needs_the_operators_own_key_function(killed_job, capsys) -> None:
    """A module that is not there now, and that only the job names, keeps nobody from what the job has."""
    order = killed_job / "order.toml"
    order.write_text(
        re.sub(r"canonicalization = \[[^]]*]", 'canonicalization = ["no_such_module:key"]', order.read_text())
    )
    assert "a.test" in printed(capsys, name="hosts")
    assert "http://a.test/0" in printed(capsys, name="seeds")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("seeds", "   200 CRAWLED    http://a.test/0\n"),
        ("hosts", "2 10 a.test 0 2 2 10 0 0 0 0 0\n"),
        ("mimetypes", "3 15 a/b\n"),
        ("response-codes", "3 200\n"),
        ("frontier-summary", "URIs queued: 2\n"),
        ("frontier-nonempty", "\na.test "),
        ("processors", "fetch answers 3\n"),
    ],
)
def test_every_report_is_had_of_a_stopped_job(killed_job, capsys, name, line) -> None:
    """By its name."""
    assert line in printed(capsys, name=name)


def test_a_seed_is_found_by_its_key_for_dedup(killed_job, capsys) -> None:
    """Which is not the URL that was given, if the order's rules take something away: it was crawled all the same."""
    with opened_seeds(killed_job / "state") as recorded:
        recorded.add_all([Seed(url=f"{URLS[0]};jsessionid=0123456789abcdef", source="given")])
    assert f"   200 CRAWLED    {URLS[0]};jsessionid=0123456789abcdef\n" in printed(capsys, name="seeds")


def test_json_is_for_programs(killed_job, capsys) -> None:
    """Rows by their heads, as many as were asked for."""
    said = json.loads(printed(capsys, name="hosts", limit=1, as_json=True))
    assert said["more"] is True
    assert said["rows"][0]["host"] == "a.test"
    assert "… and more; --limit shows them" in printed(capsys, name="hosts", limit=1)


def test_an_unknown_name_is_one_line(killed_job, capsys) -> None:
    """With the names there are."""
    line = printed(capsys, name="nosuch", code=ExitCode.USAGE)
    assert line.startswith("anabranch: there is no report 'nosuch'; choose one of crawl-summary, ")
    assert line.count("\n") == 1


def test_an_unknown_job_is_one_line(killed_job, capsys) -> None:
    """The message is that of every command."""
    assert "there is no such job" in printed(capsys, job="nosuch", code=ExitCode.USAGE)


async def test_a_running_crawl_is_asked(killed_job, capsys) -> None:
    """Through its socket: the job is its own."""
    asked = []

    async def answer(verb, arguments):
        asked.append((verb, dict(arguments)))
        return {"heads": ["#urls", "rescode"], "rows": [{"#urls": 1, "rescode": 200}], "more": False, "widths": []}

    async with Control(killed_job / "state", answer):
        code = await asyncio.to_thread(run_report, "news", "response-codes", limit=5, as_json=False)
    assert code == ExitCode.DONE
    assert capsys.readouterr().out == "[#urls] [rescode]\n1 200\n"
    assert asked == [("report", {"name": "response-codes", "limit": 5})]


index_app = typer.Typer()
index_app.command()(index)


def run_index_command(folder: Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(index_app, [str(folder)])
    return done.exit_code, done.stdout, done.stderr


def run_archive_command(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(archive, list(map(str, arguments)))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def archived_job(tmp_path: Path) -> Path:
    files = opened(tmp_path)
    write(files, "http://a.test/1", "http://a.test/2")
    files.close()
    return tmp_path


def test_each_file_is_indexed_and_told(archived_job: Path) -> None:
    """By the job's folder or that of its files; open ones are named."""
    index_file = next((archived_job / "warc").glob("*.cdxj"))
    for folder in (archived_job, archived_job / "warc"):
        index_file.unlink()
        code, out, _ = run_index_command(folder)
        assert (code, out.strip().endswith("warc.gz: 2 answers")) == (0, True)
        assert index_file.exists()
    files = opened(archived_job)
    write(files, "http://a.test/3")
    assert "still open" in run_index_command(archived_job)[1]
    files.close()


def test_files_of_zstd_are_converted_once(tmp_path: Path) -> None:
    """Each is named with its answers; those that are there already are counted."""
    files = opened(tmp_path, compression=Zstd())
    write(files, "http://a.test/1", "http://a.test/2")
    files.close()
    (path,) = warcs(tmp_path / "warc")
    target = tmp_path / "new" / "folder"
    made = f"{path.name.removesuffix('.zst')}.gz"
    assert run_archive_command("convert", tmp_path, target) == (0, f"{made}: 2 answers\n", "")
    assert run_archive_command("convert", tmp_path, target) == (0, f"{target}: 1 file was there already\n", "")
    assert sorted(one.name for one in target.iterdir()) == [f"{path.name.partition('.warc')[0]}.cdxj", made]
    path.write_bytes(path.read_bytes() + b"noise")
    (target / made).unlink()
    size = path.stat().st_size - 5
    assert run_archive_command("convert", tmp_path, target) == (
        1,
        f"{made}: 2 answers\n",
        f"anabranch: {path}: no whole record from byte {size} on; restore it from a copy\n",
    )


def test_what_cannot_be_converted_is_told_in_one_line(archived_job: Path) -> None:
    """Files that are gzip; the folder of the files themselves; a folder that is a file; a file that grows."""
    warc = archived_job / "warc"
    assert run_archive_command("convert", archived_job, archived_job / "new") == (
        0,
        f"{warc}: no finished .warc.zst file\n",
        "",
    )
    refused = f"anabranch: {warc}: has the files that are to be converted; name another folder\n"
    assert run_archive_command("convert", archived_job, warc) == (2, "", refused)
    (archived_job / "file").touch()
    code, _, err = run_archive_command("convert", archived_job, archived_job / "file")
    assert (code, err.count("\n")) == (1, 1)
    files = opened(archived_job, compression=Zstd())
    write(files, "http://a.test/3")
    assert "still open; convert it when" in run_archive_command("convert", archived_job, archived_job / "new")[1]
    files.close()


def test_a_dictionary_is_made_of_the_pages_of_a_job(tmp_path: Path) -> None:
    """Never over another file; a job of few pages has too few."""
    files = opened(tmp_path)
    for number in range(60):
        write(files, f"http://a.test/{number}", data=bytes(random.Random(number).choices(b"<p>abc ", k=3000)))
    files.close()
    made = tmp_path / "dictionary"
    code, out, err = run_archive_command("dictionary", tmp_path, made)
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"{made}: [0-9.]+ KiB, from 180 records\n", out)
    compression_of("zstd", "isal", str(made))
    assert run_archive_command("dictionary", tmp_path, made) == (2, "", f"anabranch: {made}: exists; name a new file\n")
    (tmp_path / "none").mkdir()
    few = "anabranch: 0 records are too few for a dictionary, or too short; take a job with more pages\n"
    assert run_archive_command("dictionary", tmp_path / "none", tmp_path / "other") == (2, "", few)


def test_a_damaged_file_is_told_with_the_place_and_an_exit_code(archived_job: Path) -> None:
    """The complete records are indexed."""
    path = next((archived_job / "warc").glob("*.warc.gz"))
    path.write_bytes(path.read_bytes() + b"noise")
    code, _, err = run_index_command(archived_job)
    assert (code, "no whole record from byte" in err) == (1, True)


def test_what_is_no_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    """A folder without WARC files is none to complain about."""
    code, _, err = run_index_command(tmp_path / "gone")
    assert code == 2
    assert err.startswith(f"anabranch: '{tmp_path}/gone': is not a folder, and there is no such job")
    assert err.count("\n") == 1
    assert run_index_command(tmp_path) == (0, f"{tmp_path}: no finished WARC file\n", "")


def test_a_job_is_named_as_in_every_other_command(archived_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name below jobs/; a folder of that name in the way is no job, unless it has WARC files."""
    monkeypatch.chdir(archived_job)
    with JobFolder.open(Path("jobs/news")) as named:
        Path("warc").rename(named.warc)
    Path("news").mkdir()
    code, out, err = run_index_command(Path("news"))
    assert (code, out.endswith("warc.gz: 2 answers\n"), err) == (0, True, "")
    Path("jobs/news/warc").rename("news/warc")
    assert run_index_command(Path("news"))[1] == out
    assert run_index_command(Path("jobs/news")) == (0, "jobs/news: no finished WARC file\n", "")
