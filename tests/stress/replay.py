"""Crawls the small web with `anabranch crawl --warc`, replays its WARC files with pywb, and compares what comes back with what
the live site sends, byte by byte.

    python tests/stress/replay.py --venv DIR [--keep DIR]

installs pywb into the environment DIR (unless it is there: it is no dependency of ours), crawls every page of the small web and
a host of pages with chunks, content codings, validators and equal payloads, all of it twice (the second round asks what has
changed), gives pywb the WARC files and the CDXJ index that were written, and asks it for each answer of crawl.log at the time
of its fetch. The live site is asked for the same. It prints a line for each difference and a summary; the exit code is 1 if
there is a difference.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from tests.patience import HANG_S

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.acceptance.command import anabranch, write_order
from tests.site.page import Host, Page, versioned
from tests.site.pages import WEB
from tests.site.server import SmallWeb

TEXT = b"<p>a text that is worth packing " * 400
PACKED = gzip.compress(TEXT)


def chunked(data: bytes) -> bytes:
    pieces = [data[start : start + 1000] for start in range(0, len(data), 1000)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def answer(data: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Type: text/html", b"Connection: close", *fields])
    return head + b"\r\n\r\n" + data


def sized(data: bytes) -> bytes:
    return b"Content-Length: %d" % len(data)


#: What the small web has not.
CODED = {
    "/chunked": answer(chunked(TEXT), b"Transfer-Encoding: chunked"),
    "/chunked-gzip": answer(chunked(PACKED), b"Transfer-Encoding: chunked", b"Content-Encoding: gzip"),
    "/gzip": answer(PACKED, sized(PACKED), b"Content-Encoding: gzip"),
    "/opaque-br": answer(bytes(range(256)) * 9, sized(bytes(256) * 9), b"Content-Encoding: br"),
    "/no-length": answer(TEXT),
    "/same-1": answer(b"the same payload", sized(b"the same payload")),
    "/same-2": answer(b"the same payload", sized(b"the same payload")),
    "/odd?b=2&a=%C3%BC&A=%2F": answer(b"odd", sized(b"odd")),
    "/error": answer(b"gone", sized(b"gone"), status=b"410 Gone"),
    "/tagged": answer(b"tagged", sized(b"tagged"), b'ETag: "1"'),
    "/robots.txt": answer(b"", sized(b""), status=b"404 Not Found"),
}
NOT_MODIFIED = answer(b"", b'ETag: "1"', status=b"304 Not Modified")


class Answer(NamedTuple):
    """One answer of crawl.log."""

    url: str
    stamp: str  #: when its fetch began, to the second
    status: int
    kind: str  #: of its record


async def serve_coded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    target = request.split(b" ")[1].decode()
    writer.write(NOT_MODIFIED if b'If-None-Match: "1"' in request else CODED[target])
    await writer.drain()
    writer.close()


#: The small web; about half of its pages have a version.
SITE = {
    host: Host(pages={target: versioned(page) if len(target) % 2 else page for target, page in known.pages.items()})
    for host, known in WEB.items()
}


def is_sound(page: Page) -> bool:
    """It is answered, and at once: what fails is tried again for minutes, and is no answer."""
    return page.fault is None and not page.first and page.status not in (429, 503)


async def crawl(folder: Path, hosts: dict[str, str]) -> None:
    """Two rounds over all pages, as seeds."""
    order = write_order(folder, hosts, fetch={"max_body": "32MiB"}, scope={"max_hops": 0}, write={"warc_size": "1MiB"})
    seeds = folder / "seeds.txt"
    served = {host: [target for target, page in known.pages.items() if is_sound(page)] for host, known in SITE.items()}
    served["coded.test"] = list(CODED)
    seeds.write_text("".join(f"http://{host}{target}\n" for host, targets in served.items() for target in targets))
    for more in ((), ("--again", "--yes")):
        arguments = ("crawl", str(seeds), "-c", order, "--job", folder / "job", "--warc", "--robots", "ignore", *more)
        run = await anabranch(*arguments, cwd=folder)
        if run.code:
            raise SystemExit(f"the crawl ended with {run.code}: {run.err}")
        await asyncio.sleep(1.1)  # pywb knows times to the second: what is fetched again must be later


def answers(job: Path) -> Iterator[Answer]:
    """Every answer that crawl.log has, names aside."""
    for line in (job / "logs" / "crawl.log").read_text().splitlines():
        fields = line.split()
        notes, status = fields[11], int(fields[1])
        if status > 0 and not fields[3].startswith("dns:"):
            kind = "304" if "notModified" in notes else "revisit" if "warcRevisit" in notes else "response"
            yield Answer(fields[3], fields[8][:14], status, kind)


def pywb(environment: Path) -> Path:
    """The server's program, installed if need be."""
    program = environment / "bin" / "wayback"
    if not program.exists():
        venv.create(environment, with_pip=True)
        subprocess.run([environment / "bin" / "pip", "install", "-q", "pywb"], check=True)
    return program


