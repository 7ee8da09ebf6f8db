"""Free ports for servers that are given theirs before they start."""

from __future__ import annotations

import random
import socket

#: Below what systems give to those who name none (Linux from 32,768 on, macOS from 49,152): nobody gets one of these by chance.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on. Several processes of tests choose by chance, so they seldom meet."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
