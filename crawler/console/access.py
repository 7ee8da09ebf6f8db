"""Tokens of the API, each with a role, in the console's own folder. Only their digests are kept."""

from __future__ import annotations

import re
import secrets
import stat
import time
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.console.credentials import CredentialFile
from anabranch.crawler.outcomes.errors import UsageError, storage_errors

_TOKENS = "tokens.json"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BYTES = 32


class ConsoleRole(StrEnum):
    """The rights of a holder."""

    READER = "reader"  #: look at everything
    OPERATOR = "operator"  #: and change it


class Holder(NamedTuple):
    """A user of the console: name and role."""

    name: str
    role: ConsoleRole


class KnownToken(NamedTuple):
    """A token that was given out."""

    holder: Holder
    digest: str  #: SHA-256 of the token, in hexadecimal
    made_s: float  #: epoch seconds


def default_folder(environment: Mapping[str, str]) -> Path:
    """The folder of a console's own files: `$XDG_STATE_HOME/anabranch/console`, by default in ~/.local/state."""
    state = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "anabranch" / "console"


def is_name(text: str) -> bool:
    """Whether tokens and people may have this name."""
    return _NAME.fullmatch(text) is not None


class Access:
    """The tokens in a folder. A token that is made or revoked by another process counts from the next question on."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, which only its owner can read. Raises: UsageError if others can write there; StorageError."""
        self._file = CredentialFile(folder / _TOKENS, _token, _row, "make the tokens")
        with storage_errors(folder, "folder of the console"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):  # whoever writes there makes tokens
            raise UsageError(
                f"{folder}: others can write there; run `chmod go-w {folder}`, "
                "or choose another folder for the console (`anabranch console --state`)"
            )

    def make(self, name: str, role: ConsoleRole) -> str:
        """A new token of this name. Raises: UsageError if there is one, or the name is not plain; StorageError."""
        if not is_name(name):
            raise UsageError(
                f"{name!r}: give the token a name of up to 64 letters, digits, dots, dashes and underscores"
            )
        text = secrets.token_urlsafe(_BYTES)
        with self._file.changed() as tokens:
            if any(token.holder.name == name for token in tokens):
                raise UsageError(f"{name}: there is a token of this name; revoke it first")
            tokens.append(KnownToken(Holder(name, role), _digest(text), time.time()))
        return text

    def revoke(self, name: str) -> None:
        """Forget a token. Raises: UsageError if no token has this name; StorageError."""
        with self._file.changed() as tokens:
            found = next((token for token in tokens if token.holder.name == name), None)
            if found is None:
                names = ", ".join(token.holder.name for token in tokens)
                raise UsageError(f"{name!r}: no token has this name; the tokens are: {names or 'none yet'}")
            tokens.remove(found)

    def tokens(self) -> list[KnownToken]:
        """All tokens, the oldest first. Raises: StorageError."""
        return sorted(self._file.entries(), key=lambda token: token.made_s)

    def holder(self, text: str) -> Holder | None:
        """Return the holder of this token; None if there is none. Raises: StorageError."""
        digest = _digest(text)  # what is compared are digests, so time tells nothing of the tokens
        return next((token.holder for token in self._file.entries() if token.digest == digest), None)


def _token(name: str, role: str, digest: str, made_s: float) -> KnownToken:
    return KnownToken(Holder(name, ConsoleRole(role)), digest, made_s)


def _row(token: KnownToken) -> tuple[object, ...]:
    return (token.holder.name, token.holder.role.value, token.digest, token.made_s)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
