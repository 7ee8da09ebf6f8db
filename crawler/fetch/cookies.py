"""The cookies of one run (RFC 6265), in memory only and bounded: a site that sets many loses its own oldest ones.

A cookie is never sent outside its site: the registrable domain, or the host without one. One that reaches beyond it, or that
cannot be sent back unchanged, is ignored.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from anabranch.crawler.fetch.options import is_sendable
from anabranch.frontier.policies.hosts import authority, domain_of, path_of

#: The most cookies of one site, and bytes of their names, paths and values; more drop the oldest.
MAX_PER_SITE = 50
MAX_SITE_BYTES = 8 * 1024
MAX_COOKIE_BYTES = 4096
#: The most Set-Cookie fields that are read of one answer.
MAX_PER_ANSWER = 50
#: The most sites; one more drops the least recently used. With the bounds above: 80 MB at most.
MAX_SITES = 10_000


#: RFC 6265 section 5.1.1: what separates the tokens of a date.
_DELIMITERS = re.compile(r"[\t\x20-/;-@\[-`{-~]+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
#: Each token is the first of these parts that it matches and that is still missing.
_PARTS_OF_DATES = MappingProxyType(
    {
        "time": re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])"),
        "day": re.compile(r"([0-9]{1,2})(?![0-9])"),
        "month": re.compile(f"({'|'.join(_MONTHS)})", re.IGNORECASE),
        "year": re.compile(r"([0-9]{2,4})(?![0-9])"),
    }
)
_FIRST_YEAR = 1601


class _Key(NamedTuple):
    domain: str
    path: str
    name: str


@dataclass(frozen=True, slots=True)
class _Cookie:
    value: str
    is_host_only: bool
    is_secure: bool
    expires_s: float

    def fits(self, key: _Key, place: _Place, now_s: float) -> bool:
        is_host = key.domain == place.host or (not self.is_host_only and place.host.endswith("." + key.domain))
        is_path = place.path == key.path or (
            place.path.startswith(key.path) and (key.path.endswith("/") or place.path[len(key.path)] == "/")
        )
        return is_host and is_path and now_s < self.expires_s and (place.is_secure or not self.is_secure)


class _Place(NamedTuple):
    """The parts of a URL that decide about cookies."""

    site: str
    host: str
    path: str
    is_secure: bool


class Cookies:
    """The cookie jar of a run. Each call costs at most `MAX_PER_SITE` steps for each cookie field."""

    def __init__(self) -> None:
        self._sites: OrderedDict[str, OrderedDict[_Key, _Cookie]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._sites.values()))

    def header(self, url: str, now_s: float) -> str:
        """The Cookie field for a URL; empty if there is nothing to send. `now_s` is epoch seconds."""
        place = _place_of(url)
        if place is None or place.site not in self._sites:
            return ""
        self._sites.move_to_end(place.site)
        found = [(key, one) for key, one in self._sites[place.site].items() if one.fits(key, place, now_s)]
        found.sort(key=lambda item: -len(item[0].path))
        return "; ".join(f"{key.name}={one.value}" for key, one in found)

    def learn(self, url: str, values: Iterable[str], now_s: float) -> None:
        """Store the cookies of the Set-Cookie fields of an answer from this URL."""
        place = _place_of(url)
        if place is None:
            return
        for value in islice(values, MAX_PER_ANSWER):
            parsed = _parsed(value, place, now_s)
            if parsed is not None:
                self._keep(place.site, *parsed, now_s)

    def _keep(self, site: str, key: _Key, cookie: _Cookie, now_s: float) -> None:
        jar = self._sites.setdefault(site, OrderedDict())
        jar.pop(key, None)
        if cookie.expires_s > now_s:
            jar[key] = cookie
        while (
            len(jar) > MAX_PER_SITE
            or sum(len(k.name) + len(k.path) + len(c.value) for k, c in jar.items()) > MAX_SITE_BYTES
        ):
            jar.popitem(last=False)
        if not jar:
            del self._sites[site]
        while len(self._sites) > MAX_SITES:
            self._sites.popitem(last=False)


def _place_of(url: str) -> _Place | None:
    found = authority(url)
    if found is None:
        return None
    path = path_of(url).partition("?")[0]
    return _Place(domain_of(found.host) or found.host, found.host, path, url.lower().startswith("https:"))


def _parsed(text: str, place: _Place, now_s: float) -> tuple[_Key, _Cookie] | None:
    """Parse a Set-Cookie field (section 5.2 and 5.3); None if the cookie is ignored."""
    if len(text) > 2 * MAX_COOKIE_BYTES or not is_sendable(text.replace("\t", " ")):
        return None
    pair, *rest = text.split(";")
    name, _, value = (part.strip() for part in pair.partition("="))
    if not name or "=" not in pair or len(name) + len(value) > MAX_COOKIE_BYTES:
        return None
    attributes = {key.strip().lower(): given.strip() for key, _, given in (part.partition("=") for part in rest)}
    domain = attributes.get("domain", "").removeprefix(".").lower()
    is_secure = "secure" in attributes
    if not _may_set(domain, place, is_secure=is_secure):
        return None
    path = attributes.get("path", "")
    if not path.startswith("/"):
        path = place.path[: max(place.path.rfind("/"), 1)]  # the folder of the URL (section 5.1.4)
    return _Key(domain or place.host, path, name), _Cookie(value, not domain, is_secure, _expires_s(attributes, now_s))


def _may_set(domain: str, place: _Place, *, is_secure: bool) -> bool:
    """True for no domain, the host itself, and a domain above it within the site; secure cookies only over TLS."""
    if is_secure and not place.is_secure:
        return False
    if not domain or domain == place.host:
        return True
    return place.host.endswith("." + domain) and domain_of(domain) == place.site


def _expires_s(attributes: dict[str, str], now_s: float) -> float:
    """Epoch seconds; infinite for a session cookie, since the run is the session."""
    age = attributes.get("max-age", "")
    if age.removeprefix("-").isdecimal():
        return now_s + float(age) if len(age) < 16 else (now_s if age.startswith("-") else inf)
    expires_s = date_s(attributes.get("expires", ""))
    return inf if expires_s is None else expires_s


def date_s(text: str) -> float | None:
    """Parse the date of a cookie in any form, as UTC; epoch seconds, None if it is no date (RFC 6265 section 5.1.1)."""
    parts: dict[str, re.Match[str]] = {}
    for token in _DELIMITERS.split(text):
        for name, pattern in _PARTS_OF_DATES.items():
            if name not in parts and (found := pattern.match(token)):
                parts[name] = found
                break
    if len(parts) < len(_PARTS_OF_DATES):
        return None
    year, month, time = int(parts["year"][1]), _MONTHS.index(parts["month"][1].lower()) + 1, parts["time"]
    year += 1900 if 70 <= year <= 99 else 2000 if year <= 69 else 0
    try:
        date = datetime(year, month, int(parts["day"][1]), *map(int, time.groups()), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:  # 31 February, 25:00
        return None
    return date.timestamp() if year >= _FIRST_YEAR else None
