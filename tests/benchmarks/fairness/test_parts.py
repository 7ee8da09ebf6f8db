"""The parts of `scripts/bench fairness`, without crawls; `tests/frontier/scheduling/test_fairness.py` has its small twin."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path

import pytest

from scripts.benchmarks.fairness import neighbours, serving
from scripts.benchmarks.rows import Setting


def page(host: str, path: str = "/") -> bytes | None:
    return serving.page(f"{host}:81", path, random.Random(1))


def test_a_good_host_links_to_itself_without_end_and_a_wild_one_to_2000_names() -> None:
    good, wild = page("g1.good.test", "/7"), page("s5.wild.test")
    assert good is not None
    assert wild is not None
    assert [f'"/{number}"'.encode() in good for number in (22, 23, 24)] == [True] * 3
    assert wild.count(b".wild.test:81/") == 2000
    assert page("host.slow3.test") is None


def test_the_name_server_knows_one_address() -> None:
    name = b"\x01a\x04test\0"
    query = b"ab\1\0\0\1\0\0\0\0\0\0" + name
    assert serving.answer(query + b"\0\1\0\1").endswith(socket.inet_aton("127.0.0.1"))
    assert serving.answer(query + b"\0\x1c\0\1")[6:8] == b"\0\0", "no IPv6"


def test_the_seeds_have_the_good_hosts_among_the_slow_ones() -> None:
    mixed = neighbours.seeds(81, wild=True, slow=True)
    assert len(mixed) == len({*mixed}) == 10 + 244 + 1
    assert [number for number, url in enumerate(mixed) if ".good." in url] == [25 * number for number in range(10)]
    assert neighbours.seeds(81, wild=False, slow=False) == [f"http://g{number}.good.test:81/" for number in range(10)]


def test_the_rate_is_that_of_the_first_seconds() -> None:
    assert neighbours.rate([10.0, 11.0, 12.0, 15.1], 5) == 0.6
    assert neighbours.rate([], 5) == 0.0


def test_a_row_is_the_part_of_the_rate_that_remains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of each round; the kinds take turns in an order that reverses."""
    asked: list[tuple[bool, bool]] = []

    def rate(_setting: Setting, _seconds: int, number: int, *, wild: bool, slow: bool) -> float:
        asked.append((wild, slow))
        return (40.0, 10.0, 30.0, 20.0)[2 * slow + wild] * (1 + number)  # a machine that gets faster

    monkeypatch.setattr(neighbours, "_rate", rate)
    rows = list(neighbours.measured(Setting(folder=tmp_path, is_quick=False, say=lambda _: None)))
    assert [row.measured for row in rows] == [200.0, 0.25, 0.75, 0.5]
    assert [row.interval for row in rows[1:]] == [(0.25, 0.25), (0.75, 0.75), (0.5, 0.5)]
    assert asked[:8] == [*(turn := [(False, False), (True, False), (False, True), (True, True)]), *reversed(turn)]
    quick = list(neighbours.measured(Setting(folder=tmp_path, is_quick=True, say=lambda _: None)))
    assert [row.interval for row in quick] == [None] * 4


def test_the_servers_answer(tmp_path: Path) -> None:
    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /1 HTTP/1.1\r\nHost: g1.good.test\r\n\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return answer

    with neighbours._serving(tmp_path / "ledger") as (web, _):
        assert asyncio.run(ask(web)).startswith(b"HTTP/1.1 200 ")
    assert len((tmp_path / "ledger").read_text().split()) == 1
