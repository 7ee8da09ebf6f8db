"""Real crawls of ten good hosts: alone, beside a wildcard domain, beside slow hosts, and beside both.

The rate is what the good hosts' server saw in the first seconds. Delays and time-outs are short, so that workers are scarce.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.benchmarks.fairness.serving import WILD_NAMES
from scripts.benchmarks.rows import Row, Setting

GOOD = 10
SLOW = 244
WORKERS = 64
#: Good hosts keep this part of the rate that they have alone.
TARGET = 0.5

_SECONDS = 25
_QUICK_SECONDS = 8
#: For the start and the end of a crawl.
_PATIENCE_S = 60
_ORDER = """
[job]
seed_files = ["seeds.txt"]
[agent]
contact = "https://example.org/bot"
[scope]
scope = "any"
max_hops = 1000
[crawl]
workers = {workers}
[politeness]
min_delay = "100ms"
max_delay = "2s"
backoff_base = "5s"
[fetch]
allow_private = true
timeout = "20s"
first_byte_timeout = "6s"
read_timeout = "6s"
connect_timeout = "4s"
[dns]
servers = ["127.0.0.1:{names}"]
[limits]
min_free_disk = "0B"
time = "{seconds}s"
"""


def seeds(port: int, *, wild: bool, slow: bool) -> list[str]:
    """The good hosts, evenly among the slow ones; and one host of the wildcard domain."""
    good = [f"http://g{number}.good.test:{port}/" for number in range(GOOD)]
    others = [f"http://host.slow{number}.test:{port}/" for number in range(SLOW)] if slow else []
    step = max(len(others) // GOOD, 1)
    mixed = [url for number, url in enumerate(good) for url in (url, *others[number * step : (number + 1) * step])]
    return [*mixed, *others[GOOD * step :], *([f"http://wild.test:{port}/"] if wild else [])]


def rate(times_s: Sequence[float], seconds: float) -> float:
    """Requests a second in the first seconds; 0 without any."""
    return sum(one < times_s[0] + seconds for one in times_s) / seconds if times_s else 0.0


def measured(setting: Setting) -> Iterator[Row]:
    """A row for each kind of neighbours; its figure is the part of the rate that remains."""
    seconds = _QUICK_SECONDS if setting.is_quick else _SECONDS
    alone = _rate(setting, seconds, wild=False, slow=False)
    yield Row(name="neighbours-none", what=f"{GOOD} good hosts alone", measured=alone, unit="requests/s")
    for name, wild, slow in (("wild", True, False), ("slow", False, True), ("both", True, True)):
        beside = _rate(setting, seconds, wild=wild, slow=slow)
        words = [f"{WILD_NAMES:,} names of one domain" if wild else "", f"{SLOW} slow hosts" if slow else ""]
        yield Row(
            name=f"neighbours-{name}",
            what=f"their rate beside {' and '.join(filter(None, words))}",
            measured=beside / alone if alone else None,
            unit="of the rate alone",
            target=TARGET,
            note=f"{beside:.1f} of {alone:.1f} requests/s, {WORKERS} workers, {seconds} s",
        )


def _rate(setting: Setting, seconds: int, *, wild: bool, slow: bool) -> float:
    folder = setting.folder / f"{wild:d}{slow:d}"
    folder.mkdir()
    setting.say(f"{seconds} s" + " beside a wildcard domain" * wild + " beside slow hosts" * slow)
    with _serving(folder / "ledger") as (web, names):
        (folder / "seeds.txt").write_text("\n".join(seeds(web, wild=wild, slow=slow)))
        order = folder / "order.toml"
        order.write_text(_ORDER.format(workers=WORKERS, names=names, seconds=seconds))
        command = [sys.executable, "-m", "anabranch", "crawl", "-c", str(order), "--job", str(folder / "job")]
        subprocess.run(command, check=True, capture_output=True, timeout=seconds + 2 * _PATIENCE_S)
    return rate([float(line) for line in (folder / "ledger").read_text().split()], seconds)


@contextmanager
def _serving(ledger: Path) -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "scripts.benchmarks.fairness.serving", str(ledger)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            web, names = map(int, server.stdout.readline().split())
            yield web, names
        finally:
            server.stdin.close()
            server.terminate()
