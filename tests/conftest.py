"""Fixtures for all rooms: the small web, a name server, small files, and a watch over tasks that a test leaves behind."""

import asyncio
import gc
import importlib
import inspect
import os
import resource
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.runtime import LoopFactory, loop_factory
from tests import costs
from tests.acceptance import forkserver
from tests.acceptance.command import LOOP
from tests.patience import FACTOR, patient
from tests.site.dns_server import DnsServer
from tests.site.pages import WEB
from tests.site.server import SmallWeb

#: Where Linux keeps files in memory, and the free bytes there that are enough for all tests of a run.
_MEMORY_DISK = Path("/dev/shm")
_MEMORY_DISK_LEAST = 4 << 30

#: Files below this folder whose slow tests take more than 20 s, by what they took, in CPU time or waiting; the longest first.
LONGEST = (
    "acceptance/test_outages.py",
    "faults/test_campaign.py",
    "acceptance/test_console_browser.py",
    "acceptance/test_database_access.py",
    "stress/test_lease_faults.py",
    "stress/test_cluster.py",
    "stress/test_damage.py",
    "acceptance/test_bad_input.py",
    "frontier/test_model.py",
    "crawler/console/test_api.py",
    "acceptance/test_many_machines.py",
    "acceptance/test_hostile.py",
    "acceptance/test_processes.py",
    "formats/test_formats.py",
    "benchmarks/crawl/test_race.py",
    "acceptance/test_restores.py",
    "contracts/test_frontier_stores_agree.py",
    "acceptance/test_plugin_docs.py",
    "dedup/test_crash.py",
    "acceptance/test_console_many_queues.py",
    "stress/test_frontier_survives_kills.py",
    "acceptance/test_console_pages_queues.py",
    "stress/test_fairness.py",
)

gc.disable()  # until all tests are collected: a fourth of what that takes


def pytest_collection(session: pytest.Session) -> None:
    """Each test process imports different tests first.

    In a fresh clone each module is compiled and its assertions are rewritten. Processes that import them in the same order
    do that several times: of three, all took 28 s of CPU time, and take 22.
    """
    config = session.config
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if not worker or config.args != config.getini("testpaths"):
        return
    files = sorted(path.relative_to(config.rootpath) for path in (config.rootpath / "tests").rglob("test_*.py"))
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # collecting it reports that
            importlib.import_module(".".join(file.with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Exclude all objects that exist after collection from garbage collection."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--loop", choices=("asyncio", "uvloop"), default="asyncio", help="what tests and crawls run on")
    parser.addoption("--costs", action="store_true", help="print what the tests of each folder cost")


@pytest.fixture(autouse=True)
def _events_as_at_the_start() -> Iterator[None]:
    """A crawl of a program sends events to `logging`, a command to its own log: neither may last for the next test."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout reads what is set here
def pytest_configure(config: pytest.Config) -> None:
    _keep_files_in_memory()
    if config.getoption("timeout") is None:
        config.option.timeout = patient(float(config.getini("timeout")))
    _take_back_ignored_signals()
    # Hypothesis' limits of time would fail tests on a busy machine.
    settings.register_profile("anabranch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("anabranch")
    costs.register(config)
    loop = config.getoption("--loop")
    os.environ[LOOP] = loop
    if loop == "uvloop":
        config.pluginmanager.register(OnUvloop())


@pytest.hookimpl(trylast=True)  # when those that are not asked for are gone
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files start first, so that none is alone at the end, where xdist itself starts with those of most tests.

    And a time-out that a test names for itself is multiplied, too.
    """
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: (*_rank(config, item.path, slow), -tests[item.path], item.path))
    for item in items if FACTOR != 1 else ():
        if (own := item.get_closest_marker("timeout")) and own.args:
            item.add_marker(pytest.mark.timeout(patient(own.args[0])), append=False)


