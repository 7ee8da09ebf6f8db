"""A job folder is data: no command imports a module that only the folder names."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.crawler.cli.app import app
from anabranch.crawler.cluster.agreement import Applicant, Wanted, join
from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.launching import StartFailed
from anabranch.crawler.job.database import JobDatabase
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job, open_share_holder
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import ExitCode
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind
from anabranch.frontier.stores.sql.worker import WorkerIdentity
from tests.acceptance.command import SMALL_FILTER
from tests.crawler.cli.conftest import _commands_built_once  # noqa: F401 - a fixture for this file, too
from tests.crawler.cluster.stores import shared_store

URL = "http://a.test/1"
SEED = Seed(url="http://a.test/", source="command line")
#: Functions of every kind. The job is made with them; then the module is replaced by one that leaves a mark.
GOOD = """
import hashlib
def rule(target): return None
def key(url): return url
def body(head): return None
async def processor(visit): return None
def policy(url): return "q"
def cost(url, via, hops): return 1
def uris(candidate, via): return 1
def queues(history): return 1
def group(host): return None
def signature(key): return hashlib.md5(key).digest()
def feature(parts): return parts[0]
class Sink:
    def __init__(self, folder): pass
    async def write(self, pages): pass
class Filter:
    blocks = False
    def __init__(self, folder): self.keys = set()
    def unseen(self, keys): return [key not in self.keys for key in keys]
    def mark(self, keys): self.keys.update(keys)
    def sync(self): pass
    def position(self): return ""
    def close(self): pass
    def facts(self): return {}
"""
MODULE = "mods_of_a_job"
CRAWLERS = {
    "scope": {"rules": [f"{MODULE}:rule"]},
    "urls": {"canonicalization": ["fragment", f"{MODULE}:key"]},
    "fetch": {"body_rules": [f"{MODULE}:body"]},
    "job": {"processors": [f"{MODULE}:processor"], "sinks": [f"{MODULE}:Sink"]},
    "dedup": {**SMALL_FILTER, "similar": "published", "similar_features": ["site", f"{MODULE}:feature"]},
}
POLICIES = {
    "frontier": {
        "policy": f"{MODULE}:policy",
        "cost": f"{MODULE}:cost",
        "uri_precedence": f"{MODULE}:uris",
        "queue_precedence": f"{MODULE}:queues",
    },
    "politeness": {"group": f"{MODULE}:group"},
    "dedup": SMALL_FILTER,
}
ORDERS = {
    "crawler": CRAWLERS,
    "policies": POLICIES,
    "filter": {"dedup": {"filter": f"{MODULE}:Filter"}},
    "signature": {"dedup": {**SMALL_FILTER, "filter": "smm", "signature": f"{MODULE}:signature"}},
}
READING = [
    ["status", "ev"],
    ["status", "ev", "--json"],
    *(
        ["report", "ev", name]
        for name in ("crawl-summary", "seeds", "hosts", "filter", "frontier-summary", "frontier-nonempty")
    ),
    ["jobs", "."],
    ["jobs", ".", "--json"],
    ["why", "ev", URL],
    ["why", "ev", "http://a.test/unknown", "--json"],
    ["frontier", "ls", "ev"],
    ["frontier", "show", "ev", URL],
    ["frontier", "dump", "ev"],
    ["config", "show", "--job", "ev"],
    ["index", "ev"],
    ["export", "ev", "--to", "csv", "--force"],
    ["set", "ev", "limits.pages=5"],
]
CHANGING = [
    ["add", "ev", "http://a.test/2"],
    ["crawl", "--job", "ev", "-q"],
    ["crawl", "http://a.test/", "--job", "ev", "--again", "--yes", "-q"],
    ["divide", "ev"],
    ["frontier", "load", "ev", "dump.jsonl"],
    ["frontier", "rebuild-filter", "ev"],
    ["retry", "ev"],
    ["add", "ev", "--force", "http://a.test/2"],
    ["frontier", "rm", "ev", "--url", "nothing", "--yes"],
    ["frontier", "block", "ev", "a.test"],
    ["frontier", "unblock", "ev", "a.test"],
    ["frontier", "pause", "ev", "a.test"],
    ["frontier", "set-budget", "ev", "a.test", "5"],
]


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in list(os.environ):
        if name.startswith("ANABRANCH_") or name == "PYTHONPATH":
            monkeypatch.delenv(name)
    yield
    sys.modules.pop(MODULE, None)


def make_job(directory: Path, tables: dict[str, dict[str, object]]) -> None:
    """A stopped job with these user functions, from a folder inside of it; importing them leaves the file MARK."""
    with good_module(directory):
        order = order_with(directory, {"frontier": {"policy": "host"}, **tables})
        with JobFolder.open(directory) as job:
            job.write_order(dump_order(order))
            with open_job(job.state, order) as frontier:
                take_page(frontier)
            with opened_seeds(job.state) as recorded:
                recorded.add_all([SEED])


@contextmanager
def good_module(directory: Path) -> Iterator[None]:
    """While inside, the functions can be imported; afterwards the folder has a module of that name that leaves MARK."""
    modules = directory.parent / "made" / "mods"
    modules.mkdir(parents=True, exist_ok=True)
    (modules / f"{MODULE}.py").write_text(GOOD)
    sys.path.insert(0, str(modules))
    importlib.invalidate_caches()
    sys.modules.pop(MODULE, None)
    yield
    sys.path.remove(str(modules))
    sys.modules.pop(MODULE, None)
    mark = directory.parent / "MARK"
    (directory / "mods").mkdir()
    (directory / "mods" / f"{MODULE}.py").write_text(
        f"import pathlib; pathlib.Path({str(mark)!r}).write_text('ran')\n{GOOD}"
    )
    importlib.invalidate_caches()


def order_with(directory: Path, tables: dict[str, dict[str, object]]) -> CrawlOrder:
    """The order with these tables, whose functions are in the job's folder."""
    return CrawlOrder.model_validate({**tables, "job": {**tables.get("job", {}), "modules": str(directory / "mods")}})


