"""The URLs of a `srcset`: the candidates of an image.

By the rules of https://html.spec.whatwg.org/#parsing-a-srcset-attribute, so that commas inside a URL (`data:` above all) and
inside parentheses part nothing. A candidate with descriptors that a browser would not take is a URL all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Commas and spaces before a candidate, then its URL: all up to the next space.
_URL = re.compile(r"[\t\n\f\r ,]*+([^\t\n\f\r ]++)")
#: Its descriptors, up to a comma that stands in no parentheses.
_DESCRIPTORS = re.compile(r"(?:[^(,]++|\([^)]*+\)?)*+,?")


def srcset_urls(text: str) -> Iterator[str]:
    """The URLs of the candidates in order, as they are written. Cost: linear."""
    position = 0
    while (url := _URL.match(text, position)) is not None:
        position = url.end()
        if url[1].endswith(","):
            if bare := url[1].rstrip(","):
                yield bare
            continue
        yield url[1]
        descriptors = _DESCRIPTORS.match(text, position)
        position = descriptors.end() if descriptors is not None else len(text)
