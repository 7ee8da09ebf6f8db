"""`audit.jsonl` in the console's folder: a line for each login, logout and change, with any error.

Requests of read-only users are refused before and not noted. A new job, and a changed one, have their order as it is then.
Values of headers, passwords, and the user info of URLs are masked, wherever they stand.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from anabranch.crawler.accounts.crawl_log import iso_time
from anabranch.crawler.console.access import Holder
from anabranch.crawler.order.order import CrawlOrder, dump_order, dump_tables, order_tables
from anabranch.dedup.files.durable import append_to

log = structlog.get_logger(__name__)

AUDIT_FILE = "audit.jsonl"
#: Characters of a value that are noted.
_MOST_CHARS = 300
#: Entries of a list or table.
_MOST_ENTRIES = 20
#: Written in place of a secret.
MASK = "***"
#: Keys whose tables have secrets as values, and keys of secrets; `password_env` and `secret_headers` name variables and files.
_WITH_VALUES = frozenset({"headers", "header", "login_fields"})
_SECRET = re.compile("(password|secret|token)s?", re.IGNORECASE)
#: The user info of a URL, behind its scheme or without one.
_USER_INFO = re.compile(r"(?<=://)[^/?#\s'\"]*@|(?<![^\s'\"])[^/?#\s'\"@:]+:[^/?#\s'\"]*@")


class OrderNote(NamedTuple):
    """An order as it is noted, whole."""

    sha256: str  #: of its text, as the API shows it
    toml: str  #: that text without secrets


class AuditLog:
    """Appends to the file. If it cannot be written, the change is made all the same, and the console's log says so."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / AUDIT_FILE

    def note(self, holder: Holder, action: str, job: str, arguments: Mapping[str, object], error: str = "") -> None:
        """Note who did what to which job. `error`: why it failed."""
        self._append(holder.name, action, job, arguments, error)

    def note_session(self, name: str, action: str, arguments: Mapping[str, object], error: str = "") -> None:
        """Note a login or a logout. The name is empty if no user has it: people type passwords into that field."""
        self._append(name, action, "", arguments, error)

    def _append(self, who: str, action: str, job: str, arguments: Mapping[str, object], error: str) -> None:
        given = {name: _noted(value, name) for name, value in arguments.items() if value is not None}
        entry: dict[str, object] = {
            "time": iso_time(time.time()),
            "who": who,
            "action": action,
            "job": _short(job),
            "arguments": given,
        }
        if error:
            entry["error"] = _short(masked(error))
        try:
            append_to(self.path, json.dumps(entry, ensure_ascii=True).encode() + b"\n", mode=0o600)
        except OSError as failure:
            log.warning("the audit log cannot be written", file=str(self.path), reason=failure.strerror)


def order_note(order: CrawlOrder) -> OrderNote:
    """An order as it is noted."""
    digest = sha256(dump_order(order).encode("utf-8", "surrogatepass")).hexdigest()
    return OrderNote(digest, dump_tables(masked(order_tables(order))))


def seeds_note(seeds: Sequence[str]) -> dict[str, object]:
    """Seeds that are added: how many, and the first of them."""
    return {"seeds": len(seeds), "first": list(seeds[:_MOST_ENTRIES])}


def masked(value: Any, name: str = "") -> Any:
    """The value without secrets. `name` is its key, which may have its section before it. Pure."""
    key = name.rpartition(".")[2].rstrip("+")
    if key in _WITH_VALUES:
        return _without_values(value)
    if _SECRET.fullmatch(key):
        return MASK
    if isinstance(value, str):
        return _USER_INFO.sub(f"{MASK}@", value)
    if isinstance(value, Mapping):
        return {str(masked(inner)): masked(value[inner], str(inner)) for inner in value}
    if isinstance(value, list | tuple):
        return [masked(inner) for inner in value]
    return value


def _without_values(headers: object) -> object:
    """The names of headers, given as a table, as `Name: value`, or as a list of such. Pure."""
    if isinstance(headers, Mapping):
        return {str(name): MASK for name in headers}
    if isinstance(headers, list | tuple):
        return [_without_values(line) for line in headers]
    name, colon, _ = str(headers).partition(":")
    return f"{name}: {MASK}" if colon and re.fullmatch(r"[\w-]+", name) else MASK


def _noted(value: object, name: str) -> object:
    return value._asdict() if isinstance(value, OrderNote) else _short(masked(value, name))


def _short(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARS else f"{value[:_MOST_CHARS]}…"
    if isinstance(value, Mapping):
        return {str(_short(name)): _short(inner) for name, inner in [*value.items()][:_MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        more = [f"… and {len(value) - _MOST_ENTRIES} more"] if len(value) > _MOST_ENTRIES else []
        return [*map(_short, value[:_MOST_ENTRIES]), *more]
    return value
