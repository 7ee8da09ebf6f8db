"""Programs that read web archives: pywb and wacz in an environment of their own, and the files of ReplayWeb.page.

`.ci/run` puts them below the cache folder: pywb wants libraries that the product does not get along with. Where they are not
found, a test is skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.patience import HANG_S
from tests.ports import free_port

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
#: Where the environment and the npm package are.
FOLDER = _CACHE / "anabranch" / "replay"


def program(name: str) -> str:
    """The path of a program of pywb or wacz. Skips the test if there is none."""
    found = shutil.which(name, path=str(FOLDER / "venv" / "bin"))
    if found is None:
        pytest.skip(f"no {name}: make an environment with the packages pywb and wacz in {FOLDER / 'venv'}")
    return found


def component() -> Path:
    """The folder of the npm package replaywebpage. Skips the test if it is not there."""
    if not (FOLDER / "package" / "ui.js").is_file():
        pytest.skip(f"no ReplayWeb.page: unpack the npm package replaywebpage in {FOLDER}")
    return FOLDER / "package"


def added(folder: Path, *archives: Path) -> None:
    """Add WARC files, or a package, to the collection of a pywb, which may be running."""
    kind = ("--unpack-wacz",) if archives[0].suffix == ".wacz" else ()
    _manage(folder, "add", *kind, "c", *(str(archive.resolve()) for archive in archives))


def _manage(folder: Path, *arguments: str) -> None:
    subprocess.run([program("wb-manager"), *arguments], cwd=folder, check=True, capture_output=True, timeout=HANG_S)


@contextmanager
def wayback(folder: Path, *archives: Path) -> Iterator[str]:
    """A pywb that has these WARC files, or has unpacked the package; yields the address of its collection."""
    _manage(folder, "init", "c")
    added(folder, *archives)
    port = free_port()
    with subprocess.Popen(
        [program("wayback"), "--bind", "127.0.0.1", "--port", str(port)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}/c"
        finally:
            process.kill()


class _Ranges(SimpleHTTPRequestHandler):
    """Serves files of a folder, and ranges of them."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        begin, end = 0, size
        if wanted is not None:
            begin = int(wanted[1]) if wanted[1] else max(size - int(wanted[2]), 0)
            end = min(int(wanted[2]) + 1, size) if wanted[1] and wanted[2] else size
        self.send_response(200 if wanted is None else 206)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Accept-Ranges", "bytes")
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        self.end_headers()
        if self.command == "GET":
            with path.open("rb") as file:
                file.seek(begin)
                self.wfile.write(file.read(end - begin))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The files of a folder, on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: _Ranges(*args, directory=str(folder)))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
