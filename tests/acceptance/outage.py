"""A crawl in a network of its own whose loopback goes down for a while: `outage.py FOLDER SECONDS_AWAY PROCESSES [STORE]`.

To be started by `unshare --net`. With the URL of a database two workers crawl the job. Prints as JSON:
the exit codes, the URLs of all pages.jsonl, the requests that were served before the network came back, and the output.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import struct
import sys
from pathlib import Path

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1


def set_loopback(*, up: bool) -> None:
    """Switch the loopback interface of this network on or off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(any_socket, _GET_FLAGS, asked))[1]
        wanted = flags | _UP if up else flags & ~_UP
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14s", b"lo", wanted, b""))


async def main(folder: Path, away_s: float, processes: int, store: str = "") -> None:
    """Crawl a small web while the network goes away and comes back."""
    set_loopback(up=True)
    from tests.acceptance.command import ended, start, write_order
    from tests.acceptance.test_outages import WEB, oracle
    from tests.site.server import SmallWeb

    async with SmallWeb(WEB) as web:
        order = write_order(folder, web.hosts, politeness={"min_delay": 0.2, "max_delay": 0.2}, crawl={"workers": 4})
        urls = oracle("")
        seeds = [url for url in urls if url.endswith("/")]
        more = ["--processes", str(processes)] if processes > 1 else []
        crawl, crawls, jobs = ("crawl", *seeds, "-c", order, *more), [], [folder / "job"]
        if store:
            jobs = [folder / name for name in ("a", "b")]
        for job in jobs:
            place = ("--store", store, "--worker", job.name) if store else ()
            crawls.append(await start(*crawl, "--job", job, *place, cwd=folder))
        while sum(web.ledger.counts().values()) < len(urls) // 3 and crawls[0].returncode is None:
            await asyncio.sleep(0.01)
        set_loopback(up=False)
        await asyncio.sleep(away_s)
        served = sum(web.ledger.counts().values())
        set_loopback(up=True)
        runs = [await ended(process) for process in crawls]
        lines = [line for job in jobs for line in (job / "pages.jsonl").read_text().splitlines()]
        facts = {
            "codes": [run.code for run in runs],
            "pages": sorted(json.loads(line)["url"] for line in lines),
            "served": served,
            "out": "".join(run.out for run in runs),
            "err": "".join(run.err for run in runs),
        }
        print(json.dumps(facts))


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
