"""Asks for every page over plain sockets, and looks at none: what the server can do.

`python raw.py SEED CONCURRENCY LOOP PAGES`. A few connections get many requests at a time each, so that neither side waits for
the other; LOOP is not used.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

_CONNECTIONS = 4


def fetch(host: str, port: int, pages: Sequence[int], at_once: int) -> None:
    """All of the pages, which are of one length."""
    sockets = [socket.create_connection((host, port)) for _ in range(_CONNECTIONS)]
    room = memoryview(bytearray(1 << 18))
    length = _length(sockets[0], pages[0], room)
    shares = list(_shares(pages[1:], at_once))
    for start in range(0, len(shares), _CONNECTIONS):
        busy = list(zip(sockets, shares[start : start + _CONNECTIONS], strict=False))
        for one, share in busy:
            one.sendall(b"".join(map(_request, share)))
        for one, share in busy:
            due = len(share) * length
            while due:
                due -= _received(one, room[:due])


def _shares(pages: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(pages), size):
        yield pages[start : start + size]


def _request(page: int) -> bytes:
    return b"GET /pages/%d.html HTTP/1.1\r\nHost: bench.test\r\n\r\n" % page


def _length(one: socket.socket, page: int, room: memoryview) -> int:
    """Request a page and return the length of the answer in bytes, its head included."""
    one.sendall(_request(page))
    came = 0
    while (end := bytes(room[:came]).find(b"\r\n\r\n")) < 0:
        came += _received(one, room[came:])
    head = bytes(room[:end]).lower()
    whole = end + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    while came < whole:
        came += _received(one, room[came:])
    return whole


def _received(one: socket.socket, room: memoryview) -> int:
    if not (count := one.recv_into(room)):
        raise SystemExit("the server has closed a connection")
    return count


if __name__ == "__main__":
    place = urlsplit(sys.argv[1])
    fetch(place.hostname or "", place.port or 80, range(int(sys.argv[4])), 16)
