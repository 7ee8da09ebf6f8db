"""Whether a crawl that met a fault of the disk ended as it should: without traceback, by its exit code, with the file named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.acceptance.command import Ended
from tests.faults.cases import FAULTS, Case
from tests.faults.shim import Call


def problems_of(done: Ended, case: Case, failed: Sequence[Call], job: Path) -> list[str]:
    """List the faults in the end of a crawl that met one; `failed` are the calls that failed, in their order."""
    found = []
    first = failed[0] if failed else None
    if "Traceback" in done.err + done.out:
        found.append(f"a traceback: {done.err[-2000:]}")
    codes = FAULTS[case.fault].codes if first is not None else frozenset({0})
    if {file_of(call.path).name for call in failed} <= _NEEDLESS:
        codes |= {0}
    if done.code not in codes:
        found.append(f"exit code {done.code}, not {' or '.join(map(str, sorted(codes)))}: {done.err[-600:]}")
    if "holds it" in done.err:
        found.append(f"it is in its own way: {done.err[-600:]}")
    if done.code > 0 and first is not None:
        lines = [line for line in done.err.splitlines() if line.startswith("anabranch: ")]
        if len(lines) != 1:
            found.append(f"{len(lines)} lines say why: {done.err[-600:]}")
        elif not any(re.search(pattern, lines[0]) for pattern in first_causes(failed, done.err)):
            found.append(f"the line does not name {Path(first.path).relative_to(job)}: {lines[0]}")
    return found


#: What a crawl does without: whether the store is as it was closed is then found out by a count; the record of a run, of which
#: a warning says that it is not written, only tells why it ended.
_NEEDLESS = frozenset({"frontier.db.seal", "lock", "run.json"})
#: Endings of files that are a part of another one, or its next version.
_SUFFIX = r"(\.new|\.open|-wal|-shm|-journal|\.owner|\.tried)"
#: Failures of these do not end a crawl at once: the store tries again, and accounts and payloads are caught up by the next run.
_PATIENT = frozenset(
    {"frontier.db", "accounts.sqlite", "accounts.journal", "payloads.sqlite", "progress-statistics.log"}
)
#: The warning of a crawl whose WARC files the next run finishes.
_LEFT = "a WARC file is left open"
#: That of a crawl whose logs wait for room. Meanwhile the store or the filter may give up.
_WAITS = "the crawl waits"


def first_causes(failed: Sequence[Call], warned: str) -> list[str]:
    """Patterns of the files whose failure may have ended a crawl: the first, and those after a failure that was not its end.

    Who syncs a folder may name the file that is new in it; files without a name are bodies, in other hands at the same time.
    """
    found = [f"{re.escape(str(file_of(call.path)))}: " for call in failed if "#" in call.path]
    is_over = False
    for call in failed:
        file = file_of(call.path)
        within = r"(/[^/:) ]+)?" if call.kind == "f" else ""
        if not is_over or (_WAITS in warned and "state" in file.parts):
            found.append(f"{re.escape(str(file))}{_SUFFIX}?{within}[:) ]")
        is_left = _LEFT in warned and "warc" in {file.name, file.parent.name}
        is_over = is_over or (file.name not in _PATIENT and not is_left)
    return found


def file_of(path: str) -> Path:
    """The file that the operator knows: that of a database for its log, the folder for a file without a name."""
    file = Path(path.removesuffix(" (deleted)"))
    if "#" in file.name:
        return file.parent
    return file.with_name(re.sub(f"{_SUFFIX}$", "", file.name))
