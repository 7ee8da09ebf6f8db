"""Measures the cost of each test: CPU and clock, with its set-up and teardown, its threads and its child processes.

A plug-in of pytest. A run ends with the tests that took more than LISTED_S of CPU time, and fails if an unmarked one took
more than MOST_S. CPU seconds are those of a reference machine: measured ones, divided by what a fixed loop takes in the same
run. `--costs` prints a table by folder. `python -m tests.costs` prints the last whole run.

A test's CPU is that of its process, of the children that have ended, and of the descendants that live, by the difference
of two readings. Servers that are no descendants are named by `count`. What a fork server imports and the start of the
PostgreSQL server are no test's cost: whichever test comes first in a process starts them. Cost: 0.1 ms a test.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import forkserver

#: A test that takes more CPU seconds is listed.
LISTED_S = 1.0
#: An unmarked test that takes more CPU seconds fails the run. Make it cheaper, or mark it `slow`.
MOST_S = 3.0
#: CPU seconds of the loop on the reference machine: one of two quiet cores of an AMD EPYC, Python 3.11.
REFERENCE_S = 0.0068
#: The loop runs again after so many seconds: the machine's speed changes during a run.
_AGAIN_S = 5.0

_TICKS = os.sysconf("SC_CLK_TCK")
_LAST_RUN = "anabranch/last_run"
_REPOSITORY = Path(__file__).resolve().parent.parent
#: Where pytest's cache keeps it.
_FILE = _REPOSITORY / ".pytest_cache" / "v" / _LAST_RUN
#: What a run without a test says.
_NO_TESTS = "no test was run; scripts/test --slow PATH and --all PATH include the slow ones"
#: The whole runs, by their tests, with the earlier ones whose figures stay: those of other tests.
_WHOLE_RUNS = {"slow": ("not slow", "slow or not slow"), "not slow": ("slow",), "slow or not slow": ()}
#: Processes that count though this process did not start them.
_servers: set[int] = set()
#: CPU seconds of what was started for all tests of this process.
_shared_s: list[float] = []


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one test."""

    test: str
    cpu_s: float
    clock_s: float
    is_slow: bool


def register(config: pytest.Config) -> None:
    """Measure in the processes that run tests, report in the one that has the terminal."""
    runs_tests = hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None)
    measured = Measured() if runs_tests else None
    if measured is not None:
        config.pluginmanager.register(measured)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reported(measured))


def count(server: int) -> None:
    """Count what this process, a daemon, takes while a test runs."""
    _servers.add(server)


@contextmanager
def shared_start() -> Iterator[None]:
    """Exclude what is started here from the cost of the test that starts it: it serves all tests of this process."""
    before_s = cpu_s()
    yield
    _shared_s.append(cpu_s() - before_s)


def loop() -> int:
    """The loop that the machine's speed is measured by: what tests spend their time on, small objects and calls."""
    total = 0
    for number in range(60):
        rows = [{"url": f"http://a.test/{number}/{place}", "depth": place % 7} for place in range(100)]
        total += sum(len(row["url"]) for row in sorted(rows, key=lambda row: (row["depth"], row["url"])))
        total += len(json.loads(json.dumps(rows)))
    return total


def loop_s() -> float:
    """CPU seconds of one loop."""
    started_s = time.thread_time()
    loop()
    return time.thread_time() - started_s


