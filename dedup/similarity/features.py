"""Features of a URL `u1/u2/…/un`, as a table; a user's own is one entry more, or named `package.module:function`.

Source: the patent on similarity-based URL deduplication: site, directory depth, first directory, tail page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from anabranch.dedup.registered import imported

#: (u1, …, un) of a URL; never empty.
Parts: TypeAlias = tuple[bytes, ...]
#: Bytes are hashed; a number is taken as it is. One feature gives one of the two for all URLs, and always the same.
Feature: TypeAlias = Callable[[Parts], bytes | int]

_SCHEME = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//")
_AFTER_PATH = re.compile(rb"[?#]")


def parts_of(url: bytes, *, drop_query: bool = False) -> Parts:
    """Split a URL at the slashes of its path, bytes as they are; the scheme is dropped.

    The query (and a fragment, if there is one) belongs to un, with its slashes, unless it is dropped. A query right
    after the site follows an empty path `/`.
    """
    scheme = _SCHEME.match(url)
    rest = url[scheme.end() :] if scheme else url
    after = _AFTER_PATH.search(rest)
    if after is None:
        return tuple(rest.split(b"/"))
    path, query = rest[: after.start()], b"" if drop_query else rest[after.start() :]
    *parts, last = (path if b"/" in path else path + b"/").split(b"/")
    return (*parts, last + query)


def site(parts: Parts) -> bytes:
    """The first part, u1."""
    return parts[0]


def depth(parts: Parts) -> int:
    """The number n of parts."""
    return len(parts)


def directory(parts: Parts) -> bytes:
    """u2, empty if there is none."""
    return parts[1] if len(parts) > 1 else b""


def tail(parts: Parts) -> bytes:
    """un, empty if the URL ends in a slash or is a site alone."""
    return parts[-1] if len(parts) > 1 else b""


#: By name. A user's own feature is named `package.module:function`.
FEATURES: dict[str, Feature] = {"site": site, "depth": depth, "directory": directory, "tail": tail}


def feature_named(name: str) -> Feature:
    """The feature of that name, from the table or imported.

    Raises: BadParameters if there is none. So does an imported one that fails for a URL.
    """
    if name in FEATURES:
        return FEATURES[name]
    feature: Feature = imported(name, "feature", FEATURES)
    return feature
