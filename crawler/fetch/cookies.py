"""The cookies of a job (RFC 6265), bounded: a site that sets many loses its own oldest ones.

They are kept in a cookies.txt, the format of Netscape that browsers' add-ons, curl, wget and yt-dlp read and write: a line for
each cookie, of seven fields with tabs between them. That file holds logins, so only its owner may read it (mode 0600).

A cookie is never sent outside its site: the registrable domain, or the host without one. One that reaches beyond it, or that
cannot be sent back unchanged, is ignored. Names and values are bytes, each as one character; a cookie may have no name, as in
browsers (RFC 6265bis, section 5.6).
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import structlog

from anabranch.crawler.fetch.secrets import LEAST_SECRET_CHARS, is_sendable
from anabranch.crawler.outcomes.errors import OrderError, StorageError, storage_errors
from anabranch.crawler.urls.parsing import canonical, host_of
from anabranch.dedup.files.durable import replace_file
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.policies.hosts import authority, domain_of, is_address, path_of

#: The most cookies of one site, and bytes of their names, paths and values; more drop the oldest.
MAX_PER_SITE = 50
MAX_SITE_BYTES = 8 * 1024
MAX_COOKIE_BYTES = 4096
#: The most Set-Cookie fields that are read of one answer.
MAX_PER_ANSWER = 50
#: The most sites; one more drops the least recently used. With the bounds above: 80 MB at most.
MAX_SITES = 10_000
#: A larger cookies.txt is none of one user.
MAX_FILE_BYTES = 16 << 20
#: Changed cookies are in the file after this time.
SAVE_S = 5.0

log = structlog.get_logger(__name__)

_HEAD = "# Netscape HTTP Cookie File\n"
#: Before the domain of a cookie that scripts must not read; other lines that begin with # are comments.
_HTTP_ONLY = "#HttpOnly_"
_FIELDS = 7
_ADVICE = (
    "a line of a cookies.txt has 7 fields with tabs between them: domain, subdomains, path, secure, expiry, name, value"
)

_SPACE = " \t"
#: Characters that a field cannot have.
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
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
    is_http_only: bool = False  #: for browsers

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
        self._secret: set[str] = set()
        self._changed: Callable[[], None] | None = None

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a cookie is stored, changed or removed by an answer."""
        self._changed = changed

    def __len__(self) -> int:
        return sum(map(len, self._sites.values()))

    def header(self, url: str, now_s: float) -> str:
        """The Cookie field for a URL, one character a byte; empty if there is nothing to send. `now_s` is epoch seconds."""
        place = _place_of(url)
        if place is None or place.site not in self._sites:
            return ""
        self._sites.move_to_end(place.site)
        found = [(key, one) for key, one in self._sites[place.site].items() if one.fits(key, place, now_s)]
        found.sort(key=lambda item: -len(item[0].path))
        return "; ".join(f"{key.name}={one.value}" if key.name else one.value for key, one in found)

    def learn(self, url: str, values: Iterable[str], now_s: float) -> None:
        """Store the cookies of the Set-Cookie fields of an answer from this URL."""
        place = _place_of(url)
        if place is None:
            return
        for value in islice(values, MAX_PER_ANSWER):
            parsed = _parsed(value, place, now_s)
            if parsed is not None and self._keep(place.site, *parsed, now_s) and self._changed is not None:
                self._changed()

    def is_secret(self, url: str) -> bool:
        """Whether its site has cookies that the operator gave: they are a person's login."""
        place = _place_of(url) if self._secret else None
        return place is not None and place.site in self._secret

    def values(self, url: str) -> frozenset[bytes]:
        """The values of the cookies of this URL's site that are too long to be found anywhere by chance."""
        place = _place_of(url)
        found = () if place is None or place.site not in self._sites else self._sites[place.site].values()
        return frozenset(one.value.encode("latin-1") for one in found if len(one.value) >= LEAST_SECRET_CHARS)

    def load(self, text: str, place: str, now_s: float, *, is_secret: bool) -> None:
        """Store the cookies of a cookies.txt; expired ones are left out. `is_secret`: the operator gave them.

        Raises: OrderError, which names the line, for one that is no cookie, or that could not be sent back.
        """
        for number, line in enumerate(text.splitlines(), 1):
            http_only = line.startswith(_HTTP_ONLY)
            if not line.strip() or (line.startswith("#") and not http_only):
                continue
            try:
                site, key, cookie = _read_line(line.removeprefix(_HTTP_ONLY), is_http_only=http_only)
            except ValueError as error:
                raise OrderError(f"{place}:{number}: {error}; {_ADVICE}") from error
            self._keep(site, key, cookie, now_s)
            if is_secret:
                self._secret.add(site)

    def dump(self, now_s: float) -> str:
        """All cookies as a cookies.txt, those that are used least recently first.

        One that `load` would refuse is left out, whatever a site has set: without a name, with a tab, outside ASCII.
        """
        found = [
            (key, cookie) for jar in self._sites.values() for key, cookie in jar.items() if cookie.expires_s > now_s
        ]
        lines = [_written(key, cookie) for key, cookie in found if key.name and is_sendable(key.path)]
        return _HEAD + "".join(f"{line}\n" for line in lines if _is_readable(line))

    def _keep(self, site: str, key: _Key, cookie: _Cookie, now_s: float) -> bool:
        """Store or remove a cookie; False if it was there as it is."""
        jar = self._sites.setdefault(site, OrderedDict())
        before = jar.pop(key, None)
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
        return before != cookie