def cpu_s() -> float:
    """CPU seconds of this process, of its children that have ended, and of its descendants."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) + sum(map(_used_s, _descendants()))


def _descendants() -> Iterator[int]:
    waiting = [*_children(os.getpid()), *_servers]
    while waiting:
        yield (process := waiting.pop())
        waiting += _children(process)


def _children(process: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):  # it has ended, or this system has no /proc
        for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208 - 11,000 times
            children += map(int, _read(f"/proc/{process}/task/{thread}/children").split())
    return children


def _used_s(process: int, *, and_by_its_children: bool = True) -> float:
    """CPU seconds of a process, and of its children that have ended."""
    fields = slice(11, 15 if and_by_its_children else 13)  # utime, stime, cutime, cstime
    with suppress(OSError):
        return sum(map(int, _read(f"/proc/{process}/stat").rpartition(b")")[2].split()[fields])) / _TICKS
    return 0.0


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


class Measured:
    """Measures the tests that run in this process."""

    def __init__(self) -> None:
        self.costs: list[tuple[str, float, float, bool]] = []
        self.loops_s = [loop_s() for _ in range(5)]
        self._loop_at_s = time.monotonic() + _AGAIN_S

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what this test takes from its set-up to the end of its teardown."""
        if time.monotonic() > self._loop_at_s:
            self.loops_s.append(loop_s())
            self._loop_at_s = time.monotonic() + _AGAIN_S
        cpu, clock, servers = cpu_s() - sum(_shared_s), time.monotonic(), forkserver.servers()
        try:
            return (yield)
        finally:
            is_slow = item.get_closest_marker("slow") is not None
            started_s = sum(_used_s(one, and_by_its_children=False) for one in forkserver.servers() - servers)
            used_s = cpu_s() - sum(_shared_s) - cpu - started_s
            self.costs.append((item.nodeid, used_s, time.monotonic() - clock, is_slow))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand them to the process that reports."""
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["costs"] = (self.costs, self.loops_s)


class Reported:
    """Reports what the tests of all processes took."""

    def __init__(self, measured: Measured | None) -> None:
        self._measured = measured
        self._costs: list[Cost] = []
        self._loops_s: list[float] = []
        self._started_s = time.monotonic()
        #: Of the programs that the process ran before it became pytest.
        self._before_s = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

    @pytest.hookimpl(optionalhook=True)  # xdist's
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a process of its own has measured; one that broke down has nothing."""
        self._take(*getattr(node, "workeroutput", {}).get("costs", ((), ())))

    def _take(self, costs: Iterable[tuple[str, float, float, bool]], loops_s: Iterable[float]) -> None:
        self._loops_s += loops_s
        self._costs += (Cost(*cost) for cost in costs)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if an unmarked test is too expensive."""
        if self._measured is not None:
            self._take(self._measured.costs, self._measured.loops_s)
        failed = too_expensive(self._costs, self._unit())
        if failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:  # so that the last line counts them, too
            terminal.stats.setdefault("failed", []).extend(map(_failure, failed))

    def _unit(self) -> float:
        return statistics.median(self._loops_s) / REFERENCE_S if self._loops_s else 1.0

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
        """Print what was skipped for want of something, what was expensive, and keep the figures for `scripts/check`."""
        skipped = terminalreporter.stats.get("skipped", [])
        for line in missing(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)):
            terminalreporter.write_line(line)
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            terminalreporter.write_line(_NO_TESTS)
        if not self._costs:
            return
        run = Run.of(self._costs, self._unit(), time.monotonic() - self._started_s, cpu_s() - self._before_s)
        for line in (*(by_folder(self._costs, self._unit()) if config.getoption("costs") else ()), *run.lines()):
            terminalreporter.write_line(line)
        is_whole = config.args == config.getini("testpaths") and not config.getoption("keyword")
        is_whole = is_whole and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        cache = getattr(config, "cache", None)  # there is none with -p no:cacheprovider
        which = config.getoption("markexpr")
        if is_whole and cache is not None and which in _WHOLE_RUNS:
            runs = cache.get(_LAST_RUN, {})
            kept = {other: runs[other] for other in _WHOLE_RUNS[which] if other in runs}
            cache.set(_LAST_RUN, {**kept, which: asdict(run)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The figures of a run."""

    tests: int
    clock_s: float
    cpu_s: float  #: as measured, collection and everything else included
    unit: float  #: how much longer the loop took than on the reference machine
    listed: list[tuple[str, float]]  #: tests above LISTED_S, the most expensive first; seconds of the reference machine
    failed: list[str]  #: those that fail the run

    @classmethod
    def of(cls, costs: Iterable[Cost], unit: float, clock_s: float, total_s: float) -> Run:
        """The figures of these tests; the run took `clock_s` and `total_s` of CPU time."""
        costs = sorted(costs, key=lambda cost: -cost.cpu_s)
        return cls(
            tests=len(costs),
            clock_s=clock_s,
            cpu_s=total_s,
            unit=unit,
            listed=[(cost.test, cost.cpu_s / unit) for cost in costs if cost.cpu_s / unit > LISTED_S],
            failed=too_expensive(costs, unit),
        )

    def lines(self) -> Iterator[str]:
        """Yield the lines that a run prints of them at its end."""
        for test, seconds in self.listed:
            verdict = f"  FAILS: more than {MOST_S:g} s, and not marked slow" if test in self.failed else ""
            yield f"{seconds:6.1f} s CPU  {test[:150]}{verdict}"
        yield (
            f"{self.tests} tests took {self.clock_s:.1f} s and {self.cpu_s:.1f} s of CPU time: {self.cpu_s / self.unit:.1f} s "
            f"on the reference machine (this one: {self.unit:.2f} x); {len(self.listed)} took more than {LISTED_S:g} s each"
        )


def _failure(test: str) -> pytest.TestReport:
    """The report of a test that passed and fails the run."""
    return pytest.TestReport(
        nodeid=test,
        location=(test.partition("::")[0], None, test.rpartition("::")[2]),
        keywords={},
        outcome="failed",
        longrepr=f"more than {MOST_S:g} s of CPU time, and not marked slow",
        when="call",
    )


def too_expensive(costs: Iterable[Cost], unit: float) -> list[str]:
    """The unmarked tests that take more than MOST_S on the reference machine."""
    return [cost.test for cost in costs if not cost.is_slow and cost.cpu_s / unit > MOST_S]


def by_folder(costs: Iterable[Cost], unit: float) -> Iterator[str]:
    """A table in Markdown: tests, CPU and clock of each folder, the most expensive first; seconds of the reference machine."""
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for cost in costs:
        total = sums[folder(cost.test)]
        for place, amount in enumerate((1, cost.cpu_s / unit, cost.clock_s / unit)):
            total[place] += amount
    yield from ("| folder | tests | CPU s | clock s |", "|---|---:|---:|---:|")
    for name, (tests, cpu, clock) in sorted(sums.items(), key=lambda one: -one[1][1]):
        yield f"| `{name}` | {tests:,.0f} | {cpu:.1f} | {clock:.1f} |"


def folder(test: str) -> str:
    """The folder of a test below `tests`; in the rooms one level deeper."""
    parts = test.partition("::")[0].split("/")[:-1]
    return "/".join(parts[: 3 if parts[1:2] and parts[1] in ("crawler", "frontier", "dedup") else 2])


def missing(reasons: Iterable[str]) -> Iterator[str]:
    """A line for each reason for which tests were skipped, with their number."""
    counts: defaultdict[str, int] = defaultdict(int)
    for reason in reasons:
        counts[reason.removeprefix("Skipped: ")] += 1
    for reason, number in sorted(counts.items()):
        yield f"skipped {number}: {reason}"


def main() -> int:
    """Print the figures of the last whole runs; 1 if a test was too expensive."""
    runs = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    if not runs:
        print("no whole run of scripts/test is known")
    for which, figures in runs.items():
        run = Run(**figures)
        print(f"last run of tests that are {which}:", *run.lines(), sep="\n")
    return int(any(figures["failed"] for figures in runs.values()))


if __name__ == "__main__":
    sys.exit(main())
