"""Redis servers, all called at the same time: the only file that imports redis-py.

A batch of script calls is sent to all its servers before the first reply is read, so it costs one round trip. Redis 6.0
or later, or a server that speaks its protocol; no Redis Cluster.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch.dedup.bloom.sharedleaves import SCRIPTS, Call
from anabranch.dedup.errors import BadParameters, DedupError, FilterClosed, FormatMismatch, StoreFull, StoreUnavailable

#: What a script answers: bytes, or a list of bytes and None.
Reply: TypeAlias = object

_HASHES = {name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for name, text in SCRIPTS.items()}
_LONGEST_SYNC_WAIT_MS = 2000  # with appendfsync everysec the next sync is one second away, or two


class RedisServers:
    """Connections to several servers, made when needed and anew after an error, for one thread. Nothing is retried.

    Each wait for a server ends after `timeout_s` seconds. `on_sent` is called with the servers asked before a reply is read.
    """

    def __init__(
        self, urls: Sequence[str], timeout_s: float = 5.0, on_sent: Callable[[list[int]], None] | None = None
    ) -> None:
        if not urls:
            raise BadParameters("no Redis server is named; give at least one URL, as redis://127.0.0.1:6379")
        self.addresses = [url.partition("?")[0].rpartition("@")[2].removeprefix("redis://") for url in urls]
        self._on_sent = on_sent
        # Half the time-out at most: the server must answer before it is given up. (0 would be without end.)
        self._sync_wait_ms = max(1, min(_LONGEST_SYNC_WAIT_MS, int(timeout_s * 1000 / 2)))
        self._connections = [_connection(url, name, timeout_s) for url, name in zip(urls, self.addresses, strict=True)]
        self._ready: set[int] = set()
        self._cannot_sync: set[int] = set()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._connections)

    def call(self, calls: Sequence[Call]) -> list[Reply]:
        """Run the scripts, in order on each server, and return the replies. Raises: as `SharedDsbf.add`; some may have run."""
        replies = self._exchange(calls)
        forgotten = [place for place, reply in enumerate(replies) if isinstance(reply, redis.exceptions.NoScriptError)]
        if forgotten:  # the server lost its scripts (SCRIPT FLUSH): these calls have not run
            again = [calls[place] for place in forgotten]
            for server in {call.server for call in again}:
                self._load_scripts(server)
            for place, reply in zip(forgotten, self._exchange(again), strict=True):
                replies[place] = reply
        for call, reply in zip(calls, replies, strict=True):
            self._raise_if_refused(call.server, reply)
        return replies

    def sync(self, key: str) -> bool:
        """Have all servers sync all earlier writes, from Redis 7.2 on; False if one is late. It sets the key."""
        # WAITAOF waits for the last write of its own connection, and so for all that was written before that.
        wait_ms = self._sync_wait_ms
        commands: list[tuple[object, ...]] = [("SET", key, "", "PX", wait_ms), ("WAITAOF", 1, 0, wait_ms)]
        asked = [server for server in range(len(self)) if server not in self._cannot_sync]
        done = True
        for server, replies in self._send_and_read(dict.fromkeys(asked, commands)).items():
            match replies:
                case [b"OK", [int(local), *_]]:
                    done = done and local > 0
                case [error, list()]:
                    self._raise_if_refused(server, error)
                case _:
                    self._cannot_sync.add(server)
        return done

    def close(self) -> None:
        """Disconnect; a second call does nothing."""
        self.is_closed = True
        self._drop(range(len(self)))

    def _exchange(self, calls: Sequence[Call]) -> list[Reply]:
        """Send all, then read all; a refused call has an exception in its place."""
        places: dict[int, list[int]] = {}
        commands: dict[int, list[tuple[object, ...]]] = {}
        for place, call in enumerate(calls):
            command = ("EVALSHA", _HASHES[call.script], len(call.keys), *call.keys, *call.arguments)
            places.setdefault(call.server, []).append(place)
            commands.setdefault(call.server, []).append(command)
        replies: list[Reply] = [None] * len(calls)
        for server, answers in self._send_and_read(commands).items():
            for place, answer in zip(places[server], answers, strict=True):
                replies[place] = answer
        return replies

    def _send_and_read(self, commands: dict[int, list[tuple[object, ...]]]) -> dict[int, list[Reply]]:
        if self.is_closed:
            raise FilterClosed("the filter is closed; open it again")
        for server in commands:
            self._connect(server)
        server = 0
        replies: dict[int, list[Reply]] = {}
        try:
            for server, mine in commands.items():
                connection = self._connections[server]
                connection.send_packed_command(connection.pack_commands(mine))
            if self._on_sent:
                self._on_sent(list(commands))
            for server, mine in commands.items():
                for _ in mine:
                    try:
                        reply = self._connections[server].read_response(disable_decoding=True)
                    except redis.ResponseError as error:
                        reply = error
                    replies.setdefault(server, []).append(reply)
        except redis.RedisError as error:
            self._drop(commands)
            raise _translated(self.addresses[server], error) from error
        except BaseException:
            self._drop(commands)  # replies that were not read would be taken for those of the next batch
            raise
        return replies

    def _connect(self, server: int) -> None:
        if server in self._ready:
            return
        try:
            self._connections[server].connect()
            self._ready.add(server)
            self._cannot_sync.discard(server)
            self._load_scripts(server)
        except redis.RedisError as error:
            raise _translated(self.addresses[server], error) from error
        except BaseException:
            self._drop([server])  # replies to this opening would be taken for later ones
            raise

    def _raise_if_refused(self, server: int, reply: Reply) -> None:
        if isinstance(reply, redis.RedisError):
            raise _translated(self.addresses[server], reply) from reply

    def _load_scripts(self, server: int) -> None:
        loads: list[tuple[object, ...]] = [("SCRIPT", "LOAD", text) for text in SCRIPTS.values()]
        for reply in self._send_and_read({server: loads})[server]:
            self._raise_if_refused(server, reply)

    def _drop(self, servers: Iterable[int]) -> None:
        for server in servers:
            self._ready.discard(server)
            self._connections[server].disconnect()


def _connection(url: str, address: str, timeout_s: float) -> Any:  # a redis.Connection, which has no types
    try:
        pool = redis.ConnectionPool.from_url(
            url, protocol=2, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
        )
        return pool.make_connection()
    except (ValueError, TypeError) as error:
        raise BadParameters(f"{address} is not the URL of a Redis server: {error}") from error


def _translated(address: str, error: redis.RedisError) -> DedupError:
    """Maps an error of redis-py to one of this room."""
    text = str(error)
    if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError) or "NOAUTH" in text:
        return BadParameters(f"the Redis server {address} refuses user or password of its URL: {text}")
    if isinstance(error, redis.InvalidResponse):
        return BadParameters(f"{address} is not a Redis server: {text}")
    if isinstance(error, redis.exceptions.OutOfMemoryError) or "OOM command not allowed" in text:
        return StoreFull(
            errno.ENOSPC, "the Redis server has no memory left; raise its maxmemory and repeat the call", address
        )
    if "WRONGTYPE" in text:
        return FormatMismatch(f"the Redis server {address} has a key of another kind where the filter has its own")
    if isinstance(error, redis.ResponseError):
        return StoreUnavailable(f"the Redis server {address} refuses a call: {text}")
    return StoreUnavailable(f"the Redis server {address} does not answer: {text}; is it running?")
