"""`anabranch lab redis`: the shape of its filters, its threads, its wire, and a small run on real servers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch.crawler.lab.filters import redis
from anabranch.crawler.lab.filters.redis import (
    ROUNDS,
    RedisOptions,
    RedisRound,
    RedisRow,
    RedisSetup,
    SimulatedLatency,
    report,
    run,
    shape_for,
    timed,
)
from anabranch.crawler.lab.report import NOT_RECOVERABLE, LabReport
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.keys import BoolArray
from tests.redis_server import redis_servers
from tests.rows import each_row


@pytest.mark.parametrize("leaves", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("urls", [1000, 30_000, 1_000_000])
def test_a_shape_has_as_many_leaves_as_asked_and_room_for_all_urls(urls: int, leaves: int) -> None:
    """The first level has exactly c leaves, so H = 1 and no split, and half as large leaves would not do."""
    shape = shape_for(urls, leaves, 1e-3)
    assert shape.first_leaves == leaves
    assert shape.expected >= urls
    assert shape.split_above * leaves < 2.6 * urls + 64


def test_every_batch_is_given_to_one_call() -> None:
    """Threads take turns: each batch goes to exactly one of them, and the new ones are summed over all."""
    met: list[list[int]] = [[], [], []]

    def call(number: int, batch: Sequence[bytes]) -> BoolArray:
        met[number].append(int(batch[0]))
        return np.array([True, False])

    calls = [lambda batch, number=number: call(number, batch) for number in range(3)]
    new, seconds = timed(calls, [[b"%d" % number, b"x"] for number in range(10)])
    assert met == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert new == 10
    assert seconds > 0


@pytest.mark.parametrize("place", [0, 1])
def test_when_one_thread_fails_the_others_end_early(place: int) -> None:
    """A server that is gone ends the run with its error; the other threads do not work off a million URLs first."""
    failed = threading.Event()

    def breaks(_: object) -> BoolArray:
        failed.set()
        raise OSError("server gone")

    asked = 0

    def goes_on(_: object) -> BoolArray:
        nonlocal asked
        assert failed.wait(5)
        asked += 1
        return np.array([True])

    calls = [goes_on]
    calls.insert(place, breaks)
    with pytest.raises(OSError, match="server gone"):
        timed(calls, [[b"x"]] * 2_000_000)
    assert asked < 999_000


def test_the_wire_is_paid_for_remote_servers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One latency for a round trip to any server but the first, however many, and none for the first alone."""
    waits: list[float | None] = []
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: waits.append(timeout))
    wire = SimulatedLatency(0.0004)

    def call(trips: Sequence[bytes]) -> BoolArray:
        for servers in trips:
            wire.sent(list(servers))
        return np.array([True])

    over = wire.over(call)
    assert [over(trips).tolist() for trips in ([b"\0"], [b"\0\1"], [b"\1\2\4"], [b"\2", b"\0", b"\1"], [])] == [
        [True]
    ] * 5
    assert waits == [0.0004, 0.0004, 2 * 0.0004]


def test_without_latency_no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is measured as it is."""
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: pytest.fail("waited"))
    wire = SimulatedLatency(0.0)

    def call(_: Sequence[bytes]) -> BoolArray:
        wire.sent([0, 1])
        return np.array([False])

    assert not wire.over(call)([b"key"]).any()


@each_row(
    ("options", "told"),
    [
        (RedisOptions(threads=()), "threads"),
        (RedisOptions(threads=(4, 0)), "threads"),
        (RedisOptions(leaves=(0,)), "leaves"),
        (RedisOptions(batch=0), "batch 0"),
        (RedisOptions(count=10), "count 10"),
        (RedisOptions(latency_s=-1.0), "latency"),
        (RedisOptions(latency_s=5.0), "latency"),
    ],
)
def test_senseless_options_are_refused_before_a_server_starts(options: RedisOptions, told: str) -> None:
    """One line that names the option and what it may be."""
    with pytest.raises(UsageError, match=told):
        run(options, lambda *_: None)


def test_a_program_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--server` with a wrong path ends the run with one line, and leaves no folder behind."""
    monkeypatch.setattr(redis.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="no-redis"):
        run(RedisOptions(count=1000, server=tmp_path / "no-redis"), lambda *_: None)
    assert list(tmp_path.iterdir()) == []


