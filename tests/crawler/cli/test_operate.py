"""pause, resume, stop, status and add: from the command line to the control socket, and to lines for the eye."""

import asyncio
import json
import os
import threading
from contextlib import contextmanager

import pytest
import structlog
from typer.testing import CliRunner

from anabranch.crawler.cli import operate
from anabranch.crawler.cli.app import app
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.jobs.opening import note_division, open_job
from anabranch.crawler.operating.control import Control
from anabranch.crawler.orders.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.models import Candidate
from tests.status_schema import checked

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
        folder.write_order(dump_order(CrawlOrder()))
        with open_job(folder.state, CrawlOrder()) as frontier:
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


def test_a_crawl_that_is_being_opened_has_no_line_yet(job) -> None:
    """Only its phase."""
    with running(job, [{"phase": "starting", "paused": "", "pid": 7, "line": ""}]):
        assert run("status", job).output == "starting (process 7)\n"


def test_what_the_crawl_refuses_is_one_line_and_its_exit_code(job) -> None:
    """As if the command had met it."""
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
    monkeypatch.setattr(operate, "ask", lambda *_: next(asked))
    assert [json.loads(line) for line in run("status", job, "--watch", "--json").output.splitlines()] == answers


def test_a_job_that_is_held_but_does_not_answer_is_in_use(job) -> None:
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
    is_answered, until_free = threading.Event(), operate.until_free

    def waits(directory) -> None:
        is_answered.set()
        until_free(directory)

    monkeypatch.setattr(operate, "until_free", waits)
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
    """As `frontier ls` counts it."""
    result = run("status", job)
    assert result.exit_code == 0
    assert result.output.startswith("not running; `anabranch crawl` goes on with it\n1 URLs queued")
    facts = checked(json.loads(run("status", job, "--json").output))
    assert (facts["phase"], facts["is_finished"], facts["totals"]["pending"]) == ("stopped", False, 1)


def test_the_status_of_a_share_says_whose_it_is(tmp_path) -> None:
    """What is left of it is not what is left of the job; nor is a share asked that is crawled."""
    share = tmp_path / "news" / "shares" / "1"
    with JobFolder.open(share) as folder:
        folder.write_order(dump_order(CrawlOrder()))
        note_division(folder.state, Division(share=1, shares=2))
        open_job(folder.state, CrawlOrder()).close()
    whose = f"share 1 of a job of 2 processes, {tmp_path / 'news'}\n"
    assert run("status", share).output.startswith(f"{whose}finished: nothing is queued\n")
    with JobFolder.open(share) as folder, open_job(folder.state, CrawlOrder()) as frontier:
        frontier.schedule([Candidate(url=f"http://{host}.test/") for host in "abcdef"])
        frontier.flush()
        refused = run("status", share)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert (
        f"is share 1 of a job of 2 processes, which is crawled; ask how the job is doing, {tmp_path}" in refused.stderr
    )
    assert run("status", share).output.startswith(f"{whose}not running; `anabranch crawl` goes on with its job\n")
    facts = checked(json.loads(run("status", share, "--json").output))
    assert facts["share"] == {"number": 1, "of": 2, "job": str(tmp_path / "news")}


def test_many_seeds_are_asked_in_parts_that_fit(job, monkeypatch, tmp_path) -> None:
    """None is lost between two of them, and their order is kept."""
    monkeypatch.setattr(operate, "_QUESTION_BYTES", 1000)
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
    assert as_json == {"running": True, "seeds": answered}


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
