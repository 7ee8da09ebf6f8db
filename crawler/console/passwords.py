"""Names and passwords of people who use a console in a browser: `passwords.json` in its own folder, hashed by scrypt."""

from __future__ import annotations

import secrets
from hashlib import scrypt
from hmac import compare_digest
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from anabranch.crawler.console.access import ConsoleRole, Holder, is_name
from anabranch.crawler.console.credentials import CredentialFile
from anabranch.crawler.outcomes.errors import UsageError

_FILE = "passwords.json"
#: Cost of a hash: 16 MiB and 50 ms (RFC 7914, section 2).
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1
LEAST_CHARS, _MOST_CHARS = 8, 1000
#: Failures in a row before somebody has to wait, and the longest wait.
_FREE_FAILURES = 3
_LONGEST_WAIT_S = 60.0


class _Kept(NamedTuple):
    name: str
    role: ConsoleRole
    salt: str
    digest: str


def _entry(name: str, role: str, salt: str, digest: str) -> _Kept:
    return _Kept(name, ConsoleRole(role), salt, digest)


class Passwords:
    """The passwords in a folder, and who has to wait. `now_s` is the time of a try, of any steady clock.

    A password that another process sets or removes counts from the next question on.
    """

    def __init__(self, folder: Path) -> None:
        self._file = CredentialFile(folder / _FILE, _entry, tuple, "set the passwords")
        self._failures = 0  #: in a row, of anybody: names are guessed, too
        self._not_before_s = 0.0
        self._turn = Lock()  # or many tries at once would all be the first

    @property
    def has_any(self) -> bool:
        """Somebody has a password. Raises: StorageError."""
        return bool(self._file.entries())

    def put(self, name: str, password: str, role: ConsoleRole) -> None:
        """Set the password of a name. Raises: UsageError if one of them is not fit; StorageError."""
        if not is_name(name):
            raise UsageError(f"{name!r}: give a name of up to 64 letters, digits, dots, dashes and underscores")
        if not LEAST_CHARS <= len(password) <= _MOST_CHARS:
            raise UsageError(f"the password has {len(password)} characters; give {LEAST_CHARS} to {_MOST_CHARS}")
        salt = secrets.token_hex(16)
        with self._file.changed() as everybody:
            everybody[:] = [kept for kept in everybody if kept.name != name]
            everybody.append(_Kept(name, role, salt, _hash(password, salt)))

    def remove(self, name: str) -> None:
        """Forget the password of a name. Raises: UsageError if it has none; StorageError."""
        with self._file.changed() as everybody:
            left = [kept for kept in everybody if kept.name != name]
            if len(left) == len(everybody):
                names = ", ".join(kept.name for kept in left)
                raise UsageError(f"{name!r}: has no password; {names or 'nobody'} has one")
            everybody[:] = left

    def digest(self, name: str) -> str:
        """The hash of the password of a name; empty if it has none. Raises: StorageError."""
        kept = self._kept(name)
        return "" if kept is None else kept.digest

    def wait_s(self, now_s: float) -> float:
        """Seconds until passwords are accepted again."""
        return max(self._not_before_s - now_s, 0.0)

    def holder(self, name: str, password: str, now_s: float) -> Holder | None:
        """Who has this name and password; None if nobody has, or while a try does not count. Raises: StorageError."""
        with self._turn:
            if self.wait_s(now_s) or len(password) > _MOST_CHARS:
                return None
            kept = self._kept(name)
            # An unknown name costs as much time as a known one.
            digest = _hash(password, "" if kept is None else kept.salt)
            if kept is not None and compare_digest(digest, kept.digest):
                self._failures = 0
                return Holder(name, kept.role)
            self._failures += 1
            if self._failures >= _FREE_FAILURES:
                self._not_before_s = now_s + min(2.0 ** (self._failures - _FREE_FAILURES), _LONGEST_WAIT_S)
            return None

    def _kept(self, name: str) -> _Kept | None:
        return next((kept for kept in self._file.entries() if kept.name == name), None)


def _hash(password: str, salt: str) -> str:
    raw = password.encode("utf-8", "surrogatepass")
    return scrypt(raw, salt=salt.encode(), n=_COST, r=_BLOCK, p=_PARALLEL, maxmem=64 << 20).hex()
