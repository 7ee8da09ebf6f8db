"""The small site that the kept jobs crawled: three hosts, two of which had one SURT key, `test,a,b,`, until format 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

HOSTS = ("c.test", "a,b.test", "b.a.test")
PAGES = 15
SEEDS = tuple(f"http://{host}/" for host in HOSTS)
#: Every page there is.
URLS = frozenset(url for seed in SEEDS for url in (seed, *(f"{seed}{number}" for number in range(PAGES))))


class _Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, asked: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = asked

    def handle_error(self, *_: object) -> None:
        """A crawler that is killed leaves its connections; that is no fault of the site."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Site

    def do_GET(self) -> None:
        self.server.asked.append(f"http://{self.headers['Host']}{self.path}")
        if self.path == "/robots.txt":
            self._answer(404, b"")
        elif self.path == "/":
            links = "".join(f'<a href="/{number}">page</a>' for number in range(PAGES))
            self._answer(200, f"<p>{self.headers['Host']}</p>{links}".encode())
        else:
            self._answer(200, f"<p>{self.headers['Host']}{self.path}</p>".encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(asked: list[str] | None = None) -> Iterator[int]:
    """The site on a free port of this machine, for all its hosts; `asked` gets the URL of each request."""
    with _Site([] if asked is None else asked) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
