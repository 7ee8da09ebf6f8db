"""Which stage of a page's way a sample of the stack belongs to. Pure.

The innermost frame of a module with a stage decides, so a library counts for its caller. Frames of asyncio have no stage: a
stack without one of our modules is the loop itself. aiohttp is always fetching.
"""

from __future__ import annotations

from collections.abc import Iterable

#: The stages, as the table shows them.
STAGES = {
    "resolve": "links made absolute, parsed and canonicalised",
    "scope": "whether they are in",
    "dedup": "what is known: the filter, and what the crawler remembers",
    "frontier": "queues, gates, leases",
    "store": "rows, transactions, syncs",
    "log": "logs, pages.jsonl, statistics, accounts",
    "fetch": "connections, requests, answers, names, robots",
    "parse": "documents read for links",
    "chain": "workers, and the steps between the others",
    "archive": "WARC records and files",
    "loop": "asyncio's own",
    "other": "what has no stage",
}

#: The stage of code that works for many stages: that of its caller.
_CALLERS = ""
#: Prefixes of file names below `anabranch/`; the longest match wins.
_PLACES = {
    "/crawler/urls/": "resolve",
    "/crawler/processors/candidates.py": "resolve",
    "/crawler/processors/seen_urls.py": "dedup",
    "/crawler/scope/": "scope",
    "/crawler/processors/admission.py": "scope",
    "/dedup/": "dedup",
    "/frontier/": "frontier",
    "/frontier/seen.py": "dedup",
    "/frontier/filters.py": "dedup",
    "/frontier/checkpoints.py": "dedup",
    "/frontier/stores/": "store",
    "/crawler/fetch/": "fetch",
    "/crawler/robots/": "fetch",
    "/crawler/processors/preconditions.py": "fetch",
    "/crawler/extract/": "parse",
    "/crawler/extract/resolver.py": "resolve",
    "/crawler/archive/": "archive",
    "/crawler/accounts/": "log",
    "/crawler/report/": "log",
    "/crawler/processors/recorder.py": "log",
    "/crawler/job/journal.py": "log",
    "/dedup/files/durable.py": _CALLERS,
    "/crawler/": "other",
    "/crawler/processors/": "chain",
    "/crawler/run/workers.py": "chain",
    "/crawler/run/controller.py": "chain",
    "/crawler/visit.py": "chain",
}
#: Parts of file names of libraries. A loop that is not Python appears as the runner that waits for it.
_LIBRARIES = {"/aiohttp/": "fetch", "/asyncio/runners.py": "loop"}
_LOOPS = ("run_forever", "_run_once")


def stage_of(stack: Iterable[tuple[str, str]]) -> str:
    """The stage of a stack: file and function of each frame, the innermost first; files of the product from the room on."""
    for file, function in stack:
        place = _place(file)
        if place:
            return place
        if function in _LOOPS and file.endswith("/asyncio/base_events.py"):
            return "loop"
    return "other"


def _place(file: str) -> str:
    fitting = [begin for begin in _PLACES if file.startswith(begin)]
    if fitting:
        return _PLACES[max(fitting, key=len)]
    return next((stage for part, stage in _LIBRARIES.items() if part in file), "")
