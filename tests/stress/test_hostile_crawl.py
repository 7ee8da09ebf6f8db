"""The program that crawls the whole hostile web: what it calls a fault."""

from __future__ import annotations

from dataclasses import replace

from tests.acceptance.hostile import Line
from tests.site.hostile.hosts import HOSTILE, INNOCENT_URLS, first_url
from tests.site.ledger import Ledger
from tests.stress.hostile_crawl import Summary


def line(url: str, status: int) -> Line:
    return Line(status=status, size="-", url=url, hops="-", mime="text/html", annotations="-")


def well() -> Summary:
    """A crawl in which all is as it should be."""
    seeds = {first_url(name): hostile.statuses[0] for name, hostile in HOSTILE.items()} | dict.fromkeys(
        INNOCENT_URLS, 200
    )
    lines = tuple(line(url, status) for url, status in seeds.items())
    return Summary(
        code=0,
        seconds=1.0,
        lines=lines,
        ledger=Ledger(),
        seeds=tuple(seeds),
        peak_bytes=100,
        children_bytes=0,
        all_bytes=100,
        errors="",
    )


def test_a_crawl_that_ended_well_has_no_faults():
    """Every seed has its line and one of its statuses, within the memory."""
    assert well().faults(memory_bytes=100) == []


def test_each_fault_has_its_words():
    """No end, too much memory, no line, another status, a trap, a traceback."""
    spoilt = Ledger()
    spoilt.end(spoilt.begin("self.hostile.test", "/trap/x", 0.0), 200, 0.0)
    assert len(replace(well(), code=None).faults(100)) == 1
    assert len(replace(well(), code=3).faults(100)) == 1
    assert len(well().faults(99)) == 1
    assert len(replace(well(), errors="Traceback (most recent call last)").faults(100)) == 1
    assert len(replace(well(), ledger=spoilt).faults(100)) == 2
    other = (*well().lines, line(first_url("self"), 200))
    assert len(replace(well(), lines=other).faults(100)) == 1
    assert len(replace(well(), lines=()).faults(100)) == 3
