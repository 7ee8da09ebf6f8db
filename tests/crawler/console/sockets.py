"""Ports on loopback."""

import socket
from contextlib import contextmanager


@contextmanager
def taken_port():
    """A port that something listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