def collection(folder: Path, job: Path) -> None:
    """A pywb collection of the job's files, with the index that the crawl wrote."""
    archive_folder, index_folder = folder / "collections/job/archive", folder / "collections/job/indexes"
    archive_folder.mkdir(parents=True)
    index_folder.mkdir()
    for path in (job / "warc").glob("*.warc.gz"):
        shutil.copy(path, archive_folder)
    lines = [line for path in (job / "warc").glob("*.cdxj") for line in path.read_bytes().splitlines(keepends=True)]
    (index_folder / "index.cdxj").write_bytes(b"".join(sorted(lines)))


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise SystemExit("pywb does not answer")


class Got(NamedTuple):
    """An answer, as it was sent."""

    status: int
    data: bytes
    location: str | None


def asked(address: str, target: str, headers: dict[str, str]) -> Got:
    """One answer; its payload is not decoded."""
    connection = http.client.HTTPConnection(address, timeout=HANG_S)
    connection.putrequest("GET", target, skip_host="Host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    got = connection.getresponse()
    data = got.read()
    connection.close()
    return Got(got.status, data, got.getheader("Location"))


def live(hosts: dict[str, str], wanted: Answer) -> Got:
    """Fetch the page from the site itself; a 304 stands for the page."""
    url = urlsplit(wanted.url)
    target = url.path + (f"?{url.query}" if url.query else "")
    return asked(hosts[url.netloc], target, {"Host": url.netloc, "Connection": "close"})


def compare(port: int, hosts: dict[str, str], wanted: Answer) -> str | None:
    """Compare the answers of the site and of pywb at the time of the fetch.

    Returns the difference, an empty text if there is none, or None if pywb cannot answer.
    """
    there = live(hosts, wanted)
    if there.location is not None and urljoin(wanted.url, there.location) == wanted.url:
        return None  # archived, but pywb answers no redirect to itself
    target = f"/job/{wanted.stamp}id_/{wanted.url}"
    replayed = asked(f"127.0.0.1:{port}", target, {"Accept-Encoding": "gzip, br"})
    if replayed[:2] == there[:2]:
        return ""
    told = f"{replayed.status}, {len(replayed.data)} bytes; {there.status}, {len(there.data)} wanted"
    return f"{wanted.url} ({wanted.kind}): {told}"


def compare_all(program: Path, folder: Path, hosts: dict[str, str], wanted: list[Answer]) -> dict[Answer, str]:
    """Answer -> its difference; without those that pywb cannot be asked for."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "pywb.log").open("wb") as log:
        command = [program, "-p", str(port), "-b", "127.0.0.1"]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            wait_for(port, process)
            found = {one: compare(port, hosts, one) for one in wanted}
        finally:
            process.terminate()
            process.wait(30)
    return {one: told for one, told in found.items() if told is not None}


async def prove(program: Path, folder: Path) -> int:
    """Crawl, replay, compare while the site is still there; the number of differences."""
    async with SmallWeb(SITE) as web, await asyncio.start_server(serve_coded, "127.0.0.1", 0) as coded:
        hosts = web.hosts | {"coded.test": f"127.0.0.1:{coded.sockets[0].getsockname()[1]}"}
        await crawl(folder, hosts)
        collection(folder / "pywb", folder / "job")
        wanted = list(answers(folder / "job"))
        found = await asyncio.to_thread(compare_all, program, folder / "pywb", hosts, wanted)
    for told in filter(None, found.values()):
        print(told)
    kinds = [one.kind for one in found]
    told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    size = sum(path.stat().st_size for path in (folder / "job/warc").glob("*.warc.gz"))
    differences = sum(map(bool, found.values()))
    print(f"{len(found)} answers of {len(wanted)} ({told}) in {size} bytes of WARC: {differences} differences")
    return differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--venv", type=Path, required=True, help="environment that has pywb or gets it")
    parser.add_argument("--keep", type=Path, help="keep job and collection in this folder")
    arguments = parser.parse_args()
    program = pywb(arguments.venv.absolute())
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.keep or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return int(asyncio.run(prove(program, folder)) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
