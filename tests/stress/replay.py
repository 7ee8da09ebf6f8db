"""Replays an archive of the small web with pywb, and compares what comes back with what the server sent, byte by byte.

    python tests/stress/replay.py --venv DIR [--keep DIR]

installs pywb into the environment DIR (unless it is there: it is no dependency of ours), fetches every page of the small web
that answers, and some with chunks, content codings, validators and equal payloads, by a few lines of its own (no part of the
crawler), writes them with the crawler's journal, gives pywb the WARC files and the CDXJ index that were written, and asks it
for each page. It prints a line for each difference and a summary; the exit code is 1 if there is a difference.
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
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

sys.path[0] = str(Path(__file__).resolve().parents[2])

from crawler.archiving.records import Exchange
from crawler.jobs.job import JobFolder
from crawler.jobs.journal import Entry
from crawler.jobs.writing import Writing, open_writing
from crawler.orders.write import WriteSection
from crawler.processors.write import Archivist
from tests.crawler.archiving.exchanges import Answered, Payload
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


#: What the small web has not; the last two are fetched twice.
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
}
NOT_MODIFIED = answer(b"", b'ETag: "1"', status=b"304 Not Modified")


class Kept(NamedTuple):
    """One page as it was archived, and what its replay must be."""

    url: str
    date: str
    status: int
    data: bytes
    kind: str


async def fetch(port: int, host: str, target: str, *fields: bytes) -> Answered | None:
    """One request over a socket of its own; None if no whole answer comes within two seconds."""
    request = b"\r\n".join(
        [f"GET {target} HTTP/1.1".encode(), b"Host: " + host.encode(), *fields, b"Connection: close"]
    )
    request += b"\r\n\r\n"
    start_s = time.time()
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            raw = await reader.read(-1)
            writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    if not first.startswith(b"HTTP/1."):
        return None
    headers = tuple((name, value.strip()) for name, _, value in (line.partition(b":") for line in lines))
    named = {name.lower(): value for name, value in headers}
    if b"transfer-encoding" in named:
        body = dechunked(body)
    if len(body) != int(named.get(b"content-length", len(body))) and first.split()[1] != b"304":
        return None
    _, status, reason = [*first.decode("latin-1").split(" ", 2), ""][:3]
    return Answered(
        body=Payload(body), status=int(status), reason=reason, raw_headers=headers, request=request, address="127.0.0.1",
        start_s=start_s, end_s=time.time(),
    )  # fmt: skip


def dechunked(data: bytes) -> bytes:
    parts = []
    while data:
        size, _, data = data.partition(b"\r\n")
        parts.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]
    return b"".join(parts)


async def serve_coded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    target = request.split(b" ")[1].decode()
    writer.write(NOT_MODIFIED if b"If-None-Match" in request else CODED[target])
    await writer.drain()
    writer.close()


async def archive(folder: Path) -> list[Kept]:
    """Fetch all pages and write them into the job's folder."""
    kept: list[Kept] = []
    coded = await asyncio.start_server(serve_coded, "127.0.0.1", 0)
    coded_port = coded.sockets[0].getsockname()[1]
    with JobFolder.open(folder) as job:
        section = WriteSection.model_validate({"warc": True, "warc_prefix": "replay", "warc_size": "1MiB"})
        writing = open_writing(job, section, {"software": "anabranch"}, time.time)
        async with SmallWeb() as web:
            for host, served in WEB.items():
                for target in served.pages:
                    kept += await keep(writing, web.port, host, target)
        for target in CODED:
            kept += await keep(writing, coded_port, "coded.test", target)
        await asyncio.sleep(1.1)  # pywb knows times to the second: what is fetched again must be later
        kept += await keep(writing, coded_port, "coded.test", "/same-2")
        kept += await keep(writing, coded_port, "coded.test", "/tagged", b'If-None-Match: "1"')
        await writing.journal.close()
    coded.close()
    return kept


async def keep(writing: Writing, port: int, host: str, target: str, *fields: bytes) -> list[Kept]:
    response = await fetch(port, host, target, *fields)
    if response is None:
        return []
    assert writing.payloads is not None
    url = f"http://{host}{target}"
    exchange: Exchange = await Archivist(writing.payloads, revisit=True).exchange(url, response, hops="L", via=None)
    await writing.journal.write(Entry(crawl_log=b"line\n", exchange=exchange))
    places = (value.decode() for name, value in response.raw_headers if name.lower() == b"location")
    if url in (urljoin(url, place) for place in places):
        return []  # archived, but pywb answers no redirect to itself
    data, status = response.body.data, response.status  # of a 304, too: that is what pywb answers at its time
    kind = "response" if exchange.revisit is None else exchange.revisit.profile.rpartition("/")[2]
    return [Kept(url, exchange.date, status, data, kind)]


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


def replayed(port: int, page: Kept) -> tuple[int, bytes]:
    """What pywb answers for the page, unrewritten."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    stamp = "".join(filter(str.isdigit, page.date))[:14]
    connection.putrequest("GET", f"/job/{stamp}id_/{page.url}", skip_accept_encoding=True)
    connection.putheader("Accept-Encoding", "gzip, br")
    connection.endheaders()
    got = connection.getresponse()
    data = got.read()
    connection.close()
    return got.status, data


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise SystemExit("pywb does not answer")


def compare(program: Path, folder: Path, pages: list[Kept]) -> int:
    """Ask pywb for each page; the number of differences."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    differences = 0
    with (folder / "pywb.log").open("wb") as log:
        command = [program, "-p", str(port), "-b", "127.0.0.1"]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            wait_for(port, process)
            for page in pages:
                status, data = replayed(port, page)
                if (status, data) != (page.status, page.data):
                    differences += 1
                    print(
                        f"{page.url} ({page.kind}): {status}, {len(data)} bytes; {page.status}, {len(page.data)} wanted"
                    )
        finally:
            process.terminate()
            process.wait(30)
    return differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--venv", type=Path, required=True, help="environment that has pywb or gets it")
    parser.add_argument("--keep", type=Path, help="keep job and collection in this folder")
    arguments = parser.parse_args()
    program = pywb(arguments.venv.absolute())
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.keep or Path(scratch)).absolute()
        pages = asyncio.run(archive(folder / "job"))
        collection(folder / "pywb", folder / "job")
        differences = compare(program, folder / "pywb", pages)
        size = sum(path.stat().st_size for path in (folder / "job/warc").glob("*.warc.gz"))
    kinds = {kind: sum(page.kind == kind for page in pages) for kind in sorted({page.kind for page in pages})}
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    total = sum(len(page.data) for page in pages)
    print(f"{len(pages)} pages ({told}), {total} bytes of payload in {size} bytes of WARC: {differences} differences")
    return int(differences > 0)


if __name__ == "__main__":
    raise SystemExit(main())
