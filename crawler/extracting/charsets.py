"""The encoding of a document: byte order mark, then header, then what the document says itself, then UTF-8.

HTML Standard (https://html.spec.whatwg.org/#determining-the-character-encoding), without guessing: what is undeclared is nearly
always UTF-8, and links are nearly always ASCII.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from anabranch.crawler.remembering import remembered

UTF_8 = "utf-8"

_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?\s*([^\s;\"']+)", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[\s/][^>]*?charset\s*=\s*[\"']?\s*([^\s;\"'/>]+)", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_CSS_CHARSET = re.compile(rb'\A@charset "([^"]{1,100})";')
#: How far the standard looks for a `meta` that names the encoding.
_PRESCAN_BYTES = 1024
_BOMS = MappingProxyType({b"\xef\xbb\xbf": UTF_8, b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"})
#: Labels by the codec they mean on the web (https://encoding.spec.whatwg.org/#names-and-labels), those that are seen. Only
#: these can be chosen by a page: Python's registry, which lexbor's own detection asks, has codecs that hide the page or
#: take the square of its length (punycode, unicode_escape, utf-7 …).
_CODECS = MappingProxyType(
    {
        label: codec
        for codec, labels in {
            UTF_8: "utf-8 utf8 unicode-1-1-utf-8",
            "utf-16-le": "utf-16 utf-16le unicode ucs-2",
            "utf-16-be": "utf-16be unicodefffe",
            "cp1252": "windows-1252 cp1252 iso-8859-1 iso8859-1 iso_8859-1 latin1 l1 us-ascii ascii",
            "gb18030": "gb2312 gbk gb18030 x-gbk chinese gb_2312-80",
            "big5hkscs": "big5 big5-hkscs x-x-big5 cn-big5",
            "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji windows-31j",
            "euc_jp": "euc-jp x-euc-jp",
            "iso2022_jp": "iso-2022-jp",
            "cp949": "euc-kr ks_c_5601-1987 ksc5601 windows-949 korean",
            "cp866": "ibm866 cp866 866",
            "koi8_r": "koi8-r koi8 koi",
            "koi8_u": "koi8-u koi8-ru",
            "cp874": "windows-874 tis-620 iso-8859-11",
            "cp1250": "windows-1250 cp1250",
            "cp1251": "windows-1251 cp1251",
            "cp1253": "windows-1253 cp1253",
            "cp1254": "windows-1254 cp1254 iso-8859-9 latin5",
            "cp1255": "windows-1255 cp1255",
            "cp1256": "windows-1256 cp1256",
            "cp1257": "windows-1257 cp1257",
            "cp1258": "windows-1258 cp1258",
            "iso8859_2": "iso-8859-2 iso8859-2 latin2",
            "iso8859_5": "iso-8859-5 iso8859-5 cyrillic",
            "iso8859_7": "iso-8859-7 iso8859-7 greek",
            "iso8859_8": "iso-8859-8 iso-8859-8-i hebrew",
            "iso8859_15": "iso-8859-15 iso8859-15 latin9",
        }.items()
        for label in labels.split()
    }
)


def html_as_utf8(body: bytes, content_type: str) -> bytes:
    """The document in UTF-8, without its mark; what cannot be decoded becomes U+FFFD."""
    return _in_utf8(body, content_type, _META_CHARSET)


def css_as_text(body: bytes, content_type: str) -> str:
    """The style sheet as text (https://www.w3.org/TR/css-syntax-3/#input-byte-stream)."""
    return _in_utf8(body, content_type, _CSS_CHARSET).decode(UTF_8, "replace")


def plain_as_text(body: bytes, content_type: str) -> str:
    """A text that has no place to name its own encoding."""
    return _in_utf8(body, content_type, None).decode(UTF_8, "replace")


def _in_utf8(body: bytes, content_type: str, own: re.Pattern[bytes] | None) -> bytes:
    codec, mark_bytes = _encoding(body, content_type, own)
    body = body[mark_bytes:]
    return body if codec == UTF_8 else body.decode(codec, "replace").encode(UTF_8, "replace")


def _encoding(body: bytes, content_type: str, own: re.Pattern[bytes] | None) -> tuple[str, int]:
    """The codec, and the length of the byte order mark. `own` finds the label that the document gives itself."""
    for mark, codec in _BOMS.items():
        if body.startswith(mark):
            return codec, len(mark)
    if (declared := _codec_of(content_type)) is not None:
        return declared, 0
    inside = own and own.search(_COMMENT.sub(b"", body[:_PRESCAN_BYTES]))
    codec = _CODECS.get(inside[1].decode("latin1").lower(), UTF_8) if inside else UTF_8
    return UTF_8 if codec.startswith("utf-16") else codec, 0  # what can be read like that is not in UTF-16


@remembered(32)  # most sites send one or two
def _codec_of(content_type: str) -> str | None:
    """The codec that a `Content-Type` field names; None if it names none that is known."""
    label = _CHARSET.search(content_type)
    return None if label is None else _CODECS.get(label[1].lower())
