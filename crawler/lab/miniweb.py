"""A web in a box, served: one process, one loopback port, all hosts by their real names; and its ledger.

A crawl is pointed at it by `[dns.hosts]` (`Served.hosts`), so its URLs have no port and its queues are the same for each run;
any other program by `http_proxy`, since requests in absolute form are answered, too.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crawler.children import child_command
from crawler.lab.web.ledger import HostEntry, Ledger, Rule
from crawler.lab.web.model import WebOptions
from crawler.outcomes.errors import CrawlerError, UsageError
from frontier.policies.authority import is_address

_END_S = 10.0


class WebLost(CrawlerError):
    """The process that serves the web has ended."""


class Served:
    """A web that is being served. Calls wait for the server's process: some milliseconds if it is not busy."""

    def __init__(self, process: subprocess.Popen[bytes], first: dict[str, Any]) -> None:
        self._process = process
        facts = self._ask(first)
        if "error" in facts:
            raise UsageError(facts["error"])
        self.port: int = facts["port"]
        self.seeds: tuple[str, ...] = tuple(facts["seeds"])
        self.urls: int = facts["urls"]  #: in all, robots.txt not
        self.notes: tuple[str, ...] = tuple(facts["notes"])  #: what a replay had to leave out, in words
        #: What `[dns.hosts]` takes: host -> "127.0.0.1:PORT".
        self.hosts: dict[str, str] = dict.fromkeys(facts["hosts"], f"127.0.0.1:{self.port}")

    def begin(self, rule: Rule | None = None) -> None:
        """A new run begins: forget what the ledger has. It holds starts against this rule; none: one at once, no rest."""
        self._ask({"do": "begin", "rule": asdict(rule or Rule())})

    def ledger(self) -> Ledger:
        """What each host has borne since `begin`. Raises: WebLost."""
        facts = self._ask({"do": "ledger"})
        rule = Rule(**facts.pop("rule"))
        return Ledger(rule=rule, hosts=tuple(HostEntry(*entry) for entry in facts.pop("hosts")), **facts)

    @property
    def addresses(self) -> list[str]:
        """The hosts that are addresses: no name is looked up for them, so no `[dns.hosts]` leads here, only a proxy does."""
        return [host for host in self.hosts if is_address(host)]

    @property
    def pid(self) -> int:
        """The process that serves."""
        return self._process.pid

    def fileno(self) -> int:
        """For `select`: there is something to read only once the server has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _ask(self, said: dict[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(said).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise WebLost(f"the process that serves the web (pid {self._process.pid}) has ended; run it again")
        return json.loads(line)


@contextmanager
def serving(web: WebOptions | Path, *, port: int = 0) -> Iterator[Served]:
    """Serve a made web, or the one of a crawl.log, on 127.0.0.1 while entered; port 0 = any free one.

    The server is a process of its own, out of reach of the terminal's Ctrl-C; it ends with this one, however that ends.
    Raises: UsageError if there is no such web or the port is taken.
    """
    first = {
        "web": asdict(web) if isinstance(web, WebOptions) else None,
        "replay": str(web.absolute()) if isinstance(web, Path) else None,
        "port": port,
    }
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
        child_command("from crawler.lab.web.serving import main; main()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield Served(process, first)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The end of its input ends it."""
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except BrokenPipeError:
            continue
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
