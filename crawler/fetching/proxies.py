"""Proxies as operators write them: `http://proxy:3128`, `https://proxy`, `socks5://user@127.0.0.1:1080`.

Behind a proxy the crawl sees no addresses: the proxy resolves the names and dials, so it, not we, must refuse private
addresses. We still refuse URLs whose host is such an address as it stands. The proxy's own address may be private.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

#: Scheme -> the port that is meant if none is given.
_PORTS = {"http": 80, "https": 443, "socks5": 1080}
#: RFC 1929: user and password have a length of one byte.
_MAX_CREDENTIAL_BYTES = 255


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where requests go instead of to the host."""

    scheme: str  #: http, https (TLS to the proxy), socks5
    host: str  #: without brackets
    port: int
    user: str = ""  #: empty = no credentials
    password: str = field(default="", repr=False)

    @property
    def is_socks(self) -> bool:
        """It speaks SOCKS5, not HTTP."""
        return self.scheme == "socks5"

    @property
    def url(self) -> str:
        """The proxy without its credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def refusal(self) -> str:
        """What its 407 means, in words."""
        return f"the proxy {'refuses the user or the password' if self.user else 'wants a user and a password'} (407)"

    def headers(self) -> dict[str, str]:
        """What an HTTP proxy is told besides."""
        return {"Proxy-Authorization": basic_auth(self.user, self.password)} if self.user else {}


def parse_proxy(text: str, password: str = "") -> Proxy:
    """The proxy that is named. Raises: ValueError, one line that shows no password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is no URL of a proxy: {error}") from error
    if parts.password is not None:
        raise ValueError("must not hold a password; name its variable in the key with _password_env")
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"must be like http://host:3128 or socks5://host:1080; not {text!r}")
    user = unquote(parts.username or "")
    if max(len(user.encode()), len(password.encode())) > _MAX_CREDENTIAL_BYTES:
        raise ValueError(f"user and password may have {_MAX_CREDENTIAL_BYTES} bytes")
    return Proxy(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], user, password)


def basic_auth(user: str, password: str) -> str:
    """The value of Authorization or Proxy-Authorization (RFC 7617, UTF-8)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
