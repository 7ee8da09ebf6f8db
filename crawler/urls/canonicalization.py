"""Canonicalization: the key by which the seen filter knows a URL, made by an ordered list of named rules.

The key only decides whether a URL was seen; the URL itself is fetched and logged. The rules:

    userinfo        removes user:password@
    default-port    removes :80 of http and :443 of https
    fragment        removes #…
    session-ids     removes session ids: ;jsessionid=… from the path; from the query jsessionid, phpsessid (at least 16
                    characters), sid (32 letters and digits, since it has other meanings), aspsessionid + 8 letters (24
                    letters), and cfid together with cftoken
    www             removes www., www2. … from the host, unless path and query are only /: a site may answer under one name only
    query-sort      sorts the parameters of the query by their bytes
    query-fixup     removes empty parameters (?&, &&, a final &), and a ? with nothing behind it
    slashes         merges successive slashes of the path
    lowercase-host  lowers the case of scheme and host
    package.module:function   a function of the user: text in, text out

The path keeps its case. The first three change no canonical URL; they are for keys of embedders. Source: Heritrix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import ascii_uppercase
from types import MappingProxyType
from typing import NamedTuple

from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.userfunctions import KEY, user_function
from anabranch.frontier.policies.userfunctions import is_user_function, shown

#: The rules if the order names none.
DEFAULT: tuple[str, ...] = ("userinfo", "default-port", "fragment", "session-ids")

#: The rules are repeated until nothing changes, since one may enable another; a user function may change forever.
MAX_PASSES = 8

_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
#: The authority of a web URL begins here or one character later; nothing before it matters to a rule.
_AUTHORITY = len("http://")
_ORIGIN = re.compile(r"https?://[^/?#]*(?=/)")
_PORTS = {"http": 80, "https": 443}
_PORT = re.compile(r":([0-9]{0,5})$")
_PORT_HINT = re.compile(r":0*(?:80|443)?(?:[/?#\n]|$)")
_WWW = re.compile(r"(?:www[0-9]*\.)+([^.]+\..+)", re.IGNORECASE | re.DOTALL)
_SLASHES = re.compile(r"//+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PATH_SESSION = re.compile(r";(?:jsessionid|phpsessid)=[^/;]*", re.IGNORECASE)
_SESSION = re.compile(
    r"(?:jsessionid|phpsessid)=[\w.,!~$-]{16,}|sid=[0-9a-z]{32}|aspsessionid[a-z]{8}=[a-z]{24}",
    re.IGNORECASE | re.ASCII,
)
_COLD_FUSION = {"cfid", "cftoken"}

#: URL -> its key; None = the URL itself. As `Canonicalizer.key`.
KeyOf = Callable[[str], bytes | None]


class UrlParts(NamedTuple):
    """The parts of an absolute URL; `str` joins them."""

    scheme: str
    authority: str
    path: str
    query: str = ""  #: with the question mark
    fragment: str = ""  #: with the hash

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}{self.query}{self.fragment}"


class CanonicalizationRule(NamedTuple):
    """A built-in rule, and which URLs it cannot change."""

    signs: str  #: it changes only web URLs with one of these characters behind the scheme
    change: Callable[[UrlParts], UrlParts]
    #: It changes none of some URLs, one a line, if this is false for them from that position; None: `signs` is precise enough.
    hint: Callable[[str, int], object] | None = None


def _without_default_port(url: UrlParts) -> UrlParts:
    port = _PORT.search(url.authority)
    default = _PORTS.get(url.scheme.lower())
    if port is None or default is None or int(port[1] or default) != default:
        return url
    return url._replace(authority=url.authority[: port.start()])


def _may_hold_session_id(urls: str, start: int = 0) -> bool:
    if "?" not in urls and ";" not in urls:
        return False
    lowered = urls[start:].lower()
    return "sid=" in lowered or "sessionid" in lowered or "cfid=" in lowered


def _without_session_ids(url: UrlParts) -> UrlParts:
    if ";" in url.path:
        url = url._replace(path=_PATH_SESSION.sub("", url.path))
    if not _may_hold_session_id(url.query):
        return url
    kept = [each for each in url.query[1:].split("&") if not _SESSION.fullmatch(each)]
    names = {each.partition("=")[0].lower() for each in kept}
    if names >= _COLD_FUSION:
        kept = [each for each in kept if each.partition("=")[0].lower() not in _COLD_FUSION]
    return url._replace(query="?" + "&".join(kept) if kept else "")


def _without_www(url: UrlParts) -> UrlParts:
    host = _WWW.fullmatch(url.authority)
    if host is None or url.scheme.lower() not in _PORTS or (url.path in {"", "/"} and not url.query):
        return url
    return url._replace(authority=host[1])


def _with_fixed_query(url: UrlParts) -> UrlParts:
    kept = "&".join(filter(None, url.query[1:].split("&")))
    return url._replace(query=f"?{kept}" if kept else "")


def _with_lowercase_host(url: UrlParts) -> UrlParts:
    userinfo, at, host = url.authority.rpartition("@")
    return url._replace(scheme=url.scheme.lower(), authority=userinfo + at + host.lower())


#: A user's rule of `[urls] canonicalization`: URL -> the URL by which it is known. Equal results are one page.
UrlRule = Callable[[str], str]

#: The rules by name.
RULES: Mapping[str, CanonicalizationRule] = MappingProxyType(
    {
        "userinfo": CanonicalizationRule("@", lambda url: url._replace(authority=url.authority.rpartition("@")[2])),
        "default-port": CanonicalizationRule(":", _without_default_port, _PORT_HINT.search),
        "fragment": CanonicalizationRule("#", lambda url: url._replace(fragment="")),
        "session-ids": CanonicalizationRule("?;", _without_session_ids, _may_hold_session_id),
        "www": CanonicalizationRule("wW", _without_www),
        "query-sort": CanonicalizationRule(
            "&", lambda url: url._replace(query=url.query[:1] + "&".join(sorted(url.query[1:].split("&"))))
        ),
        "query-fixup": CanonicalizationRule("?", _with_fixed_query),
        "slashes": CanonicalizationRule("/", lambda url: url._replace(path=_SLASHES.sub("/", url.path))),
        "lowercase-host": CanonicalizationRule(ascii_uppercase, _with_lowercase_host),
    }
)


def check_names(names: Iterable[str]) -> None:
    """Raises: ValueError, one line with the unknown rule and the known ones."""
    for name in names:
        if name not in RULES and not is_user_function(name):
            known = ", ".join([*RULES, "package.module:function"])
            raise ValueError(f"rule {shown(name)!r} is unknown; choose of {known}")


class Canonicalizer:
    """Makes the keys of URLs by rules, in their order; pure. Raises: OrderError for an unknown rule or a failed import."""

    def __init__(self, names: Sequence[str] = DEFAULT) -> None:
        try:
            check_names(names)
        except ValueError as error:
            raise OrderError(f"[urls] canonicalization: {error}") from error
        self._changes = tuple(RULES[name].change if name in RULES else _own(name) for name in names)
        rules = [RULES[name] for name in names if name in RULES]
        may_all = len(rules) < len(names)  # a user function may change any URL
        sure = [rule for rule in rules if rule.hint is None]
        self._sign = _finder(rules, may_all=may_all)
        self._sure_sign = _finder(sure, may_all=may_all)
        self._sure_signs = None if may_all else frozenset("".join(rule.signs for rule in sure))
        self._hints = tuple(rule.hint for rule in rules if rule.hint is not None)

    def key(self, url: str) -> bytes | None:
        """The key of an absolute URL; None if it is the URL itself. The key of a key is the key. Raises: UserFunctionFailed.

        Text that is no absolute URL is its own key. Cost: 0.3 µs for a URL that no rule can change, else at least 4 µs.
        """
        if url.startswith("http"):
            if self._sign(url, _AUTHORITY) is None:
                return None
            if self._sure_sign(url, _AUTHORITY) is None and not self._is_hinted(url, _AUTHORITY):
                return None
        key = self.canonical(url)
        return None if key == url else key.encode()

    def keys(self, urls: Sequence[str]) -> list[bytes | None]:
        """`key` of each. Cost: a quarter of that, if no rule can change any of them."""
        return [None] * len(urls) if self._keeps_all(urls) else list(map(self.key, urls))

    def _keeps_all(self, urls: Sequence[str]) -> bool:
        """Whether no rule can change any of them: all are searched at once, one a line, without schemes."""
        if self._sure_signs is None:
            return False
        if not urls:
            return True
        lines = "\n".join(("", *urls))
        if lines.count("\n") != len(urls):
            return False
        origin = _ORIGIN.match(urls[0])
        if origin is not None:
            lines = "\n" + origin[0] + lines.replace("\n" + origin[0] + "/", "\n/")
        bare = lines.replace("\nhttp://", "\n/").replace("\nhttps://", "\n/")
        return not any(sign in bare for sign in self._sure_signs) and not self._is_hinted(bare, 0)

    def _is_hinted(self, urls: str, start: int) -> bool:
        return any(hint(urls, start) for hint in self._hints)

    def canonical(self, url: str) -> str:
        """The key as text. Raises: UserFunctionFailed."""
        for _ in range(MAX_PASSES):
            match = _PARTS.fullmatch(url)
            if match is None:
                return url
            before = parts = UrlParts(*match.groups(default=""))
            for change in self._changes:
                parts = change(parts)
            if parts == before:
                return url
            url = str(parts)
        return url


def _finder(rules: Sequence[CanonicalizationRule], *, may_all: bool) -> Callable[[str, int], re.Match[str] | None]:
    """A search, from a position on, for a character that a rule may act on; with `may_all` it always finds something."""
    if may_all:
        return re.compile("").search
    signs = "".join(rule.signs for rule in rules)
    return re.compile(f"[{re.escape(signs)}]" if signs else "(?!)").search


def _own(name: str) -> Callable[[UrlParts], UrlParts]:
    own_key = user_function(name, KEY)

    def change(url: UrlParts) -> UrlParts:
        answer = own_key(str(url))
        match = _PARTS.fullmatch(answer) if isinstance(answer, str) else None
        if match is None or _SURROGATE.search(answer) is not None:  # cannot be encoded as a key
            raise own_key.answered(answer, "an absolute URL")
        return UrlParts(*match.groups(default=""))

    return change
