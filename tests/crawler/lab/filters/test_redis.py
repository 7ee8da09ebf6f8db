"""`anabranch lab redis`: the shape of its filters, its threads, its wire, and a small run on real servers."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from anabranch.crawler.lab.filters import redis as lab
from anabranch.crawler.lab.filters.redis import RedisOptions, Wire, run, shape_for, timed
from anabranch.crawler.lab.report import Report
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.batch import BoolArray
from tests.redis_server import redis_servers


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
    wire = Wire(0.0004)

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
    wire = Wire(0.0)

    def call(_: Sequence[bytes]) -> BoolArray:
        wire.sent([0, 1])
        return np.array([False])

    assert not wire.over(call)([b"key"]).any()


@pytest.mark.parametrize(
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
    monkeypatch.setattr(lab.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="no-redis"):
        run(RedisOptions(count=1000, server=tmp_path / "no-redis"), lambda *_: None)
    assert list(tmp_path.iterdir()) == []


def test_a_small_run_on_real_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each c and number of threads; new URLs are new but for false positives; nothing is left behind."""
    with redis_servers(tmp_path / "probe", 1):
        pass  # skipped here if there is no redis-server
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(lab.tempfile, "tempdir", str(scratch))
    told: list[tuple[int, int]] = []
    options = RedisOptions(count=2000, batch=100, threads=(1, 3), leaves=(1, 3), latency_s=0.0001)
    report = run(options, lambda done, steps, _: told.append((done, steps)))
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert column(report, "leaves c") == [1, 1, 3, 3]
    assert column(report, "threads") == [1, 3, 1, 3]
    assert column(report, "splits") == [0] * 4
    assert all(isinstance(wrong, int) and 0 <= wrong <= 12 for wrong in column(report, "falsely known"))
    assert all(isinstance(speed, float) and speed > 0 for speed in column(report, "new URLs/s"))
    assert list(scratch.iterdir()) == []


def column(report: Report, name: str) -> list[object]:
    (table,) = report.tables
    place = table.columns.index(name)
    return [row[place] for row in table.rows]
