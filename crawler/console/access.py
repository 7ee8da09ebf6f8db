"""Who may use a console: tokens of the API, each with a role, in the console's own folder. Only their digests are kept."""

from __future__ import annotations

import json
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.outcomes.errors import StorageError, UsageError, storage_errors
from anabranch.dedup.files.durable import replace_file
from anabranch.dedup.files.locks import folder_turn

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


def is_name(text: str) -> bool:
    """Whether tokens and people may have this name."""
    return _NAME.fullmatch(text) is not None


class Access:
    """The tokens in a folder. A token that is made or revoked by another process counts from the next question on."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, which only its owner can read. Raises: UsageError if others can write there; StorageError."""
        self._file = folder / _TOKENS
        self._read_at: tuple[int, int] | None = None
        self._tokens: dict[str, KnownToken] = {}  # by digest
        with storage_errors(folder, "--state"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):  # whoever writes there makes tokens
            raise UsageError(f"{folder}: others can write there; run `chmod go-w {folder}`, or choose another --state")

    def make(self, name: str, role: ConsoleRole) -> str:
        """A new token of this name. Raises: UsageError if there is one, or the name is not plain; StorageError."""
        if not is_name(name):
            raise UsageError(
                f"{name!r}: give the token a name of up to 64 letters, digits, dots, dashes and underscores"
            )
        text = secrets.token_urlsafe(_BYTES)
        with self._changed() as tokens:
            if any(token.holder.name == name for token in tokens):
                raise UsageError(f"{name}: there is a token of this name; revoke it first")
            tokens.append(KnownToken(Holder(name, role), _digest(text), time.time()))
        return text

    def revoke(self, name: str) -> None:
        """Forget a token. Raises: UsageError if there is none of this name; StorageError."""
        with self._changed() as tokens:
            found = next((token for token in tokens if token.holder.name == name), None)
            if found is None:
                names = ", ".join(token.holder.name for token in tokens)
                raise UsageError(
                    f"{name!r}: there is no such token; {f'there are: {names}' if names else 'there is none'}"
                )
            tokens.remove(found)

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
        except (ValueError, TypeError) as error:
            raise StorageError(f"{self._file}: cannot be read; remove it, and make the tokens again") from error
        self._read_at = (status.st_mtime_ns, status.st_ino)

    @contextmanager
    def _changed(self) -> Iterator[list[KnownToken]]:
        """The tokens, to be changed in place; no other process changes them in the block."""
        with storage_errors(self._file, "--state"), folder_turn(self._file.parent):
            tokens = self.tokens()
            yield tokens
            rows = [(token.holder.name, token.holder.role.value, token.digest, token.made_s) for token in tokens]
            replace_file(self._file, json.dumps(rows).encode())  # readable by the owner alone


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
