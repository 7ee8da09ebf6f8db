"""`anabranch crawl` in this process: errors become one line and an exit code."""

import asyncio
import io
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from rich.console import Console

from anabranch.crawler.cli import crawl as crawl_module
from anabranch.crawler.cli.crawl import CrawlCommand, run_crawl
from anabranch.crawler.cli.operate import run_operate
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import CrawlerError, DiskFull, ExitCode, StoreLost, UsageError
from anabranch.crawler.report.progress import Display
from anabranch.crawler.run.controller import CrawlController
from anabranch.frontier.errors import (
    FormatMismatch,
    FrontierError,
    InvariantBroken,
    LeaseLost,
    LifecycleError,
    PolicyError,
    StoreFull,
    StoreInUse,
    StoreUnavailable,
)
from tests.acceptance import blocking, forkserver
from tests.acceptance.command import SMALL_FILTER, environment
from tests.patience import HANG_S

#: Nobody listens there, and it is refused before anybody is asked.
SEED = "http://127.0.0.1:9/"
SMALL = tuple(f"dedup.{key}={value}" for key, value in SMALL_FILTER.items())
#: A filter that no server holds: the crawl cannot start.
UNREACHABLE = ("dedup.leaves=redis://127.0.0.1:1/0",)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """In an empty folder, with the logs as they were afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)
    yield
    structlog.reset_defaults()


def command(*sources, job=Path("job"), order_file=None, fresh=False, yes=False, verbosity=0, **flags):
    return CrawlCommand(
        sources=sources,
        order_file=order_file,
        job=job,
        fresh=fresh,
        yes=yes,
        verbosity=verbosity,
        flags={"contact": "bot@example.org", "min_delay": 0.0, **flags},
        settings=SMALL,
    )


def fails_with(monkeypatch, error):
    async def run(self):
        raise error

    monkeypatch.setattr(CrawlController, "run", run)


class Parts:
    """The outside that a run was given."""

    def __init__(self, monkeypatch, code=ExitCode.DONE) -> None:
        self.controllers = []

        async def run(controller):
            self.controllers.append(controller)
            return code

        monkeypatch.setattr(CrawlController, "run", run)

    @property
    def outside(self):
        return self.controllers[0]._outside


def test_a_seed_that_cannot_be_fetched_is_told_and_the_exit_code_is_5(capsys) -> None:
    """A whole run: its first line, its reports, its code."""
    assert run_crawl(command(SEED)) == ExitCode.NO_SEED_ANSWERED
    out, err = capsys.readouterr()
    assert out.startswith("new job job: 1 URL queued\n")
    assert out.endswith(f"{SEED} 127.0.0.1 is not a public address (--allow-private allows it)\n")
    assert err == ""
    assert Path("job/order.toml").exists()


def test_a_quiet_run_says_only_what_went_wrong(capsys) -> None:
    """No first line, no reports; they are in the job's folder."""
    assert run_crawl(command(SEED, verbosity=-1)) == ExitCode.NO_SEED_ANSWERED
    assert capsys.readouterr() == ("", "")
    assert Path("job/reports/seeds-report.txt").exists()


@pytest.mark.parametrize("verbosity", [0, -1])
def test_a_crawl_that_tells_nobody_whose_it_is_is_warned(capsys, verbosity) -> None:
    """One event; a quiet run has none."""
    run_crawl(command(SEED, verbosity=verbosity, contact=None))
    assert ("no contact is configured" in capsys.readouterr().err) is (verbosity == 0)


@pytest.mark.parametrize(
    ("policy", "times", "processes"),
    [
        *(("length:7", 1, 1), ("bkdr:7:31", 0, 1)),
        *(pytest.param(*rest, marks=pytest.mark.slow) for rest in (("length:7", 1, 2), ("bkdr:7:31", 0, 2))),
    ],
)
def test_a_poor_policy_is_warned_of_once(capsys, policy, times, processes) -> None:
    """One event, however many processes crawl; a quiet run has none."""
    run_crawl(command(SEED, policy=policy, processes=processes))
    assert capsys.readouterr().err.count("policy length:N is a poor choice") == times
    if times:
        run_crawl(command(SEED, policy=policy, processes=processes, job=Path("quiet"), verbosity=-1))
        assert "poor choice" not in capsys.readouterr().err


# Errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreFull("the disk is full"), 3),
        (FormatMismatch("another policy"), 4),
        (PolicyError("no such policy"), 4),
        (StoreInUse("held"), 1),
        (StoreUnavailable("gone"), 1),
        (DiskFull("the disk is full"), 3),
        (UsageError("what?"), 2),
        (CrawlerError("what?"), 1),
    ],
)
def test_every_foreseeable_error_is_one_line_and_its_exit_code(monkeypatch, capsys, error, code) -> None:
    """No traceback; the line begins with the command's name."""
    fails_with(monkeypatch, error)
    assert run_crawl(command(SEED)) == code
    assert capsys.readouterr() == ("", f"anabranch: {error}\n")


def test_an_interrupt_outside_of_the_crawl_is_a_forced_end(monkeypatch) -> None:
    """Ctrl-C before the signals are ours: 13, the job can be resumed."""
    fails_with(monkeypatch, KeyboardInterrupt())
    assert run_crawl(command(SEED)) == ExitCode.FORCED


@pytest.mark.parametrize(
    "defect",
    [
        ZeroDivisionError("odd"),
        LeaseLost("lost"),
        LifecycleError("odd"),
        InvariantBroken("odd"),
        FrontierError("odd"),
    ],
    ids=repr,
)
def test_a_defect_is_not_hidden(monkeypatch, capsys, defect) -> None:
    """An unforeseen error keeps its traceback, in the Frontier as anywhere else; no line makes it look like a reason."""
    fails_with(monkeypatch, defect)
    with pytest.raises(type(defect)) as raised:
        run_crawl(command(SEED))
    assert raised.value is defect
    assert capsys.readouterr().err == ""


def test_the_lock_is_given_back_whatever_happens(monkeypatch) -> None:
    """The next run can have the job."""
    fails_with(monkeypatch, StoreUnavailable("gone"))
    run_crawl(command(SEED))
    JobFolder.open(Path("job")).close()


def test_a_job_in_use_is_left_alone(capsys, impatient) -> None:
    """Exit 1, with the number of the process."""
    with JobFolder.open(Path("job")):
        assert run_crawl(command(SEED)) == ExitCode.STORE_OR_JOB_IN_USE
    assert f"process {os.getpid()}" in capsys.readouterr().err


def test_added_seeds_are_told_when_the_job_is_held(capsys, impatient) -> None:
    """While it is in use nothing is added, and nothing is said to be."""
    run_crawl(command(SEED))
    with JobFolder.open(Path("job")):
        assert run_crawl(command(f"{SEED}2")) == ExitCode.STORE_OR_JOB_IN_USE
    assert "added" not in capsys.readouterr().out
    run_crawl(command(f"{SEED}2"))
    assert capsys.readouterr().out.startswith("job job: 1 seed added\n")


def test_an_edited_scope_does_not_make_a_job_another_crawls(capsys) -> None:
    """Its folder has its name of the seed only; what the command says of the scope is still compared."""
    run_crawl(command(SEED, job=None))
    order = Path("jobs/127.0.0.1/order.toml")
    text = order.read_text()
    assert "max_embeds = 2\n" in text
    order.write_text(text.replace("max_embeds = 2\n", "max_embeds = 3\n"))
    assert run_crawl(command(SEED, job=None, scope="page")) == ExitCode.USAGE
    assert "another crawl's job: [scope] scope is 'host' there and 'page' here; begin" in capsys.readouterr().err
    assert run_crawl(command(SEED, job=None)) == ExitCode.NO_SEED_ANSWERED
    err = capsys.readouterr().err
    assert err == f"anabranch: {order}: edited: [scope] max_embeds: 2 is now 3\n"
    order.write_text("no order")
    whole = Path("whole.toml")
    whole.write_text(text)
    assert run_crawl(command(SEED, job=None, order_file=whole)) == ExitCode.USAGE
    assert "[scope] max_embeds is 3 there and 2 here" in capsys.readouterr().err


