"""Where a page asks to be left for: the header `Refresh` and its twin `<meta http-equiv=refresh>`.

Both have one syntax: https://html.spec.whatwg.org/#shared-declarative-refresh-steps.
"""

from __future__ import annotations

import re

#: A time (of which the standard reads only digits and dots), a separator, the rest.
_REFRESH = re.compile(
    r"[\t\n\f\r ]*+(?:[0-9]++|(?=\.))[0-9.]*+(?=[;,\t\n\f\r ])[\t\n\f\r ]*+[;,]?+[\t\n\f\r ]*+(.+)", re.DOTALL
)
_URL_IS = re.compile(r"url[\t\n\f\r ]*+=[\t\n\f\r ]*+", re.IGNORECASE)
_QUOTES = ("'", '"')


def refresh_url(text: str) -> str | None:
    """The URL as it is written; None if none is named: then the page asks to be loaded again, or nothing is asked at all."""
    refresh = _REFRESH.match(text)
    if refresh is None:
        return None
    rest = refresh[1]
    if (name := _URL_IS.match(rest)) is not None:
        rest = rest[name.end() :]
    elif rest[:1] in "uU":
        return rest  # a path that begins like `url=`; quotes in it are its own
    if rest[:1] in _QUOTES:
        rest = rest[1:].partition(rest[0])[0]
    return rest or None
