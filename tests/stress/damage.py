"""Damages every file of a job, one at a time, and looks whether anything is lost without a word.

    python tests/stress/damage.py [--mutations 480] [--seed 1] [--file order.toml]

Jobs of several kinds are left in the middle of a small site: killed, stopped with WARC files and links, divided among two
processes, written by the program of an older format. The last seed came by `add`, but for the killed one. Of each a copy is
made per mutation: one file is cut, filled with zeros, changed in one byte, deleted, alone or with those that have its name and
an ending, or swapped with another one. Then one command that reads, and the crawl, are run on the copy.

A loss is silent if the crawl exits with 0, says nothing on standard error, and what was ever asked for plus what is queued is
not the whole site. Prints a table, and exits with 1 if there was a traceback, a silent loss or a crawl without end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from tests.patience import HANG_S

REPOSITORY = Path(__file__).resolve().parents[2]
if __package__ in (None, ""):
    sys.path[0] = str(REPOSITORY)

from tests.acceptance import forkserver
from tests.acceptance.command import environment
from tests.formats.make_jobs import unpack
from tests.formats.site import HOSTS, SEEDS, URLS, served

#: A command that takes longer has no end.
PATIENCE_S = HANG_S
#: A job of an older format.
_OLD = REPOSITORY / "tests" / "formats" / "format-1" / "stopped-surt.tar.xz"
#: Of the filter's files, which are alike, so many are damaged.
_ALIKE = 3

_ORDER = """
[crawl]
workers = 4
[politeness]
min_delay = 0
max_delay = 0
backoff_base = 0
backoff_cap = 0
[fetch]
allow_private = true
[agent]
contact = "https://example.org/bot"
[dedup]
exact = true
[report]
progress = "none"
"""

#: Kind of job -> what its crawl is given; how it ends is `_left`'s.
KINDS: dict[str, tuple[str, ...]] = {
    "killed": (),
    "stopped": ("--warc", "--links", "--exclude", "nothing-of-the-kind"),
    "divided": ("--processes", "2"),
    "old": (),
}
READERS = (
    ("status", "JOB"),
    ("report", "JOB"),
    ("why", "JOB", SEEDS[1]),
    ("frontier", "ls", "JOB"),
    ("frontier", "dump", "JOB"),
)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One damage to one file."""

    kind: str  #: of the job
    file: str
    how: str
    place: float  #: where in the file, as a share of it


@dataclass(slots=True)
class Verdict:
    """The outcome of a mutation."""

    mutation: Mutation
    code: int
    said: str
    missing: set[str] = field(default_factory=set)
    fault: str = ""  #: traceback, silent loss, no end


def _cut(path: Path, place: float) -> None:
    os.truncate(path, int(path.stat().st_size * place))


def _zero(path: Path, place: float) -> None:
    """From a place on, a disk block at most: what a power cut leaves."""
    size = path.stat().st_size
    start = int(size * place)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(min(size - start, 4096)))


def _flip(path: Path, place: float) -> None:
    size = path.stat().st_size
    if not size:
        return
    with path.open("r+b") as file:
        file.seek(int(size * place))
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1 << int(place * 8) % 8]))


def _delete(path: Path, place: float) -> None:
    path.unlink()