def take_page(frontier: Frontier) -> None:
    """Queue two URLs, and finish the first."""
    frontier.schedule([Candidate(SEED.url), Candidate(URL)])
    while (lease := frontier.lease()) is None:
        frontier.flush()
    now_s = frontier.now_s()
    frontier.finish(lease, Outcome(OutcomeKind.DONE, 200, now_s, now_s))


def make_shared_job(directory: Path, store: Path | str, tables: dict[str, dict[str, object]]) -> None:
    """Make a job as `make_job` does, for several workers."""
    place = {} if isinstance(store, Path) else {"store": store}
    (directory / "state").mkdir(parents=True)
    with good_module(directory), JobDatabase(store) as database:
        order = order_with(directory, {**tables, "frontier": {**tables["frontier"], **place, "shares": 4}})
        if isinstance(store, Path):
            with JobFolder.open(directory) as job:
                job.write_order(dump_order(order))
        join(database, Wanted(order, [SEED]), Applicant("a", "token", is_named=False))
        with open_share_holder(directory / "w", order, WorkerIdentity(name="a", token="token"), store) as frontier:
            take_page(frontier)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A job of each order; a copy is cheaper than a job."""
    folders = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "path", [*sys.path])
        for name, tables in ORDERS.items():
            folders[name] = tmp_path_factory.mktemp(name)
            make_job(folders[name] / "ev", tables)
    return folders


@pytest.fixture
def hostile(made, tmp_path):
    """Copy the job of an order to ev; what shows whether its code ran."""

    def copied(name: str) -> Path:
        shutil.copytree(made[name] / "ev", tmp_path / "ev")
        for file in (tmp_path / "ev" / "order.toml", tmp_path / "ev" / "mods" / f"{MODULE}.py"):
            file.write_text(file.read_text().replace(str(made[name]), str(tmp_path)))
        (tmp_path / "ev" / "state" / "order.toml").unlink()
        (tmp_path / "dump.jsonl").write_text('{"anabranch": "frontier", "version": 1}\n{"end": true}\n')
        return tmp_path / "MARK"

    return copied


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    return done.exit_code, done.output


@pytest.mark.parametrize("order", ORDERS)
def test_reading_commands_run_no_code_of_the_folder(order, hostile):
    """All of them answer all the same."""
    mark = hostile(order)
    for words in READING:
        code, output = run(*words)
        assert not mark.exists(), words
        assert MODULE not in sys.modules, words
        assert code == 0, (words, output)


@pytest.mark.parametrize("order", ORDERS)
def test_changing_commands_run_no_code_of_the_folder(order, hostile, made):
    """A command that would have to run it is refused in one line that names the alternatives, and nothing is changed."""
    mark = hostile(order)
    refused = 0
    for words in CHANGING:
        code, output = run(*words)
        assert not mark.exists(), words
        assert MODULE not in sys.modules, words
        if "--run-code" in output:
            refused += 1
            assert code == ExitCode.USAGE
            assert output.count("\n") == 1
            assert "PYTHONPATH" in output
            assert "-c FILE" in output
    assert refused >= 3


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:getoutput", "builtins:eval", "pydoc:locate", "anabranch.crawler.api:run"]
)
def test_a_function_that_is_importable_everywhere_is_not_named_by_the_caller(name, hostile, monkeypatch):
    """Python's own functions, and those of installed packages, would be given URLs of the folder's choice."""
    hostile("crawler")
    order = Path("ev/order.toml")
    order.write_text(order.read_text().replace(f"{MODULE}:key", name).replace(f"{MODULE}:rule", name))
    monkeypatch.setenv("PYTHONPATH", "")
    code, output = run("why", "ev", URL)
    assert code == 0
    assert f"[urls] canonicalization {name}" in output
    assert run("crawl", "--job", "ev", "-q")[0] == ExitCode.USAGE


def test_why_names_the_rules_that_it_does_not_run(hostile):
    """With --run-code it runs them."""
    mark = hostile("crawler")
    _, output = run("why", "ev", URL)
    assert f"[scope] rules {MODULE}:rule" in output
    assert "--run-code" in output
    assert json.loads(run("why", "ev", URL, "--json")[1])["not_run"][:2] == [
        f"[urls] canonicalization {MODULE}:key",
        f"[scope] rules {MODULE}:rule",
    ]
    code, output = run("why", "ev", URL, "--run-code")
    assert code == 0
    assert "not run" not in output
    assert mark.exists()


@pytest.mark.parametrize("order", ORDERS)
def test_a_caller_names_the_code_by_its_folder(order, hostile, made, tmp_path, monkeypatch):
    """PYTHONPATH, ANABRANCH_JOB__MODULES or -s job.modules: functions come from there, not from the job's folder."""
    mark = hostile(order)
    good = str(made[order] / "made" / "mods")
    monkeypatch.setenv("PYTHONPATH", good)
    monkeypatch.setattr(sys, "path", [good, *sys.path])
    for words in (["why", "ev", URL], ["frontier", "ls", "ev"], ["add", "ev", "http://a.test/3"]):
        code, output = run(*words)
        assert code == 0, output
        assert "not run" not in output
    assert not mark.exists()
    monkeypatch.delenv("PYTHONPATH")
    sys.path.remove(good)
    sys.modules.pop(MODULE, None)
    monkeypatch.setenv("ANABRANCH_JOB__MODULES", good)
    assert "not run" not in run("why", "ev", URL)[1]
    assert not mark.exists()
    monkeypatch.delenv("ANABRANCH_JOB__MODULES")
    sys.modules.pop(MODULE, None)
    assert "not run" not in run("why", "ev", URL, "-s", f"job.modules={good}")[1]
    assert not mark.exists()