def test_a_small_run_on_real_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each c and number of threads; new URLs are new but for false positives; nothing is left behind."""
    with redis_servers(tmp_path / "probe", 1):
        pass  # skipped here if there is no redis-server
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(redis.tempfile, "tempdir", str(scratch))
    told: list[tuple[int, int]] = []
    whats: list[str] = []
    options = RedisOptions(count=2000, batch=100, threads=(1, 3), leaves=(1, 3), latency_s=0.0001)
    report = run(options, lambda done, steps, what: (told.append((done, steps)), whats.append(what)))
    assert told == [(step, 4 * ROUNDS) for step in range(4 * ROUNDS + 1)]
    assert [what.partition(", ")[2] for what in whats[:8]] == [
        *("c = 1, threads: 1", "c = 1, threads: 3", "c = 3, threads: 1", "c = 3, threads: 3"),
        *("c = 3, threads: 3", "c = 3, threads: 1", "c = 1, threads: 3", "c = 1, threads: 1"),
    ]
    assert column(report, "leaves c") == [1, 1, 3, 3]
    assert column(report, "threads") == [1, 3, 1, 3]
    assert column(report, "splits") == [0] * 4
    assert all(isinstance(wrong, int) and 0 <= wrong <= 12 for wrong in column(report, "falsely known"))
    for name in ("new URLs/s", "client µs a URL"):
        assert all(isinstance(figure, float) and figure > 0 for figure in column(report, name))
    assert all(" to " in str(cell) for cell in column(report, "95 %"))
    assert list(scratch.iterdir()) == []


def column(report: LabReport, name: str) -> list[object]:
    (table,) = report.tables
    place = table.columns.index(name)
    return [row[place] for row in table.rows]


SETUP = RedisSetup(urls=1000, known=250, batch=300, latency_s=0.0004, false_positive=1e-3, cores=2)


def row(
    leaves: int,
    threads: int,
    new_per_s: float,
    known_per_s: float = 90_000.0,
    client: float = 0.5,
    servers: float = 0.4,
) -> RedisRow:
    """Rounds of 900 URLs, all alike; `client` and `servers` are the cores that they had."""
    one = RedisRound(
        urls=900,
        new=899,
        new_s=900 / new_per_s,
        known=225,
        known_s=225 / known_per_s,
        client_s=client * 900 / new_per_s,
        servers_s=servers * 900 / new_per_s,
    )
    return RedisRow(leaves=leaves, threads=threads, rounds=(one,) * 9, splits=0)


ROWS = (row(1, 1, 20_000.0), row(1, 4, 30_000.0), row(3, 1, 25_000.0), row(3, 4, 60_000.0))


def words(*rows: RedisRow, setup: RedisSetup = SETUP) -> str:
    return "\n".join(report(setup, rows).closing)


def test_the_published_figure_stands_beside_its_own_c_alone() -> None:
    """The paper's prose is about c = 3; what its curves said elsewhere is not recoverable."""
    (table,) = report(SETUP, ROWS).tables
    published = [cells[table.columns.index("published URLs/s")] for cells in table.rows]
    assert published == [NOT_RECOVERABLE, NOT_RECOVERABLE, "about 15,000", "about 15,000"]
    assert all(len(cells) == len(table.columns) for cells in table.rows)


def test_no_factor_over_the_published_figure_is_claimed() -> None:
    """Its machines were three, with a wire; here threads and servers share the cores."""
    (line,) = (line for line in report(SETUP, ROWS).closing if "published" in line)
    assert line == (
        "c = 3: 60,000 URLs/s with 4 threads (95 %: 60,000 to 60,000), beside the published 15,000. That is no factor: "
        "the paper had three machines with a wire, here threads and servers share 2 cores."
    )


def test_what_a_url_takes_is_that_of_its_rounds() -> None:
    """CPU time of the client and of all servers, besides the speeds."""
    (table,) = report(SETUP, (row(3, 4, 50_000.0, client=0.5, servers=1.5),)).tables
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["95 %"] == "50,000 to 50,000"
    assert cells["client µs a URL"] == pytest.approx(10.0)
    assert cells["servers µs a URL"] == pytest.approx(30.0)
    assert (cells["client's cores"], cells["falsely known"]) == (pytest.approx(0.5), 9)


def test_each_c_is_a_curve_over_its_threads() -> None:
    """Beside them, dashed, what was published and what a crawler needs."""
    (panel,) = report(SETUP, ROWS).panels
    solid = [curve for curve in panel.curves if not curve.is_dashed]
    assert [(curve.label, curve.x, tuple(map(round, curve.y))) for curve in solid] == [
        ("c = 1", (1.0, 4.0), (20_000.0, 30_000.0)),
        ("c = 3", (1.0, 4.0), (25_000.0, 60_000.0)),
    ]
    assert [curve.y[0] for curve in panel.curves if curve.is_dashed] == [15_000.0, 2_000.0]


