"""Starts and ends the small server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO

from scripts.benchmarks.site.pages import Site, origin, origins, path
from scripts.benchmarks.site.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server, in a separate process."""

    site: Site
    port: int
    program: str  #: the name of the server
    tally: Callable[[], Tally]  #: the requests since the last call (blocks for a moment)
    pid: int  #: of the process, which may have children

    @property
    def seed(self) -> str:
        """The URL of page 0."""
        return origin(0, origins(self.site, self.port)) + path(0)


@contextmanager
def serving(site: Site, cores: Set[int] = frozenset()) -> Iterator[Server]:
    """A server in a process of its own, on these cores alone if some are named. It ends with the block or with this process."""
    command = [sys.executable, "-m", "scripts.benchmarks.site.serving", site.text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            if cores:
                os.sched_setaffinity(server.pid, cores)
            port = server.stdout.readline().strip()
            if not port:
                raise RuntimeError("the server of the benchmark did not start")
            yield Server(
                site=site,
                port=int(port),
                program="a small server",
                tally=partial(_tally, server.stdin, server.stdout),
                pid=server.pid,
            )
        finally:
            server.kill()


def _tally(questions: IO[str], answers: IO[str]) -> Tally:
    questions.write("\n")
    questions.flush()
    return Tally(**json.loads(answers.readline()))


@contextmanager
def served(site: Site) -> Iterator[str]:
    """Start a server as `serving` does, and yield the URL of page 0."""
    with serving(site) as server:
        yield server.seed