def test_a_job_that_lies_on_the_python_path_is_not_on_it(hostile, monkeypatch, tmp_path):
    """PYTHONPATH=. does not vouch for the package that a folder below makes of itself."""
    hostile("crawler")
    order = Path("ev/order.toml")
    order.write_text(order.read_text().replace(f"{MODULE}:", f"ev.mods.{MODULE}:"))
    for folder in ("ev", "ev/mods"):
        Path(folder, "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    code, output = run("why", "ev", URL)
    assert code == 0
    assert f"ev.mods.{MODULE}:rule" in output
    assert not Path("MARK").exists()


def test_a_filter_whose_record_names_a_function_imports_none(hostile):
    """The order names the default filter, the filter's own record a signature of the folder."""
    mark = hostile("signature")
    order = Path("ev/order.toml")
    order.write_text(order.read_text().replace(f"{MODULE}:signature", "crc32"))
    monkeypatched = Path("ev/mods").absolute()
    sys.path.insert(0, str(monkeypatched))
    code, output = run("frontier", "ls", "ev")
    assert code == ExitCode.BAD_ORDER
    assert "has the filter smm" in output
    assert not mark.exists()


def test_the_command_that_began_a_job_with_an_order_goes_on_with_it(hostile, tmp_path):
    """-c FILE names the functions, and the folder of the file has them."""
    mark = hostile("crawler")
    good = tmp_path / "own"
    good.mkdir()
    (good / f"{MODULE}.py").write_text(GOOD)
    shutil.copy("ev/order.toml", good / "order.toml")
    text = (good / "order.toml").read_text().replace(f'modules = "{tmp_path}/ev/mods"\n', "")
    (good / "order.toml").write_text(text)
    code, output = run("why", "ev", URL, "-c", str(good / "order.toml"))
    assert code == 0
    assert "not run" not in output
    assert not mark.exists()
    code, output = run("crawl", "-c", str(good / "order.toml"), "--job", "ev", "--time-limit", "0.1s", "-q")
    assert "only the job itself" not in output
    assert not mark.exists()


@pytest.mark.parametrize("order", ["crawler", "policies"])
def test_the_console_runs_no_code_of_the_folder(order, hostile):
    """Its own process never does."""
    mark = hostile(order)
    jobs = ConsoleJobs(".")
    job = jobs.job("ev")
    assert jobs.row("ev")["job"] == "ev"
    assert job.status()["totals"]["pending"] == 1
    assert job.answer("why", {"url": URL}).facts["not_run"]
    assert job.answer("ls", {"limit": 5, "state": None}).facts["queues"]
    assert job.report({"name": "seeds", "limit": 5})["rows"]
    assert job.order().scope.rules == CrawlOrder.model_validate(ORDERS[order]).scope.rules
    assert not mark.exists()
    assert MODULE not in sys.modules


def test_a_crawl_that_the_console_starts_runs_no_code_of_the_folder(hostile):
    """It refuses, as the command itself does for each order, unless the console was started with --run-code."""
    mark = hostile("crawler")
    with pytest.raises(StartFailed, match="--run-code"):
        ConsoleJobs(".").start("ev")
    assert not mark.exists()


#: The job of several workers is the same with all policies of its own, or with all but the group, which divides the hosts.
SHARED = {"all": POLICIES, "no group": {name: table for name, table in POLICIES.items() if name != "politeness"}}


@pytest.mark.parametrize(
    ("kind", "tables"),
    [
        *(("file", SHARED["all"]), ("server", SHARED["no group"])),
        *(
            pytest.param(*rest, marks=pytest.mark.slow)
            for rest in (("file", SHARED["no group"]), ("server", SHARED["all"]))
        ),
    ],
)
def test_a_job_of_several_workers_is_read_without_its_code(kind, tables, tmp_path):
    """From a copy of its rows, whose counts, states and dump are those of the job; what would change it is refused."""
    with shared_store(kind, tmp_path / "ev" / "state") as store:
        make_shared_job(tmp_path / "ev", store, tables)
        mark = tmp_path / "MARK"
        job = "ev" if kind == "file" else str(store)
        for words in (
            ["report", job, "seeds"],
            ["report", job, "crawl-summary"],
            ["frontier", "ls", job],
            ["status", job],
        ):
            code, output = run(*words)
            assert code == 0, (words, output)
        facts = json.loads(run("why", job, URL, "--json")[1])
        assert (facts["explanation"]["state"], facts["not_run"][0]) == ("queued", f"[frontier] policy {MODULE}:policy")
        assert json.loads(run("why", job, "http://a.test/", "--json")[1])["explanation"]["state"] == "ended"
        listed = [json.loads(line) for line in run("frontier", "dump", job)[1].splitlines() if '"url"' in line]
        assert {line["url"]: line.get("outcome", "queued") for line in listed} == {
            "http://a.test/": "done",
            URL: "queued",
        }
        for words in (["add", job, "http://a.test/2"], ["frontier", "block", job, "a.test"], ["retry", job]):
            code, output = run(*words)
            assert (code, "--run-code" in output) == (ExitCode.USAGE, True), (words, output)
        assert not mark.exists()
        assert MODULE not in sys.modules
        code, output = run("why", job, URL, "--run-code")
        assert (code, "not run" in output, mark.exists()) == (0, False, True), output
