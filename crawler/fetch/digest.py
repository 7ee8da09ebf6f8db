"""Digest authentication (RFC 7616): what a server's challenges ask for, and the answers to them.

The password is never sent. A challenge is answered in advance at later requests of its origin, until another one comes.
MD5 is accepted, since many servers know nothing else.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from anabranch.crawler.fetch.secrets import Credentials, is_sendable

#: Origins whose challenge is remembered.
MAX_ORIGINS = 1_000
_MAX_CHARS = 8_192
#: Algorithm -> hash, the strongest first.
_HASHES = {"sha-512-256": "sha512_256", "sha-256": "sha256", "md5": "md5"}
#: A scheme, or a parameter with a token or a quoted text.
_PART = re.compile(r'([!#$%&\'*+.^_`|~0-9A-Za-z-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+)))?\s*,?\s*')


@dataclass(slots=True)
class _Challenge:
    """A server's challenge, and how often it was answered."""

    realm: str
    nonce: str
    opaque: str | None
    algorithm: str  #: as the server wrote it; empty: it names none
    has_qop: bool
    count: int = 0

    @property
    def hash_name(self) -> str:
        return _HASHES[self.algorithm.lower().removesuffix("-sess") or "md5"]

    def use(self) -> None:
        """It is answered once more."""
        self.count += 1


class Digests:
    """The challenges of a run, by origin, and the answers to them."""

    def __init__(self) -> None:
        self._challenges: OrderedDict[str, _Challenge] = OrderedDict()

    def learn(self, origin: str, fields: Iterable[str]) -> bool:
        """Remember the strongest challenge of WWW-Authenticate fields; False if there is none that can be answered."""
        found = [one for field in fields for one in _challenges(field[:_MAX_CHARS])]
        if not found:
            return False
        names = list(_HASHES.values())
        self._challenges[origin] = min(found, key=lambda one: names.index(one.hash_name))
        self._challenges.move_to_end(origin)
        if len(self._challenges) > MAX_ORIGINS:
            self._challenges.popitem(last=False)
        return True

    def authorization(self, origin: str, target: str, credentials: Credentials, method: str = "GET") -> str:
        """The Authorization of a request for path and query of this origin; empty before its first challenge."""
        challenge = self._challenges.get(origin)
        if challenge is None:
            return ""
        challenge.use()
        return _answer(challenge, target, credentials, method, secrets.token_hex(8))


def _answer(challenge: _Challenge, target: str, credentials: Credentials, method: str, cnonce: str) -> str:
    """The field for one request (section 3.4). Pure."""

    def digest(*parts: str) -> str:
        return hashlib.new(challenge.hash_name, ":".join(parts).encode(), usedforsecurity=False).hexdigest()

    secret = digest(credentials.user, challenge.realm, credentials.password)
    if challenge.algorithm.lower().endswith("-sess"):
        secret = digest(secret, challenge.nonce, cnonce)
    asked, number = digest(method, target), f"{challenge.count:08x}"
    middle = (challenge.nonce, number, cnonce, "auth") if challenge.has_qop else (challenge.nonce,)
    fields = {
        "username": _quoted(credentials.user.encode().decode("latin-1")),  # a field is sent byte by byte
        "realm": _quoted(challenge.realm),
        "nonce": _quoted(challenge.nonce),
        "uri": _quoted(target),
        "response": f'"{digest(secret, *middle, asked)}"',
    }
    if challenge.algorithm:
        fields["algorithm"] = challenge.algorithm
    if challenge.opaque is not None:
        fields["opaque"] = _quoted(challenge.opaque)
    if challenge.has_qop:
        fields |= {"qop": "auth", "nc": number, "cnonce": f'"{cnonce}"'}
    return "Digest " + ", ".join(f"{name}={value}" for name, value in fields.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _challenges(field: str) -> Iterator[_Challenge]:
    """The challenges of a field that can be answered: Digest, with a known algorithm, and `auth` if there is a choice."""
    for scheme, parameters in _schemes(field):
        if scheme == "digest" and (found := _challenge_of(parameters)) is not None:
            yield found


def _challenge_of(parameters: dict[str, str]) -> _Challenge | None:
    realm, nonce, opaque = parameters.get("realm"), parameters.get("nonce"), parameters.get("opaque")
    algorithm, qop = parameters.get("algorithm", ""), parameters.get("qop")
    is_known = (algorithm.lower().removesuffix("-sess") or "md5") in _HASHES
    if not (realm and nonce and is_known and is_sendable(f"{realm}{nonce}{opaque}")):
        return None
    has_choice = qop is None or "auth" in [one.strip().lower() for one in qop.split(",")]
    return _Challenge(realm, nonce, opaque, algorithm, qop is not None) if has_choice else None


def _schemes(field: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The schemes of a field with their parameters: `Digest realm="x", nonce="y", Basic realm="x"` has two."""
    scheme, parameters = "", dict[str, str]()
    for part in _PART.finditer(field):
        name, quoted, token = part.groups()
        if quoted is None and token is None:
            if scheme:
                yield scheme, parameters
            scheme, parameters = name.lower(), {}
        else:
            parameters.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else token)
    if scheme:
        yield scheme, parameters