def test_the_need_of_a_crawler_is_held_against_the_slowest_row() -> None:
    """2,000 checks per second, whether the URLs are new or known; a row that is too slow is named."""
    assert "(c = 1, 1 thread) does 20,000, 10 times as many" in words(*ROWS)
    slow = row(3, 8, 50_000.0, known_per_s=1_500.0)
    assert "(c = 3, 8 threads) is too slow for it with 1,500" in words(*ROWS, slow)


@pytest.mark.parametrize(("last", "verb"), [(60_000.0, "rises"), (10_000.0, "falls")])
def test_whether_the_speed_rises_with_c_is_read_from_the_rounds(last: float, verb: str) -> None:
    """The paper's claim is repeated only if this run shows it."""
    told = words(row(1, 4, 30_000.0), row(5, 4, last))
    change = f"{last / 30_000:.3g}"
    assert f"Here it {verb} from c = 1 to c = 5: times {change} (95 %: {change} to {change})" in told
    assert f"(URLs/s over all threads: c = 1: 30,000; c = 5: {last:,.0f})" in told


def test_on_a_shared_machine_there_is_no_verdict_on_c() -> None:
    """More servers get more of the processor there, whatever the paper says."""
    rows = [row(1, 4, 30_000.0), row(5, 4, 60_000.0)]
    busy = [replace(each, rounds=tuple(one._replace(others_s=1.2 * one.new_s) for one in each.rounds)) for each in rows]
    told = words(*busy)
    assert "Other programs took 1.2 of 2 cores, and more servers get a larger part of the rest" in told
    assert "rises" not in told
    assert "rises" in words(*rows)


def test_rounds_that_do_not_agree_show_no_difference() -> None:
    """Whatever their medians are."""
    steady = row(1, 4, 30_000.0)
    speeds = (10_000.0, 60_000.0, 20_000.0, 35_000.0, 31_000.0, 25_000.0, 70_000.0, 29_000.0, 33_000.0)
    uneven = replace(steady, leaves=5, rounds=tuple(steady.rounds[0]._replace(new_s=900 / speed) for speed in speeds))
    assert "Here it shows no difference from c = 1 to c = 5" in words(steady, uneven)
    assert "33,000 with 8 threads, no difference shown" not in words(steady, uneven)
    assert "no difference shown" in words(steady, replace(uneven, leaves=1, threads=8))


@pytest.mark.parametrize(
    ("client", "servers", "told"),
    [
        (
            0.97,
            0.6,
            "took 0.97 of 2 cores (14 µs a URL), 3 servers 0.60 (8.6 µs): the threads share one Python interpreter",
        ),
        (0.5, 1.4, "0.50 of 2 cores (7.1 µs a URL), 3 servers 1.40 (20 µs): all cores are in use"),
        (0.2, 0.3, "3 servers 0.30 (4.3 µs); the rest of the time they waited"),
    ],
)
def test_what_limits_is_read_from_the_fastest_row(client: float, servers: float, told: str) -> None:
    """Threads that fill a core show that the interpreter is the limit, full cores that the machine is."""
    assert told in words(*ROWS, row(3, 8, 70_000.0, client=client, servers=servers))


def test_a_server_that_fills_its_core_is_the_limit() -> None:
    """It runs one script at a time, so that more cores would not help."""
    told = words(row(1, 8, 70_000.0, client=0.3, servers=0.95), setup=replace(SETUP, cores=8))
    assert "the servers, each of which runs one script at a time, are the limit" in told


def test_one_row_is_a_report_too() -> None:
    """With one c and one number of threads there is nothing to compare, and the rest is said."""
    told = words(row(2, 1, 20_000.0))
    assert "rises" not in told
    assert "published 15,000" not in told
    assert "(9.0e-03; the bound is 0.001)" in told


def test_a_run_without_a_wire_says_so() -> None:
    """Loopback is no match for the paper's machines; a simulated wire is called simulated."""
    without = replace(SETUP, latency_s=0.0)
    assert "--latency 0.4ms" in words(*ROWS, setup=without)
    assert "loopback without a wire" in report(without, ROWS).tables[0].title
    assert "simulated: a thread waits 0.4 ms longer" in words(*ROWS)
    assert "0.4 ms to all servers but one" in report(SETUP, ROWS).tables[0].title
