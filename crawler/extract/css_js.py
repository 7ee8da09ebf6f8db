"""Links in style sheets, in scripts and in JSON.

Style sheets: `url()`, `src()`, `@import`, the strings of `image-set()`, by a tokenizer of the relevant parts
(https://www.w3.org/TR/css-syntax-3/) that reads each byte once. Scripts and JSON: strings that look like URLs. These guesses
have their own hop (`X`) and are off by default: many such URLs do not exist, and the operators of servers complain. Web app
manifests are JSON with known members.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

from anabranch.crawler.extract.links import EMBED, NAVIGATION, SPECULATIVE, Reference


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
_ESCAPE = r"\\(?:[0-9a-f]{1,6}(?:\r\n|[ \t\r\n\f])?|[^\r\n\f0-9a-f])"
_STRING_ESCAPE = r"\\(?:[0-9a-f]{1,6}(?:\r\n|[ \t\r\n\f])?|\r\n|.)?"
_IN_DOUBLE = rf'"(?:[^"\\\n\r\f]++|{_STRING_ESCAPE})*+'
_IN_SINGLE = rf"'(?:[^'\\\n\r\f]++|{_STRING_ESCAPE})*+"
#: A string ends at its quote, or with the style sheet. One that the end of a line cuts off is broken, and no link.
_STRING = rf"""(?:{_IN_DOUBLE}(?:"|\Z)|{_IN_SINGLE}(?:'|\Z))"""
_BROKEN_STRING = f"(?:{_IN_DOUBLE}|{_IN_SINGLE})"
#: Where a name can begin: behind no part of another, nor the sign of an id or a rule. `<!--` is a token that means nothing.
_START = r"(?:(?<![\w\x80-\U0010ffff#@-])|(?<=<!--)(?<!\\<!--))"
#: A URL without quotes. A quote, a bracket, a space or a control character in it makes a bad one, which ends at the next
#: closing bracket (https://www.w3.org/TR/css-syntax-3/#consume-remnants-of-bad-url). Browsers do not load it.
_BARE_URL = rf"""(?:[^"'()\\ \t\r\n\f\x01-\x08\x0b\x0e-\x1f\x7f]++|{_ESCAPE})++"""
_URL_TOKEN = rf"""{_name("url")}\([ \t\r\n\f]*+(?!["'])
        (?:(?P<bare>{_BARE_URL})[ \t\r\n\f]*+(?:\)|\Z)|(?:[^)\\]++|\\.?)*+\)?)"""

#: The tokens of a style sheet. The groups are the links, and the beginning of an image-set.
_TOKEN = re.compile(
    rf"""{_COMMENT}
    |{_STRING}|{_BROKEN_STRING}
    |@{_name("import")}(?![\w\x80-\U0010ffff\\-]){_SPACE}(?P<imported>{_STRING})
    |@{_name("namespace")}(?![\w\x80-\U0010ffff\\-])(?:[^;"'{{}}]++|{_STRING}|{_BROKEN_STRING})*+
    |(?=[us\\i-]){_START}(?:(?:{_name("url")}|{_name("src")})\([ \t\r\n\f]*+(?P<quoted>{_STRING})
        |{_URL_TOKEN}
        |(?P<set>(?:-webkit-)?{_name("image-set")}\())
    |{_ESCAPE}(?:[\w\x80-\U0010ffff-]++|{_ESCAPE})*+""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
#: The tokens of an image-set: strings and URLs are links, except the string of a `type()`.
_IN_SET = re.compile(
    rf"""{_COMMENT}
    |(?P<string>{_STRING})|{_BROKEN_STRING}
    |{_START}{_URL_TOKEN}
    |(?P<open>{_START}type\([^)]*+|\()
    |(?P<close>\))
    |(?P<end>[;{{}}])""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_CSS_ESCAPE = re.compile(
    r"\\(?:([0-9a-f]{1,6})(?:\r\n|[ \t\r\n\f])?|(\r\n|[\r\n\f])|(.)|\Z)", re.IGNORECASE | re.DOTALL
)
_QUOTES = "\"'"


def css_links(text: str) -> Iterator[Reference]:
    """The links of a style sheet, or of a `style` attribute, in order. Cost: about 70 ms a MB.

    `data:` URLs, and parts of the document itself (`url(#id)`), are left out.
    """
    position = 0
    while (token := _TOKEN.search(text, position)) is not None:
        position = token.end()
        if token["set"]:
            position, urls = _image_set(text, position)
        else:
            urls = [token["imported"] or token["quoted"] or token["bare"]]
        for url in urls:
            if url and (plain := _unescaped(url)) and plain[0] != "#" and plain[:5].lower() != "data:":
                yield plain, EMBED, "css"


def _image_set(text: str, position: int) -> tuple[int, list[str]]:
    """Read an image-set that began before `position`: where it ends, and its URLs."""
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
    r"""https?://[^/?#]+\.[^/?#]+|//[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:[:/?#]|$)|\.{0,2}/[\w%~.\x80-\U0010ffff-]*[a-z0-9\x80-\U0010ffff]
    |[\w%~.-]+(?:/[\w%~.-]+)*\.(?:html?|xhtml|php|aspx?|jsp|cgi|js|mjs|css|json|xml|rss|atom|txt|pdf|png|jpe?g|gif|svg|webp|avif
    |ico|bmp|tiff?|mp[34]|m4[av]|m3u8|mpe?g|mov|avi|flv|wm[av]|og[agv]|wav|webm|swf|vtt|woff2?)(?:[?#]|$)""",
    re.IGNORECASE | re.VERBOSE,
)
#: Two halves of one character, a character by its number, the end of a line, any other character, or the end of the text.
_SCRIPT_ESCAPE = re.compile(
    r"""\\(?:u(?P<high>d[89ab][0-9a-f]{2})\\u(?P<low>d[c-f][0-9a-f]{2})
    |u(?P<unit>[0-9a-f]{4})|u\{0*(?P<number>[0-9a-f]{1,6})\}|x(?P<byte>[0-9a-f]{2})
    |(?P<end>\r\n|[\n\r\u2028\u2029])|(?P<plain>.)|\Z)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
#: Escapes that are spaces; other characters stand for themselves.
_SPACES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
#: In place of numbers that no character has. A string with it is no URL.
_NO_CHARACTER = 0xDFFF
#: Half of a character that JSON writes as two numbers.
_SURROGATE = re.compile("[\ud800-\udfff]")
#: A string may hold a script or a JSON text, whose strings are escaped again.
_ESCAPED_TIMES = 3


def speculative_links(text: str) -> Iterator[Reference]:
    """The strings of a script or of a JSON text that look like URLs, in order. Cost: linear, about 20 ms a MB.

    Escapes are undone first, so strings in strings are found, too: the HTML of a JSON text, JSON in a script. A string with
    half a surrogate pair is no URL.
    """
    for _ in range(_ESCAPED_TIMES):
        if "\\" not in text:
            break
        text = _SCRIPT_ESCAPE.sub(_script_character, text)
    for quoted in _QUOTED.finditer(text):
        if is_likely(string := quoted[1]) and not _SURROGATE.search(string):
            yield string.replace("&amp;", "&"), SPECULATIVE, "script"


def is_likely(text: str) -> bool:
    """Whether a text looks like a URL. Media types, numbers, names and sentences do not."""
    return _LIKELY.match(text) is not None


def _script_character(escape: re.Match[str]) -> str:
    match escape.lastgroup:
        case "plain":
            return _SPACES.get(escape["plain"], escape["plain"])
        case "low":
            return chr(0x10000 + ((int(escape["high"], 16) - 0xD800) << 10) + int(escape["low"], 16) - 0xDC00)
        case None | "end":  # of the text, or of a line
            return ""
        case number:
            return chr(value if (value := int(escape[number], 16)) <= sys.maxunicode else _NO_CHARACTER)


#: A JSON object with one of these is a web app manifest (https://www.w3.org/TR/appmanifest/).
_MANIFEST_SIGNS = frozenset({"icons", "start_url", "short_name", "display"})
#: Members that hold resources (`{"src": …}`), those that hold a page, and those that hold objects with such members.
_MANIFEST_IMAGES = ("icons", "screenshots", "splash_screens")
_MANIFEST_PAGES = ("start_url", "url")
_MANIFEST_OBJECTS = ("shortcuts", "file_handlers", "widgets")
_MAX_MANIFEST_ITEMS = 1000


def manifest_links(text: str) -> Iterator[Reference]:
    """The icons, screenshots and pages of a web app manifest; none of any other text. Raises nothing."""
    if not text.lstrip().startswith("{"):
        return
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        return
    if _MANIFEST_SIGNS.isdisjoint(manifest):
        return
    parts = chain.from_iterable(_items(manifest.get(name)) for name in _MANIFEST_OBJECTS)
    for part in (manifest, *parts):
        if isinstance(part, dict):
            yield from _manifest_part_links(part)


def _manifest_part_links(part: dict[str, Any]) -> Iterator[Reference]:
    """The links of a manifest, or of an object in it."""
    for name in _MANIFEST_IMAGES:
        for image in _items(part.get(name)):
            url = image.get("src") if isinstance(image, dict) else image
            if isinstance(url, str) and url:
                yield url, EMBED, f"manifest/{name}"
    for name in _MANIFEST_PAGES:
        if isinstance(url := part.get(name), str) and url:
            yield url, NAVIGATION, f"manifest/{name}"


def _items(value: Any) -> list[Any]:
    """The items of a list, or of an object, which old manifests have (`"icons": {"16": "a.png"}`)."""
    items = list(value.values()) if isinstance(value, dict) else value
    return items[:_MAX_MANIFEST_ITEMS] if isinstance(items, list) else []
