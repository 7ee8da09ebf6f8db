"""The command behind `scripts/host-suites`.

Exit status: 0 if only tests that cannot apply failed, 1 if others failed, or one that cannot apply passed or no longer exists,
2 for a wrong argument or an environment that cannot be made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.hosts import table
from scripts.hosts.environment import CLONE, CannotMake, Environment, environment
from scripts.hosts.suites import CRAWLEE, SCRAPY, SUITES, Suite

#: A test that takes longer hangs.
_LONGEST_S = 60


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one suite in one variant."""

    suite: str
    variant: str
    version: str
    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  #: test -> last line of its report

    def row(self) -> str:
        """A line of the table."""
        numbers = [self.counts.get(name, 0) for name in ("passed", "not applicable", "skipped")]
        figures = "".join(f"{number:>9}" for number in [*numbers, len(self.failed)])
        return f"{self.suite:<20}{self.variant:<10}{self.version:<10}{figures}"


HEAD = f"{'suite':<20}{'variant':<10}{'version':<10}{'passed':>9}{'n/a':>9}{'skipped':>9}{'failed':>9}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites. Returns the exit status."""
    asked = _parser().parse_args(arguments)
    results: list[Result] = []
    error: Exception | None = None
    try:
        results.extend(_results(asked))  # results before an error are kept
    except (CannotMake, table.TableError) as caught:
        error = caught
    print(HEAD, *(one.row() for one in results), sep="\n")
    for one in results:
        _print_more(one)
    if error is not None:
        print(error, file=sys.stderr)
        return 2
    return int(any(one.failed for one in results))


def _results(asked: argparse.Namespace) -> Iterator[Result]:
    """Suite by suite, variant by variant. Raises: CannotMake, TableError."""
    tables = table.read()
    for suite in SUITES:
        if not asked.suite or suite.name in asked.suite:
            place = _place(suite, asked)
            for variant in suite.variants_of(place.version):
                yield _result(suite, variant, place, tables[suite.name], asked.workers)


def _print_more(result: Result) -> None:
    print(f"\n{result.suite} {result.variant}: not applicable, by reason")
    for reason, count in sorted(result.reasons.items(), key=lambda pair: -pair[1]):
        print(f"{count:>6}  {reason}")
    for test, words in result.failed.items():
        print(f"FAILED  {test}: {words}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/host-suites", description=__doc__.partition("\n")[0])
    names = [suite.name for suite in SUITES]
    parser.add_argument("--suite", action="append", choices=names, help="only this one (may be given more than once)")
    parser.add_argument("--scrapy", default=SCRAPY.default, metavar="VERSION", help="e.g. 2.14.*; default: %(default)s")
    parser.add_argument("--crawlee", default=CRAWLEE.default, metavar="VERSION", help="default: %(default)s")
    words = f"an archive of Crawlee's sources with its tests; default: its source distribution {CRAWLEE.tests_of}"
    parser.add_argument("--crawlee-tests", type=Path, metavar="FILE", help=words)
    words = "folder for the environments; default: %(default)s"
    parser.add_argument("--cache", type=Path, default=CLONE / "dist" / "hosts", metavar="FOLDER", help=words)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; default: %(default)s")
    return parser


def _place(suite: Suite, asked: argparse.Namespace) -> Environment:
    if suite.host is SCRAPY:
        return environment(SCRAPY, asked.scrapy, asked.cache.absolute())
    return environment(CRAWLEE, asked.crawlee, asked.cache.absolute(), asked.crawlee_tests)


def _result(suite: Suite, variant: str, place: Environment, said: table.Suite, workers: int) -> Result:
    """Run one suite. A test that hangs ends its process (pytest-xdist starts another), for Twisted's loop is lost with it."""
    files = sorted(
        str(path.relative_to(place.tests)) for path in (place.tests / suite.folder).rglob("*.py") if _has_tests(path)
    )
    version = table.numbers(place.version)
    chosen = [file for file in files if said.reason_outside(file, version) is None]
    print(f"{suite.name} {variant}: {len(chosen)} of {len(files)} files ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="anabranch.") as scratch:
        report = Path(scratch, "report.json")
        done = subprocess.run(
            [
                place.python,
                "-m",
                "pytest",
                *_OPTIONS,
                f"-n{workers}",
                "-p",
                suite.plugin,
                *suite.variants[variant],
                *chosen,
            ],
            cwd=place.tests,
            env=os.environ
            | {"ANABRANCH_SUITE": f"{suite.name} {variant} {place.version}", "ANABRANCH_REPORT": str(report)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if not report.is_file():
            raise CannotMake(f"{suite.name}: pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    gone = dict.fromkeys(found["unknown"], "is in the table, but there is no such test")
    unused = dict.fromkeys(said.unused(files, version), "is in the table, but there is no such file")
    return Result(
        suite.name, variant, place.version, found["counts"], found["reasons"], found["failed"] | gone | unused
    )


def _has_tests(path: Path) -> bool:
    """Scrapy has packages with tests in `__init__.py`."""
    return path.name.startswith("test_") or (path.name == "__init__.py" and path.parent.name.startswith("test_"))


_OPTIONS = (
    *("-q", "-o", "addopts=", "-p", "no:cacheprovider", "--tb=line", "--no-header"),
    *(f"--timeout={_LONGEST_S}", "--timeout-method=thread", "-p", "scripts.hosts.selection"),
)

if __name__ == "__main__":
    sys.exit(main())
