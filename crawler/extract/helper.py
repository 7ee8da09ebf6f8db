"""The helper process: reads documents that could stall or break the crawl. `extractor` starts it and sends it documents.

Its standard input is a socket. A request is a JSON object with the body as a file descriptor, the reply is JSON objects of a
thousand links each, then one with the rest; each has its length before it. The process ends with the socket, with the crawl
(on Linux), and when a document takes too long.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any

from anabranch.crawler.extract.content_type import DocumentKind
from anabranch.crawler.extract.links import ExtractOptions
from anabranch.crawler.extract.reading import Document, read
from anabranch.crawler.runtime import give_back_early, give_back_now

#: The length before a message.
LENGTH = struct.Struct(">I")
#: The largest request.
MAX_REQUEST_BYTES = 128 * 1024
#: Links of one message, which the crawl parses at once.
LINKS_A_MESSAGE = 1000
#: Seconds after the crawl's own time limit at which a document ends this process.
GRACE_S = 2.0
_PR_SET_PDEATHSIG = 1
#: Signals for the crawl, which finishes its last pages.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(parent: int, memory_bytes: int) -> None:
    """Serve the process `parent` on standard input until it exits. The address space is limited to `memory_bytes`."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    give_back_early()
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only here

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    with socket.socket(fileno=0) as channel:
        while (request := _receive(channel)) is not None:
            _answer(channel, *request)
            give_back_now()  # the next document may come much later


def _receive(channel: socket.socket) -> tuple[dict[str, Any], int] | None:
    """The next request and the descriptor of its body; None when the socket is closed."""
    message, descriptors, _, _ = socket.recv_fds(channel, MAX_REQUEST_BYTES, 1)
    while message and len(message) < LENGTH.size + LENGTH.unpack_from(message.ljust(LENGTH.size, b"\0"))[0]:
        more = channel.recv(MAX_REQUEST_BYTES)
        if not more:
            return None
        message += more
    if not message or not descriptors:
        return None
    request: dict[str, Any] = json.loads(message[LENGTH.size :])
    return request, descriptors[0]


def _answer(channel: socket.socket, request: dict[str, Any], descriptor: int) -> None:
    """Read the document and send the result, or an error."""
    options = request.pop("options")
    lists = {name: tuple(options[name]) for name in ("embed_attributes", "link_attributes")}
    options = ExtractOptions(**options | lists)
    signal.setitimer(signal.ITIMER_REAL, options.timeout_s + GRACE_S)  # the signal ends the process, even in C code
    try:
        with os.fdopen(descriptor, "rb") as file:
            body = file.read()
        fields = read(Document(**request | {"kind": DocumentKind(request["kind"]), "body": body}), options)._asdict()
    except Exception as error:  # noqa: BLE001 - any failure of a reader is reported, and the next document is read
        _send(channel, {"error": f"{type(error).__name__}: {error}"[:1000]})
        return
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    links = fields.pop("links")
    for start in range(0, len(links), LINKS_A_MESSAGE):
        _send(channel, {"links": links[start : start + LINKS_A_MESSAGE]})
    _send(channel, fields)


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    channel.sendall(LENGTH.pack(len(data)) + data)
