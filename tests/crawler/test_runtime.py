"""The process of a crawl: its event loop, its memory, its child processes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import anabranch
from anabranch.crawler.outcomes.errors import ExitCode, OrderError
from anabranch.crawler.runtime import (
    GIVE_BACK_BYTES,
    LoopName,
    _is_glibc,
    child_command,
    child_process,
    loop_factory,
    uninterrupted,
)
from anabranch.extras import install_command


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
    with pytest.raises(OrderError) as caught:
        loop_factory("uvloop")
    assert str(caught.value).startswith(f"[crawl] loop: uvloop is not installed; {install_command('speed')}, ")
    assert caught.value.exit_code == ExitCode.BAD_ORDER


#: Frees a large block, after which glibc would keep such blocks for itself; then takes and frees many, beside one that stays.
_PROGRAM = """
import sys
from anabranch.crawler.runtime import give_back_early
if sys.argv[1] == "early":
    assert give_back_early()
from tests.site.memory import anonymous_bytes
import os
large = bytearray(b"x") * (30 << 20)
del large
held = []
blocks = []
for _ in range(20):
    blocks.append(bytearray(b"x") * (2 << 20))
    held.append(bytearray(b"x") * 100_000)
before = anonymous_bytes(os.getpid())
del blocks
print(before - anonymous_bytes(os.getpid()))
"""


#: Leaves free blocks between blocks in use, none of them large.
_SCATTERED = """
import sys
from anabranch.crawler.runtime import give_back_now
from tests.site.memory import anonymous_bytes
import os
blocks = [bytearray(b"x") * 20_000 for _ in range(1000)]
kept = blocks[::100]
before = anonymous_bytes(os.getpid())
del blocks
if sys.argv[1] == "now":
    give_back_now()
print(before - anonymous_bytes(os.getpid()))
"""


#: Takes and frees what reading a page does, over and over, as blocks that are not mapped.
_TAKEN_AGAIN = """
import resource, sys
import sqlalchemy  # a crawl's heap has grown by its libraries
from anabranch.crawler.runtime import give_back_early
if sys.argv[1] == "early":
    assert give_back_early()
for _ in range(200):
    blocks = [bytearray(b"x") * 100_000 for _ in range(30)]
    del blocks
    if _ == 99:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def given_back(program: str, how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", program, how], check=True, capture_output=True).stdout)


@pytest.mark.skipif(not _is_glibc(), reason="another allocator")
def test_large_blocks_go_back_the_moment_they_are_free() -> None:
    """Also after one of them was freed, which makes glibc keep the next ones: beside small ones they would stay."""
    assert given_back(_PROGRAM, "late") < 10 << 20
    assert given_back(_PROGRAM, "early") > 38 << 20
    assert GIVE_BACK_BYTES <= 2 << 20


@pytest.mark.skipif(not _is_glibc(), reason="another allocator")
def test_what_lies_between_blocks_in_use_goes_back_when_it_is_asked_for() -> None:
    """By itself it would stay until the last of them is free."""
    assert given_back(_SCATTERED, "later") < 10 << 20
    assert given_back(_SCATTERED, "now") > 15 << 20


@pytest.mark.skipif(not _is_glibc(), reason="another allocator")
def test_what_a_page_takes_is_not_taken_from_the_system_again_for_the_next_one() -> None:
    """Some megabytes at the end of the heap are kept: else each page of a hundred costs hundreds of page faults."""
    assert given_back(_TAKEN_AGAIN, "late") > 10_000
    assert given_back(_TAKEN_AGAIN, "early") < 100


def test_a_child_imports_what_this_process_does(tmp_path: Path) -> None:
    """Not what lies in its current folder; its arguments are as they were given."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')\n")
    command = child_command(
        "import json, anabranch; print(json.dumps([anabranch.__file__, *sys.argv[1:]]))", "one", "$two 'x"
    )
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [anabranch.__file__, "one", "$two 'x"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_until_the_block_has_ended(number: signal.Signals) -> None:
    """Then it is raised as ever: a child that was started in the block is known by then."""
    before = signal.signal(number, signal.default_int_handler)
    known = []

    def start() -> None:
        with uninterrupted():
            signal.raise_signal(number)
            known.append("child")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert known == ["child"]
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_outside_the_main_thread_no_signal_is_held_back() -> None:
    """Python lets only the main thread set handlers."""
    done: list[bool] = []

    def run() -> None:
        with uninterrupted():
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]


def test_a_child_that_still_runs_is_killed_at_the_end() -> None:
    """Also if the block fails; its pipes are closed."""
    program = "sys.stdin.read()"
    with pytest.raises(KeyboardInterrupt), child_process(child_command(program), stdin=subprocess.PIPE) as process:
        raise KeyboardInterrupt
    assert process.returncode == -signal.SIGKILL
    assert process.stdin is not None
    assert process.stdin.closed
