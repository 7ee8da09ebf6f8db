"""Comparisons of queue policies that the console starts: `anabranch compare` as a separate process, on a generated web.

Each has a folder below the console's own, named by its start time, with the request, the samples, the output of the command and
its result. One runs at a time, even after a restart of the console, because its process holds a lock. All numbers are bounded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.crawler.report.logtail import last_lines
from anabranch.dedup.files.durable import append_to, replace_file
from anabranch.dedup.files.locks import try_lock

#: Policies to choose from; others of this form may be typed. The console runs no user functions.
POLICIES = ("host", "domain", "surt", "parallel:8", "elf:997", "bkdr:997", "sdbm:997")
POLITENESSES = ("paper", "polite", "off")
#: The least and the largest value of each number.
BOUNDS: Mapping[str, tuple[int, int]] = {
    "pages": (100, 50_000), "hosts": (5, 200), "workers": (1, 500), "seconds": (2, 120),
}  # fmt: skip
_MOST_POLICIES = 6
#: Comparisons that are kept.
_KEPT = 50
_ASKED_BYTES, _LIVE_BYTES, _RESULT_BYTES, _OUTPUT_BYTES = 4096, 1 << 20, 64 << 20, 1 << 15
_POLICY = re.compile(r"[a-z0-9]{1,20}(:[0-9]{1,10}){0,2}")
_RUN = re.compile(r"\d{8}-\d{6}-\d{3}")
_LOCK, _RUNNING = "lock", "running"
_ASKED, _LIVE, _OUTPUT, _RESULT = "asked.json", "live.jsonl", "output", "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRequest:
    """A comparison to run: its policies, and the size of the generated web."""

    policies: tuple[str, ...] = ("host", "bkdr:997")
    politeness: str = "paper"
    pages: int = 2000
    hosts: int = 40
    workers: int = 100
    seconds: int = 20  #: duration of each policy's run

    def check(self) -> None:
        """Raises: UsageError for what is out of bounds."""
        if not 1 <= len(self.policies) <= _MOST_POLICIES or len(set(self.policies)) < len(self.policies):
            raise UsageError(f"policies: choose from 1 to {_MOST_POLICIES}, each once")
        for policy in self.policies:
            if not _POLICY.fullmatch(policy):
                raise UsageError(
                    f"policies: {policy[:50]!r} is not a built-in policy; choose one like host or bkdr:997"
                )
        if self.politeness not in POLITENESSES:
            raise UsageError(f"politeness: choose one of {', '.join(POLITENESSES)}")
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"{name}: must be from {least:,} to {most:,}")

    @property
    def options(self) -> list[str]:
        """The options of the command."""
        numbers = [word for name in BOUNDS for word in (f"--{name}", str(getattr(self, name)))]
        return ["--policies", ",".join(self.policies), "--politeness", self.politeness, *numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRun:
    """A comparison, running or ended."""

    name: str
    asked: LabRequest
    is_running: bool
    live: Mapping[str, Sequence[tuple[float, float, float]]]  #: policy -> seconds, active workers, URLs a second
    means: Mapping[str, tuple[float, float]]  #: policy -> mean active workers and URLs a second; empty until it ends
    said: tuple[str, ...]  #: the last lines of the command's output

    @property
    def done(self) -> float:
        """The share of its time that has passed."""
        seconds = sum(min(points[-1][0], self.asked.seconds) for points in self.live.values() if points)
        return 1.0 if self.means else min(seconds / (self.asked.seconds * len(self.asked.policies)), 1.0)


class LabRuns:
    """The comparisons of a console. Its methods block. Raises: UsageError, StorageError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._over: dict[str, LabRun] = {}

    @property
    def names(self) -> list[str]:
        """The names of all comparisons, newest first."""
        with storage_errors(self._folder), suppress(FileNotFoundError):  # before the first one
            return sorted((entry.name for entry in self._folder.iterdir() if _RUN.fullmatch(entry.name)), reverse=True)
        return []

    def start(self, asked: LabRequest) -> str:
        """Start a comparison and return its name. Raises: UsageError if one is running, or a number is out of bounds."""
        asked.check()
        self._processes = [process for process in self._processes if process.poll() is None]  # reaps those that ended
        name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")[:-3]
        place = self._folder / name
        with storage_errors(self._folder):
            self._folder.mkdir(exist_ok=True)
            with (self._folder / _LOCK).open("ab") as lock:
                if not try_lock(lock.fileno()):
                    raise UsageError("a comparison is running; wait until it ends, or stop it")
                # Another process may have the id of the last comparison now.
                (self._folder / _RUNNING).unlink(missing_ok=True)
                place.mkdir()
                replace_file(place / _ASKED, json.dumps(asdict(asked)).encode())
                process = _started(place, asked, lock.fileno())
                replace_file(self._folder / _RUNNING, f"{name} {process.pid}".encode())
        self._processes.append(process)
        for old in self.names[_KEPT:]:
            self._over.pop(old, None)
            shutil.rmtree(self._folder / old, ignore_errors=True)
        return name

    def stop(self) -> str:
        """Stop the running comparison, which deletes its crawls, and return its name. Raises: UsageError if none is running."""
        name, pid = self._running()
        if name is None or pid is None:
            raise UsageError("no comparison is running")
        append_to(self._folder / name / _OUTPUT, b"stopped\n")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return name

    def running(self) -> str | None:
        """The name of the comparison that is running, if one is."""
        return self._running()[0]

    def run(self, name: str) -> LabRun:
        """The comparison of this name. Raises: UsageError if there is none."""
        if name in self._over:
            return self._over[name]
        is_running = name == self.running()  # asked before its files are read, so that an ended one is read whole
        place = self._folder / name
        if not _RUN.fullmatch(name) or not place.is_dir():
            raise UsageError(f"{name[:50]!r}: no such comparison")
        fields = _json_of(place / _ASKED, _ASKED_BYTES) or {}
        asked = LabRequest(**{**fields, "policies": tuple(fields["policies"])}) if fields else LabRequest()
        found = LabRun(
            name=name,
            asked=asked,
            is_running=is_running,
            live=live_points(last_lines(place / _LIVE, _LIVE_BYTES)),
            means=means_of(_json_of(place / _RESULT, _RESULT_BYTES)),
            said=tuple(last_lines(place / _OUTPUT, _OUTPUT_BYTES)),
        )
        if not is_running:
            self._over[name] = found
        return found

    def _running(self) -> tuple[str | None, int | None]:
        """The name and process id of the running comparison."""
        try:
            with (self._folder / _LOCK).open("rb") as lock:
                if try_lock(lock.fileno(), shared=True):
                    return None, None
            name, _, pid = (self._folder / _RUNNING).read_text().partition(" ")
            return name, int(pid)
        except (OSError, ValueError):
            return None, None


