"""nginx as the server of the site: one worker, the pages as files, its access log as the count of what it was asked for.

It inherits listening sockets by the environment variable NGINX, as a new nginx takes over those of an old one, so its port is
free. Its messages are in a file of its folder, and are reported if it cannot start.
"""

from __future__ import annotations

import errno
import http.client
import os
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scripts.benchmarks.site import pages
from scripts.benchmarks.site.process import Server
from scripts.benchmarks.site.tally import Counting, Tally

#: More files take minutes to write; the small server makes such pages on request.
_FILES = 300_000
_CONNECTIONS = 4096
#: Requested before counting: earlier requests are in the log by then. There is no such page.
_MARK = "/counted"
_LOG = "access.log"
_ERRORS = "stderr"
#: It answers in milliseconds; after this time it never will.
_START_S = 60


def program() -> str:
    """The path of nginx; nothing if it is missing. Debian has it outside the PATH of users."""
    return shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])) or ""


def fits(site: pages.Site) -> bool:
    """Whether nginx is installed, and the site is small enough for a folder of files."""
    return bool(program()) and site.pages <= _FILES and not site.known


@contextmanager
def serving(site: pages.Site, cores: Set[int] = frozenset(), folder: Path | None = None) -> Iterator[Server]:
    """An nginx, on these cores alone if some are named. It ends with the block, or with this process.

    Its pages are in a new folder in `folder`, if not where the system has such. Raises: RuntimeError if it cannot start.
    """
    with tempfile.TemporaryDirectory(prefix="anabranch-nginx-", dir=folder) as scratch, ExitStack() as stack:
        place, addresses = Path(scratch), pages.addresses(site)
        with ExitStack() as listens:
            sockets = listening(addresses, listens)
            port: int = sockets[0].getsockname()[1]
            _write_pages(site, port, place)
            (place / "nginx.conf").write_text(configuration(addresses, port), encoding="utf-8")
            (place / _LOG).touch()
            process = stack.enter_context(_started(place, sockets, cores))
        stack.callback(process.terminate)  # killed it would leave its worker behind
        _await_answer(process, (addresses[0], port), place / _ERRORS)
        log = stack.enter_context((place / _LOG).open("rb"))
        count = _Count(log, addresses[0], port)
        yield Server(site=site, port=port, program="nginx", tally=count, pid=process.pid)


def configuration(addresses: Sequence[str], port: int) -> str:
    """One worker, of the calling user, that keeps connections forever."""
    user = "user root;\n" if os.geteuid() == 0 else ""  # only root may set it, and its default is another user
    listen = "".join(f"listen {address}:{port};\n" for address in addresses)
    temporary = "".join(
        f"{kind}_temp_path temporary;\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""{user}daemon off;
worker_processes 1;
worker_rlimit_nofile {_descriptors()};
pid nginx.pid;
error_log stderr;
events {{ worker_connections {_CONNECTIONS}; }}
http {{
types {{ text/html html; }}
charset utf-8;
log_format asked "$msec $request_uri";
access_log {_LOG} asked;
keepalive_timeout 1h;
keepalive_requests 1000000000;
{temporary}server {{
{listen}root site;
}}
}}
"""


def _descriptors() -> int:
    """A connection and a file for each request, if the system allows it: the usual limit is 1024."""
    return min(2 * _CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


@dataclass(slots=True)
class _Count:
    """Reads the access log further. Returns a tally of the requests since the last call."""

    log: IO[bytes]
    address: str
    port: int

    def __call__(self) -> Tally:
        """Blocks until nginx has written its log. Raises: OSError if it does not answer."""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=60)
        connection.request("GET", _MARK)
        connection.getresponse().read()
        connection.close()
        counting = Counting()
        for line in self.log:
            at_s, path = line.split()
            if path != _MARK.encode():
                counting.add(path, float(at_s))
        return counting.take()


def listening(addresses: Sequence[str], stack: ExitStack, ports: Sequence[int] = (0,) * 10) -> list[socket.socket]:
    """A socket for each address, all on the first of these ports that is free on all; 0 is any that is free on the first.

    Raises: OSError if no port is free.
    """
    for port in ports[:-1]:
        with ExitStack() as held:
            try:
                sockets = _bound(addresses, port, held)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                stack.push(held.pop_all())
                return sockets
    return _bound(addresses, ports[-1], stack)


def _bound(addresses: Sequence[str], port: int, stack: ExitStack) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    for address in addresses:
        one = stack.enter_context(socket.socket())
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended a moment ago do not matter
        one.bind((address, sockets[0].getsockname()[1] if sockets else port))
        one.listen(1024)
        one.setblocking(False)  # nginx takes it as it is, and would wait in accept
        sockets.append(one)
    return sockets


def _write_pages(site: pages.Site, port: int, folder: Path) -> None:
    origins = pages.origins(site, port)
    for number in range(site.pages):
        file = folder / "site" / pages.path(number).lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pages.html(number, site, origins))


def _started(folder: Path, sockets: Sequence[socket.socket], cores: Set[int]) -> subprocess.Popen[bytes]:
    inherited = [one.fileno() for one in sockets]
    placed = ",".join(map(str, cores or os.sched_getaffinity(0)))
    with (folder / _ERRORS).open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", _LEASHED, placed, program(), "-p", str(folder), "-c", "nginx.conf"],
            env=os.environ | {"NGINX": "".join(f"{descriptor};" for descriptor in inherited)},
            pass_fds=inherited,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def _await_answer(process: subprocess.Popen[bytes], address: tuple[str, int], errors: Path) -> None:
    """Request a missing page, and wait until it answers or ends. Raises: RuntimeError."""
    with ExitStack() as stack:
        ended = os.pidfd_open(process.pid)
        stack.callback(os.close, ended)
        try:
            asked = stack.enter_context(socket.create_connection(address))
            asked.sendall(f"GET {_MARK} HTTP/1.0\r\n\r\n".encode())
            ready = select.select([asked, ended], [], [], _START_S)[0]
            if asked in ready and asked.recv(1):
                return
        except ConnectionError:  # it has ended, and with it the sockets
            pass
    said = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise RuntimeError(f"nginx did not start: {said[-1] if said else 'it said nothing'}")


#: Becomes the program that its arguments name, on the cores that come before it, and gets SIGTERM if its parent
#: ends (Linux: PR_SET_PDEATHSIG).
_LEASHED = """
import ctypes, os, signal, sys
_, cores, *command = sys.argv
os.sched_setaffinity(0, map(int, cores.split(",")))
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
os.execv(command[0], command)
"""
