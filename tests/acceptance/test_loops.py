"""A crawl on one event loop and on the other: the same pages, whichever of them it goes on with."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.command import anabranch, crawl_log, ended, kill_after, start, write_order
from tests.site.oracle import expected
from tests.site.server import SmallWeb

SEED = "http://blog.alpha.test/"


async def test_a_crawl_that_is_killed_on_one_loop_goes_on_with_the_other(tmp_path):
    """asyncio, uvloop, asyncio: nothing in a job depends on the loop."""
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    async with SmallWeb(delay_s=0.02) as web:
        order = write_order(tmp_path, web.hosts, politeness={"max_connections": 4}, crawl={"workers": 8})
        command = ("crawl", SEED, "-c", order, "--job", tmp_path / "job", "--loop")
        await kill_after(await start(*command, "asyncio", cwd=tmp_path), web, 25)
        await kill_after(await start(*command, "uvloop", cwd=tmp_path), web, 50)
        run = await anabranch(*command, "asyncio", cwd=tmp_path)
        assert run.code == 0, run.err
        assert crawl_log(tmp_path / "job") == expected([SEED])


async def test_a_whole_crawl_on_uvloop_finds_what_an_independent_reader_finds(tmp_path, small_web):
    """With keep-alive, redirects, cut bodies, broken answers and names from a table."""
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    order = write_order(tmp_path, small_web.hosts, politeness={"max_connections": 8})
    run = await anabranch("crawl", SEED, "-c", order, "--job", tmp_path / "job", "--loop", "uvloop", cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED])


async def test_a_crawl_on_uvloop_hears_the_operator(tmp_path, small_web):
    """Its control socket answers: it stops in order, however much is left."""
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    order = write_order(tmp_path, small_web.hosts, politeness={"min_delay": "30s", "max_delay": "30s"})
    crawl = await start("crawl", SEED, "-c", order, "--job", tmp_path / "job", "--loop", "uvloop", cwd=tmp_path)
    while not small_web.ledger.counts():
        await asyncio.sleep(0.005)
    stop = await anabranch("stop", tmp_path / "job", cwd=tmp_path)
    assert (stop.code, (await ended(crawl)).code) == (0, 11), stop.err
