"""Lets an installed wheel crawl two linked pages: `python scripts/wheel_smoke.py WHEEL ENVIRONMENT`.

ENVIRONMENT is a virtual environment with the wheel and its dependencies and nothing else. The command runs in an
empty folder, so that it finds nothing of the clone. Exit code 0 if the wheel holds the package alone and both pages are
in `pages.jsonl`; 1 with the reason otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

PAGES = {
    "index.html": '<!doctype html><title>Source</title><a href="mouth.html">downstream</a>',
    "mouth.html": '<!doctype html><title>Mouth</title><a href="index.html">upstream</a>',
}

#: What a wheel may install: the one package, and its own records.
TOP_LEVEL = {"anabranch"}

#: Such a small crawl ends by itself long before this many seconds.
PATIENCE_S = 60


def foreign_files(wheel: Path) -> list[str]:
    """Files that the wheel would install besides the package and its records."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    return [
        name
        for name in names
        if not name.partition("/")[0].endswith(".dist-info") and name.partition("/")[0] not in TOP_LEVEL
    ]


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class chose the names)
        """Say nothing."""


@contextmanager
def served(pages: dict[str, str], folder: Path) -> Iterator[str]:
    """Write the pages there and serve them on a free port of loopback; yields the address without a last slash."""
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def crawl(environment: Path, seed: str, job: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command in `folder`, without what the shell says about Python. Raises: TimeoutExpired."""
    options = ["--allow-private", "--min-delay", "0", "--max-delay", "0", "--job", str(job)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(environment / "bin" / "anabranch"), "crawl", seed, *options],
        cwd=folder,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def fetched(job: Path) -> dict[str, int]:
    """URL -> status, from the job's pages.jsonl. Raises: OSError, ValueError, KeyError."""
    lines = (job / "pages.jsonl").read_text(encoding="utf-8").splitlines()
    return {page["url"]: page["status"] for page in map(json.loads, lines)}


def complaint(wheel: Path, environment: Path, scratch: Path) -> str:
    """The error of the wheel; empty if it works. `scratch` is an empty folder."""
    if foreign := foreign_files(wheel):
        return f"{wheel.name} would install {', '.join(foreign)}"
    site, empty, job = scratch / "site", scratch / "empty", scratch / "job"
    site.mkdir()
    empty.mkdir()
    with served(PAGES, site) as address:
        try:
            done = crawl(environment, f"{address}/index.html", job, empty)
        except subprocess.TimeoutExpired as error:
            return f"the crawl was not done after {error.timeout} s"
        except OSError as error:
            return f"the installed command does not start: {error}"
        wanted = {f"{address}/{name}": 200 for name in PAGES}
    if done.returncode != 0:
        return f"the crawl ended with exit code {done.returncode} and said:\n{done.stdout}"
    try:
        found = fetched(job)
    except (OSError, ValueError, KeyError) as error:
        return f"pages.jsonl cannot be read: {error!r}"
    if found != wanted:
        return f"pages.jsonl holds {found}, wanted {wanted}"
    if left := sorted(path.name for path in empty.iterdir()):
        return f"the crawl left {', '.join(left)} in the current folder"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Print the verdict on `WHEEL ENVIRONMENT`; returns 1 on an error."""
    wheel, environment = map(Path, arguments)
    with tempfile.TemporaryDirectory(prefix="anabranch.") as scratch:
        wrong = complaint(wheel.resolve(), environment.absolute(), Path(scratch))
    print(wrong or f"{wheel.name} crawled {len(PAGES)} pages from an empty environment")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
