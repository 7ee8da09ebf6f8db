"""References that need no parsing: nothing in them can be written in two ways, so they are, or end, a canonical URL. Pure.

The characters of such a reference stand in canonical URLs as they are; no segment of its path begins with a dot, and before its
end nothing looks like a scheme or a host. Most links of most sites are of this kind.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import NamedTuple

from anabranch.crawler.urls.parsing import WEB

#: Characters of a path that can be written in one way alone.
_SAFE = r"A-Za-z0-9_~!$&'()*+,;=@.-"
#: Segments, none of which begins with a dot, and a query.
_REST = rf"(?:/(?!\.)[:{_SAFE}]*+)*+(?:\?[A-Za-z0-9_~!$&()*+,;=:@./?-]*+)?"
#: A URL that is its own canonical form if its origin is.
_URL = re.compile(rf"(https?://[a-z0-9.:\[\]-]++)(?=/){_REST}")
#: What makes a canonical URL behind an origin: a path; or behind a directory: a name, or more of a path, that is no scheme's.
_PATH = re.compile(rf"(?=/)(?!//){_REST}")
_NAME = re.compile(rf"(?!\.)[{_SAFE}]++{_REST}")
#: What both paths and queries may have, whatever stands before it.
_EVERYWHERE = (string.ascii_letters + string.digits + "_~!$&()*+,;=:@./?-").encode()


def origin_if_plain(text: str) -> str | None:
    """The origin with which the text is a URL that is canonical if its origin is; None if it is no such text."""
    found = _URL.fullmatch(text)
    return None if found is None else found[1]


def is_plain_path(text: str) -> bool:
    """Behind an origin it makes a canonical URL."""
    return _PATH.fullmatch(text) is not None


def is_plain_name(text: str) -> bool:
    """Behind a directory it makes a canonical URL."""
    return _NAME.fullmatch(text) is not None


class Spelling(NamedTuple):
    """A way to write references, and how to look at many of them at once: at a tenth of the price of a look at each."""

    begins: Callable[[str], bool]  #: the text may be a plain one of these; of each text one spelling at most says so
    are_plain: Callable[[Sequence[str]], bool]  #: all of those that begin so are plain; it may say no where they are


def urls_of(origin: str) -> Spelling:
    """Absolute ones, of an origin that is canonical."""
    start = f"{origin}/"

    def are_plain(texts: Sequence[str]) -> bool:
        joined = _joined(texts)
        return joined.count(f"\n{start}") == len(texts) and _are_safe(joined, len(texts))

    return Spelling(methodcaller("startswith", start), are_plain)


def _are_plain_paths(texts: Sequence[str]) -> bool:
    joined = _joined(texts)
    return joined.count("\n/") == len(texts) and "\n//" not in joined and _are_safe(joined, len(texts))


def _are_plain_names(texts: Sequence[str]) -> bool:
    joined = _joined(texts)
    return not any(sign in joined for sign in _NOT_IN_NAMES) and _are_safe(joined, len(texts))


#: Paths, to stand behind an origin.
PATHS = Spelling(methodcaller("startswith", "/"), _are_plain_paths)
#: Names, to stand behind a directory.
NAMES = Spelling(lambda text: not text.startswith(("/", *WEB)), _are_plain_names)
#: With these it may be a scheme, another host, an empty reference, or a step in the tree.
_NOT_IN_NAMES = (":", "\n/", "\n.", "\n?", "\n\n")


def _joined(texts: Sequence[str]) -> str:
    """Each text between two line ends; one that holds a line end is not safe."""
    return "\n".join(("", *texts, ""))


def _are_safe(joined: str, texts: int) -> bool:
    if "/." in joined or not joined.isascii():
        return False
    return len(joined.encode("ascii").translate(None, _EVERYWHERE)) == texts + 1