@pytest.mark.parametrize(
    "named",
    [
        {"settings": UNREACHABLE},
        {
            "proxy": "http://u@127.0.0.1:1",
            "settings": ("fetch.proxy_resolves=true", "fetch.proxy_password_env=NOBODY_SETS_IT"),
        },
        {"proxy": "http://127.0.0.1:1"},
        {"job": Path("jobs", "x" * 300)},
    ],
    ids="-".join,
)
def test_a_start_that_fails_leaves_nothing_behind(capsys, named) -> None:
    """Whatever of the order is not to be had: no job's folder, and none around it."""
    named = {"job": None, "name": "new", **named}
    assert run_crawl(replace(command(SEED, **named), settings=(*SMALL, *named.pop("settings", ())))) != ExitCode.DONE
    assert "anabranch: " in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_an_unguarded_proxy_is_a_mistake_of_whoever_names_it(capsys, monkeypatch) -> None:
    """The mistake is the command line's or the order's; one line says what to set."""
    assert run_crawl(command(SEED, proxy="http://127.0.0.1:1")) == ExitCode.USAGE
    assert "[fetch] proxy_resolves = true" in capsys.readouterr().err
    monkeypatch.setenv("ANABRANCH_FETCH__PROXY", "http://127.0.0.1:1")
    assert run_crawl(command(SEED)) == ExitCode.BAD_ORDER
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
def test_a_start_that_fails_in_its_processes_leaves_nothing_behind() -> None:
    """Though the seeds are written down before they start."""
    proxy = (
        "--proxy",
        "http://u@127.0.0.1:1",
        "-s",
        "fetch.proxy_resolves=true",
        "-s",
        "fetch.proxy_password_env=NO_SUCH",
    )
    options = ("--processes", "2", *proxy)
    arguments = ["-m", "anabranch", "crawl", SEED, *options]
    run = forkserver.run(arguments, cwd=Path.cwd(), env=environment(), timeout=HANG_S)
    assert run.returncode == ExitCode.BAD_ORDER, run.stderr
    assert list(Path().iterdir()) == []


def test_a_start_that_fails_leaves_an_empty_folder_and_an_older_job_as_they_were(capsys) -> None:
    """A start that fails removes nothing that was there before it."""
    Path("empty").mkdir()
    assert run_crawl(command(SEED, job=Path("empty"), settings=UNREACHABLE)) != ExitCode.DONE
    assert list(Path("empty").iterdir()) == []
    run_crawl(command(SEED))
    before = Path("job/pages.jsonl").read_bytes(), Path("job/state/job.db").read_bytes()
    assert run_crawl(command(SEED, policy="host")) == ExitCode.BAD_ORDER
    assert (Path("job/pages.jsonl").read_bytes(), Path("job/state/job.db").read_bytes()) == before
    JobFolder.open(Path("job")).close()


# Seeds and order


@pytest.mark.parametrize("harm", ["deleted", "emptied"])
def test_a_job_that_lost_its_seeds_does_not_go_on(capsys, harm) -> None:
    """The scope of those in its order would end what another seed has opened. `add` brings them back."""
    run_crawl(command(SEED))
    file, order = Path("job/state/job.db"), Path("job/order.toml").read_bytes()
    if harm == "deleted":
        file.unlink()
    else:
        file.write_bytes(b"")
    for more in ({"limit": 7}, {"processes": 2}):
        assert run_crawl(command(SEED, **more)) == ExitCode.BAD_ORDER
    assert "job.db: has no seed, though" in capsys.readouterr().err
    assert Path("job/order.toml").read_bytes() == order
    assert run_operate("add", "job", {"sources": [SEED, f"{SEED}2"], "force": False}) == ExitCode.DONE
    assert run_crawl(command()) == ExitCode.NO_SEED_ANSWERED


def test_a_job_that_was_killed_before_it_had_its_seeds_begins(capsys) -> None:
    """Its queue is there, and empty."""
    with JobFolder.open(Path("job")) as job:
        open_job(job.state, CrawlOrder()).close()
        job.write_order(dump_order(CrawlOrder()))
    assert run_crawl(replace(command(SEED), settings=())) == ExitCode.NO_SEED_ANSWERED
    assert capsys.readouterr().err == ""


