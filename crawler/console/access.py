"""Who may use a console: tokens of the API, each with a role, in the console's own folder. Only their digests are kept."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.outcomes.errors import StorageError, UsageError, storage_errors
from anabranch.dedup.files.durable import replace_file

_TOKENS = "tokens.json"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BYTES = 32


class ConsoleRole(StrEnum):
    """What somebody may do."""

    READER = "reader"  #: look at everything
    OPERATOR = "operator"  #: and change it


class Holder(NamedTuple):
    """Somebody who asks."""

    name: str
    role: ConsoleRole


class KnownToken(NamedTuple):
    """A token that was given out."""

    holder: Holder
    digest: str  #: SHA-256 of the token, in hexadecimal
    made_s: float  #: epoch seconds


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where a console keeps what is its own: `$XDG_STATE_HOME/anabranch/console`, by default in ~/.local/state."""
    state = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "anabranch" / "console"


class Access:
    """The tokens in a folder. A token that is made or revoked by another process counts from the next question on."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, which only its owner can read. Raises: StorageError."""
        self._file = folder / _TOKENS
        self._read_at: tuple[int, int] | None = None
        self._tokens: dict[str, KnownToken] = {}  # by digest
        with storage_errors(folder, "--state"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make(self, name: str, role: ConsoleRole) -> str:
        """A new token of this name. Raises: UsageError if there is one, or the name is not plain; StorageError."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r}: give the token a name of up to 64 letters, digits, dots, dashes and underscores"
            )
        known = self.tokens()
        if any(token.holder.name == name for token in known):
            raise UsageError(f"{name}: there is a token of this name; revoke it first")
        text = secrets.token_urlsafe(_BYTES)
        self._write([*known, KnownToken(Holder(name, role), _digest(text), time.time())])
        return text

    def revoke(self, name: str) -> None:
        """Forget a token. Raises: UsageError if there is none of this name; StorageError."""
        known = self.tokens()
        left = [token for token in known if token.holder.name != name]
        if len(left) == len(known):
            names = ", ".join(token.holder.name for token in known) or "none"
            raise UsageError(f"{name!r}: there is no such token; there are {names}")
        self._write(left)

    def tokens(self) -> list[KnownToken]:
        """All tokens, the oldest first. Raises: StorageError."""
        self._read()
        return sorted(self._tokens.values(), key=lambda token: token.made_s)

    def holder(self, text: str) -> Holder | None:
        """Who has this token. Raises: StorageError."""
        self._read()
        known = self._tokens.get(_digest(text))  # by its digest, so that time tells nothing of the token
        return None if known is None else known.holder

    def _read(self) -> None:
        with storage_errors(self._file):
            try:
                status = self._file.stat()
            except FileNotFoundError:
                self._tokens, self._read_at = {}, None
                return
            if (status.st_mtime_ns, status.st_ino) == self._read_at:
                return
            text = self._file.read_bytes()
        try:
            self._tokens = {
                digest: KnownToken(Holder(name, ConsoleRole(role)), digest, made_s)
                for name, role, digest, made_s in json.loads(text)
            }
        except ValueError as error:
            raise StorageError(f"{self._file}: cannot be read; remove it, and make the tokens again") from error
        self._read_at = (status.st_mtime_ns, status.st_ino)

    def _write(self, tokens: list[KnownToken]) -> None:
        rows = [(token.holder.name, token.holder.role.value, token.digest, token.made_s) for token in tokens]
        with storage_errors(self._file):
            replace_file(self._file, json.dumps(rows).encode())
            self._file.chmod(0o600)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