class CookieFile:
    """Keeps the cookies of a run in a cookies.txt, a moment after they change and when it is closed.

    A file that cannot be written is a warning: the crawl goes on, and the next run asks for new cookies.
    """

    def __init__(self, path: Path, jar: Cookies, clock: Callable[[], float]) -> None:
        """In a running loop. `clock`: epoch seconds."""
        self._path = path
        self._jar = jar
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_changed = False
        self._has_failed = False
        jar.watch(self._note_change)

    async def close(self) -> None:
        """Write what has changed."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        await self._save()

    def _note_change(self) -> None:
        self._is_changed = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAVE_S, self._begin_writing)

    def _begin_writing(self) -> None:
        self._timer = None
        # If the disk hangs, what has changed since waits for `close`.
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._save(), name="cookies")

    async def _save(self) -> None:
        if self._is_changed:
            self._is_changed = False
            await to_the_end(asyncio.to_thread(self._write, self._jar.dump(self._clock())))

    def _write(self, text: str) -> None:
        try:
            with storage_errors(self._path):
                replace_file(self._path, text.encode())
        except StorageError as error:
            if not self._has_failed:
                log.warning("the cookies cannot be kept; the next run begins without new ones", reason=str(error))
            self._has_failed = True


def read_cookie_file(path: Path, jar: Cookies, now_s: float, *, is_secret: bool) -> None:
    """Store the cookies of a cookies.txt in the jar. Raises: OrderError for one that cannot be read, or is none."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else None
    except OSError as error:
        raise OrderError(f"{path}: cannot be read: {error.strerror}") from error
    if data is None:
        raise OrderError(f"{path}: is larger than {MAX_FILE_BYTES >> 20} MiB, so it is no cookies.txt")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise OrderError(f"{path}: is no text in UTF-8, so it is no cookies.txt") from error
    jar.load(text, str(path), now_s, is_secret=is_secret)


def _written(key: _Key, cookie: _Cookie) -> str:
    """The line of a cookie in a cookies.txt."""
    return (_HTTP_ONLY if cookie.is_http_only else "") + "\t".join(
        (
            f"{'' if cookie.is_host_only else '.'}{key.domain}",
            "FALSE" if cookie.is_host_only else "TRUE",
            key.path,
            "TRUE" if cookie.is_secure else "FALSE",
            "0" if cookie.expires_s == inf else str(int(cookie.expires_s)),
            key.name,
            cookie.value,
        )
    )


def _is_readable(line: str) -> bool:
    try:
        _read_line(line.removeprefix(_HTTP_ONLY), is_http_only=False)
    except ValueError:
        return False
    return len(line.splitlines()) == 1


def _read_line(line: str, *, is_http_only: bool) -> tuple[str, _Key, _Cookie]:
    """Return the site and the cookie of a line of a cookies.txt. Raises: ValueError that says what is wrong."""
    fields = line.split("\t")
    if len(fields) != _FIELDS:
        raise ValueError(f"has {len(fields)} fields")
    named, subdomains, path, secure, expiry, name, value = fields
    site, domain, is_host_only = _domain_in_file(named, with_subdomains=subdomains.upper() == "TRUE")
    if not path.startswith("/") or not name or not is_sendable(name + value) or ";" in name + value:
        raise ValueError(f"the cookie {name[:100]!r} cannot be sent")
    try:
        expires_s = float(expiry)
    except ValueError:
        raise ValueError(f"the expiry {expiry[:100]!r} is no number of seconds since 1970") from None
    cookie = _Cookie(value, is_host_only, secure.upper() == "TRUE", expires_s or inf, is_http_only)
    return site, _Key(domain, path, name), cookie


def _domain_in_file(named: str, *, with_subdomains: bool) -> tuple[str, str, bool]:
    """Return the site and the host, and whether the cookie is for that host alone. Raises: ValueError."""
    domain = named.removeprefix(".").lower()
    site, url = domain_of(domain), canonical(f"http://{domain}/")
    is_host_only = not with_subdomains or is_address(domain) or domain == "localhost"
    if url is None or host_of(url) != domain or (site is None and not is_host_only):
        raise ValueError(f"the domain {named[:100]!r} is no host that a cookie may be for")
    return site or domain, domain, is_host_only


def _place_of(url: str) -> _Place | None:
    found = authority(url)
    if found is None:
        return None
    path = path_of(url).partition("?")[0]
    return _Place(domain_of(found.host) or found.host, found.host, path, url.lower().startswith("https:"))


def _parsed(text: str, place: _Place, now_s: float) -> tuple[_Key, _Cookie] | None:
    """Parse a Set-Cookie field (section 5.2 and 5.3); None if the cookie is ignored."""
    text = text.encode("utf-8", "surrogateescape").decode("latin-1")
    if len(text) > 2 * MAX_COOKIE_BYTES or _CONTROLS.search(text):
        return None
    pair, *rest = text.split(";")
    name, value = (part.strip(_SPACE) for part in (pair if "=" in pair else f"={pair}").split("=", 1))
    if not 0 < len(name) + len(value) <= MAX_COOKIE_BYTES:
        return None
    parts = (part.partition("=") for part in rest)
    attributes = {key.strip(_SPACE).lower(): given.strip(_SPACE) for key, _, given in parts}
    domain = attributes.get("domain", "").removeprefix(".").lower()
    is_secure = "secure" in attributes
    if not _may_set(domain, place, is_secure=is_secure):
        return None
    domain = _shared_domain(domain)
    path = attributes.get("path", "")
    if not path.startswith("/"):
        path = place.path[: max(place.path.rfind("/"), 1)]  # the folder of the URL (section 5.1.4)
    cookie = _Cookie(value, not domain, is_secure, _expires_s(attributes, now_s), "httponly" in attributes)
    return _Key(domain or place.host, path, name), cookie


def _shared_domain(domain: str) -> str:
    """The domain, or nothing for a public suffix or an address: the cookie is for its host alone then (section 5.3, step 5)."""
    return domain if domain_of(domain) else ""


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
