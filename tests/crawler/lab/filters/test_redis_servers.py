import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from anabranch.crawler.lab.filters.redis_servers import VARIABLE, RedisServer, find_program
from anabranch.crawler.outcomes.errors import UsageError
from tests.redis_server import redis_servers


def said(server: RedisServer, command: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(command + b"\r\n")
        return connection.recv(10_000)


def test_a_server_answers_as_soon_as_it_is_started(tmp_path: Path) -> None:
    """It listens on a port of its own on loopback alone, and ends with the block."""
    with redis_servers(tmp_path, 2) as (one, other):
        assert one.port != other.port
        assert [said(server, b"PING") for server in (one, other)] == [b"+PONG\r\n"] * 2
        assert one.url == f"redis://127.0.0.1:{one.port}"
        assert b"127.0.0.1" in said(one, b"CONFIG GET bind")
    for server in (one, other):
        with pytest.raises(ConnectionRefusedError):
            said(server, b"PING")
        server.close()


def test_an_append_only_server_has_its_data_after_a_kill(tmp_path: Path) -> None:
    """SIGKILL, and started again on the same port."""
    with redis_servers(tmp_path, 1, appendonly="yes", appendfsync="always") as (server,):
        port = server.port
        said(server, b"SET a b")
        server.kill()
        server.start()
        assert server.port == port
        assert said(server, b"GET a") == b"$1\r\nb\r\n"


def test_without_a_file_data_end_with_the_server(tmp_path: Path) -> None:
    """No snapshot is written either."""
    with redis_servers(tmp_path, 1) as (server,):
        said(server, b"SET a b")
        server.close()
        server.start()
        assert said(server, b"GET a") == b"$-1\r\n"


def test_a_server_that_ends_by_itself_can_be_closed(tmp_path: Path) -> None:
    """And started again."""
    with redis_servers(tmp_path, 1) as (server,):
        assert server._process
        os.kill(server._process.pid, signal.SIGKILL)
        server._process.wait()
        server.close()
        server.start()
        assert said(server, b"PING") == b"+PONG\r\n"


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """An option that it does not know: its own words."""
    with redis_servers(tmp_path, 1):  # skips without a program
        pass
    server = RedisServer(tmp_path / "x", settings={"no-such-option": "1"})
    with pytest.raises(UsageError, match="no-such-option"):
        server.start()


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    """A server that is started again on its port finds another program there."""
    with redis_servers(tmp_path, 1) as (server,):
        server.close()
        with socket.create_server(("127.0.0.1", server.port)), pytest.raises(UsageError, match="in use"):
            server.start()


def test_an_interrupted_start_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C does not reach the server itself, so who starts it ends it."""
    with redis_servers(tmp_path, 1):  # skips without a program
        pass
    started = list[subprocess.Popen[str]]()

    def interrupted(server: RedisServer) -> bool:
        started.append(server._process)
        raise KeyboardInterrupt

    server = RedisServer(tmp_path / "x")
    run = server._run
    monkeypatch.setattr(server, "_run", lambda: run() and interrupted(server))
    with pytest.raises(KeyboardInterrupt):
        server.start()
    assert started[0].returncode == -signal.SIGKILL


def test_a_file_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    """It has the right to be run, and is no program."""
    (tmp_path / "redis-server").write_bytes(b"no program")
    (tmp_path / "redis-server").chmod(0o755)
    with pytest.raises(UsageError, match="did not start"):
        RedisServer(tmp_path / "x", program=tmp_path / "redis-server").start()


def test_the_program_is_the_one_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the argument, else by the variable, else on PATH; a name that is no program is an error."""
    paths = [tmp_path / place / "redis-server" for place in ("argument", "variable", "path")]
    for path in paths:
        path.parent.mkdir()
        path.touch(0o755)
    monkeypatch.setenv("PATH", str(paths[2].parent))
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_program() == paths[2]
    monkeypatch.setenv(VARIABLE, str(paths[1]))
    assert find_program() == paths[1]
    assert find_program(paths[0]) == paths[0]
    with pytest.raises(UsageError, match="is not a program"):
        find_program(tmp_path / "nothing")
    with pytest.raises(UsageError, match="is not a program"):
        find_program(tmp_path)


def test_without_any_program_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither on PATH nor in a package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("anabranch.crawler.lab.filters.redis_servers.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="install Redis"):
        find_program()
