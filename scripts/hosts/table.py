"""`notapplicable.toml`: the files of a suite that are run, and the tests in them that cannot pass, each with its reason.

    [suites.NAME]
    outside = { "GLOB" = "reason" }                    # files that are not run: all others are
    outside = { "GLOB" = { reason = "reason", since = "2.18" } }   # in these hosts; the others have no such file
    inside = ["GLOB"]                                  # or files that are run
    others = "reason"                                  # and why the others are not
    [[suites.NAME.tests]]
    reason = "one line"
    ids = ["FILE::TEST", "FILE::CLASS::TEST[PARAMETER]"]   # an id without a parameter covers all its parameters
    hangs = true                                       # or they are not even run: they hang, harm others, or end by chance
    only = ["asyncio"]                                 # in these variants of the suite; all without
    before = "2.18"                                    # in hosts older than this; or `since`

Every id must name a test of the suite (`unknown`), and every reason is one line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("notapplicable.toml")
_LIMITS = ("since", "before")
_KNOWN = {"reason", "ids", "hangs", "only", *_LIMITS}


class TableError(Exception):
    """The table is invalid."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of a host: from `since` on, and before `before`; by default all."""

    since: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    def hold(self, version: tuple[int, ...]) -> bool:
        """Whether this version is included."""
        return self.since <= version and (not self.before or version < self.before)


@dataclass(frozen=True, slots=True)
class Exemption:
    """A test that cannot pass."""

    id: str
    reason: str
    hangs: bool = False
    only: frozenset[str] = frozenset()  #: variants; all if empty
    versions: Versions = Versions()

    def holds(self, variant: str, version: tuple[int, ...]) -> bool:
        """Whether it is one of a run's."""
        return (not self.only or variant in self.only) and self.versions.hold(version)

    def covers(self, test: str) -> bool:
        """Whether this names the test, or the test without its parameters."""
        return test == self.id or test.startswith(f"{self.id}[")


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Files that are not run."""

    glob: str
    reason: str
    versions: Versions = Versions()


@dataclass(frozen=True, slots=True)
class Suite:
    """The table of one suite."""

    outside: tuple[RunHooks, ...]
    inside: tuple[str, ...]  #: globs of files that are run; all others if empty
    others: str  #: why other files are not run
    exemptions: tuple[Exemption, ...]

    def reason_outside(self, file: str, version: tuple[int, ...]) -> str | None:
        """The reason why a file is not run with this version; None if it is run."""
        if self.inside and not any(fnmatchcase(file, glob) for glob in self.inside):
            return self.others
        outside = (one for one in self.outside if one.versions.hold(version))
        return next((one.reason for one in outside if fnmatchcase(file, one.glob)), None)

    def unused(self, files: Iterable[str], version: tuple[int, ...]) -> list[str]:
        """The globs that match no file of this version."""
        names = list(files)
        globs = (*(one.glob for one in self.outside if one.versions.hold(version)), *self.inside)
        return [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]

    def of(self, variant: str, version: tuple[int, ...]) -> tuple[Exemption, ...]:
        """The exemptions of one run."""
        return tuple(one for one in self.exemptions if one.holds(variant, version))


def numbers(version: str) -> tuple[int, ...]:
    """2.19.0 -> (2, 19, 0), so that versions can be compared. Raises: TableError."""
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError as error:
        raise TableError(f"{version!r} is no version: give numbers and dots") from error


def read(path: Path = PATH) -> dict[str, Suite]:
    """All suites by name. Raises: TableError, OSError."""
    with path.open("rb") as file:
        tables = tomllib.load(file)["suites"]
    return {name: _suite(name, table) for name, table in tables.items()}


def unknown(exemptions: Iterable[Exemption], tests: Collection[str]) -> list[str]:
    """The ids without a test."""
    names = {name for test in tests for name in (test, test.partition("[")[0])}
    return sorted(one.id for one in exemptions if one.id not in names)


def _suite(name: str, table: Mapping[str, Any]) -> Suite:
    found: dict[tuple[str, tuple[object, ...]], Exemption] = {}
    for entry in table.get("tests", []):
        if strange := set(entry) - _KNOWN:
            raise TableError(f"{name}: {', '.join(sorted(strange))} means nothing here")
        for one in _exemptions(name, entry):
            if found.setdefault((one.id, (one.only, one.versions)), one) is not one:
                raise TableError(f"{name}: {one.id} occurs twice")
    outside = tuple(_outside(name, glob, said) for glob, said in table.get("outside", {}).items())
    inside, others = tuple(table.get("inside", ())), table.get("others", "")
    if inside:
        _check_reason(name, "others", others)
    return Suite(outside, inside, others, tuple(found.values()))


def _outside(name: str, glob: str, said: object) -> RunHooks:
    """A reason alone holds for all versions."""
    entry = said if isinstance(said, dict) else {"reason": said}
    if strange := set(entry) - {"reason", *_LIMITS}:
        raise TableError(f"{name}: {', '.join(sorted(strange))} means nothing here")
    _check_reason(name, glob, entry.get("reason"))
    return RunHooks(glob, entry["reason"], _versions(entry))


def _exemptions(name: str, entry: Mapping[str, Any]) -> list[Exemption]:
    reason = entry.get("reason", "")
    ids = entry.get("ids", [])
    if not ids:
        raise TableError(f"{name}: {reason!r} names no test")
    for test in ids:
        _check_reason(name, test, reason)
        if "::" not in test:
            raise TableError(f"{name}: {test} names no test; put a whole file under `outside`")
    only = frozenset(entry.get("only", ()))
    return [Exemption(test, reason, entry.get("hangs", False), only, _versions(entry)) for test in ids]


def _versions(entry: Mapping[str, Any]) -> Versions:
    return Versions(**{key: numbers(entry[key]) for key in _LIMITS if key in entry})


def _check_reason(name: str, what: str, reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip() or "\n" in reason:
        raise TableError(f"{name}: {what} needs a reason of one line")