def test_without_a_seed_nothing_is_made(capsys) -> None:
    """Exit 2, and no folder."""
    assert run_crawl(command(job=None)) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("anabranch: there is no seed; name a URL")
    assert list(Path().iterdir()) == []


def test_what_is_no_seed_is_told_and_skipped(monkeypatch, capsys) -> None:
    """The others are crawled."""
    parts = Parts(monkeypatch)
    assert run_crawl(command(SEED, "ftp://a.test/")) == ExitCode.DONE
    assert [seed.url for seed in parts.controllers[0]._seeds] == [SEED]
    err = capsys.readouterr().err
    assert err.startswith("anabranch: command line: 'ftp://a.test/': ftp: is neither http: nor https:")
    assert err.endswith("; skipped\n")


def test_nothing_but_bad_seeds_is_told_in_one_line(capsys) -> None:
    """Exit 5, and no folder."""
    assert run_crawl(command("ftp://a.test/", "gopher://b.test/", job=None)) == ExitCode.NO_SEED_ANSWERED
    err = capsys.readouterr().err
    assert err.startswith("anabranch: no seed is left; command line: 'ftp://a.test/'")
    assert err.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_a_bad_seed_of_an_order_is_told_by_the_place_that_names_it(monkeypatch, capsys) -> None:
    """The lines are those of `config validate`; the good seeds keep the order or the file as their source."""
    Path("list.txt").write_text("b.test\nftp://y/\n")
    Path("order.toml").write_text('[job]\nseeds = ["a.test", "ftp://x/"]\nseed_files = ["list.txt"]\n')
    parts = Parts(monkeypatch)
    assert run_crawl(command(order_file=Path("order.toml"))) == ExitCode.DONE
    places = [line.partition("': ftp: is neither")[0] for line in capsys.readouterr().err.splitlines()]
    file = Path("list.txt").absolute()
    assert places == ["anabranch: order.toml: [job] seeds: 'ftp://x/", f"anabranch: {file}:2: 'ftp://y/"]
    found = [(seed.url, seed.source) for seed in parts.controllers[0]._seeds]
    assert found == [("http://a.test/", "crawl order"), ("http://b.test/", f"{file}:1")]


def test_seeds_of_the_order_are_taken_when_none_is_named(monkeypatch) -> None:
    """URLs and files of it."""
    Path("list.txt").write_text("b.test\n")
    Path("order.toml").write_text('[job]\nseeds = ["a.test"]\nseed_files = ["list.txt"]\n')
    parts = Parts(monkeypatch)
    run_crawl(command(order_file=Path("order.toml")))
    assert [seed.url for seed in parts.controllers[0]._seeds] == ["http://a.test/", "http://b.test/"]


def test_seeds_that_are_named_stand_in_for_those_of_the_order(monkeypatch) -> None:
    """Like any other flag."""
    Path("order.toml").write_text('[job]\nseeds = ["a.test"]\n')
    parts = Parts(monkeypatch)
    run_crawl(command("c.test", order_file=Path("order.toml")))
    assert [seed.url for seed in parts.controllers[0]._seeds] == ["http://c.test/"]


def test_the_runs_order_names_the_sources_that_were_really_used(monkeypatch) -> None:
    """Not those of the order file that others stood in for; so the job's order.toml tells where the crawl began."""
    Path("list.txt").write_text("b.test\n")
    Path("order.toml").write_text('[job]\nname = "n"\nseeds = ["a.test"]\n')
    parts = Parts(monkeypatch)
    run_crawl(command("c.test", "list.txt", order_file=Path("order.toml")))
    job = parts.controllers[0]._order.job
    assert (job.name, job.seeds, job.seed_files) == ("n", ("c.test",), (Path("list.txt"),))


def test_the_jobs_order_file_begins_the_same_crawl_again(tmp_path) -> None:
    """Whatever the command line said, and from any folder."""
    Path("list.txt").write_text(f"{SEED}listed\n")
    run_crawl(command(SEED, "list.txt"))
    order = load_order(Path("job/order.toml"), {})
    assert (order.job.seeds, order.job.seed_files) == ((SEED,), (tmp_path / "list.txt",))


