"""Tries an installed wheel: `python scripts/wheel_smoke.py base|crawl WHEEL ENVIRONMENT`, and checks what an index reads of
a release: `python scripts/wheel_smoke.py metadata FILE...`.

ENVIRONMENT is a virtual environment with the wheel and its dependencies and nothing else. Everything runs in an empty
folder, so that it finds nothing of the clone. `base`: without an extra, a Frontier and a filter work, and the command names
the extra that it needs. `crawl`: with that, the command names the wheel's version and crawls two linked pages, and both are
in `pages.jsonl`. `metadata`: the metadata of each wheel or sdist are valid, for the version of its file name, and have
README.md. Exit code 0 if that is so and the wheel holds the package alone; 1 with the reason otherwise.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

from packaging.metadata import Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename

README = Path(__file__).resolve().parent.parent / "README.md"

PAGES = {
    "index.html": '<!doctype html><title>Source</title><a href="mouth.html">downstream</a>',
    "mouth.html": '<!doctype html><title>Mouth</title><a href="index.html">upstream</a>',
}

#: A program that embeds the Frontier and the filter.
EMBEDDING = """
from pathlib import Path
from anabranch import Candidate, FrontierOrder, UniqFilter, open_frontier
with open_frontier(Path("state"), FrontierOrder(policy="bkdr:7")) as frontier:
    frontier.schedule([Candidate("http://a.test/"), Candidate("http://a.test/")])
    while (lease := frontier.lease()) is None:
        frontier.flush()
    print(lease.url)
with UniqFilter.open(Path("seen")) as seen:
    print(seen.add([b"1", b"2", b"1"]).tolist())
try:
    import anabranch.crawler
except ImportError as error:
    print(error)
"""
MISSING = (
    "the crawler needs ada_url, aiodns, aiohttp, chardetng_py, cronsim, prometheus_client, pydantic, pydantic_settings, "
    "rich, selectolax, structlog, tomli_w, typer, webencodings"
)

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


def metadata_text(file: Path) -> bytes:
    """The metadata of a wheel or an sdist. Raises: StopIteration, KeyError if it has none."""
    if file.suffix == ".whl":
        with ZipFile(file) as wheel:
            return wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")))
    with tarfile.open(file) as sdist:
        member = sdist.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert member is not None  # it is a file
        return member.read()


def metadata_complaint(file: Path) -> str:
    """The error in the metadata of this wheel or sdist; empty if there is none."""
    parse = parse_wheel_filename if file.suffix == ".whl" else parse_sdist_filename
    try:
        metadata = Metadata.from_email(metadata_text(file))
    except ExceptionGroup as errors:
        return "; ".join(map(str, errors.exceptions))
    if metadata.version != parse(file.name)[1]:
        return f"its metadata have version {metadata.version}"
    if (metadata.description_content_type, metadata.description) != ("text/markdown", README.read_text("utf-8")):
        return "its description is not README.md"
    return ""


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


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, without what the shell says about Python. Raises: TimeoutExpired."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        command,
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


def base_complaint(wheel: Path, environment: Path, scratch: Path) -> str:
    """The error of the wheel without its extras; empty if it works. `scratch` is an empty folder."""
    advice = shlex.quote(f"{wheel.resolve()}[crawl]")
    line = f"{MISSING}; install them: pip install {advice}\n"
    python = str(environment / "bin" / "python")
    programs = {
        (python, "-c", EMBEDDING): (0, f"http://a.test/\n[True, True, False]\n{line}"),
        (python, "-m", "anabranch", "--help"): (2, f"anabranch: {line}"),
        (str(environment / "bin" / "anabranch"), "crawl", "a.test"): (2, f"anabranch: {line}"),
    }
    for command, wanted in programs.items():
        done = run_in(scratch, *command)
        # Which pip installs for that Python depends on what made the environment.
        said = re.sub("install them: .* install ", "install them: pip install ", done.stdout)
        if (done.returncode, said) != wanted:
            return f"{command[-2:]} ended with {done.returncode} and said:\n{done.stdout}wanted {wanted}"
    return ""


def crawl_complaint(wheel: Path, environment: Path, scratch: Path) -> str:
    """The error of the wheel with the extra `crawl`; empty if it works. `scratch` is an empty folder."""
    site, empty, job = scratch / "site", scratch / "empty", scratch / "job"
    site.mkdir()
    empty.mkdir()
    command = str(environment / "bin" / "anabranch")
    wanted_version = f"anabranch {parse_wheel_filename(wheel.name)[1]}\n"
    if (version := run_in(empty, command, "--version").stdout) != wanted_version:
        return f"anabranch --version said {version!r}, wanted {wanted_version!r}"
    with served(PAGES, site) as address:
        try:
            options = ("--allow-private", "--min-delay", "0", "--max-delay", "0", "--job", str(job))
            done = run_in(empty, command, "crawl", f"{address}/index.html", *options)
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
    """Print the verdict on `base|crawl WHEEL ENVIRONMENT` or `metadata FILE...`; returns 1 on an error."""
    if arguments[0] == "metadata":
        verdicts = {file: metadata_complaint(Path(file)) for file in arguments[1:]}
        for file, wrong in verdicts.items():
            print(f"{file}: {wrong or 'its metadata are valid'}")
        return int(any(verdicts.values()))
    kind, wheel, environment = arguments[0], Path(arguments[1]), Path(arguments[2])
    foreign = foreign_files(wheel)
    with tempfile.TemporaryDirectory(prefix="anabranch.") as scratch:
        if foreign:
            wrong = f"{wheel.name} would install {', '.join(foreign)}"
        else:
            tried = base_complaint if kind == "base" else crawl_complaint
            wrong = tried(wheel, environment.absolute(), Path(scratch))
    did = "embedded a Frontier" if kind == "base" else f"crawled {len(PAGES)} pages"
    print(wrong or f"{wheel.name} {did} from an empty environment")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
