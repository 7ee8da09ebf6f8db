"""A run measures the CPU time of each test, lists the expensive ones, and fails for one that is too expensive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.acceptance import forkserver
from tests.conftest import LONGEST
from tests.costs import (
    LISTED_S,
    MOST_S,
    REFERENCE_S,
    Cost,
    Measured,
    Reported,
    Run,
    by_folder,
    cpu_s,
    missing,
    too_expensive,
)

#: A process that works a little, says how long, and stays until its input ends.
WORKER = "import sys, time; sum(range(2_000_000)); print(time.process_time(), flush=True); sys.stdin.read()"

#: Where the system tells what a living process has used.
HAS_PROC = Path("/proc/self/stat").exists()


def cost(cpu: float, test: str = "tests/dedup/test_keys.py::test_x", *, is_slow: bool = False) -> Cost:
    return Cost(test, cpu, 2 * cpu, is_slow)


@pytest.mark.parametrize(
    "ends",
    [pytest.param(False, marks=pytest.mark.skipif(not HAS_PROC, reason="this system has no /proc")), True],
    ids=["it lives", "it has ended"],
)
def test_a_child_process_counts_while_it_lives_and_after_its_end(ends: bool) -> None:
    """The system counts the first in ticks, the second in microseconds."""
    before_s = cpu_s()
    with subprocess.Popen([sys.executable, "-S", "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        used_s = float(child.stdout.readline())
        if not ends:
            assert cpu_s() - before_s > used_s / 2
    assert cpu_s() - before_s > used_s / 2


@pytest.mark.skipif(not forkserver.FORKS, reason="processes are not forked here")
def test_what_a_fork_server_imports_is_no_cost_of_the_test_that_starts_it(tmp_path: Path) -> None:
    """Otherwise the order of the tests would decide which of them is too expensive."""
    measured = Measured()
    item = SimpleNamespace(nodeid="a", get_closest_marker=lambda _: None)
    run, before = measured.pytest_runtest_protocol(item), forkserver.servers()  # type: ignore[arg-type]
    next(run)
    used_s = cpu_s()
    forkserver.run(["-c", "pass"], cwd=tmp_path, env=os.environ, preload=(*forkserver.DEDUP, "json"))
    used_s = cpu_s() - used_s
    with pytest.raises(StopIteration):
        next(run)
    assert len(forkserver.servers() - before) == 1
    assert measured.costs[0][1] < used_s / 2


def test_an_unmarked_test_may_take_three_seconds_and_a_slow_one_what_it_needs() -> None:
    """The bound is in seconds of the reference machine: a machine that is half as fast has twice as many."""
    costs = [cost(MOST_S + 0.1, "a"), cost(MOST_S - 0.1, "b"), cost(100.0, "c", is_slow=True)]
    assert too_expensive(costs, 1.0) == ["a"]
    assert too_expensive(costs, 2.0) == []


@pytest.mark.parametrize(("cpu", "status"), [(MOST_S + 1, pytest.ExitCode.TESTS_FAILED), (0.1, pytest.ExitCode.OK)])
def test_a_test_that_is_too_expensive_fails_the_run(cpu: float, status: pytest.ExitCode) -> None:
    """It fails even if all tests have passed, and the last line counts it."""
    terminal = SimpleNamespace(stats={})
    config = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda _: terminal))
    reported, session = Reported(None), SimpleNamespace(exitstatus=pytest.ExitCode.OK, config=config)
    reported.pytest_testnodedown(SimpleNamespace(workeroutput={"costs": ([("a", cpu, cpu, False)], [REFERENCE_S])}))
    reported.pytest_sessionfinish(session)  # type: ignore[arg-type]
    assert session.exitstatus is status
    assert [report.nodeid for report in terminal.stats["failed"]] == (["a"] if status else [])


def test_a_process_of_tests_that_broke_down_costs_nothing() -> None:
    """It has nothing to report, and the run goes on."""
    Reported(None).pytest_testnodedown(SimpleNamespace())


def test_what_took_more_than_a_second_is_listed_the_most_expensive_first() -> None:
    """The line of a test that fails the run says so."""
    run = Run.of([cost(LISTED_S + 0.5, "b"), cost(MOST_S + 2, "a"), cost(0.1, "c")], 1.0, 60.0, 100.0)
    first, second, total = run.lines()
    assert "5.0 s CPU  a" in first
    assert "FAILS" in first
    assert "1.5 s CPU  b" in second
    assert "FAILS" not in second
    assert total.startswith("3 tests took 60.0 s and 100.0 s of CPU time")


def test_folders_are_listed_by_what_their_tests_cost() -> None:
    """In a room each folder has its own line."""
    costs = [
        cost(1.0, "tests/dedup/bloom/test_bits.py::test_a"),
        cost(2.0, "tests/acceptance/test_crawl.py::test_b"),
        cost(4.0, "tests/dedup/bloom/test_tree.py::test_c[x/y]"),
        cost(0.5, "tests/test_costs.py::test_d"),
    ]
    assert [line.split("|")[1:4] for line in list(by_folder(costs, 2.0))[2:]] == [
        [" `tests/dedup/bloom` ", " 2 ", " 2.5 "],
        [" `tests/acceptance` ", " 1 ", " 1.0 "],
        [" `tests` ", " 1 ", " 0.2 "],
    ]


def test_a_run_says_what_was_skipped_for_want_of_what() -> None:
    """Each reason has one line, with the number of tests."""
    reasons = ["Skipped: no nginx", "Skipped: no fish", "Skipped: no nginx"]
    assert list(missing(reasons)) == ["skipped 1: no fish", "skipped 2: no nginx"]


def test_the_files_that_start_first_are_there() -> None:
    """And have slow tests: another file is not one of the longest."""
    tests = Path(__file__).parent
    assert [name for name in LONGEST if "pytest.mark.slow" not in (tests / name).read_text()] == []
