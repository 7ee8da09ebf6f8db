"""The command behind `scripts/bench`: run a subject's groups, show their rows.

Exit status: 0 if every row with a target met it, 1 if one fell short or could not be measured, 2 for a wrong argument,
130 after Ctrl-C, SIGTERM or SIGHUP, with servers ended and folders removed.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts.benchmarks import console, crawl, dedup, embed, fairness, frontier, profile
from scripts.benchmarks.calibration import rounds_per_s
from scripts.benchmarks.rows import Group, Judged, Row, Setting, Wishes
from scripts.benchmarks.table import Run, json_of, text_of

SUBJECTS: dict[str, tuple[Group, ...]] = {
    "dedup": dedup.GROUPS,
    "frontier": frontier.GROUPS,
    "embed": embed.GROUPS,
    "crawl": crawl.GROUPS,
    "fairness": fairness.GROUPS,
    "console": console.GROUPS,
    "profile": profile.GROUPS,
}
#: Which subjects take which options of their own.
TAKE = {
    "rounds": ("crawl",),
    "pages": ("crawl", "profile"),
    "loop": ("crawl", "profile"),
    "peers": ("crawl",),
    "resume": ("crawl",),
    "picture": ("crawl",),
}


_NO_WISHES = Wishes()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Returns the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        groups, wishes = chosen(SUBJECTS[asked.subject], asked.only), wishes_of(asked)
        check_folders(asked.folder, asked.peers)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    try:
        return _measured(asked, groups, wishes)
    except KeyboardInterrupt:
        return 130


def _measured(asked: argparse.Namespace, groups: Sequence[Group], wishes: Wishes) -> int:
    """Print the rows; returns 1 if one fell short."""
    started = time.perf_counter()
    rows = tuple(judged_rows(groups, asked.quick, asked.folder, wishes))
    run = Run(
        subject=asked.subject,
        is_quick=asked.quick,
        took_s=time.perf_counter() - started,
        rows=rows,
    )
    print(json_of(run) if asked.json else text_of(run))
    return int(run.falls_short)


def chosen(groups: Sequence[Group], names: Sequence[str]) -> list[Group]:
    """The groups of these names, by default all. Raises: ValueError that lists the groups."""
    known = {group.name for group in groups}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"--only {unknown[0]}: there is no such group; there are: {', '.join(g.name for g in groups)}")
    return [group for group in groups if not names or group.name in names]


def wishes_of(asked: argparse.Namespace) -> Wishes:
    """The options of crawls. Raises: ValueError if an option does not belong to the subject, or a count is too small."""
    given = {name: value for name in TAKE if (value := getattr(asked, name)) is not None}
    if others := [name for name in given if asked.subject not in TAKE[name]]:
        raise ValueError(f"--{others[0]} is for {' and '.join(TAKE[others[0]])}, not for {asked.subject}")
    for name, least in (("rounds", 1), ("pages", 2)):
        if given.get(name, least) < least:
            raise ValueError(f"--{name} must be at least {least}")
    return Wishes(**given)


def check_folders(folder: Path | None, peers: Path | None) -> None:
    """Raises: ValueError if the former is not a folder, or the latter exists and is not one."""
    if folder is not None and not folder.is_dir():
        raise ValueError(f"--folder {folder}: there is no such folder")
    if peers is not None and peers.exists() and not peers.is_dir():
        raise ValueError(f"--peers {peers}: that is no folder")


def judged_rows(
    groups: Iterable[Group], is_quick: bool, folder: Path | None, wishes: Wishes = _NO_WISHES
) -> list[Judged]:
    """Each group's rows, with the calibration loop run before the first group and after each one."""
    speeds, measured = [rounds_per_s()], []
    for group in groups:
        _say(f"{group.name}: {group.what}")
        rows = rows_of(group, is_quick, folder, wishes)
        speeds.append(rounds_per_s())
        measured += [(row, statistics.mean(speeds[-2:])) for row in rows]
    return [Judged(row=row, calibration=speed, fastest=max(speeds)) for row, speed in measured]


def rows_of(group: Group, is_quick: bool, folder: Path | None, wishes: Wishes = _NO_WISHES) -> list[Row]:
    """The group's rows; if it fails, those before and one with the reason."""
    rows: list[Row] = []
    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-", dir=folder) as scratch:
            setting = Setting(
                folder=Path(scratch), is_quick=is_quick, say=lambda text: _say(f"{group.name}: {text}"), wishes=wishes
            )
            rows.extend(group.run(setting))
    except Exception as error:  # noqa: BLE001 - shown in full, and as a row that makes the run fail
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        rows.append(Row(name=group.name, what=group.what, measured=None, unit="", note=reason))
    _say(f"{group.name}: done in {time.perf_counter() - started:.0f} s")
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures the product against its targets; exits 1 if a row falls short.",
        epilog="groups: "
        + "; ".join(f"{name}: {', '.join(g.name for g in groups)}" for name, groups in SUBJECTS.items()),
    )
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument(
        "--only", metavar="GROUP", action="append", default=[], help="this group alone; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="a small version: a twentieth of the keys or pages")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument(
        "--folder", type=Path, help="where the temporary folders are made (a real disk; default: TMPDIR)"
    )
    crawling = parser.add_argument_group("crawl and profile")
    crawling.add_argument("--rounds", type=int, help="crawl: rounds of crawls in turns (default: 5)")
    crawling.add_argument("--pages", type=int, help="pages of the site (default: 3000)")
    crawling.add_argument("--loop", choices=("asyncio", "uvloop"), help="everyone's event loop (default: asyncio)")
    crawling.add_argument(
        "--peers", type=Path, help="crawl: where the peers' environments are, or are made (default: a cache)"
    )
    crawling.add_argument(
        "--picture", type=Path, metavar="FILE", help="crawl --only long: draw the curve into FILE (.png, .svg, .pdf)"
    )
    crawling.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="crawl: keep finished crawls in FILE, and do not run those in it again",
    )
    return parser


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _end_as_by_ctrl_c(numbers: Iterable[signal.Signals]) -> None:
    """Signals that the caller ignores (`nohup`) stay ignored."""
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    _end_as_by_ctrl_c((signal.SIGTERM, signal.SIGHUP))
    sys.exit(main())
