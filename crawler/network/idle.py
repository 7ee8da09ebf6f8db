"""Connections that wait for their host's next fetch, of all connectors together: bounded, the one that waits longest goes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey


class Keeper(Protocol):
    """A connector, as what has the connection."""

    def drop(self, key: ConnectionKey, connection: ResponseHandler) -> None:
        """Close a connection that waits, and forget it."""


class IdleConnections:
    """Which connections wait. All calls O(1). With room for none, each is closed when its fetch has ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[ResponseHandler, tuple[Keeper, ConnectionKey]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: ResponseHandler, keeper: Keeper, key: ConnectionKey) -> None:
        """A fetch has ended, its connection is kept; one too many, and the one that waits longest is dropped."""
        self._waiting[connection] = (keeper, key)
        if len(self._waiting) > self._most:
            oldest, (its_keeper, its_key) = self._waiting.popitem(last=False)
            its_keeper.drop(its_key, oldest)

    def discard(self, connection: ResponseHandler) -> None:
        """It waits no more: it is used again, or gone."""
        self._waiting.pop(connection, None)
