"""Finds the encoding of a document, decodes it, and encodes the queries of its links.

The order is that of browsers (https://html.spec.whatwg.org/#determining-the-character-encoding): byte order mark, header, a
`meta` in the first 1,024 bytes, XML declaration, a later `meta`. Without any, Firefox's detector guesses, unless it is UTF-8.
Labels are those of the Encoding Standard (https://encoding.spec.whatwg.org/#names-and-labels).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from itertools import groupby
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
#: How an XML declaration begins in UTF-16.
_WIDE_XML = MappingProxyType({encoding: "<?x".encode(encoding) for encoding in ("utf-16le", "utf-16be")})
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_CSS_CHARSET = re.compile(rb'\A@charset "([^"]{1,100})";')
#: How far the standard searches for a `meta`, and how far we do where it finds none: browsers read such a page a second time.
_PRESCAN_BYTES, _LATE_BYTES = 1024, 1 << 20
#: In a larger document of two bytes a character, what Python does not know is U+FFFD: it costs up to 0.7 µs a byte.
_REPAIRED_BYTES = 1 << 20
#: A byte that is no ASCII, or the beginning of ISO-2022-JP.
_TELLING = re.compile(rb"[\x80-\xff]|\x1b[$(]")
#: So much from there on shows whether a page is UTF-8. The detector reads the beginning of it, at 0.15 µs a byte.
_CHECKED_BYTES, _GUESSED_BYTES = 64 * 1024, 16 * 1024
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
#: Encodings with two bytes for a character, and the first bytes that are used to encode one: not those of characters that have
#: another place, too (https://encoding.spec.whatwg.org/#index-shift_jis-pointer, #index-big5-pointer).
_LEADS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "shift_jis": (*range(0x81, 0xA0), *range(0xE0, 0xED), 0xEF, *range(0xFA, 0xFD)),
        "euc-jp": (0x8E, *range(0xA1, 0xFF)),
        "euc-kr": tuple(range(0x81, 0xFF)),
        "big5": tuple(range(0xA1, 0xFF)),
        **dict.fromkeys(["gbk", "gb18030"], tuple(range(0x81, 0xFF))),
    }
)
_TRAILS = (*range(0x40, 0x7F), *range(0x80, 0xFF))
#: Characters of Big5 that are encoded by the last of their places.
_LAST_IN_BIG5 = frozenset("═╞╡╪十卅")
#: ISO-2022-JP: an escape sequence, and what it holds for, which ends with its line.
_ISO_2022_JP = re.compile(rb"\x1b(\$[@B]|\([BIJ])([^\x1b\r\n]*+)")
_TO_EUC = bytes(byte | 0x80 if 0x21 <= byte <= 0x7E else byte for byte in range(256))

#: Python's text -> the standard's, where its codecs differ: a box in the place of a letter, a wave in that of a tilde.
_IN_GB18030: Mapping[int, str | int] = dict(
    zip(
        (0xE5E5, *range(0xE78D, 0xE797), 0xE7C7, 0xE81E, 0xE826, 0xE82B, 0xE82C, 0xE832, 0xE843, 0xE854, 0xE864),
        "\u3000\ufe10\ufe12\ufe11\ufe13\ufe14\ufe15\ufe16\ufe17\ufe18\ufe19\u1e3f"
        "\u9fb4\u9fb5\u9fb6\u9fb7\u9fb8\u9fb9\u9fba\u9fbb",
        strict=True,
    )
)
_DIFFERENCES: Mapping[str, Mapping[int, str | int]] = MappingProxyType(
    {
        "koi8-u": str.maketrans("╝╬", "ўЎ"),
        "x-mac-cyrillic": str.maketrans("¢∂", "Ґґ"),
        "euc-jp": str.maketrans("〜‖\u2212¢£¬", "\uff5e∥\uff0d\uffe0\uffe1\uffe2"),
        "shift_jis": dict.fromkeys(range(0xF8F0, 0xF8F4), "\ufffd"),
        "big5": str.maketrans("•､‾\u223c♁☉¥¢£", "‧﹑¯\uff5e⊕⊙\uffe5￠\uffe1"),
        "gbk": _IN_GB18030,
        "gb18030": _IN_GB18030,
    }
)
#: Bytes that Python does not decode -> what they are in the standard: a control character, or a Hebrew point.
_CONTROLS = {0xDC00 + byte: byte for byte in range(0x80, 0xA0)}
_UNDECODED: Mapping[str, Mapping[int, int]] = MappingProxyType({"windows-1255": _CONTROLS | {0xDCCA: 0x5BA}})
_UNDECODED_PAIRS: Mapping[str, Mapping[bytes, str]] = MappingProxyType(
    {
        "shift_jis": {b"\x80": "\x80"},
        "gbk": {b"\x80": "€"},
        "gb18030": {b"\x80": "€"},
        "big5": {
            **{bytes((0xA3, 0xC0 + number)): chr(0x2400 + number) for number in range(32)},
            b"\xa3\xe0": "␡",
            b"\xa3\xe1": "€",
        },
    }
)
_SURROGATE = re.compile("[\udc80-\udcff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
#: Each byte as it stands in a query (https://url.spec.whatwg.org/#query-state, special schemes).
_IN_QUERIES = tuple(
    f"%{byte:02X}" if byte in b"\"#<>'" or not 0x21 <= byte <= 0x7E else chr(byte) for byte in range(256)
)


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
    if encoding == "iso-2022-jp":
        body, encoding = _ISO_2022_JP.sub(_in_euc_jp, body), "euc-jp"
    codec = _CODECS.get(encoding, encoding)
    if encoding in (UTF_8, *_UTF_16):
        return body.decode(codec, "replace")
    try:
        text = body.decode(codec)
    except UnicodeDecodeError:
        if encoding in _LEADS:
            text = body.decode(codec, f"anabranch.{encoding}" if len(body) <= _REPAIRED_BYTES else "replace")
        else:
            text = body.decode(codec, "surrogateescape").translate(_UNDECODED.get(encoding, _CONTROLS))
            text = _SURROGATE.sub("\ufffd", text)
    differences = _DIFFERENCES.get(encoding)
    return text if differences is None else text.translate(differences)


def _in_euc_jp(part: re.Match[bytes]) -> bytes:
    """A part of a text in ISO-2022-JP, in EUC-JP, which has the same characters."""
    mode, text = part.groups()
    if mode == b"(I":  # narrow Katakana
        return b"".join(b"\x8e%c" % (byte | 0x80) if 0x21 <= byte <= 0x5F else b"%c" % byte for byte in text)
    return text.translate(_TO_EUC) if mode.startswith(b"$") else text


def _added_to_jis() -> Mapping[bytes, str]:
    """The characters that NEC and IBM added to JIS X 0208, such as ①, by their bytes in EUC-JP.

    Python has them in its codec for Shift_JIS only, where two rows share a first byte.
    """
    found = {}
    for row in (13, *range(89, 93)):
        for cell in range(1, 95):
            trail = cell + 0x9E if row % 2 == 0 else cell + 0x3F + (cell > 63)
            lead = (row + 1) // 2 + (0x80 if row < 63 else 0xC0)
            char = bytes((lead, trail)).decode("cp932", "replace")
            if len(char) == 1 and char != "\ufffd":
                found[bytes((0xA0 + row, 0xA0 + cell))] = char
    return found


def _decodes_the_rest(known: Mapping[bytes, str], leads: Collection[int]) -> Callable[[UnicodeError], tuple[str, int]]:
    """Make the handler of what a codec of two bytes cannot decode: by `known`, else U+FFFD for one or both."""

    def handled(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeDecodeError):
            raise error
        found = error.object[error.start : error.start + 2]
        for part in (found, found[:1]):
            if (char := known.get(part)) is not None:
                return char, error.start + len(part)
        return "\ufffd", error.start + (2 if found[0] in leads and found[1:] > b"\x7f" else 1)

    return handled


for _encoding in _LEADS:
    _known = _added_to_jis() if _encoding == "euc-jp" else _UNDECODED_PAIRS.get(_encoding, {})
    _firsts = (0x8E, 0x8F, *range(0xA1, 0xFF)) if _encoding == "euc-jp" else range(0x81, 0xFF)
    codecs.register_error(f"anabranch.{_encoding}", _decodes_the_rest(_known, frozenset(_firsts)))


def query_in(encoding: str) -> Callable[[str], str] | None:
    """Make the function that encodes the query of a link in the page's encoding; None if that is UTF-8.

    Characters that the encoding lacks become `&#N;` (https://url.spec.whatwg.org/#query-state). The rest of the link is not
    changed, nor is a text that is too long for a URL.
    """
    if encoding in (UTF_8, "replacement", *_UTF_16):
        return None

    def encoded(link: str) -> str:
        if link.isascii() or "?" not in link or len(link) > MAX_URL_CHARS:
            return link
        address, mark, fragment = link.partition("#")
        address, question, query = address.partition("?")
        return f"{address}{question}{_NOT_ASCII.sub(lambda run: _percent(run[0], encoding), query)}{mark}{fragment}"

    return encoded


def _percent(run: str, encoding: str) -> str:
    """Characters outside ASCII as they stand in a query."""
    known = _encoder(encoding)
    if encoding != "iso-2022-jp":
        return "".join([known.get(char) or _unknown_in_query(char, encoding) for char in run])
    parts = (
        (is_known, [known.get(char) or _unknown_in_query(char, encoding) for char in part])
        for is_known, part in groupby(run, known.__contains__)
    )
    return "".join(f"%1B$B{''.join(part)}%1B(B" if is_known else "".join(part) for is_known, part in parts)


def _unknown_in_query(char: str, encoding: str) -> str:
    """A character that an encoding lacks. GB18030 has the rest of Unicode in four bytes."""
    if encoding == "gb18030" and not _SURROGATES.match(char):
        return _in_query(char.encode(encoding))
    return f"%26%23{ord(char)}%3B"


def _in_query(data: bytes) -> str:
    return "".join(map(_IN_QUERIES.__getitem__, data))


@lru_cache(8)
def _encoder(encoding: str) -> Mapping[str, str]:
    """The characters outside ASCII that an encoding has, as they stand in a query, by what `decode` makes of their bytes.

    Python's encoders choose other bytes where a character has two places, and others for what an encoding lacks. Made once:
    20 ms and 3 MB for an encoding of East Asia, of which there are seven.
    """
    if encoding == "iso-2022-jp":
        pairs = _two_bytes("euc-jp", _LEADS["euc-jp"][1:])
        found = {char: bytes((pair[0] & 0x7F, pair[1] & 0x7F)) for char, pair in pairs.items()}
    else:
        singles = {decode(bytes((byte,)), encoding): bytes((byte,)) for byte in range(0xFF, 0x7F, -1)}
        found = singles | _two_bytes(encoding, _LEADS.get(encoding, ()))
    if encoding == "gbk":
        found["€"] = b"\x80"
    if encoding in ("shift_jis", "euc-jp"):
        found |= {"¥": b"\\", "‾": b"~"}
    if (minus := found.get("\uff0d")) and encoding in ("shift_jis", "euc-jp", "iso-2022-jp"):
        found["\u2212"] = minus
    found.pop("\ufffd", None)
    return {char: _in_query(data) for char, data in found.items()}


def _two_bytes(encoding: str, leads: tuple[int, ...]) -> dict[str, bytes]:
    """The characters of two bytes, with the first of these."""
    found: dict[str, bytes] = {}
    for lead in leads:
        pairs = [bytes((lead, trail)) for trail in _TRAILS]
        for char, pair in zip(decode(b"\n".join(pairs), encoding).split("\n"), pairs, strict=True):
            if len(char) == 1 and (char not in found or (encoding == "big5" and char in _LAST_IN_BIG5)):
                found[char] = pair
    return found


def _in_utf8(
    body: bytes, content_type: str, declared_inside: Callable[[bytes], str | None] | None, top_domain: str = ""
) -> Decoded:
    mark = next((mark for mark in _BOMS if body.startswith(mark)), b"")
    body, is_guessed = body[len(mark) :], False
    encoding = _BOMS.get(mark) or encoding_of_label(mime_type(content_type).charset or "")
    if encoding is None and declared_inside is not None:
        encoding = declared_inside(body)
    if encoding is None:
        telling = _TELLING.search(body)
        start = len(body) if telling is None else telling.start()
        encoding = UTF_8 if _is_utf8(body[start : start + _CHECKED_BYTES]) else _guessed(body, start, top_domain)
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
    if (wide := next((encoding for encoding, start in _WIDE_XML.items() if body.startswith(start)), None)) is not None:
        return wide
    found = _in_meta(_COMMENT.sub(b"", body[:_PRESCAN_BYTES]))
    if found is None and (in_xml := _XML_ENCODING.match(body)) is not None:
        found = in_xml[1]
    if found is None and b"charset" in body[:_LATE_BYTES].lower():
        found = _in_meta(_COMMENT.sub(b"", body[:_LATE_BYTES]))
    return None if found is None else _readable_as_ascii(found)


def _in_meta(start: bytes) -> bytes | None:
    """The label in the first `meta` that names an encoding."""
    for meta in _META.finditer(start):
        label: bytes | None = meta[1]
        if label and encoding_of_label(label.decode("latin-1")) is not None:
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


def _is_utf8(text: bytes) -> bool:
    """Whether the first bytes of a page that are no ASCII are UTF-8, perhaps with some bad ones."""
    if text.startswith(b"\x1b"):
        return False  # ISO-2022-JP
    read = text.decode(UTF_8, "replace")
    bad = read.count("\ufffd")
    return not bad or sum(map(len, _NOT_ASCII.findall(read))) - bad > 2 * bad


def _guessed(body: bytes, start: int, top_domain: str) -> str:
    """Firefox's guess (https://github.com/hsivonen/chardetng), by the bytes from `start` on: those before it are ASCII."""
    from chardetng_py import EncodingDetector  # noqa: PLC0415 - few pages need it

    detector = EncodingDetector()
    detector.feed(body[start : start + _GUESSED_BYTES], last=len(body) <= start + _GUESSED_BYTES)
    is_name = top_domain.isascii() and top_domain.replace("-", "").isalnum() and top_domain == top_domain.lower()
    guess = detector.guess(tld=top_domain.encode() if is_name else None, allow_utf8=False)
    return encoding_of_label(guess) or "windows-1252"
