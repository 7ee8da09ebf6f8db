"""The encoding of a document: labels, marks, declarations, guesses; and the queries of its links."""

from __future__ import annotations

import json
import operator
import shutil
from codecs import lookup

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from webencodings.labels import LABELS

from anabranch.crawler.extract.encoding import (
    css_as_text,
    decode,
    encoding_of_label,
    html_in_utf8,
    plain_as_text,
    query_in,
    xml_codec,
)
from anabranch.crawler.extract.html import read_html
from anabranch.crawler.extract.links import ExtractOptions
from anabranch.crawler.urls.parsing import MAX_URL_CHARS, canonical
from tests.acceptance.browser import chromium
from tests.rows import each_row

HTML = "text/html"
ENCODINGS = sorted(set(LABELS.values()))
#: Encoding -> text, and its bytes by the tables of the standard (https://encoding.spec.whatwg.org/#indexes).
SAMPLES = {
    "big5": ("中文網頁", "a4a4a4e5baf4adb6"),
    "euc-jp": ("日本語", "c6fccbdcb8ec"),
    "euc-kr": ("한글똠", "c7d1b1db8c63"),
    "gb18030": ("中\u20ac𠀀", "d6d0a2e3 95328236"),
    "gbk": ("中文\u20ac", "d6d0cec480"),
    "ibm866": ("мир", "aca8e0"),
    "iso-2022-jp": ("日", "1b2442467c1b2842"),
    "iso-8859-10": ("š", "ba"),
    "iso-8859-13": ("ž", "fe"),
    "iso-8859-14": ("ŵ", "f0"),
    "iso-8859-15": ("\u20ac", "a4"),
    "iso-8859-16": ("ș", "ba"),
    "iso-8859-2": ("ž\x85", "be85"),
    "iso-8859-3": ("ĝ", "f8"),
    "iso-8859-4": ("ž", "be"),
    "iso-8859-5": ("мир", "dcd8e0"),
    "iso-8859-6": ("ع", "d9"),
    "iso-8859-7": ("λ\u20ac", "eba4"),
    "iso-8859-8": ("שלום", "f9ece5ed"),
    "iso-8859-8-i": ("שלום", "f9ece5ed"),
    "koi8-r": ("мир", "cdc9d2"),
    "koi8-u": ("мирґў", "cdc9d2adae"),
    "macintosh": ("é\u20ac", "8edb"),
    "replacement": ("\ufffd", "414243"),
    "shift_jis": ("日本\u2460\x80", "93fa967b874080"),
    "utf-16be": ("中", "4e2d"),
    "utf-16le": ("中", "2d4e"),
    "utf-8": ("中", "e4b8ad"),
    "windows-1250": ("ž", "9e"),
    "windows-1251": ("мир\x98", "ece8f098"),
    "windows-1252": ("\u20acé\x81\x8d\x8f\x90\x9d", "80e9818d8f909d"),
    "windows-1253": ("λ\x81\ufffd", "eb81d2"),
    "windows-1254": ("ğ\x8e", "f08e"),
    "windows-1255": ("ש\x81\ufffd", "f981d9"),
    "windows-1256": ("ع", "da"),
    "windows-1257": ("ž\x81", "fe81"),
    "windows-1258": ("ă", "e3"),
    "windows-874": ("ก\x81\ufffd", "a181db"),
    "x-mac-cyrillic": ("жҐґ\u20ac", "e6a2b6ff"),
    "x-user-defined": ("a\uf780", "6180"),
}


def test_there_is_a_sample_of_each_encoding_of_the_standard() -> None:
    """40 names and 228 labels, so that a library that knows fewer is noticed."""
    assert (list(SAMPLES), len(LABELS)) == (ENCODINGS, 228)


@each_row("encoding", ENCODINGS)
def test_bytes_are_read_as_the_standard_says(encoding: str) -> None:
    """Also where Python's codec of that name differs: control characters, the euro sign, Ukrainian letters, all of GB18030."""
    text, data = SAMPLES[encoding]
    assert decode(bytes.fromhex(data), encoding) == text


