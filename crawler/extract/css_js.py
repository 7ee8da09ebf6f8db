"""Links in style sheets and in scripts, found by patterns.

Style sheets: `url()`, `src()`, `@import`, the strings of `image-set()`, by a tokenizer of the relevant parts
(https://www.w3.org/TR/css-syntax-3/) that reads each byte once. Scripts and JSON: strings that look like URLs. These guesses
have their own hop (`X`) and are off by default: many such URLs do not exist, and the operators of servers complain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from anabranch.crawler.extract.links import EMBED, SPECULATIVE, Reference


def _name(word: str) -> str:
    r"""The pattern of a name. Each letter may be written as an escape (`u\72 l`)."""
    letters = []
    for letter in word:
        codes = "|".join(f"{ord(form):x}" for form in (letter.lower(), letter.upper()))
        own = "" if letter in "abcdef-" else rf"|\\{letter}"  # \c is the start of a number
        letters.append(rf"(?:{re.escape(letter)}|\\0{{0,4}}(?:{codes})(?:\r\n|[ \t\r\n\f])?{own})")
    return "".join(letters)


_COMMENT = r"/\*.*?(?:\*/|\Z)"
_SPACE = rf"(?:[ \t\r\n\f]++|{_COMMENT})*+"
#: A string ends at its quote, or at the end of the line.
_STRING = r"""(?:"(?:[^"\\\n\r\f]++|\\(?:\r\n|.)?)*+(?:"|(?=[\n\r\f])|\Z)
    |'(?:[^'\\\n\r\f]++|\\(?:\r\n|.)?)*+(?:'|(?=[\n\r\f])|\Z))"""
_BARE_URL = r"""(?:[^"'()\\ \t\r\n\f]++|\\(?:[0-9a-f]{1,6}(?:\r\n|[ \t\r\n\f])?|[^\r\n\f0-9a-f]))++"""

#: The tokens of a style sheet. The groups are the links, and the beginning of an image-set.
_TOKEN = re.compile(
    rf"""{_COMMENT}
    |{_STRING}
    |@{_name("import")}(?![\w-]){_SPACE}(?P<imported>{_STRING})
    |@{_name("namespace")}(?![\w-])(?:[^;"'{{}}]++|{_STRING})*+
    |(?<![\w-])(?:{_name("url")}|{_name("src")})\([ \t\r\n\f]*+(?:(?P<quoted>{_STRING})
        |(?P<bare>{_BARE_URL})[ \t\r\n\f]*+(?=\)|\Z))
    |(?<![\w-])(?P<set>(?:-webkit-)?{_name("image-set")}\()
    |\\.""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
#: The tokens of an image-set: strings and URLs are links, except the string of a `type()`.
_IN_SET = re.compile(
    rf"""{_COMMENT}
    |(?P<string>{_STRING})
    |(?P<open>(?<![\w-])(?:{_name("url")}|{_name("src")})\([ \t\r\n\f]*+(?P<bare>{_BARE_URL})?|(?<![\w-])type\([^)]*+|\()
    |(?P<close>\))
    |(?P<end>[;{{}}])""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_CSS_ESCAPE = re.compile(
    r"\\(?:([0-9a-f]{1,6})(?:\r\n|[ \t\r\n\f])?|(\r\n|[\r\n\f])|(.)|\Z)", re.IGNORECASE | re.DOTALL
)
_QUOTES = "\"'"


def css_links(text: str) -> Iterator[Reference]:
    """The links of a style sheet, or of a `style` attribute, in order. Cost: about 70 ms a MB. `data:` URLs are left out."""
    position = 0
    while (token := _TOKEN.search(text, position)) is not None:
        position = token.end()
        if token["set"]:
            position, urls = _image_set(text, position)
        else:
            urls = [token["imported"] or token["quoted"] or token["bare"]]
        for url in urls:
            if url and (plain := _unescaped(url)) and plain[:5].lower() != "data:":
                yield plain, EMBED, "css"


def _image_set(text: str, position: int) -> tuple[int, list[str]]:
    """Where the image-set ends that began before `position`, and the URLs in it."""
    depth = 1
    urls: list[str] = []
    while depth:
        token = _IN_SET.search(text, position)
        if token is None:
            return len(text), urls
        position = token.end()
        if token["end"]:
            break
        if url := token["string"] or token["bare"]:
            urls.append(url)
        depth += bool(token["open"]) - bool(token["close"])
    return position, urls


def _unescaped(url: str) -> str:
    """The text of a string (with its quotes) or of a bare URL."""
    if url[0] in _QUOTES:
        url = url[1:-1] if url[-1] == url[0] and len(url) > 1 else url[1:]
    return _CSS_ESCAPE.sub(_css_character, url) if "\\" in url else url


def _css_character(escape: re.Match[str]) -> str:
    code, _, plain = escape.groups()
    if code is None:
        return plain or ""
    number = int(code, 16)
    is_invalid = number == 0 or 0xD800 <= number <= 0xDFFF or number > 0x10FFFF
    return "�" if is_invalid else chr(number)


#: Text between two quotes without a space or a bracket. The quotes are not consumed: one that ends a string may begin the next.
_QUOTED = re.compile(r"""(?<=["'`])([^"'`\s<>{}|^]{2,1000}+)(?=["'`])""")
#: An absolute URL, one without a scheme, one from the root or from a folder, or a file with a usual ending.
_LIKELY = re.compile(
    r"""https?://[^/?#]+\.[^/?#]+|//[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:[:/?#]|$)|\.{0,2}/[\w%~.-]*[a-z0-9]
    |[\w%~.-]+(?:/[\w%~.-]+)*\.(?:html?|xhtml|php|aspx?|jsp|cgi|js|mjs|css|json|xml|rss|atom|txt|pdf|png|jpe?g|gif|svg|webp|avif
    |ico|mp[34]|webm|woff2?)(?:[?#]|$)""",
    re.IGNORECASE | re.VERBOSE,
)
_SCRIPT_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)


def speculative_links(text: str) -> Iterator[Reference]:
    """The strings of a script or of a JSON text that look like URLs, in order. Cost: linear, about 20 ms a MB."""
    for quoted in _QUOTED.finditer(text):
        string = _SCRIPT_ESCAPE.sub(_script_character, quoted[1]) if "\\" in quoted[1] else quoted[1]
        if _LIKELY.match(string):
            yield string, SPECULATIVE, "script"


def _script_character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return chr(int(code, 16)) if code else escape[3]
