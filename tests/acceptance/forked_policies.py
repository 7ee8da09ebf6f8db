"""`anabranch ARGUMENTS`, whose comparisons fork the process of each crawl: a fresh Python imports for a second.

The fork server starts it. Tests of those processes themselves start the command as it is.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, NoReturn

from anabranch.crawler import runtime
from anabranch.crawler.lab.policies import crawling


class _Forked:
    """A process as `subprocess.Popen` starts it, for a command whose last two arguments are those of `crawling.main`."""

    def __init__(self, command: Sequence[str], *, stderr: IO[bytes], pass_fds: Sequence[int], **more: object) -> None:
        env = more.pop("env")
        assert isinstance(env, Mapping)
        assert more == {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "start_new_session": True}
        its, ours = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _crawl(command[-2:], (its, os.open(os.devnull, os.O_WRONLY), stderr.fileno()), pass_fds, env)
        os.close(its)
        self.stdout = None
        self.stdin = os.fdopen(ours, "wb", 0)

    def poll(self) -> int | None:
        return self._waited(os.WNOHANG)

    def wait(self) -> int | None:
        return self._waited(0)

    def _waited(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _crawl(arguments: Sequence[str], streams: Sequence[int], kept: Sequence[int], env: Mapping[str, str]) -> NoReturn:
    """Set up the state of a new process and run the crawl."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        most = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        for descriptor in range(3, most + 1):
            if descriptor not in kept:
                os.closerange(descriptor, descriptor + 1)
        os.environ.clear()
        os.environ.update(env)
        code = crawling.main(arguments)
    except BaseException:  # noqa: BLE001 - nothing is above
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    runtime.subprocess = SimpleNamespace(  # type: ignore[assignment]
        Popen=_Forked, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL
    )
    runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
