"""A receiver of webhooks on a loopback port, in a thread of its own: it answers as it is told to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Event, Thread
from typing import NamedTuple

from tests.patience import HANG_S

#: In place of a status: no answer comes; or bytes come without end.
HANGS, ENDLESS = 0, -1


class Received(NamedTuple):
    """A request."""

    path: str
    headers: Mapping[str, str]  #: names in lower case
    body: str


class Receiver(ThreadingHTTPServer):
    """Answers with the statuses that it was given, one after the other, then with 204."""

    daemon_threads = True

    def __init__(self, answers: Iterable[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = iter(answers)
        self.received: SimpleQueue[Received] = SimpleQueue()
        self.is_over = Event()

    def address(self, path: str = "/hook") -> str:
        """The URL of a path here."""
        return f"http://127.0.0.1:{self.server_port}{path}"

    def next(self) -> Received:
        """Wait for the next request."""
        return self.received.get(timeout=HANG_S)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.received.put(Received(self.path, headers, body))
        status = next(self.server.answers, 204)
        if status == HANGS:
            self.server.is_over.wait()
            return
        self.send_response(200 if status == ENDLESS else status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        if status != ENDLESS:
            self.send_header("Content-Length", "0")
        self.end_headers()
        while status == ENDLESS and not self.server.is_over.is_set():
            try:
                self.wfile.write(b"x" * 65_536)
            except OSError:
                return

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def receiving(*answers: int) -> Iterator[Receiver]:
    """A receiver that gives these answers."""
    with Receiver(answers) as made:
        thread = Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            made.is_over.set()
            made.shutdown()
            thread.join()
