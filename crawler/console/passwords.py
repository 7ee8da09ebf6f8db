"""Names and passwords of people who use a console in a browser: `passwords.json` in its own folder, hashed by scrypt."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import scrypt
from hmac import compare_digest
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from anabranch.crawler.console.access import ConsoleRole, Holder, is_name
from anabranch.crawler.outcomes.errors import StorageError, UsageError, storage_errors
from anabranch.dedup.files.durable import replace_file
from anabranch.dedup.files.locks import folder_turn

_FILE = "passwords.json"
#: Cost of a hash: 16 MiB and 50 ms (RFC 7914, section 2).
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1
LEAST_CHARS, _MOST_CHARS = 8, 1000
#: Failures in a row before somebody has to wait, and the longest wait.
_FREE_FAILURES = 3
_LONGEST_WAIT_S = 60.0


class _Kept(NamedTuple):
    role: ConsoleRole
    salt: str
    digest: str


class Passwords:
    """The passwords in a folder, and who has to wait. `now_s` is the time of a try, of any steady clock.

    A password that another process sets or removes counts from the next question on.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE
        self._read_at: tuple[int, int] | None = None
        self._kept: dict[str, _Kept] = {}
        self._failures = 0  #: in a row, of anybody: names are guessed, too
        self._not_before_s = 0.0
        self._turn = Lock()  # or many tries at once would all be the first

    @property
    def has_any(self) -> bool:
        """Somebody has a password. Raises: StorageError."""
        return bool(self._read())

    def put(self, name: str, password: str, role: ConsoleRole) -> None:
        """Set the password of a name. Raises: UsageError if one of them is not fit; StorageError."""
        if not is_name(name):
            raise UsageError(f"{name!r}: give a name of up to 64 letters, digits, dots, dashes and underscores")
        if not LEAST_CHARS <= len(password) <= _MOST_CHARS:
            raise UsageError(f"the password has {len(password)} characters; give {LEAST_CHARS} to {_MOST_CHARS}")
        salt = secrets.token_hex(16)
        with self._changed() as kept:
            kept[name] = _Kept(role, salt, _hash(password, salt))

    def remove(self, name: str) -> None:
        """Forget the password of a name. Raises: UsageError if it has none; StorageError."""
        with self._changed() as kept:
            if kept.pop(name, None) is None:
                raise UsageError(f"{name!r}: has no password; {', '.join(kept) or 'nobody'} has one")

    def digest(self, name: str) -> str:
        """The hash of the password of a name; empty if it has none. Raises: StorageError."""
        kept = self._read().get(name)
        return "" if kept is None else kept.digest

    def wait_s(self, now_s: float) -> float:
        """So long no try counts."""
        return max(self._not_before_s - now_s, 0.0)

    def holder(self, name: str, password: str, now_s: float) -> Holder | None:
        """Who has this name and password; None if nobody has, or while a try does not count. Raises: StorageError."""
        with self._turn:
            if self.wait_s(now_s) or len(password) > _MOST_CHARS:
                return None
            kept = self._read().get(name)
            # An unknown name costs as much time as a known one.
            digest = _hash(password, "" if kept is None else kept.salt)
            if kept is not None and compare_digest(digest, kept.digest):
                self._failures = 0
                return Holder(name, kept.role)
            self._failures += 1
            if self._failures >= _FREE_FAILURES:
                self._not_before_s = now_s + min(2.0 ** (self._failures - _FREE_FAILURES), _LONGEST_WAIT_S)
            return None

    def _read(self) -> dict[str, _Kept]:
        try:
            with storage_errors(self._file):
                if not self._file.exists():
                    return {}
                status = self._file.stat()
                if (status.st_mtime_ns, status.st_ino) != self._read_at:
                    rows = json.loads(self._file.read_bytes())
                    self._kept = {name: _Kept(ConsoleRole(role), *rest) for name, (role, *rest) in rows.items()}
                    self._read_at = (status.st_mtime_ns, status.st_ino)
            return self._kept
        except (ValueError, TypeError, AttributeError) as error:
            raise StorageError(f"{self._file}: cannot be read; remove it, and set the passwords again") from error

    @contextmanager
    def _changed(self) -> Iterator[dict[str, _Kept]]:
        """The passwords, to be changed in place; no other process changes them in the block."""
        with storage_errors(self._file, "--state"), folder_turn(self._file.parent):
            kept = dict(self._read())
            yield kept
            replace_file(self._file, json.dumps(kept).encode())  # readable by the owner alone


def _hash(password: str, salt: str) -> str:
    raw = password.encode("utf-8", "surrogatepass")
    return scrypt(raw, salt=salt.encode(), n=_COST, r=_BLOCK, p=_PARALLEL, maxmem=64 << 20).hex()
