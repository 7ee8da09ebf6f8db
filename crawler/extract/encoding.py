"""Finds the encoding of a document, decodes it, and encodes the queries of its links.

The order is that of browsers (https://html.spec.whatwg.org/#determining-the-character-encoding): byte order mark, header, a
`meta` in the first 1,024 bytes, XML declaration, a later `meta`. Without any, Firefox's detector guesses, unless it is UTF-8.
Labels are those of the Encoding Standard (https://encoding.spec.whatwg.org/#names-and-labels).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import webencodings

from anabranch.crawler.fetch.mime import mime_type, remembered
from anabranch.crawler.urls.parsing import MAX_URL_CHARS

UTF_8 = "utf-8"
#: The note of a guess in `crawl.log`; the name of the encoding follows.
GUESSED = "charsetGuess:"

#: A `meta`, up to its end or the first `charset` with a value. Each byte is looked at once.
_META = re.compile(
    rb"<meta[\s/](?:[^>c]++|c(?!harset\s*+=\s*+[\"']?+\s*+[^\s;\"'/>]))*+(?:charset\s*+=\s*+[\"']?+\s*+([^\s;\"'/>]++))?+",
    re.IGNORECASE,
)
_XML_ENCODING = re.compile(rb"<\?xml\s[^>]*?encoding\s*+=\s*+[\"']?+\s*+([\w.:-]{1,100})", re.IGNORECASE)
#: How Unicode begins: with a mark; UTF-16 also with two characters of ASCII, the first a bracket or white space.
_SIGNS = (
    (UTF_8, re.compile(rb"(\xef\xbb\xbf)")),
    ("utf-16le", re.compile(rb"(\xff\xfe|(?=[<\s]\0[!-~\s]\0))")),
    ("utf-16be", re.compile(rb"(\xfe\xff|(?=\0[<\s]\0[!-~\s]))")),
)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_CSS_CHARSET = re.compile(rb'\A@charset "([^"]{1,100})";')
#: How far the standard searches for a `meta`, and how far we do where it finds none: browsers read such a page a second time.
_PRESCAN_BYTES, _LATE_BYTES = 1024, 64 * 1024
#: The detector reads so much. It takes 0.15 µs a byte.
_GUESSED_BYTES = 16 * 1024
_BOMS = MappingProxyType({b"\xef\xbb\xbf": UTF_8, b"\xff\xfe": "utf-16le", b"\xfe\xff": "utf-16be"})
_UTF_16 = ("utf-16le", "utf-16be")
#: Encoding -> Python's codec for it, where that has another name or is another encoding than the one of that name.
_CODECS = MappingProxyType(
    {
        "gbk": "gb18030",
        "shift_jis": "cp932",
        "big5": "big5hkscs",
        "euc-kr": "cp949",
        "windows-874": "cp874",
        "iso-8859-8-i": "iso8859-8",
        "macintosh": "mac-roman",
        "x-mac-cyrillic": "mac-cyrillic",
    }
)
#: Python's text -> the standard's, where its codecs differ: Ukrainian letters in the place of a box and of a sign.
_DIFFERENCES: Mapping[str, Mapping[int, int]] = MappingProxyType(
    {
        "koi8-u": {0x255D: 0x45E, 0x256C: 0x40E},
        "x-mac-cyrillic": {0xA2: 0x490, 0x2202: 0x491},
    }
)
#: Bytes that Python does not decode -> what they are in the standard: a control character, or the euro sign in GBK.
_CONTROLS = {0xDC00 + byte: byte for byte in range(0x80, 0xA0)}
_EURO = {0xDC80: 0x20AC}
_SURROGATE = re.compile("[\udc80-\udcff]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
#: Bytes of a query that stay as they are (https://url.spec.whatwg.org/#query-state, special schemes).
_IN_QUERIES = frozenset(range(0x21, 0x7F)) - frozenset(b"\"#<>'")


class Decoded(NamedTuple):
    """A document as its reader takes it."""

    text: bytes  #: in UTF-8, without a mark; undecodable bytes are U+FFFD
    encoding: str = UTF_8  #: the name in the standard, in lower case
    is_guessed: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """The annotation of `crawl.log`."""
        return (GUESSED + self.encoding,) if self.is_guessed else ()


def html_in_utf8(body: bytes, content_type: str, top_domain: str = "") -> Decoded:
    """Decode a page. `top_domain` of its host, such as `ru`, helps to guess. Cost: only a check if it is UTF-8."""
    return _in_utf8(body, content_type, _declared_by_html, top_domain)


def css_as_text(body: bytes, content_type: str) -> str:
    """Decode a style sheet (https://www.w3.org/TR/css-syntax-3/#input-byte-stream)."""
    return _in_utf8(body, content_type, _declared_by_css).text.decode(UTF_8, "replace")


def plain_as_text(body: bytes, content_type: str) -> str:
    """Decode a document whose format has no declaration of an encoding."""
    return _in_utf8(body, content_type, None).text.decode(UTF_8, "replace")


@remembered(64)
def encoding_of_label(label: str) -> str | None:
    """The encoding that the standard knows by this label, in any case; None for an unknown label."""
    found = webencodings.lookup(label)
    return None if found is None else str(found.name)


def decode(body: bytes, encoding: str) -> str:
    """Decode a text, without its mark, by an encoding of the standard. Undecodable bytes become U+FFFD, as in browsers."""
    if encoding == "replacement":
        return "\ufffd" if body else ""
    if encoding == "x-user-defined":
        return str(webencodings.decode(body, encoding)[0])
    codec = _CODECS.get(encoding, encoding)
    if encoding in (UTF_8, "iso-2022-jp", *_UTF_16):
        return body.decode(codec, "replace")
    try:
        text = body.decode(codec)
    except UnicodeDecodeError:
        text = body.decode(codec, "surrogateescape").translate(_EURO if codec == "gb18030" else _CONTROLS)
        text = _SURROGATE.sub("\ufffd", text)
    differences = _DIFFERENCES.get(encoding)
    return text if differences is None else text.translate(differences)


def query_in(encoding: str) -> Callable[[str], str] | None:
    """Make the function that encodes the query of a link in the page's encoding; None if that is UTF-8.

    Characters that the encoding lacks become `&#N;` (https://url.spec.whatwg.org/#query-state). The rest of the link is not
    changed, nor is a text that is too long for a URL.
    """
    if encoding in (UTF_8, "replacement", *_UTF_16):
        return None
    codec = encoding if encoding in ("gbk", "x-user-defined") else _CODECS.get(encoding, encoding)

    def encoded(link: str) -> str:
        if link.isascii() or "?" not in link or len(link) > MAX_URL_CHARS:
            return link
        address, mark, fragment = link.partition("#")
        address, question, query = address.partition("?")
        return f"{address}{question}{_NOT_ASCII.sub(lambda run: _percent(run[0], codec), query)}{mark}{fragment}"

    return encoded


def _percent(run: str, codec: str) -> str:
    encoder = webencodings.lookup(codec).codec_info.encode if codec == "x-user-defined" else None
    try:
        data = encoder(run)[0] if encoder else run.encode(codec)
    except UnicodeEncodeError:
        if len(run) > 1:
            return "".join(_percent(char, codec) for char in run)
        return f"%26%23{ord(run)}%3B"
    return "".join([chr(byte) if byte in _IN_QUERIES else f"%{byte:02X}" for byte in data])


def _in_utf8(
    body: bytes, content_type: str, declared_inside: Callable[[bytes], str | None] | None, top_domain: str = ""
) -> Decoded:
    mark = next((mark for mark in _BOMS if body.startswith(mark)), b"")
    body, is_guessed = body[len(mark) :], False
    encoding = _BOMS.get(mark) or encoding_of_label(mime_type(content_type).charset or "")
    if encoding is None and declared_inside is not None:
        encoding = declared_inside(body)
    if encoding is None:
        encoding = UTF_8 if _is_utf8(body) else _guessed(body, top_domain)
        is_guessed = encoding != UTF_8
    if encoding == UTF_8:
        return Decoded(body)
    return Decoded(decode(body, encoding).encode(UTF_8, "replace"), encoding, is_guessed)


def xml_codec(start: bytes, content_type: str) -> tuple[str, bytes, bool]:
    """Python's codec for an XML document, its byte order mark, and whether its encoding is known; UTF-8 if it is not.

    The mark counts before the header, the header before the declaration (RFC 7303). `start` may have a text before that.
    """
    for encoding, sign in _SIGNS:
        if found := sign.match(start):
            return encoding, found[1], True
    in_xml = _XML_ENCODING.search(start, 0, _PRESCAN_BYTES)
    declared = _in_meta(start[:_PRESCAN_BYTES]) if in_xml is None else in_xml[1]
    charset = mime_type(content_type).charset
    known = encoding_of_label(charset or "") or (None if declared is None else _readable_as_ascii(declared))
    if known is None or known == "replacement":
        return UTF_8, b"", not (charset or declared)
    return (UTF_8 if known in _UTF_16 else _CODECS.get(known, known)), b"", True  # it was readable as ASCII


def _declared_by_html(body: bytes) -> str | None:
    found = _in_meta(_COMMENT.sub(b"", body[:_PRESCAN_BYTES]))
    if found is None and (in_xml := _XML_ENCODING.match(body)) is not None:
        found = in_xml[1]
    if found is None and b"charset" in body[:_LATE_BYTES].lower():
        found = _in_meta(_COMMENT.sub(b"", body[:_LATE_BYTES]))
    return None if found is None else _readable_as_ascii(found)


def _in_meta(start: bytes) -> bytes | None:
    """The label in the first `meta` that has one."""
    for meta in _META.finditer(start):
        label: bytes | None = meta[1]
        if label:
            return label
    return None


def _declared_by_css(body: bytes) -> str | None:
    found = _CSS_CHARSET.match(body)
    return None if found is None else _readable_as_ascii(found[1])


def _readable_as_ascii(label: bytes) -> str | None:
    """The encoding of a label that was read as ASCII. UTF-16 means UTF-8 there, as the HTML standard says."""
    encoding = encoding_of_label(label.decode("latin-1"))
    if encoding in _UTF_16:
        return UTF_8
    return "windows-1252" if encoding == "x-user-defined" else encoding


def _is_utf8(body: bytes) -> bool:
    """Whether it is UTF-8, perhaps with some bad bytes, or ASCII."""
    if body.isascii():
        return b"\x1b$" not in body and b"\x1b(" not in body  # else ISO-2022-JP
    text = body[:_LATE_BYTES].decode(UTF_8, "replace")
    bad = text.count("\ufffd")
    return not bad or sum(map(len, _NOT_ASCII.findall(text))) - bad > 2 * bad


def _guessed(body: bytes, top_domain: str) -> str:
    """Firefox's guess (https://github.com/hsivonen/chardetng)."""
    from chardetng_py import EncodingDetector  # noqa: PLC0415 - few pages need it

    detector = EncodingDetector()
    detector.feed(body[:_GUESSED_BYTES], last=len(body) <= _GUESSED_BYTES)
    is_name = top_domain.isascii() and top_domain.replace("-", "").isalnum() and top_domain == top_domain.lower()
    guess = detector.guess(tld=top_domain.encode() if is_name else None, allow_utf8=False)
    return encoding_of_label(guess) or "windows-1252"
