"""A campaign of faults: every call of a crawl that changes its files fails once, in every way; `scripts/faults` runs it.

For each case a crawl of a small site meets the fault. It must show no traceback and end with the documented exit code, with a
line that names the file that failed. The next run, without faults, must end with 0, and then all URLs are in all files, the
store and the filter, no file is torn, and the files agree.

Exit status: 0 if all is well, 1 if a case failed, 2 for a wrong argument, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tests.acceptance import forkserver
from tests.acceptance.command import REPOSITORY
from tests.faults import shim
from tests.faults.cases import FAULTS, Case, Part, Result, Results, all_cases, table
from tests.faults.crawl import SITE, Job, lacks
from tests.faults.verdicts import problems_of
from tests.site.server import SmallWeb

#: Where results are, by default.
FOLDER = REPOSITORY / "dist" / "faults"
#: So often it is reported how far the campaign has come, at least one case apart.
REPORT_S = 10.0
_WARM_UP = 2  #: crawls without faults; their calls differ a little
T = TypeVar("T")


class Campaign:
    """Runs cases in folders below `folder`, on a web of its own."""

    def __init__(self, folder: Path, web: SmallWeb) -> None:
        self._folder, self._web = folder, web

    async def calls(self) -> list[shim.Call]:
        """The calls of a crawl without faults. Raises: AssertionError if it is not well."""
        longest: list[shim.Call] = []
        for number in range(_WARM_UP):
            job = Job(self._folder / f"counted{number}", self._web)
            done, calls = await job.run_with()
            assert done.code == 0, done.err
            assert lacks(job.path) == []
            longest = max(longest, calls, key=len)
        return longest

    async def result(self, case: Case) -> Result:
        """Run one case. Its folder stays if it failed."""
        folder = self._folder / str(case).replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        job, fault = Job(folder, self._web), FAULTS[case.fault]
        try:
            done, calls = await job.run_with(
                **shim.fault(case.position, fault.error, calls=fault.calls), FAULT_KINDS=fault.kinds
            )
            failed = [call for call in calls if call.failed]
            first = failed[0] if failed else None
            problems = problems_of(done, case, failed, job.path)
            resumed = await job.run()
            if resumed.code or "Traceback" in resumed.err + resumed.out:
                problems.append(f"the next run ended with {resumed.code}: {resumed.err[-600:]}")
            else:
                problems += lacks(job.path)
        except AssertionError as error:  # it hangs
            return Result(case=str(case), kind="", path="", code=0, problems=[str(error)])
        if not problems:
            shutil.rmtree(folder)
        kind, path = ("", "") if first is None else (first.kind, str(Path(first.path).relative_to(job.path)))
        return Result(case=str(case), kind=kind, path=path, code=done.code, problems=problems)


async def run(cases: Sequence[Case], campaign: Campaign, note: Callable[[Result], None], at_once: int) -> None:
    """Run the cases, some at a time; `note` is called with each result."""
    left = iter(cases)

    async def work() -> None:
        for case in left:
            note(await campaign.result(case))

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


class Progress:
    """Reports how far a campaign has come: a line each `REPORT_S` seconds, and one for each case that failed."""

    def __init__(self, cases: int, done: int, failed: int, say: Callable[[str], None], now_s: float) -> None:
        self._cases, self._done, self._failed, self._say = cases, done, failed, say
        self._begun_s, self._before, self._said_s = now_s, done, now_s

    def note(self, result: Result, now_s: float) -> None:
        self._done += 1
        self._failed += bool(result.problems)
        if result.problems:
            self._say(f"FAILED {result.case} ({result.path or 'not reached'}): {'; '.join(result.problems)}")
        if now_s - self._said_s >= REPORT_S or self._done == self._cases:
            self._said_s = now_s
            each_s = (now_s - self._begun_s) / (self._done - self._before)
            left_s = each_s * (self._cases - self._done)
            self._say(f"{self._done} of {self._cases} cases, {self._failed} failed, {_minutes(left_s)} left")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign. Returns the exit status."""
    asked = _parser().parse_args(arguments)
    if asked.table:
        return _show(result for file in sorted(asked.folder.glob("*.jsonl")) for result in Results(file).read())
    if shim.COMPILER is None:
        return _refused("needs the C compiler cc")
    file = asked.folder / f"part-{asked.part.number}-of-{asked.part.count}.jsonl"
    if file.exists() and not (asked.resume or asked.case):
        return _refused(f"{file} has results: continue with --resume, or remove it")
    asked.folder.mkdir(parents=True, exist_ok=True)
    results = Results(file)
    with tempfile.TemporaryDirectory(prefix="anabranch-faults-") as scratch, suppress(KeyboardInterrupt):
        found = asyncio.run(_run(asked, results, Path(scratch)))
        if asked.case:
            _keep(Path(scratch), asked.folder)
        return _show(found)
    return 130


async def _run(asked: argparse.Namespace, results: Results, scratch: Path) -> list[Result]:
    found = [] if asked.case else [one for one in results.read() if not (asked.failed and one.problems)]
    with shim.preloaded():
        async with SmallWeb(SITE) as web:
            campaign = Campaign(scratch, web)
            cases = asked.case or asked.part.of(all_cases(await campaign.calls()))
            have = {result.case for result in found}
            left = [case for case in cases if str(case) not in have]
            failed = sum(bool(result.problems) for result in found)
            progress = Progress(len(have) + len(left), len(have), failed, _say, time.monotonic())

            def note(result: Result) -> None:
                found.append(result)
                if not asked.case:
                    results.append(result)
                progress.note(result, time.monotonic())

            await run(left, campaign, note, asked.at_once)
    return found


def _keep(scratch: Path, folder: Path) -> None:
    """Copy the folders of cases that failed."""
    for failed in scratch.glob("*@*"):
        kept = folder / failed.name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(failed, kept)
        _say(f"kept: {kept}")


def _show(results: Iterable[Result]) -> int:
    """Print the table; 1 if a case failed."""
    found = list(results)
    print(table(found))
    failed = sum(bool(result.problems) for result in found)
    print(f"\n{len(found)} cases, {failed} failed")
    return int(failed > 0)


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Wrap `parse` so that argparse shows the message of its ValueError, which it would hide."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/faults",
        description="Lets each call of a crawl that changes its files fail, and resumes the crawl: nothing may be lost.",
    )
    parser.add_argument(
        "--part",
        type=_argument(Part.parse),
        default=Part(1, 1),
        metavar="K/N",
        help="only the K-th of N parts, a fair sample",
    )
    parser.add_argument("--resume", action="store_true", help="go on where a campaign of this part ended")
    parser.add_argument("--failed", action="store_true", help="with --resume: repeat the cases that failed, too")
    parser.add_argument("--table", action="store_true", help="run nothing; print the table of all parts in the folder")
    parser.add_argument(
        "--case",
        type=_argument(Case.parse),
        action="append",
        metavar="FAULT@N",
        help="run this case alone, as in 'EIO for ever@17'; keep its folder if it fails; may be repeated",
    )
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="cases that run at a time (default: 2)")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where results are, a line of JSON a case (default: dist/faults)"
    )
    return parser


def _refused(why: str) -> int:
    _say(why)
    return 2


def _say(text: str) -> None:
    print(f"faults: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))  # which ends a loop in order
    try:
        status = main()
    finally:
        forkserver.close_all()
    sys.exit(status)
