"""What looks like a URL in scripts and JSON: a guess, so its links have a hop of their own (`X`) and are off by default.

Guesses make many requests for what does not exist, and the people who run the servers complain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from anabranch.crawler.extracting.links import SPECULATIVE, Reference

CONTEXT = "script"

#: What stands between two quotes without a space or a bracket. Both quotes are only looked at: in code that is not really
#: parsed, a quote that ends one string may begin the next. What is longer is no URL; it is passed over in one step.
_QUOTED = re.compile(r"""(?<=["'`])([^"'`\s<>{}|^]{2,1000}+)(?=["'`])""")
#: An absolute URL, one without a scheme, one from the root or from a folder, or a file with a usual ending.
_LIKELY = re.compile(
    r"""https?://[^/?#]+\.[^/?#]+|//[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:[:/?#]|$)|\.{0,2}/[\w%~.-]*[a-z0-9]
    |[\w%~.-]+(?:/[\w%~.-]+)*\.(?:html?|xhtml|php|aspx?|jsp|cgi|js|mjs|css|json|xml|rss|atom|txt|pdf|png|jpe?g|gif|svg|webp|avif
    |ico|mp[34]|webm|woff2?)(?:[?#]|$)""",
    re.IGNORECASE | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)


def speculative_links(text: str) -> Iterator[Reference]:
    """The strings of a script or of a JSON text that look like URLs, in order. Cost: linear, about 20 ms a MB."""
    for quoted in _QUOTED.finditer(text):
        string = _ESCAPE.sub(_character, quoted[1]) if "\\" in quoted[1] else quoted[1]
        if _LIKELY.match(string):
            yield string, SPECULATIVE, CONTEXT


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return chr(int(code, 16)) if code else escape[3]