def _delete_all(path: Path, place: float) -> None:
    """With the files beside it that have its name and an ending: its count, its seal."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def _swap(path: Path, place: float) -> None:
    """With another file of the same folder."""
    others = sorted(other for other in path.parent.iterdir() if other.is_file() and other != path)
    if others:
        other = others[int(place * len(others))]
        held = path.with_name("swapped")
        path.rename(held)
        other.rename(path)
        held.rename(other)


HOWS: dict[str, Callable[[Path, float], None]] = {
    "cut": _cut,
    "zero": _zero,
    "flip": _flip,
    "delete": _delete,
    "delete all": _delete_all,
    "swap": _swap,
}


class Campaign:
    """Jobs to damage, and what runs them."""

    def __init__(self, folder: Path, kinds: Sequence[str] = tuple(KINDS)) -> None:
        self.folder = folder
        self.asked: dict[str, set[str]] = {kind: self._left(kind) for kind in kinds}

    def mutations(self, count: int, chance: random.Random) -> list[Mutation]:
        """Every file in every way, in turns over the kinds of jobs; again elsewhere in the files if more are wanted."""
        cases: list[tuple[str, str, str]] = []
        for kind in self.asked:
            cases += [(kind, file, how) for file in _files(self.folder / kind) for how in HOWS]
        chance.shuffle(cases)
        return [Mutation(*cases[number % len(cases)], place=chance.random()) for number in range(count)]

    def verdict(self, mutation: Mutation, port: int, asked: list[str]) -> Verdict:
        """Damage a copy, look at it, crawl it."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            job = Path(scratch) / "job"
            subprocess.run(["cp", "-a", "--sparse=always", self.folder / mutation.kind, job], check=True)
            HOWS[mutation.how](job / mutation.file, mutation.place)
            asked.clear()
            reader = READERS[int(mutation.place * 1000) % len(READERS)]
            looked = _run(Path(scratch), *(str(job) if word == "JOB" else word for word in reader))
            crawled = _run(Path(scratch), "crawl", "--job", str(job), "--limit", "0", *_hosts(port))
            verdict = Verdict(mutation, crawled.returncode, crawled.stderr.strip())
            for ended in (looked, crawled):
                if "Traceback" in ended.stderr or ended.returncode < 0:
                    verdict.fault = "traceback"
                    verdict.said = ended.stderr
                elif ended.returncode == _NO_END:
                    verdict.fault = "no end"
            if crawled.returncode == 0:
                verdict.missing = set(URLS) - set(asked) - self.asked[mutation.kind]
                verdict.missing -= _queued(Path(scratch), job) if verdict.missing else set()
                if verdict.missing and not (crawled.stderr.strip() or looked.stderr.strip()):
                    verdict.fault = "silent loss"
            return verdict

    def _left(self, kind: str) -> set[str]:
        """Leave a job of this kind in the middle of the site; the URLs that were asked for."""
        asked: list[str] = []
        if kind == "old":
            unpack(_OLD, self.folder / kind, 80)
            order = self.folder / kind / "order.toml"
            order.write_text(order.read_text().replace(f'    "{SEEDS[-1]}",\n', ""))  # as `add` leaves it
            return self._fetched(kind)
        (self.folder / "order.toml").write_text(_ORDER)
        seeds = SEEDS if kind == "killed" else SEEDS[:-1]
        arguments = ("crawl", *seeds, "-c", "order.toml", "--job", kind, *KINDS[kind])
        with served(asked) as port:
            if kind != "killed":
                for command in ((*arguments, "--limit", "20", *_hosts(port)), ("add", f"./{kind}", SEEDS[-1])):
                    ended = _run(self.folder, *command)
                    assert ended.returncode == 0, ended.stderr
            else:
                slow = ("-s", "politeness.min_delay=20ms", "-s", "politeness.max_delay=20ms", *_hosts(port))
                words = [sys.executable, "-m", "anabranch", *arguments, *slow]
                with subprocess.Popen(words, cwd=self.folder, env=environment(), stdout=subprocess.DEVNULL) as crawl:
                    while len(asked) < 25:
                        time.sleep(0.005)
                    crawl.send_signal(signal.SIGKILL)
        return {url for url in asked if not url.endswith("robots.txt")} & self._fetched(kind)

    def _fetched(self, kind: str) -> set[str]:
        """Return the URLs with a whole line in pages.jsonl; the last request may have none, and is fetched again."""
        files = [self.folder / kind / "pages.jsonl", *(self.folder / kind).glob("workers/*/pages.jsonl")]
        lines = [line for file in files if file.exists() for line in file.read_text().splitlines(keepends=True)]
        return {json.loads(line)["url"] for line in lines if line.endswith("\n")}


