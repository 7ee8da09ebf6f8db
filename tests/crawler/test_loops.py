"""Which event loop is made."""

from __future__ import annotations

import asyncio
import sys

import pytest

from anabranch.crawler.loops import LoopName, loop_factory
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.exits import ExitCode


@pytest.fixture
def no_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)


def made(name: LoopName) -> str:
    loop = loop_factory(name)()
    loop.close()
    return type(loop).__module__.partition(".")[0]


@pytest.mark.parametrize("name", ["auto", "uvloop"])
def test_uvloop_is_taken_where_it_is_installed(name: LoopName) -> None:
    """By default, too."""
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    assert made(name) == "uvloop"
    assert made("asyncio") == "asyncio"


@pytest.mark.usefixtures("no_uvloop")
def test_without_uvloop_a_crawl_runs_on_pythons_own_loop() -> None:
    """It is no requirement."""
    assert made("auto") == made("asyncio") == asyncio.new_event_loop.__module__.partition(".")[0]


@pytest.mark.usefixtures("no_uvloop")
def test_who_asks_for_uvloop_where_it_is_not_is_told() -> None:
    """One line: what is missing, where it comes from, what else there is."""
    with pytest.raises(
        OrderError, match=r"^\[crawl\] loop: uvloop is not installed; install anabranch\[speed\]"
    ) as caught:
        loop_factory("uvloop")
    assert caught.value.exit_code == ExitCode.BAD_ORDER
