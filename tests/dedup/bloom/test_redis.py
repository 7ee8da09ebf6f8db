from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.dedup.bloom.redis import RedisServers
from anabranch.dedup.bloom.sharedleaves import Call
from anabranch.dedup.errors import BadParameters, FilterClosed, FormatMismatch, StoreUnavailable
from tests.redis_server import redis_servers


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with redis_servers(tmp_path_factory.mktemp("redis"), 3) as servers:
        yield servers


@pytest.fixture
def servers(running: list[RedisServer]) -> Iterator[RedisServers]:
    connected = RedisServers([server.url for server in running])
    yield connected
    connected.close()


def found(server: int, name: str, record: str = "r", token: str = "t") -> Call:
    return Call(server, "found", (f"{name}:part",), (record, token))


def part(server: int, name: str) -> Call:
    return Call(server, "part", (f"{name}:part",), ())


def test_replies_stand_in_the_order_of_the_calls(servers: RedisServers) -> None:
    """Whatever servers they go to, and calls to one server run in the order given."""
    name = uuid.uuid4().hex
    calls = [found(2, name, "two"), found(0, name, "zero"), part(2, name), part(1, name), part(0, name)]
    none = [None, None, None]
    zero, two = [b"zero", b"t", None], [b"two", b"t", None]
    assert servers.call(calls) == [two, zero, two, none, zero]
    assert servers.call([]) == []


def test_all_is_sent_before_anything_is_read(running: list[RedisServer]) -> None:
    """The hook between the two sees which servers were asked."""
    sent: list[list[int]] = []
    servers = RedisServers([server.url for server in running], on_sent=lambda asked: sent.append(sorted(asked)))
    servers.call([part(number, "x") for number in range(3)])
    sent.clear()
    servers.call([part(0, "x"), part(2, "x"), part(0, "y")])
    assert sent == [[0, 2]]
    servers.close()


def test_a_reply_that_was_not_read_is_never_taken_for_another(tmp_path: Path, running: list[RedisServer]) -> None:
    """After an error at one server the replies of the others are dropped with their connections."""
    name = uuid.uuid4().hex
    with redis_servers(tmp_path, 1) as (mortal,):
        servers = RedisServers([mortal.url, running[0].url, running[1].url])
        servers.call([found(1, name, "one"), found(2, name, "two"), part(0, name)])
        mortal.kill()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{mortal.port}"):
                servers.call([part(0, name), part(1, "other"), part(2, "other")])
        assert servers.call([part(1, name), part(2, name)]) == [[b"one", b"t", None], [b"two", b"t", None]]
        mortal.start()
        assert servers.call([part(0, name)]) == [[None, None, None]]
        servers.close()


def test_a_refused_call_does_not_disturb_the_others(servers: RedisServers, running: list[RedisServer]) -> None:
    """The error names the server; the next batch is answered rightly over the same connections."""
    name = uuid.uuid4().hex
    redis.Redis.from_url(running[1].url).set(f"{name}:part", "text")
    with pytest.raises(FormatMismatch, match=f"127.0.0.1:{running[1].port} has a key of another kind"):
        servers.call([part(1, name), found(0, name), found(2, name)])
    assert servers.call([part(0, name), part(2, name)]) == [[b"r", b"t", None]] * 2


def test_a_server_that_cannot_say_what_is_synced_counts_as_synced(servers: RedisServers) -> None:
    """Before Redis 7.2, or without an append-only file, there is nothing to wait for."""
    assert servers.sync("x:synced")
    assert servers.sync("x:synced")


def test_with_an_append_only_file_a_sync_is_waited_for(tmp_path: Path) -> None:
    """A server that has WAITAOF confirms the sync; any other counts as synced."""
    with redis_servers(tmp_path, 1, appendonly="yes") as (server,):
        servers = RedisServers([server.url])
        servers.call([found(0, "x")])
        assert servers.sync("x:synced")
        servers.close()


@pytest.mark.parametrize(("timeout_s", "wait_ms"), [(0.2, 100), (5.0, 2000)])
def test_a_server_answers_a_sync_within_the_time_out(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, wait_ms: int
) -> None:
    """It waits for its disk for a shorter time than its reply is waited for."""
    servers = RedisServers(["redis://h"], timeout_s)
    sent: list[dict[int, list[tuple[object, ...]]]] = []

    def answer(commands: dict[int, list[tuple[object, ...]]]) -> dict[int, list[object]]:
        sent.append(commands)
        return {0: [b"OK", [0, 0]]}

    monkeypatch.setattr(servers, "_send_and_read", answer)
    assert not servers.sync("x:synced")
    assert sent == [{0: [("SET", "x:synced", "", "PX", wait_ms), ("WAITAOF", 1, 0, wait_ms)]}]


def test_a_connection_that_was_interrupted_while_it_was_made_is_made_anew(
    running: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late answer to the first connection's start is not taken for the reply to the next call."""
    name, read = uuid.uuid4().hex, redis.Connection.read_response
    servers = RedisServers([running[0].url + "/1"])

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(redis.Connection, "read_response", interrupted)
    with pytest.raises(KeyboardInterrupt):
        servers.call([part(0, name)])
    monkeypatch.setattr(redis.Connection, "read_response", read)
    assert servers.call([found(0, name)]) == [[b"r", b"t", None]]
    assert redis.Redis.from_url(running[0].url + "/1").exists(f"{name}:part")
    servers.close()


def test_closed_connections_are_not_opened_again(servers: RedisServers) -> None:
    """`close` may be repeated."""
    servers.call([part(0, "x")])
    servers.close()
    servers.close()
    with pytest.raises(FilterClosed):
        servers.call([part(0, "x")])


@pytest.mark.parametrize("url", ["redis://h/?no_such_option=1", "redis://h/?socket_timeout=x", "ftp://h"])
def test_a_url_with_what_redis_py_does_not_know_is_an_error(url: str) -> None:
    """Before anything is connected."""
    with pytest.raises(BadParameters, match="is not the URL of a Redis server"):
        RedisServers([url])


def test_addresses_hide_user_and_password() -> None:
    """They stand in messages."""
    urls = ["redis://u:secret@h:1/2", "unix:///run/redis.sock?password=secret", "rediss://:secret@h"]
    assert RedisServers(urls).addresses == ["h:1/2", "unix:///run/redis.sock", "h"]