_NO_END = 1000


def _run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "anabranch", *arguments]
    try:
        return forkserver.run(command, cwd=place, env=environment(), timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, _NO_END, "", "")


def _hosts(port: int) -> tuple[str, str]:
    return "-s", "dns.hosts=" + " ".join(f"{host}=127.0.0.1:{port}" for host in HOSTS)


def _queued(place: Path, job: Path) -> set[str]:
    lines = _run(place, "frontier", "dump", str(job)).stdout.splitlines()
    return {row["url"] for row in map(json.loads, lines) if "url" in row and "outcome" not in row}


def _files(job: Path) -> Iterator[str]:
    """The files of a job, but of those of a filter that are alike only some."""
    alike: Counter[Path] = Counter()
    for path in sorted(path for path in job.rglob("*") if path.is_file()):
        if path.parent.name == "smm" and len(path.name) == 2:
            alike[path.parent] += 1
            if alike[path.parent] > _ALIKE:
                continue
        yield str(path.relative_to(job))


def run(
    campaign: Campaign, mutations: Sequence[Mutation], tell: Callable[[Verdict], None], at_once: int = 2
) -> list[Verdict]:
    """All verdicts; `tell` hears of each as it comes."""
    sites: SimpleQueue[tuple[int, list[str]]] = SimpleQueue()
    with ExitStack() as opened:
        for _ in range(at_once):
            asked: list[str] = []
            sites.put((opened.enter_context(served(asked)), asked))

        def judge(mutation: Mutation) -> Verdict:
            site = sites.get()
            try:
                verdict = campaign.verdict(mutation, *site)
            finally:
                sites.put(site)
            tell(verdict)
            return verdict

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(judge, mutations))


def table(verdicts: Sequence[Verdict]) -> str:
    """Count the outcomes of the mutations, by file."""
    columns = ("whole", "told", "exit 3", "exit 4", "other", "silent loss", "traceback", "no end")
    rows: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        rows.setdefault(_row(verdict.mutation.file), Counter())[_column(verdict)] += 1
    total = sum(rows.values(), Counter[str]())
    lines = [f"{'file':<28}{'all':>5}" + "".join(f"{column:>12}" for column in columns)]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        lines.append(f"{name:<28}{row.total():>5}" + "".join(f"{row[column]:>12}" for column in columns))
    return "\n".join(lines)


def _row(file: str) -> str:
    parts = Path(file).parts
    kept = [part for part in parts if part not in {"workers", "1", "2"}]
    if kept[0] in {"warc", "reports"}:
        return f"{kept[0]}/"
    return "/".join(kept[:2]) + ("/" if len(kept) > 2 else "")


def _column(verdict: Verdict) -> str:
    if verdict.fault:
        return verdict.fault
    if verdict.code == 0:
        return "told" if verdict.said else "whole"
    return f"exit {verdict.code}" if verdict.code in {3, 4} else "other"


def main() -> int:
    """Run the campaign, tell each fault, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=480)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", default="", help="only files whose path has this in it")
    given = parser.parse_args()
    chance, done = random.Random(given.seed), Counter[str]()

    def tell(verdict: Verdict) -> None:
        done["all"] += 1
        is_odd = verdict.fault or verdict.code not in {0, 4}
        if is_odd:
            words = verdict.said.splitlines()[-1:] or [""]
            print(f"\n{verdict.fault or verdict.code}: {verdict.mutation} missing {len(verdict.missing)}: {words[0]}")
        print(f"\r{done['all']} of {given.mutations}", end="", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder))
        mutations = campaign.mutations(given.mutations, chance)
        verdicts = run(campaign, [one for one in mutations if given.file in one.file], tell)
    print(f"\n\n{table(verdicts)}")
    return 1 if any(verdict.fault for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
