"""The whole hostile web in one crawl: it ends by itself, in little memory, and with a line for every URL.

    python -m tests.stress.hostile_crawl [--workers 200] [--many 10000] [--memory 300MB] [--folder DIR] [--in-a-hurry]

The web is served by a process of its own. The crawl is the real command with its real waits between tries, unless
`--in-a-hurry`. Prints one summary line, and what is wrong, if anything is; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from anabranch.crawler.order.quantities import parse_size
from tests.acceptance.command import REPOSITORY, environment, write_order
from tests.acceptance.hostile import LAUNCHER, Line, asked_for, read_lines
from tests.site.hostile.asking import TRAP
from tests.site.hostile.hosts import HOSTILE, INNOCENT, INNOCENT_URLS, first_url, host_of, many_hosts
from tests.site.ledger import Ledger
from tests.site.memory import Peak

SERVER = REPOSITORY / "tests" / "site" / "hostile" / "server.py"
#: A crawl that has not ended by then does not end by itself.
PATIENCE_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of the crawl."""

    code: int | None  #: None: it did not end by itself
    seconds: float
    lines: tuple[Line, ...]
    ledger: Ledger
    seeds: tuple[str, ...]
    peak_bytes: int
    children_bytes: int
    all_bytes: int  #: the crawler and its children at one time
    errors: str

    def final(self) -> Mapping[str, int]:
        """URL -> status of its last line, robots.txt and names aside."""
        return {line.url: line.status for line in self.lines if not line.hops.endswith("P")}

    def faults(self, memory_bytes: int) -> list[str]:
        """List the broken rules in words."""
        final = self.final()
        asked = asked_for(self.ledger)
        rules = {
            "it did not end by itself": self.code is None,
            f"exit code {self.code}: {self.errors[-500:]}": self.code not in (None, 0),
            f"{self.all_bytes / 1e6:.0f} MB of anonymous memory, helpers included": self.all_bytes > memory_bytes,
            f"fetched, without a line: {some(asked - set(final))}": bool(asked - set(final)),
            f"seeds without a line: {some(set(self.seeds) - set(final))}": bool(set(self.seeds) - set(final)),
            f"traps asked for: {some({url for url in asked if TRAP in url})}": any(TRAP in url for url in asked),
            f"other statuses than the table has: {self.surprises()}": bool(self.surprises()),
            "the innocent host is not whole": any(final.get(url) != 200 for url in INNOCENT_URLS),
            "a traceback was printed": "Traceback" in self.errors,
        }
        return [words for words, is_so in rules.items() if is_so]

    def surprises(self) -> dict[str, int | None]:
        """The hosts whose first URL has a status that the table does not have."""
        final = self.final()
        statuses = {name: final.get(first_url(name)) for name in HOSTILE}
        return {name: status for name, status in statuses.items() if status not in HOSTILE[name].statuses}

    def __str__(self) -> str:
        counts = Counter(line.status for line in self.lines if not line.hops.endswith("P"))
        urls = len(self.final())
        return (
            f"{'ended by itself' if self.code is not None else 'DID NOT END'} with {self.code} after {self.seconds:.0f} s; "
            f"{urls} URLs, {sum(counts.values()) / max(urls, 1):.3f} lines per URL; "
            f"statuses {dict(counts.most_common())}; "
            f"peak RssAnon {self.peak_bytes / 1e6:.0f} MB, helpers {self.children_bytes / 1e6:.0f} MB, "
            f"together {self.all_bytes / 1e6:.0f} MB"
        )


def some(urls: set[str]) -> str:
    """How many, and the first of them, shortened."""
    return f"{len(urls)}, as {min(urls, default='')[:120]}"


async def campaign(options: argparse.Namespace, folder: Path) -> Summary:
    """Serve, crawl, count."""
    ledger_file = folder / "ledger.jsonl"
    ledger_file.touch()
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SERVER), "--ledger", str(ledger_file)), stdout=asyncio.subprocess.PIPE, env=environment()
    )
    assert server.stdout is not None
    try:
        port = int(await server.stdout.readline())
        names = [*map(host_of, HOSTILE), INNOCENT, *many_hosts(options.many)]
        seeds = (
            f"http://{INNOCENT}/",
            *map(first_url, HOSTILE),
            *(f"http://{host}/" for host in many_hosts(options.many)),
        )
        hosts = dict.fromkeys(names, f"127.0.0.1:{port}")
        return await crawl(options, folder, seeds, hosts, ledger_file)
    finally:
        server.terminate()
        await server.wait()


async def crawl(
    options: argparse.Namespace, folder: Path, seeds: tuple[str, ...], hosts: Mapping[str, str], ledger_file: Path
) -> Summary:
    """One crawl of all seeds, watched."""
    sections: dict[str, dict[str, object]] = {
        "crawl": {"workers": options.workers},
        "scope": {"max_hops": 5},
        "fetch": {"timeout": "30s"},
        "politeness": {"max_connections": 8, "max_retry_after": "1s"},
    }
    for name, keys in (json.loads(options.sections) if options.sections else {}).items():
        sections.setdefault(name, {}).update(keys)
    order = write_order(folder, hosts, **sections)
    seed_file = folder / "seeds.txt"
    seed_file.write_text("".join(f"{seed}\n" for seed in seeds))
    command = [str(LAUNCHER)] if options.in_a_hurry else ["-m", "anabranch"]
    begun_s = time.monotonic()
    crawler = await asyncio.create_subprocess_exec(
        *(sys.executable, *command, "crawl", str(seed_file), "-c", str(order), "--job", str(folder / "job"), "-q"),
        cwd=folder,
        env=environment(),
        stderr=(folder / "stderr").open("wb"),
    )
    peak = Peak(crawler.pid)
    watch = asyncio.create_task(peak.watch())
    try:
        code: int | None = await asyncio.wait_for(crawler.wait(), PATIENCE_S)
    except TimeoutError:
        code = None
        crawler.kill()
        await crawler.wait()
    finally:
        watch.cancel()
    return Summary(
        code=code,
        seconds=time.monotonic() - begun_s,
        lines=read_lines(folder / "job" / "logs" / "crawl.log"),
        ledger=Ledger.read(ledger_file),
        seeds=seeds,
        peak_bytes=peak.own_bytes,
        children_bytes=peak.children_bytes,
        all_bytes=peak.all_bytes,
        errors=(folder / "stderr").read_text(errors="replace"),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Crawl the whole hostile web at once.")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--many", type=int, default=10_000, help="further hosts that all are one server")
    parser.add_argument(
        "--memory",
        type=parse_size,
        default=300_000_000,
        help="bytes of RssAnon that the crawler and its helpers may have",
    )
    parser.add_argument("--folder", type=Path, help="keep the job here")
    parser.add_argument("--sections", help="further sections of the order, as JSON")
    parser.add_argument("--in-a-hurry", action="store_true", help="leave out the waits between the tries of a URL")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        summary = asyncio.run(campaign(options, folder))
        print(summary)
        faults = summary.faults(options.memory)
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