def test_seeds_may_come_from_standard_input(monkeypatch) -> None:
    """One URL a line."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a.test\nb.test\n")))
    parts = Parts(monkeypatch)
    run_crawl(command("-"))
    assert [seed.url for seed in parts.controllers[0]._seeds] == ["http://a.test/", "http://b.test/"]


def test_without_a_folder_the_job_is_named_after_its_seeds(monkeypatch) -> None:
    """Below jobs/."""
    Parts(monkeypatch)
    run_crawl(command("www.a.test", job=None))
    assert Path("jobs/www.a.test/state").is_dir()


@pytest.mark.parametrize(
    ("flags", "said"),
    [({"workers": 0}, "--workers must be at least 1; not 0"), ({"policy": "nosuch"}, "policy nosuch is unknown")],
)
def test_a_bad_value_on_the_command_line_touches_nothing(capsys, flags, said) -> None:
    """Exit 2 as for every other slip of it, and no folder."""
    assert run_crawl(command(SEED, **flags)) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(f"anabranch: {said}")
    assert list(Path().iterdir()) == []


def test_a_bad_order_touches_nothing(capsys) -> None:
    """Exit 4, and no folder."""
    Path("x.toml").write_text("[crawl]\nworkers = 0")
    assert run_crawl(command(SEED, order_file=Path("x.toml"))) == ExitCode.BAD_ORDER
    assert capsys.readouterr().err == "anabranch: x.toml: [crawl] workers must be at least 1; not 0\n"
    assert [path.name for path in Path().iterdir()] == ["x.toml"]


def test_fresh_needs_no_consent_since_nothing_is_lost(monkeypatch, capsys) -> None:
    """An unfinished job is moved aside."""
    Parts(monkeypatch)
    run_crawl(command(SEED))
    capsys.readouterr()
    assert run_crawl(command(SEED, fresh=True)) == ExitCode.DONE
    (moved,) = Path().glob("job.previous-*")
    assert capsys.readouterr().out.startswith(f"the old job is now {moved}\n")


def test_the_old_job_comes_back_if_the_new_one_does_not_start(monkeypatch, capsys) -> None:
    """Else the next plain command would begin a new job."""
    run_crawl(command(SEED))
    before = sorted(Path().rglob("*"))
    capsys.readouterr()

    async def run(_: CrawlController) -> ExitCode:
        raise StoreLost("the store is gone")

    monkeypatch.setattr(CrawlController, "run", run)
    assert run_crawl(command(SEED, fresh=True)) != ExitCode.DONE
    assert capsys.readouterr().out.splitlines()[-1] == "the old job is job again"
    assert sorted(Path().rglob("*")) == before


def test_starting_afresh_without_a_seed_removes_nothing(capsys) -> None:
    """The seeds that the job has would go with it, and nothing would be crawled."""
    run_crawl(command(SEED))
    before = sorted(Path("job").rglob("*"))
    assert run_crawl(command(fresh=True, yes=True)) == ExitCode.USAGE
    assert "there is no seed" in capsys.readouterr().err
    assert sorted(Path("job").rglob("*")) == before


def test_what_keeps_another_round_from_beginning_is_told_with_the_way_out(monkeypatch, capsys) -> None:
    """Limits per host or group are the job's, from its own order too."""
    limits = (
        *SMALL,
        "limits.pages_per_host=3",
        "limits.time_per_host=9s",
        "politeness.group=domain",
        "limits.bytes_per_group=1MB",
    )
    run_crawl(replace(command(SEED), settings=limits))
    assert run_crawl(replace(command(), again=True, yes=True)) == ExitCode.USAGE
    none = "-s limits.pages_per_host=0 -s limits.time_per_host=0 -s limits.bytes_per_group=0"
    assert capsys.readouterr().err.endswith(f"earlier rounds too; add {none}\n")
    parts = Parts(monkeypatch)
    settings = (*SMALL, *none.replace("-s ", "").split())
    assert run_crawl(replace(command(), again=True, yes=True, settings=settings)) == ExitCode.DONE
    assert parts.controllers[0]._order.limits.pages_per_host == 0