def _started(place: Path, asked: LabRequest, lock: int) -> subprocess.Popen[bytes]:
    """Start the process, which holds the lock until it ends. Raises: OSError."""
    files = ["--live", str(place / _LIVE), "--json", str(place / _RESULT)]
    with (place / _OUTPUT).open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-m", "anabranch", "compare", *asked.options, *files],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[lock],
        )


def live_points(lines: Sequence[str]) -> dict[str, list[tuple[float, float, float]]]:
    """The points of each policy (seconds, active workers, URLs a second) from the lines of `compare --live`. Pure."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            one = json.loads(line)
            points.setdefault(one["policy"], []).append((one["at_s"], one["active"], one["urls_per_s"]))
    return points


def means_of(result: Any) -> dict[str, tuple[float, float]]:
    """The means of each policy (active workers, URLs a second) from the result of `compare --json`, the best first. Pure."""
    with suppress(KeyError, TypeError, IndexError, AttributeError):
        means = result["comparisons"][0]["means"]
        found = {policy: (float(one["active"]), float(one["urls_per_s"])) for policy, one in means.items()}
        return dict(sorted(found.items(), key=lambda entry: -entry[1][0]))
    return {}


def _json_of(path: Path, most_bytes: int) -> Any:
    """The value of a JSON file; None if it cannot be read, or is too large."""
    with suppress(OSError, ValueError, RecursionError), closing(path.open("rb")) as file:
        return json.loads(file.read(most_bytes))
    return None
