"""Names and passwords of people who use a console in a browser: `passwords.json` in its own folder, hashed by scrypt."""

from __future__ import annotations

import json
import secrets
from hashlib import scrypt
from hmac import compare_digest
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.outcomes.errors import StorageError, UsageError, storage_errors
from anabranch.dedup.files.durable import replace_file

_FILE = "passwords.json"
#: Cost of a hash: 16 MiB and 50 ms (RFC 7914, section 2).
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1
LEAST_CHARS = 8
#: Failures in a row before somebody has to wait, and the longest wait.
_FREE_FAILURES = 3
_LONGEST_WAIT_S = 60.0


class _Kept(NamedTuple):
    role: ConsoleRole
    salt: str
    digest: str


class Passwords:
    """The passwords in a folder, and who has to wait. `now_s` is the time of a try, of any steady clock."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE
        self._failures = 0  #: in a row, of anybody: names are guessed, too
        self._not_before_s = 0.0

    @property
    def has_any(self) -> bool:
        """Somebody has a password."""
        return bool(self._read())

    def put(self, name: str, password: str, role: ConsoleRole) -> None:
        """Set the password of a name. Raises: UsageError if it is too short; StorageError."""
        if len(password) < LEAST_CHARS:
            raise UsageError(f"the password is too short; give at least {LEAST_CHARS} characters")
        salt = secrets.token_hex(16)
        kept = self._read() | {name: _Kept(role, salt, _hash(password, salt))}
        with storage_errors(self._file):
            replace_file(self._file, json.dumps(kept).encode())
            self._file.chmod(0o600)

    def wait_s(self, now_s: float) -> float:
        """So long no try counts."""
        return max(self._not_before_s - now_s, 0.0)

    def holder(self, name: str, password: str, now_s: float) -> Holder | None:
        """Who has this name and password; None if nobody has, or while a try does not count. Raises: StorageError."""
        if self.wait_s(now_s):
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
                text = self._file.read_bytes() if self._file.exists() else b"{}"
            return {name: _Kept(ConsoleRole(role), *rest) for name, (role, *rest) in json.loads(text).items()}
        except (ValueError, TypeError) as error:
            raise StorageError(f"{self._file}: cannot be read; remove it, and set the passwords again") from error


def _hash(password: str, salt: str) -> str:
    raw = password.encode("utf-8", "surrogatepass")
    return scrypt(raw, salt=salt.encode(), n=_COST, r=_BLOCK, p=_PARALLEL, maxmem=64 << 20).hex()
