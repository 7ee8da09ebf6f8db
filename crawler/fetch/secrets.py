"""Logins of an order: where their parts are kept, and what no file of a job may show.

An order has no passwords. It names variables of the environment, or files that only their owner may read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.outcomes.errors import OrderError

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Headers that only the fetcher may set: they delimit messages, or speak for the connection.
RESERVED = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "range",
        "te",
    }
    | {"trailer", "transfer-encoding", "upgrade"}
)


class Credentials(NamedTuple):
    """A user and a password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"<Credentials of {self.user}>"


class Login(NamedTuple):
    """A login by the form of a page."""

    page: str  #: canonical URL
    fields: tuple[tuple[str, str], ...]  #: all that are filled in
    success: str  #: a text of the page behind the login; empty: the form is gone
    logged_out: str  #: a text of pages for others; empty: only 401, and redirects to the form
    passwords: frozenset[bytes] = frozenset()  #: those of the secret fields that are to be hidden

    def __repr__(self) -> str:
        return f"<Login at {self.page}>"


class Secrets(NamedTuple):
    """The parts of a login, which no file of the job may show."""

    fields: frozenset[str] = frozenset()  #: names of header fields, in lower case
    values: frozenset[bytes] = frozenset()

    def __repr__(self) -> str:
        return f"<Secrets in {', '.join(sorted(self.fields))}>"


def is_sendable(value: str) -> bool:
    """Whether a header value can be sent as it is: printable ASCII."""
    return value.isascii() and value.isprintable()


def read_secret(place: str, key: str, what: str) -> str:
    """The text in a variable, or in a file that only its owner may read, whose path has a slash. Raises: OrderError."""
    return _file_secret(Path(place), key, what) if "/" in place else password(place, key, what)


#: Headers that no site may get, also as secrets: they are the proxy's.
_NEVER_SECRET = frozenset({"proxy-authorization"})
#: A shorter value is not hidden: it is found by chance in pages' heads and URLs.
LEAST_SECRET_CHARS = 6
_SECRET_FILE_BYTES = 1 << 16


def secret_headers(places: Mapping[str, str], key: str) -> dict[str, str]:
    """Header -> its value, read from the variable or the file that is its place. Raises: OrderError."""
    found: dict[str, str] = {}
    for name, place in places.items():
        if not TOKEN.fullmatch(name) or name.lower() in RESERVED | _NEVER_SECRET:
            raise OrderError(f"{key}: {name!r} is no header that a site can be sent; Cookie and Authorization are")
        if name.lower() in {known.lower() for known in found}:
            raise OrderError(f"{key}: has the header {name} twice; give it once")
        value = read_secret(place, key, "header's value")
        if not value or not is_sendable(value):
            raise OrderError(f"{key}: the value of {name} in {place} cannot be sent; it must be printable ASCII")
        found["Cookie" if name.lower() == "cookie" else name] = value
    return found


def _file_secret(path: Path, key: str, what: str) -> str:
    """The first line of a file. Raises: OrderError if others than its owner may read it, or it is not UTF-8."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.readline(_SECRET_FILE_BYTES)
    except OSError as error:
        raise OrderError(f"{key}: {path}: {error.strerror}; it must be a file with the {what}") from error
    if mode & 0o077:
        raise OrderError(f"{key}: {path}: others may read it (mode {mode:03o}); `chmod 600 {path}`")
    try:
        return text.decode().strip()
    except UnicodeDecodeError:  # its message would show the bytes
        raise OrderError(f"{key}: {path}: is not UTF-8; save it as UTF-8") from None


def secrets_of(headers: Mapping[str, str]) -> Secrets:
    """The fields of a login, and their values: of a Cookie those of its parts, of others also the part behind a scheme."""
    values: set[str] = set()
    for name, text in headers.items():
        if name.lower() == "cookie":
            values.update(part.partition("=")[2].strip() for part in text.split(";"))
        else:
            values.update((text, text.rpartition(" ")[2]))
    fields = frozenset(name.lower() for name in headers)
    return Secrets(fields, frozenset(one.encode() for one in values if len(one) >= LEAST_SECRET_CHARS))


def password(variable: str, key: str, what: str = "password") -> str:
    """The value of a variable. Raises: OrderError if it is not set."""
    if not variable:
        return ""
    value = os.environ.get(variable)
    if value is None:
        raise OrderError(f"{key}: the variable {variable} is not set; it must hold the {what}")
    return value
