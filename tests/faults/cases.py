"""The cases of the campaign of faults: which call of a crawl fails, and how; their results in files, and as a table."""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from anabranch.crawler.outcomes.errors import ExitCode
from tests.faults.shim import Call

#: The kinds of calls, as the shim names them.
KINDS = {"w": "write", "f": "fsync", "r": "rename", "t": "truncate", "o": "create", "m": "mmap"}
_KILLED = -9


class Fault(NamedTuple):
    """A failure of calls, and the exit codes that it may lead to."""

    error: str  #: as the shim takes it
    calls: int  #: how many calls fail; 0: all from there on
    codes: frozenset[int]  #: how the crawl may end
    kinds: str = "".join(KINDS)  #: positions are counted among the calls of these kinds

    @property
    def is_kill(self) -> bool:
        """Whether the process ends at this call."""
        return self.error in {"KILL", "TEAR"}


_FULL, _FAILED = frozenset({ExitCode.DISK_FULL}), frozenset({ExitCode.STORE_OR_JOB_IN_USE})
_DONE, _DEAD = frozenset({ExitCode.DONE}), frozenset({_KILLED})
#: By name. A fault that passes may be survived; one that lasts may not, unless nothing more had to be written.
FAULTS: Mapping[str, Fault] = {
    "ENOSPC": Fault(str(errno.ENOSPC), 1, _DONE | _FULL),
    "ENOSPC for ever": Fault(str(errno.ENOSPC), 0, _FULL),
    "EIO": Fault(str(errno.EIO), 1, _DONE | _FAILED),
    "EIO for ever": Fault(str(errno.EIO), 0, _FAILED),
    "short": Fault("SHORT", 1, _DONE, "w"),
    "short for ever": Fault("SHORT", 0, _DONE, "w"),
    "EMFILE": Fault(str(errno.EMFILE), 1, _DONE | _FAILED, "o"),
    "EMFILE for ever": Fault(str(errno.EMFILE), 0, _FAILED, "o"),
    "kill": Fault("KILL", 1, _DEAD),
    "torn": Fault("TEAR", 1, _DEAD, "w"),
}


class Case(NamedTuple):
    """One fault at one call."""

    fault: str  #: a name in `FAULTS`
    position: int  #: the number of the call, from 0 on

    def __str__(self) -> str:
        return f"{self.fault}@{self.position}"

    @property
    def rank(self) -> int:
        """A number that says nothing about the case but is always the same: the order of a campaign, and its division."""
        return crc32(str(self).encode())

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case of this name. Raises: ValueError."""
        fault, _, position = text.rpartition("@")
        if fault not in FAULTS or not position.isdecimal():
            raise ValueError(f"{text!r} is no case; one is {cls('ENOSPC', 17)}")
        return cls(fault, int(position))


def all_cases(calls: Sequence[Call]) -> list[Case]:
    """Each fault at each call where it makes sense, in an order of which each beginning and each part is a fair sample."""
    cases = [
        Case(name, position)
        for name, fault in FAULTS.items()
        for position in range(sum(call.kind in fault.kinds for call in calls))
    ]
    return sorted(cases, key=lambda case: case.rank)


class Part(NamedTuple):
    """The `number`-th of `count` parts of a campaign."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """From `K/N`. Raises: ValueError."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise ValueError(f"{text!r} is no part; the second of three is 2/3")
        return cls(int(number), int(count))

    def of(self, cases: Iterable[Case]) -> list[Case]:
        """Return the cases of this part; they do not depend on how many calls a crawl makes this time."""
        return [case for case in cases if case.rank % self.count == self.number - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a case: a line of JSON in the file of results."""

    case: str
    kind: str  #: of the call, as in `KINDS`; empty if the crawl did not make so many calls
    path: str  #: its file, in the job folder
    code: int  #: the exit code of the crawl that met the fault
    problems: Sequence[str]

    @property
    def fault(self) -> str:
        return Case.parse(self.case).fault


class Results:
    """The results of a campaign in a file, which a kill leaves whole but for its last line."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> list[Result]:
        """Those that are there, the last of each case; removes an unfinished last line."""
        if not self._file.exists():
            return []
        whole, _, rest = self._file.read_bytes().rpartition(b"\n")
        if rest:
            self._file.write_bytes(whole + b"\n" * bool(whole))
        results = (Result(**json.loads(line)) for line in whole.splitlines())
        return list({result.case: result for result in results}.values())

    def append(self, result: Result) -> None:
        """Add one."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def table(results: Sequence[Result]) -> str:
    """How many of how many cases went well, by kind of call and fault. Markdown."""
    cases, failed = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for result in results:
        for place in _places(result):
            cases[place] += 1
            failed[place] += bool(result.problems)
    rows = [kind for kind in (*KINDS.values(), _NO_CALL, _ALL) if any(row == kind for row, _ in cases)]
    lines = [f"| call | {' | '.join((*FAULTS, _ALL))} |", f"|---|{'---:|' * (len(FAULTS) + 1)}"]
    for row in rows:
        cells = [_cell(cases[row, column], failed[row, column]) for column in (*FAULTS, _ALL)]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


_ALL = "all"
_NO_CALL = "(not reached)"


def _places(result: Result) -> Iterator[tuple[str, str]]:
    for row in (KINDS.get(result.kind, _NO_CALL), _ALL):
        for column in (result.fault, _ALL):
            yield row, column


def _cell(cases: int, failed: int) -> str:
    if not cases:
        return "–"
    return f"{cases - failed} of {cases}"
