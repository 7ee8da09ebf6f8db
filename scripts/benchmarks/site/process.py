"""Starts and ends the server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.benchmarks.site.pages import Site, origin, path
from scripts.benchmarks.site.serving import addresses


@contextmanager
def served(site: Site) -> Iterator[str]:
    """A site in a process of its own; answers the URL of page 0. It ends with the block, or with this process."""
    command = [sys.executable, "-m", "scripts.benchmarks.site.serving"]
    command += map(str, (site.pages, site.hosts, site.links))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            if not port:
                raise RuntimeError("the server of the benchmark did not start")
            yield origin(0, [f"http://{place}:{port}" for place in addresses(site.hosts)]) + path(0)
        finally:
            server.kill()