@each_row("label", [*LABELS, "UTF8", " utf-8 ", "ISO-8859-1\n"])
def test_every_label_names_its_encoding(label: str) -> None:
    """In any case, in the header and in `meta`; UTF-16 is believed to a header only."""
    encoding = encoding_of_label(label)
    assert encoding == LABELS[label.strip().lower()]
    assert html_in_utf8(b"<p>x", f"text/html; charset={label.strip()}").encoding == encoding
    inside = {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252"}.get(encoding, encoding)
    assert html_in_utf8(f"<meta charset='{label.strip()}'><p>x".encode(), HTML).encoding == inside


@each_row("label", ["utf-7", "utf-32", "cp437", "rot13", "idna", "undefined", "unicode_escape", "x", ""])
def test_what_is_no_label_of_the_standard_is_none(label: str) -> None:
    """Python knows many more, some of them dangerous."""
    assert encoding_of_label(label) is None


RUSSIAN = "<p>Привет, мир! Это обычная страница на русском языке."


@each_row(
    ("body", "content_type", "encoding"),
    [
        (b"\xef\xbb\xbf<p>", "text/html; charset=gbk", "utf-8"),
        (b"\xff\xfe<\0p\0", "text/html; charset=gbk", "utf-16le"),
        (b"\xfe\xff\0<\0p", "text/html; charset=gbk", "utf-16be"),
        (b"<meta charset=gbk>", "text/html; charset=big5", "big5"),
        (b"<meta charset=gbk>", "text/html; charset=nonsense", "gbk"),
        (b'<?xml version="1.0" encoding="windows-1251"?><p>', HTML, "windows-1251"),
        (b"<?xml version='1.0' encoding='koi8-r'?><meta charset=gbk>", HTML, "gbk"),
        (b'<?xml version="1.0" encoding="utf-16"?><p>', HTML, "utf-8"),
        (b" " * 1100 + b"<meta charset=gbk>", HTML, "gbk"),
        (b" " * 9000 + b"<META HTTP-EQUIV='Content-Type' CONTENT='text/html; CHARSET=euc-kr'>", HTML, "euc-kr"),
        (b" " * 9000 + b"<Meta Charset=gbk>", HTML, "gbk"),
        (b"<!-- charset --><!-- <meta charset=gbk> -->", HTML, "utf-8"),
        (b" " * (90 << 10) + b"<meta charset=gbk>", HTML, "gbk"),
        (b"charset" + b" " * (1 << 20) + b"<meta charset=gbk>", HTML, "utf-8"),
        ('<?xml version="1.0"?><p>é'.encode("utf-16-le"), HTML, "utf-16le"),
        ('<?xml version="1.0"?><p>é'.encode("utf-16-be"), HTML, "utf-16be"),
        (b"<p>caf\xc3\xa9", HTML, "utf-8"),
        ("<p>déjà vu, où ça \xff".encode() + b"\xff", HTML, "utf-8"),
        (b"<p>plain", HTML, "utf-8"),
        ("é".encode() * (32 << 10) + b"\xff" * (1 << 20), HTML, "utf-8"),
    ],
)
def test_the_first_declaration_counts(body: bytes, content_type: str, encoding: str) -> None:
    """Mark, header, `meta` at the start, XML declaration, a later `meta`; what is UTF-8 but for a bad byte or two is UTF-8."""
    read = html_in_utf8(body, content_type)
    assert (read.encoding, read.notes) == (encoding, ())


@each_row(
    ("body", "encoding"),
    [
        (b"<meta charset><meta charset = ><meta charset=><meta charset='koi8-r'>", "koi8-r"),
        (b"<meta name=charset content='charset'><meta/charset=big5>", "big5"),
        (b"<meta charset=gbk>" + b"<meta charset=big5>" * 1000, "gbk"),
        (b"<meta charset=nonsense><meta charset=gbk>", "gbk"),
        (b"<meta charset=nonsense>", "utf-8"),
        (b"<meta charset=utf-7>+ADw-a href=x+AD4-", "utf-8"),
        (b"<meta charset=utf-16le><a href=x>", "utf-8"),
        (b"<meta charset=hz-gb-2312>~{<a href=x>~}", "replacement"),
        (b"<meta charset=iso-2022-kr><a href=x>", "replacement"),
        (b"<metal charset=gbk><meta x='>' charset=gbk>", "utf-8"),
    ],
)
def test_the_first_meta_with_a_label_counts(body: bytes, encoding: str) -> None:
    """Whatever else a page declares; UTF-7 is no encoding of the web, and what was read as ASCII is no UTF-16."""
    assert html_in_utf8(body, HTML).encoding == encoding


@each_row(
    "piece",
    [
        b"<meta ",
        b"<meta charset",
        b"<meta charset=",
        b"<meta charset= ' ",
        b"charset ",
        b"charset = ",
        b" ",
        b"<?xml encoding= ",
        b"encoding = ",
        b"<!--",
        b"<meta>",
        b"<meta a",
    ],
)
@each_row("start", [b"charset", b" " * 2000 + b"<meta charset=", b"<?xml encoding="])
def test_a_declaration_is_searched_once(start: bytes, piece: bytes) -> None:
    """No byte is looked at from each before it (else this test does not end)."""
    body = start + piece * (64 * 1024 // len(piece))
    html_in_utf8(body + b">", HTML)
    xml_codec(body + b">", "")
    assert css_as_text(body, "text/css")


@each_row(
    ("text", "codec", "encoding", "top_domain"),
    [
        ("<a href=café.html>déjà vu</a>", "cp1252", "windows-1252", ""),
        (RUSSIAN, "windows-1251", "windows-1251", ""),
        (RUSSIAN, "koi8-r", "koi8-u", "ru"),
        ("<p>日本語のページです", "shift_jis", "shift_jis", "jp"),
        ("<p>日本語のページです", "euc-jp", "euc-jp", ""),
        ("<p>日本語のページです", "iso2022_jp", "iso-2022-jp", ""),
        ("<p>한국어 페이지입니다", "cp949", "euc-kr", ""),
        ("<p>这是一个中文网页", "gbk", "gbk", "cn"),
        ("<p>這是一個中文網頁測試", "big5", "big5", "tw"),
        ("<p>Zażółć gęślą jaźń", "iso-8859-2", "iso-8859-2", "pl"),
        ("<p>Ελληνικά κείμενα", "windows-1253", "iso-8859-7", "gr"),
        ("<p>שלום עולם, זה דף בעברית", "windows-1255", "windows-1255", ""),
    ],
)
def test_what_declares_nothing_and_is_no_utf8_is_guessed(text: str, codec: str, encoding: str, top_domain: str) -> None:
    """The log's note names the guess; the text is that of the page."""
    read = html_in_utf8(text.encode(codec), HTML, top_domain)
    assert read.text.decode() == text
    assert read.encoding in (encoding, "gb18030" if encoding == "gbk" else encoding)
    assert read.notes == (f"charsetGuess:{read.encoding}",)


def test_a_guess_reads_16_kib_from_the_first_byte_that_is_no_ascii() -> None:
    """The detector costs more than all else that is done with a page; long scripts at the beginning would tell it nothing."""
    start, rest = RUSSIAN.encode("windows-1251") * 400, RUSSIAN.encode("koi8-r") * 4000
    assert len(start) > 16 << 10
    for before in (b"", b"<script>" + b"x" * (90 << 10) + b"</script>"):
        assert html_in_utf8(before + start + rest, HTML).encoding == "windows-1251"
        assert html_in_utf8(before + "日本語のページ".encode("iso2022_jp"), HTML).encoding == "iso-2022-jp"


def test_a_page_that_declares_nothing_gives_no_url_with_a_character_that_it_lacks() -> None:
    """Its first byte that is no ASCII may stand behind any number of others."""
    page = b"<script>" + b"x" * (90 << 10) + b"</script>" + "<a href='/café.html'>déjà vu</a>".encode("cp1252")
    assert read_html(page, HTML, "http://a.test/", ExtractOptions()).links[0].url == "http://a.test/caf%C3%A9.html"


@each_row(
    ("encoding", "data", "text"),
    [
        ("euc-jp", b"\xad\xa1\xad\xea\xf9\xd3 \xa1\xc1\xa1\xdd\xa1\xf1", "①㈱叝 ～－￠"),  # noqa: RUF001 - wide
        ("euc-jp", b"\x8e\xb1\x8f\xb0\xa1 \xad\xfe\xff", "ｱ丂 \ufffd\ufffd"),
        ("iso-2022-jp", b"\x1b$B-!!A\x1b(B~\x1b(I1\x1b(J~\x1b$@F|\n~", "①～~ｱ~日\n~"),  # noqa: RUF001 - wide
        ("big5", b"\xa1E\xa3\xe1\xa3\xc0\xa4\xa4", "‧€␀中"),
        ("big5", b"\x80\x81\xff\x81<", "\ufffd\ufffd\ufffd<"),
        ("euc-kr", b"\x80\xc7\xd1", "\ufffd한"),
        ("gbk", b"\xa3\xa0\xa6\xd9\xa8\xbc\x80", "\u3000\ufe10ḿ€"),
        ("shift_jis", b"\x80\xa0\xfd\x87@", "\x80\ufffd\ufffd①"),
        ("windows-1255", b"\xca\x81", "\u05ba\x81"),
    ],
)
def test_characters_that_pythons_codecs_lack_are_those_of_the_standard(encoding: str, data: bytes, text: str) -> None:
    """NEC's and IBM's characters of Japanese, the euro, wide signs; what the standard does not know is U+FFFD."""
    assert decode(data, encoding) == text


#: Of all pairs of bytes the characters, and of all characters of the first plane what a link's query becomes.
_ASK_CHROMIUM = """encoding => {
    const decoder = new TextDecoder(encoding), pairs = [], queries = [];
    for (let lead = 0x80; lead < 0x100; lead++)
        for (let trail = 0x40; trail < 0x100; trail++) pairs.push(decoder.decode(new Uint8Array([lead, trail])));
    const link = document.createElement("a");
    for (let number = 0x80; number < 0xd800; number++) {
        link.href = "http://a.test/?" + String.fromCharCode(number);
        queries.push(link.search.slice(1));
    }
    return [pairs, queries];
}"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium")
async def test_pairs_of_bytes_and_queries_are_those_of_chromium() -> None:
    """All of them, but for characters of Hong Kong that Python's Big5 lacks, and the first of EUC-JP, which Chromium lacks."""
    async with chromium() as browser:
        page = await browser.new_page()
        for encoding in ("shift_jis", "euc-jp", "gbk", "gb18030", "big5", "euc-kr", "koi8-u", "windows-1255"):
            url = f"data:text/html;charset={encoding},<p>"
            await page.goto(url)
            pairs, queries = await page.evaluate(_ASK_CHROMIUM, encoding)
            ours = [
                decode(bytes((lead, trail)), encoding) for lead in range(0x80, 0x100) for trail in range(0x40, 0x100)
            ]
            encode = query_in(encoding)
            assert encode is not None
            sent = [encode(f"?{chr(number)}")[1:] for number in range(0x80, 0xD800)]
            most = {"big5": 200, "euc-jp": 1}.get(encoding, 0)
            assert sum(map(operator.ne, ours, pairs)) <= most, encoding
            assert sum(map(operator.ne, sent, queries)) <= most, encoding


@each_row("encoding", ["shift_jis", "euc-jp", "iso-2022-jp"])
def test_bad_bytes_by_the_million_are_decoded_by_the_library(encoding: str) -> None:
    """Each costs more than a good one. So one of NEC's characters is known up to 1 MiB."""
    good = {"euc-jp": b"\xad\xa1", "iso-2022-jp": b"\x1b$B-!\x1b(B"}.get(encoding, b"")
    assert decode(good + b"\xff" * 1000, encoding) == "①" * bool(good) + decode(b"\xff" * 1000, encoding)
    assert set(decode(good + b"\xff" * (1 << 20), encoding)) == {"\ufffd"}


@given(st.binary(max_size=300), st.text(max_size=9))
def test_no_bytes_and_no_host_can_stop_a_guess(body: bytes, top_domain: str) -> None:
    """The detector panics at names that are no names: it never sees them."""
    html_in_utf8(b"\xff" + body, HTML, top_domain).text.decode()


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=25)
@given(body=st.binary(max_size=60))
def test_any_bytes_have_a_text_in_any_encoding(encoding: str, body: bytes) -> None:
    """It can be written in UTF-8, and what browsers cannot read is U+FFFD."""
    decode(body, encoding).encode()


def test_style_sheets_and_scripts_have_declarations_of_their_own() -> None:
    """A style sheet's @charset; a script has the header's or none."""
    style = '@charset "windows-1251"; a{background:url(я)}'
    assert css_as_text(style.encode("cp1251"), "text/css").endswith("url(я)}")
    assert plain_as_text("я".encode("koi8-r"), "text/javascript; charset=koi8-r") == "я"


@each_row(
    ("start", "content_type", "codec", "is_known"),
    [
        (b"<a/>", "", "utf-8", True),
        (b"<?xml version='1.0' encoding='gb2312'?>", "", "gb18030", True),
        (b'<?xml encoding = "EUC-JP" ?>', "text/xml", "euc_jp", True),
        (b"<?xml encoding=big5?>", "", "big5hkscs", True),
        (b"PHP\n<?xml version='1.0' encoding='windows-1251'?>", "", "cp1251", True),
        (b"<?xml encoding='big5'?>", "text/xml; charset=euc-kr", "cp949", True),
        (b"<?xml encoding='big5'?>", "text/xml; charset=nonsense", "big5hkscs", True),
        (b"<?xml encoding='nonsense'?>", "", "utf-8", False),
        (b"<?xml encoding='iso-2022-kr'?>", "", "utf-8", False),
        (b"<?xml encoding='utf-16'?>", "", "utf-8", True),
        (b"<a/>", "text/xml; charset=utf-16", "utf-8", True),
        (b"\xef\xbb\xbf<?xml encoding='big5'?>", "text/xml; charset=big5", "utf-8", True),
        (b"\xff\xfe<\0a\0", "text/xml; charset=big5", "utf-16-le", True),
        (b"\xfe\xff\0<\0a", "", "utf-16-be", True),
        (b"<\0?\0x\0", "", "utf-16-le", True),
        (b"\0\n\0<\0a", "", "utf-16-be", True),
        (b"<html><meta charset=gbk>", "application/xhtml+xml", "gb18030", True),
    ],
)
def test_the_encoding_of_xml_is_that_of_its_mark_then_the_header_then_the_declaration(
    start, content_type, codec, is_known
) -> None:
    """RFC 7303. UTF-16 is seen, and never believed of a document that is readable as ASCII."""
    found, _, is_found_known = xml_codec(start, content_type)
    assert (lookup(found).name, is_found_known) == (lookup(codec).name, is_known)


# Queries


def query(link: str, charset: str) -> str:
    text = "".join(char if char.isascii() else f"&#{ord(char)};" for char in link)
    page = f"<a href='{text}'>".encode()
    found = read_html(page, f"text/html; charset={charset}", "http://a.test/", ExtractOptions()).links
    return found[0].url.removeprefix("http://a.test")


@each_row(
    ("link", "charset", "expected"),
    [
        ("/s?q=привет", "windows-1251", "/s?q=%EF%F0%E8%E2%E5%F2"),
        ("/s?q=привет", "koi8-r", "/s?q=%D0%D2%C9%D7%C5%D4"),
        ("/s?q=привет", "utf-8", "/s?q=%D0%BF%D1%80%D0%B8%D0%B2%D0%B5%D1%82"),
        ("/s?q=中文&r=1", "gbk", "/s?q=%D6%D0%CE%C4&r=1"),
        ("/s?q=中文", "gb2312", "/s?q=%D6%D0%CE%C4"),
        ("/s?q=中文", "big5", "/s?q=%A4%A4%A4%E5"),
        ("/s?q=日本", "shift_jis", "/s?q=%93%FA%96{"),
        ("/s?q=日本", "euc-jp", "/s?q=%C6%FC%CB%DC"),
        ("/s?q=日", "iso-2022-jp", "/s?q=%1B$BF|%1B(B"),
        ("/s?q=한", "euc-kr", "/s?q=%C7%D1"),
        ("/s?w=café", "iso-8859-1", "/s?w=caf%E9"),
        ("/café?w=café#é", "iso-8859-1", "/caf%C3%A9?w=caf%E9"),
        ("/s?w=中", "iso-8859-1", "/s?w=%26%2320013%3B"),
        ("/s?w=é中é", "iso-8859-1", "/s?w=%E9%26%2320013%3B%E9"),
        ("/s?w=①～&#12316;", "euc-jp", "/s?w=%AD%A1%A1%C1%26%2312316%3B"),  # noqa: RUF001 - wide
        ("/s?w=①x−", "iso-2022-jp", "/s?w=%1B$B-!%1B(Bx%1B$B!]%1B(B"),  # noqa: RUF001 - the sign of mathematics
        ("/s?w=\u2170¬¥¢&#57344;", "shift_jis", "/s?w=%FA@%26%23172%3B\\%26%23162%3B%26%2357344%3B"),
        ("/s?w=€ǹ&#128512;", "gbk", "/s?w=%80%A8%BF%26%23128512%3B"),
        ("/s?w=€&#128512;", "gb18030", "/s?w=%A2%E3%949%FC6"),
        ("/s?w=€═¢&#13317;", "big5", "/s?w=%A3%E1%F9%F9%26%23162%3B%26%2313317%3B"),
        ("/s?w=ўЎ&#9565;", "koi8-u", "/s?w=%AE%BE%26%239565%3B"),
        ("/s?a=b&amp;c=é", "iso-8859-1", "/s?a=b&c=%E9"),
        ("/s?a=%C3%A9", "iso-8859-1", "/s?a=%C3%A9"),
        ("?é", "iso-8859-1", "/?%E9"),
        ("/s#?é", "iso-8859-1", "/s"),
        ("http://b.test?é", "iso-8859-1", "http://b.test/?%E9"),
    ],
)
def test_a_query_is_encoded_as_its_page(link: str, charset: str, expected: str) -> None:
    """The URL Standard requires it. Paths are always UTF-8; a character that the encoding lacks becomes a reference."""
    assert query(link, charset) == expected


def test_queries_of_a_document_inside_a_page_are_in_the_pages_encoding() -> None:
    """Whether its links have the base of the page or one of their own."""
    for base in ("", "<base href=/b/>"):
        page = f"<iframe srcdoc=\"{base}<a href='?я'>\">".encode("cp1251")
        (link,) = read_html(page, "text/html; charset=windows-1251", "http://a.test/", ExtractOptions()).links
        assert link.url.endswith("?%FF")


def test_a_query_that_is_too_long_for_a_url_is_not_encoded() -> None:
    """Each character may become fifteen."""
    encoded = query_in("windows-1251")
    assert encoded is not None
    longest = "/?" + "\U0001f600" * (MAX_URL_CHARS - 2)
    assert len(encoded(longest)) == 2 + 15 * (MAX_URL_CHARS - 2)
    assert encoded(longest + "x") == longest + "x"
    assert canonical(encoded(longest), "http://a.test/") is None


def test_pages_in_utf16_send_utf8() -> None:
    """Its output encoding is UTF-8; that of *replacement* gives no links at all."""
    page = "<a href='/s?é'>".encode("utf-16-be")
    links = read_html(page, "text/html; charset=utf-16be", "http://a.test/", ExtractOptions()).links
    assert [link.url for link in links] == ["http://a.test/s?%C3%A9"]
    assert not read_html(b"<a href='/x'>", "text/html; charset=iso-2022-kr", "http://a.test/", ExtractOptions()).links


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if query_in(name)])
@settings(max_examples=25)
@given(text=st.text(max_size=20))
def test_every_query_can_be_encoded(encoding: str, text: str) -> None:
    """The answer is ASCII behind the question mark, and nothing before it changes."""
    encode = query_in(encoding)
    assert encode is not None
    text = text.encode("utf-8", "ignore").decode().replace("#", "")
    link = encode(f"é?{text}")
    assert link.startswith("é?")
    assert link[2:].isascii()
    json.dumps(link)
