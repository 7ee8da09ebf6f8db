"""A served web: one process, one loopback port, all hosts by their real names; and its ledger.

A crawl reaches it by `[dns.hosts]` (`Served.hosts`), so its URLs have no port and its queues are the same for each run. Other
programs reach it by `http_proxy`, because requests in absolute form are answered, too.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.crawler.lab.web.ledger import HostEntry, PolitenessLedger, PolitenessRule
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from anabranch.crawler.runtime import child_command
from anabranch.frontier.policies.hosts import is_address

_END_S = 10.0
#: The server answers in some milliseconds, a busy one in some seconds; a slower one would spoil the measurement anyway.
_ANSWER_S = 30.0
_READ_BYTES = 1 << 16


class WebLost(CrawlerError):
    """The process that serves the web has ended, was stopped, or hangs."""


class _Watch:
    """Makes its descriptor readable when a child process has ended or was stopped (SIGSTOP).

    A thread waits for that, because a stop changes none of the process' descriptors.
    """

    def __init__(self, pid: int) -> None:
        self.is_stopped = False
        self._read, self._write = os.pipe()
        self._thread = threading.Thread(target=self._wait, args=(pid,), daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        """Close; the process must have ended or be stopped."""
        self._thread.join()
        os.close(self._read)

    def _wait(self, pid: int) -> None:
        try:
            _, status = os.waitpid(pid, os.WUNTRACED)
            self.is_stopped = os.WIFSTOPPED(status)
        except ChildProcessError:
            pass  # it has ended, and its `Popen` has waited for it
        finally:
            os.close(self._write)


class Served:
    """A web that is being served. Calls wait for the server's process: some milliseconds if it is not busy."""

    def __init__(self, process: subprocess.Popen[bytes], watch: _Watch, first: dict[str, Any]) -> None:
        self._process = process
        self._watch = watch
        facts = self._ask(first, None)  # a large web takes its time
        if "error" in facts:
            raise UsageError(facts["error"])
        self.port: int = facts["port"]
        self.seeds: tuple[str, ...] = tuple(facts["seeds"])
        self.urls: int = facts["urls"]  #: in all, robots.txt not
        self.notes: tuple[str, ...] = tuple(facts["notes"])  #: what a replay left out, as text
        #: For `[dns.hosts]`: host -> "127.0.0.1:PORT".
        self.hosts: dict[str, str] = dict.fromkeys(facts["hosts"], f"127.0.0.1:{self.port}")

    def begin(self, rule: PolitenessRule | None = None) -> None:
        """Begin a new ledger for a run, which checks this rule; None: one request at once, no rest."""
        self._ask({"do": "begin", "rule": asdict(rule or PolitenessRule())}, _ANSWER_S)

    def ledger(self) -> PolitenessLedger:
        """The requests of each host since `begin`. Raises: WebLost."""
        facts = self._ask({"do": "ledger"}, _ANSWER_S)
        rule = PolitenessRule(**facts.pop("rule"))
        return PolitenessLedger(rule=rule, hosts=tuple(HostEntry(*entry) for entry in facts.pop("hosts")), **facts)

    @property
    def addresses(self) -> list[str]:
        """The hosts that are addresses. They are not looked up, so only a proxy leads here, not `[dns.hosts]`."""
        return [host for host in self.hosts if is_address(host)]

    @property
    def pid(self) -> int:
        """The process that serves."""
        return self._process.pid

    def fileno(self) -> int:
        """For `select`: readable only after the server has ended or was stopped; then raise `lost()`."""
        return self._watch.fileno()

    def lost(self) -> WebLost:
        """The error to raise when the descriptor is readable."""
        return self._lost("was stopped" if self._watch.is_stopped else "has ended")

    def _lost(self, how: str) -> WebLost:
        return WebLost(f"the process that serves the web (pid {self._process.pid}) {how}; run it again")

    def _ask(self, line: dict[str, Any], within_s: float | None) -> Any:
        """The server's answer to a line. Raises: WebLost, also after `within_s` without an answer; None: no limit."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._lost("has ended") from None
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self._heard(within_s)
        return json.loads(answer)

    def _heard(self, within_s: float | None) -> bytes:
        """Some bytes of an answer."""
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout.fileno(), self.fileno()], [], [], within_s)
        if not ready:
            raise self._lost(f"has not answered for {within_s:g} s")
        data = os.read(stdout.fileno(), _READ_BYTES) if stdout.fileno() in ready else b""
        if not data:
            raise self.lost()
        return data


@contextmanager
def serving(web: WebOptions | Path, *, port: int = 0) -> Iterator[Served]:
    """Serve a generated web, or the one of a crawl.log, on 127.0.0.1 while entered; port 0 = any free one.

    The server is a separate process in its own session, so Ctrl-C does not reach it; it ends with this one in any case.
    Raises: UsageError if the web is invalid or the port is taken.
    """
    first = {
        "web": asdict(web) if isinstance(web, WebOptions) else None,
        "replay": str(web.absolute()) if isinstance(web, Path) else None,
        "port": port,
    }
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
        child_command("from anabranch.crawler.lab.web.server import main; main()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    watch = _Watch(process.pid)
    try:
        yield Served(process, watch, first)
    except WebLost:
        process.kill()  # it may hang
        raise
    finally:
        if watch.is_stopped:
            process.kill()  # it would not see the end of its input
        _end(process)
        watch.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process by closing its input."""
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
