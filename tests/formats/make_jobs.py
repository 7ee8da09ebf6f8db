"""Makes the jobs of `tests/formats/format-N/` with the program of a checkout, before its format changes:

    python tests/formats/make_jobs.py CHECKOUT tests/formats/format-N

Each is a small archive. In its order the site is at 127.0.0.1:PORT; `test_formats` puts the port of its own there.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.formats.site import HOSTS, SEEDS, served

#: In the place of the port.
PORT = "127.0.0.1:PORT"
#: In an archive, the length of a file with the zeros at its end.
BYTES = "ANABRANCH.bytes"

_ORDER = """
[crawl]
workers = 2
[politeness]
min_delay = 0
max_delay = 0
[fetch]
allow_private = true
[agent]
contact = "https://example.org/bot"
[dedup]
exact = true
[limits]
pages = 10
{more}
[dns.hosts]
{hosts}
"""

_OVERRIDES = """
[[override]]
surt = "http://(test,a,b,)"
balance_replenish = 7
[[override]]
surt = "http://(test,c,)"
total_budget = 500
"""

#: Name of a job -> more of its order, more arguments of its crawl.
JOBS = {
    "stopped-bkdr": ('[frontier]\npolicy = "bkdr:13"', ()),
    "stopped-surt": (f'[frontier]\npolicy = "surt"\n{_OVERRIDES}', ()),
    "stopped-surt-gates": ('[frontier]\npolicy = "surt"\npoliteness = "queue"', ()),
    "finished-warc": ("", ("--warc", "--limit", "0")),
    "stopped-processes": ("", ("--processes", "2")),
}

_EMBEDDING = """
import asyncio, sys, time
from pathlib import Path
from anabranch.frontier import Candidate, Outcome, OutcomeKind
from anabranch.frontier.hosts.embedding.job import open_job

async def main():
    async with open_job(Path("embedded"), {"policy": "surt", "min_delay": 0, "max_delay": 0}) as frontier:
        frontier.schedule([Candidate(url) for seed in sys.argv[1:] for url in (seed, seed + "0", seed + "1")])
        for _ in range(2):
            lease = await frontier.lease()
            frontier.finish(lease, Outcome(OutcomeKind.DONE, 200), [])
        await frontier.flush()

asyncio.run(main())
"""


def make(checkout: Path, to: Path) -> None:
    """Crawl with the program of a checkout, and pack what it wrote."""
    to.mkdir(parents=True, exist_ok=True)
    with served() as port, tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for name, (more, arguments) in JOBS.items():
            hosts = "\n".join(f'"{host}" = "127.0.0.1:{port}"' for host in HOSTS)
            (place / "order.toml").write_text(_ORDER.format(more=more, hosts=hosts))
            command = ["-m", _program(checkout), "crawl", *SEEDS, "-c", "order.toml", "--job", name, *arguments]
            _run(checkout, place, *command)
            _pack(place / name, to / f"{name}.tar.xz", port)
        _run(checkout, place, "-c", _EMBEDDING, *SEEDS)
        _pack(place / "embedded", to / "embedded.tar.xz", port)
        dump = ("frontier", "dump", "./stopped-surt", "-o", str(to / "dump.jsonl"))
        _run(checkout, place, "-m", _program(checkout), *dump)


def _program(checkout: Path) -> str:
    """The module that is the command: before there was the package `anabranch` it was `crawler`."""
    return "anabranch" if (checkout / "anabranch").exists() else "crawler"


def _run(checkout: Path, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, check=True
    )


def _pack(folder: Path, file: Path, port: int) -> None:
    """Pack a job's files; the zeros at the end of a file, hundreds of megabytes of its filter, only by their number."""
    with tarfile.open(file, "w:xz", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            if path.name == "order.toml":
                content = content.replace(f"127.0.0.1:{port}".encode(), PORT.encode())
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.pax_headers = {BYTES: str(len(content))}
            content = content.rstrip(b"\0")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def unpack(file: Path, folder: Path, port: int) -> None:
    """Make the job again, with its site on this port."""
    with tarfile.open(file) as archive:
        for entry in archive:
            path, content = folder / entry.name, archive.extractfile(entry)
            path.parent.mkdir(parents=True, exist_ok=True)
            assert content is not None
            path.write_bytes(content.read())
            os.truncate(path, int(entry.pax_headers[BYTES]))
    for order in folder.rglob("order.toml"):
        order.write_text(order.read_text().replace(PORT, f"127.0.0.1:{port}"))


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
