"""The process that a crawl runs in: the interpreter's settings, memory, the event loop, and child processes."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from anabranch.crawler.outcomes.errors import OrderError
from anabranch.extras import install_command

if TYPE_CHECKING:
    import asyncio

#: How long a thread may keep Python's lock while another one waits for it. The store's thread releases it at each statement;
#: with Python's 5 ms its transactions would mostly wait (30 % more URLs a second, measured).
SWITCH_S = 0.0005
#: New objects before Python searches them for cycles, and how often it searches older ones. A crawl makes millions of records
#: without cycles; at Python's 700 the search takes up to a third of its time (40 % more URLs a second, measured).
COLLECTION = (50_000, 20, 100)

#: Blocks of this size are mapped, and returned to the system when they are freed.
GIVE_BACK_BYTES = 1 << 20
#: So much at the end of a heap is kept: what reading a page of usual size takes, and takes again for the next one.
KEPT_BYTES = 4 << 20

#: Of <malloc.h>, https://www.gnu.org/software/libc/manual/html_node/Malloc-Tunable-Parameters.html
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

#: `auto` is uvloop where it is installed.
LoopName = Literal["auto", "asyncio", "uvloop"]
LoopFactory: TypeAlias = "Callable[[], asyncio.AbstractEventLoop]"


def tune_interpreter() -> None:
    """Set for a crawl when threads switch, when cycles are collected, and when memory is returned to the system."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*COLLECTION)
    give_back_early()


def give_back_early() -> bool:
    """Have glibc return free memory at these sizes; False with another allocator, where nothing changes.

    By itself glibc raises both limits, for each thread's heap, with each large block that is freed: a few large bodies, and a
    crawl keeps 100 MB of free memory for good. Until then it returns memory too soon: up to half of the time of a page.
    """
    if not _is_glibc():
        return False
    libc = ctypes.CDLL(None)
    limits = {_M_TRIM_THRESHOLD: KEPT_BYTES, _M_MMAP_THRESHOLD: GIVE_BACK_BYTES}
    return all(libc.mallopt(limit, size) for limit, size in limits.items())


def give_back_now() -> None:
    """Return all free memory to the system; does nothing with another allocator than glibc. Cost: 5 to 10 ms for 100 MB."""
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def _is_glibc() -> bool:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") is not None
    except (AttributeError, OSError, ValueError):  # no such name, or no names at all, on another system
        return False


def loop_factory(name: LoopName) -> LoopFactory:
    """The factory of the event loop of that name. Raises: OrderError if it is not installed."""
    import asyncio  # noqa: PLC0415 - the extraction's helper processes import this module and do without it

    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        made: LoopFactory = importlib.import_module("uvloop").new_event_loop
    except ImportError as error:
        if name == "auto":
            return asyncio.new_event_loop
        raise OrderError(
            f"[crawl] loop: uvloop is not installed; {install_command('speed')}, or take auto or asyncio"
        ) from error
    return made


@contextmanager
def uninterrupted() -> Iterator[None]:
    """SIGINT and SIGTERM wait until the block has ended, so that a child process is not started and then forgotten.

    Outside the main thread, which they do not interrupt, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        for number in came:
            signal.raise_signal(number)


@contextmanager
def child_process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a session of its own, so that Ctrl-C reaches this process alone; kill it at the end if it still runs.

    `options` are those of `subprocess.Popen`.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with uninterrupted():
            process = subprocess.Popen(command, start_new_session=True, **options)  # noqa: S603 - programs of ours
        yield process
    finally:
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()


def child_command(program: str, *arguments: str) -> list[str]:
    """The command that runs a line of Python in a child process, where `sys` is imported and `sys.argv[1:]` are the arguments.

    The child imports from where this process does, isolated (`-I`): modules of the current folder come after the real ones.
    """
    places = [str(Path(place).absolute()) for place in sys.path]
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {places!r}; {program}", *arguments]
