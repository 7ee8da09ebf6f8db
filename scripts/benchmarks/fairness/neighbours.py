"""Real crawls of ten good hosts: alone, beside a wildcard domain, beside slow hosts, and beside both.

The rate is what the good hosts' server saw in the first seconds. Delays and time-outs are short, so that workers are scarce.
The crawls take turns, each round in the reverse order of the one before.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from anabranch.crawler.lab.report import LEAST_ROUNDS, in_turns
from scripts.benchmarks.fairness.serving import WILD_NAMES
from scripts.benchmarks.rows import Row, Setting, rounds_row

GOOD = 10
SLOW = 244
WORKERS = 64
#: Good hosts keep this part of the rate that they have alone.
TARGET = 0.5

_SECONDS = 10
_QUICK_SECONDS = 8
_ROUNDS = LEAST_ROUNDS
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


#: Neighbours of the good hosts: a wildcard domain, slow hosts.
_KINDS = {"none": (False, False), "wild": (True, False), "slow": (False, True), "both": (True, True)}


def measured(setting: Setting) -> Iterator[Row]:
    """A row for each kind of neighbours; its figure is the part of the rate that remains."""
    seconds, rounds = (_QUICK_SECONDS, 1) if setting.is_quick else (_SECONDS, _ROUNDS)
    rates: dict[str, list[float]] = {name: [] for name in _KINDS}
    for number, name in in_turns(list(_KINDS), rounds):
        wild, slow = _KINDS[name]
        rates[name].append(_rate(setting, seconds, number, wild=wild, slow=slow))
    alone = rates.pop("none")
    yield rounds_row("neighbours-none", f"{GOOD} good hosts alone", alone, "requests/s")
    for name, beside in rates.items():
        wild, slow = _KINDS[name]
        words = [f"{WILD_NAMES:,} names of one domain" if wild else "", f"{SLOW} slow hosts" if slow else ""]
        what = f"their rate beside {' and '.join(filter(None, words))}"
        if not all(alone):
            yield Row(name=f"neighbours-{name}", what=what, measured=None, unit="of the rate alone")
            continue
        yield rounds_row(
            f"neighbours-{name}",
            what,
            [its / one for its, one in zip(beside, alone, strict=True)],
            "of the rate alone",
            target=TARGET,
            note=f"{median(beside):.1f} of {median(alone):.1f} requests/s, {WORKERS} workers, {seconds} s",
        )


def _rate(setting: Setting, seconds: int, number: int, *, wild: bool, slow: bool) -> float:
    folder = setting.folder / f"{number}{wild:d}{slow:d}"
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
