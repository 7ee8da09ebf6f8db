"""A TCP proxy in front of a server, for one client, that can be frozen: then bytes go nowhere, and both sides stay connected.

So a network looks that drops packets. It runs in threads of its own; `frozen` may be set and cleared at any time.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from threading import Event
from typing import Self


class FrozenProxy:
    """Listens on loopback at `port` while entered."""

    def __init__(self, server: str) -> None:
        """`server` is the path of its Unix socket."""
        self._server = server
        self._flows = Event()
        self._flows.set()
        self._is_closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._flows.set()
        self._listener.close()

    def freeze(self) -> None:
        """Forward nothing from now on; new connections are not answered either."""
        self._flows.clear()

    def thaw(self) -> None:
        """Forward again, first what waits."""
        self._flows.set()

    def _listen(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        self._flows.wait()
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            pairs = {client: server, server: client}
            while not self._is_closed:
                ready, _, _ = select.select([client, server], [], [], 1.0)
                self._flows.wait()
                for one in ready:
                    data = one.recv(1 << 16)
                    if not data:
                        return
                    pairs[one].sendall(data)
