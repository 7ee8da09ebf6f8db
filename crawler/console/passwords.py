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
#: Cost of a hash: 16 MiB and 50 ms (N of RFC 7914, section 2).
COST = 1 << 14
_BLOCK, _PARALLEL = 8, 1
LEAST_CHARS, _MOST_CHARS = 8, 1000
#: Failures of an address before it has to wait; of a name before all addresses have to that never had its password.
_FREE_OF_ADDRESS, _FREE_OF_NAME = 3, 30
_LONGEST_WAIT_S = 60.0
#: Failures are forgotten this long after the last one.
_FORGOTTEN_S = 3600.0
#: Addresses, names and pairs of them that are kept, the last ones.
_MOST_KEPT = 10_000


class _Kept(NamedTuple):
    name: str
    role: ConsoleRole
    salt: str
    digest: str


def _entry(name: str, role: str, salt: str, digest: str) -> _Kept:
    return _Kept(name, ConsoleRole(role), salt, digest)


class _Failures:
    """Failures of each key: after `free` of them it waits, longer and longer."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._kept: dict[str, tuple[int, float]] = {}  # number, and time of the last one

    def number(self, key: str, now_s: float) -> int:
        number, last_s = self._kept.get(key, (0, now_s))
        return number if now_s - last_s < _FORGOTTEN_S else 0

    def wait_s(self, key: str, now_s: float) -> float:
        more = self.number(key, now_s) - self._free
        if more < 0:
            return 0.0
        wait_s: float = min(2.0 ** min(more, 10), _LONGEST_WAIT_S)
        return max(self._kept[key][1] + wait_s - now_s, 0.0)

    def add(self, key: str, now_s: float) -> None:
        number = self.number(key, now_s) + 1
        self._kept.pop(key, None)
        self._kept[key] = (number, now_s)
        if len(self._kept) > _MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))


class _Throttle:
    """Slows down guesses of passwords. Other addresses do not have to wait.

    An address waits after some failures, whatever names it tries. A name that is guessed from many addresses waits, too, but
    not at an address that had its password before. One address never makes a name wait: only its first failures count for it.
    """

    def __init__(self) -> None:
        self._addresses, self._names = _Failures(_FREE_OF_ADDRESS), _Failures(_FREE_OF_NAME)
        self._proven: dict[tuple[str, str], None] = {}

    def wait_s(self, name: str, address: str, now_s: float) -> float:
        of_name = 0.0 if (name, address) in self._proven else self._names.wait_s(name, now_s)
        return max(self._addresses.wait_s(address, now_s), of_name)

    def failed(self, name: str, address: str, now_s: float) -> None:
        self._addresses.add(address, now_s)
        if self._addresses.number(address, now_s) <= _FREE_OF_ADDRESS or self._names.wait_s(name, now_s):
            self._names.add(name, now_s)

    def succeeded(self, name: str, address: str) -> None:
        """The failures stay: or who has a password could guess another one as fast as they like."""
        self._proven.pop((name, address), None)
        self._proven[name, address] = None
        if len(self._proven) > _MOST_KEPT:
            self._proven.pop(next(iter(self._proven)))


class Passwords:
    """The passwords in a folder, and who has to wait. `now_s` is the time of a try, of any steady clock.

    A password that another process sets or removes counts from the next question on.
    """

    def __init__(self, folder: Path, *, cost: int = COST) -> None:
        """`cost` of a hash, a power of 2. A password is found at the cost at which it was set only."""
        self._file = CredentialFile(folder / _FILE, _entry, tuple, "set the passwords")
        self._cost = cost
        self._throttle = _Throttle()
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
            everybody.append(_Kept(name, role, salt, _hash(password, salt, self._cost)))

    def remove(self, name: str) -> None:
        """Forget the password of a name. Raises: UsageError if it has none; StorageError."""
        with self._file.changed() as everybody:
            left = [kept for kept in everybody if kept.name != name]
            if len(left) == len(everybody):
                names = ", ".join(kept.name for kept in left)
                raise UsageError(f"{name!r} has no password; users with a password: {names or 'none'}")
            everybody[:] = left

    def digest(self, name: str) -> str:
        """The hash of the password of a name; empty if it has none. Raises: StorageError."""
        kept = self._kept(name)
        return "" if kept is None else kept.digest

    def wait_s(self, name: str, address: str, now_s: float) -> float:
        """Seconds until passwords of this name are accepted from this address again."""
        return self._throttle.wait_s(name[:_MOST_CHARS], address, now_s)

    def holder(self, name: str, password: str, address: str, now_s: float) -> Holder | None:
        """Return the holder with this name and password. Raises: StorageError.

        None if there is none, and while attempts have to wait.
        """
        name = name[:_MOST_CHARS]
        with self._turn:
            if self.wait_s(name, address, now_s) or len(password) > _MOST_CHARS:
                return None
            kept = self._kept(name)
            # An unknown name costs as much time as a known one.
            digest = _hash(password, "" if kept is None else kept.salt, self._cost)
            if kept is not None and compare_digest(digest, kept.digest):
                self._throttle.succeeded(name, address)
                return Holder(name, kept.role)
            self._throttle.failed(name, address, now_s)
            return None

    def _kept(self, name: str) -> _Kept | None:
        return next((kept for kept in self._file.entries() if kept.name == name), None)


def _hash(password: str, salt: str, cost: int) -> str:
    raw = password.encode("utf-8", "surrogatepass")
    return scrypt(raw, salt=salt.encode(), n=cost, r=_BLOCK, p=_PARALLEL, maxmem=64 << 20).hex()