def _rank(config: pytest.Config, file: Path, slow: Container[Path]) -> tuple[int, bool]:
    """Return a file's rank; the lower one starts earlier: slow tests of LONGEST, then tests that wait for processes."""
    name = file.relative_to(config.rootpath / "tests").as_posix()
    return (
        LONGEST.index(name) if file in slow and name in LONGEST else len(LONGEST),
        name.partition("/")[0] not in {"acceptance", "stress", "faults"},
    )


@pytest.hookimpl(trylast=True)  # when the other processes have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove what a whole run without failures leaves in memory: 1 GB."""
    config = session.config
    is_first = bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")
    if is_first and session.exitstatus == pytest.ExitCode.OK:
        factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined] - xdist takes it there, too
        shutil.rmtree(factory.getbasetemp(), ignore_errors=True)


def pytest_unconfigure() -> None:
    forkserver.close_all()


def _keep_files_in_memory() -> None:
    """Put the tests' folders on the machine's memory disk, if it has a large one and TMPDIR names no other place.

    A job syncs its files often, and waits a second for a busy disk in all. What a killed process has written is there
    either way; that the product syncs what a lost machine must not lose is a matter of tests of those calls.
    """
    if "TMPDIR" in os.environ or not _MEMORY_DISK.is_dir():
        return
    disk = os.statvfs(_MEMORY_DISK)
    if disk.f_bavail * disk.f_frsize >= _MEMORY_DISK_LEAST and not disk.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(_MEMORY_DISK)
        tempfile.tempdir = None  # it is looked up anew


def _take_back_ignored_signals() -> None:
    """Under nohup, or in a script's background, these are ignored, and every command that a test starts would inherit that."""
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)


class OnUvloop:
    """Has every async test run on uvloop."""

    def pytest_asyncio_loop_factories(self, config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
        return {"uvloop": _uvloop}


def _uvloop() -> asyncio.AbstractEventLoop:
    try:
        return loop_factory("uvloop")()
    except OrderError as error:
        pytest.skip(f"--loop uvloop: {error}")


@pytest.fixture
async def small_web() -> AsyncIterator[SmallWeb]:
    """The small web on a free port of 127.0.0.1, with a fresh ledger."""
    async with SmallWeb() as web:
        yield web


@pytest.fixture
async def dns_server() -> AsyncIterator[DnsServer]:
    """A name server that knows the hosts of the small web (all at 127.0.0.1); a test may add to its table."""
    async with DnsServer(dict.fromkeys(WEB, ("127.0.0.1",))) as server:
        yield server


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A command that has ended in this process ignores them, and would have what later tests start ignore them, too."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def no_task_left_behind(request: pytest.FixtureRequest) -> None:
    """Every async test must end the tasks that it started; sync tests get no event loop for this."""
    function = getattr(request.node, "obj", None)
    if inspect.iscoroutinefunction(inspect.unwrap(function) if function else None):
        marker = request.node.get_closest_marker("asyncio")
        of_session = marker is not None and marker.kwargs.get("loop_scope") == "session"
        request.getfixturevalue("_tasks_of_the_session_watched" if of_session else "_tasks_watched")


@pytest.fixture
async def _tasks_watched() -> AsyncIterator[None]:
    """Set up before a test's other fixtures and so torn down after them: what runs then was left behind."""
    async for _ in _watch_over_tasks():
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def _tasks_of_the_session_watched() -> AsyncIterator[None]:
    """Do what `_tasks_watched` does, for a test in the event loop of the session."""
    async for _ in _watch_over_tasks():
        yield


async def _watch_over_tasks() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    if left:
        names = ", ".join(sorted(f"{task.get_name()} {task.get_coro()!r}" for task in left))
        pytest.fail(f"the test left {len(left)} task(s) behind: {names}")


@pytest.fixture
def small_files() -> Iterator[int]:
    """Files may grow to this many bytes. (More than the tests' own output has, which may be a file.)"""
    most = 4 << 20
    action = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    yield most
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, action)
