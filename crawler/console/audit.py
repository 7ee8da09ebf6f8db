"""`audit.jsonl` in the console's folder: a line for each change: time, user, action, and the error if it failed.

Requests of read-only users are refused before and not noted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import structlog

from anabranch.crawler.accounts.crawl_log import iso_time
from anabranch.crawler.console.access import Holder
from anabranch.dedup.files.durable import append_to

log = structlog.get_logger(__name__)

AUDIT_FILE = "audit.jsonl"
#: Characters of a value that are noted.
_MOST_CHARS = 300
#: Entries of a list or table.
_MOST_ENTRIES = 20


class AuditLog:
    """Appends to the file. If it cannot be written, the change is made all the same, and the console's log says so."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / AUDIT_FILE

    def note(self, holder: Holder, action: str, job: str, arguments: Mapping[str, object], error: str = "") -> None:
        """Note who did what to which job. `error`: why it failed."""
        given = _short({name: value for name, value in arguments.items() if value is not None})
        entry: dict[str, object] = {
            "time": iso_time(time.time()),
            "who": holder.name,
            "action": action,
            "job": _short(job),
            "arguments": given,
        }
        if error:
            entry["error"] = error[:_MOST_CHARS]
        try:
            append_to(self.path, json.dumps(entry, ensure_ascii=True).encode() + b"\n")
        except OSError as failure:
            log.warning("the audit log cannot be written", file=str(self.path), reason=failure.strerror)


def _short(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARS else f"{value[:_MOST_CHARS]}…"
    if isinstance(value, Mapping):
        return {str(_short(name)): _short(inner) for name, inner in [*value.items()][:_MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [*map(_short, value[:_MOST_ENTRIES]), *(["…"] if len(value) > _MOST_ENTRIES else [])]
    return value