# The outside


def test_the_second_signal_leaves_at_once_with_the_cursor_shown(monkeypatch) -> None:
    """A live display has hidden it."""
    left, shown = [], []
    parts = Parts(monkeypatch)
    run_crawl(command(SEED))
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(Console, "show_cursor", lambda console, *_: shown.append(console.stderr))
    parts.outside.force_exit()
    assert (left, shown) == ([ExitCode.FORCED], [True])


@pytest.mark.parametrize(("verbosity", "is_shown"), [(0, True), (-1, False)])
def test_progress_is_shown_unless_the_run_is_quiet(monkeypatch, verbosity, is_shown) -> None:
    """Either way until it is cancelled."""
    parts = Parts(monkeypatch)
    run_crawl(command(SEED, verbosity=verbosity))
    shows = []

    async def shown(take, console, display, interval_s) -> None:
        shows.append(display)
        await asyncio.Event().wait()

    monkeypatch.setattr(crawl_module, "show_progress", shown)

    async def show() -> bool:
        task = asyncio.create_task(parts.outside.show(dict))
        await asyncio.sleep(0)
        is_running = not task.done()
        task.cancel()
        await asyncio.wait([task])
        return is_running

    assert asyncio.run(show())
    assert shows == [Display.AUTO if is_shown else Display.NONE]


def test_what_standard_output_cannot_write_is_shown_as_escapes(monkeypatch) -> None:
    """A folder may have a name that is no text, and a terminal may know ASCII only."""
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    crawl_module._say("job f\udcffü\x1b[2J\nline\u202e\n")
    assert out.getvalue() == b"job f\\udcff\\xfc\\x1b[2J\nline\\u202e\n"


def test_a_reader_that_goes_away_does_not_end_the_crawl(tmp_path) -> None:
    """`anabranch crawl … | head -1`: the run goes on to its end, without a traceback."""
    program = f"""
from pathlib import Path
from anabranch.crawler.cli.crawl import CrawlCommand, run_crawl
import sys
sys.stdin.readline()
flags = {{"contact": "bot@example.org"}}
sys.exit(run_crawl(CrawlCommand(sources=({SEED!r},), order_file=None, job=Path("job"), fresh=False, yes=False,
                                verbosity=0, flags=flags)))
"""
    (tmp_path / "program.py").write_text(program)
    with blocking.Process(["program.py"], cwd=tmp_path, env=environment()) as process:
        process.stdout.close()
        process.stdin.write("go\n")
        process.stdin.close()
        assert process.stderr.read() == ""
        assert process.wait(HANG_S) == ExitCode.NO_SEED_ANSWERED
    assert Path("job/reports/crawl-report.txt").exists()


@pytest.mark.parametrize("outcome", [ExitCode.NO_SEED_ANSWERED, ExitCode.DISK_FULL])
def test_a_signal_that_comes_after_the_end_does_not_change_it(tmp_path: Path, outcome: ExitCode) -> None:
    """While the summary is made, the loop is closed, an error is written, and the interpreter ends."""
    program = f"""
import asyncio, atexit, os, signal, sys
from anabranch.crawler.run import controller
from anabranch.crawler.cli import crawl, main
from anabranch.crawler.outcomes.errors import DiskFull

def interrupt(*_):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)

def summary(facts):
    interrupt()
    if {outcome == ExitCode.DISK_FULL}:
        raise DiskFull("no space")
    return ""

def close(runner, close=asyncio.Runner.close):
    close(runner)
    interrupt()

controller.crawl_report = summary
asyncio.Runner.close = close
crawl.escaped = interrupt
atexit.register(interrupt)
sys.argv = ["anabranch", "crawl", {SEED!r}, "--job", "job"]
main()
"""
    (tmp_path / "program.py").write_text(program)
    ended = forkserver.run(["program.py"], cwd=tmp_path, env=environment(), timeout=HANG_S)
    assert ended.returncode == outcome, ended.stderr
