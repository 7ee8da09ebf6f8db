"""XML that need not be well-formed: its prolog, its texts, and the bounds of its reader. The faults are in test_sitemaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from anabranch.crawler.extract.xml_reader import (
    MAX_BEFORE_BYTES,
    Prolog,
    XmlReader,
    as_html,
    attributes_of,
    decoded,
    prolog_of,
    xml_text,
)
from tests.rows import each_row

URL = "http://a.test/"


def text_of(body: bytes, most_bytes: int = 1 << 20):
    return xml_text((body,), "", most_bytes)


@each_row(
    ("data", "prolog"),
    [
        (b"<r>", Prolog("r", 0)),
        (b"<RDF:Rdf>", Prolog("rdf", 0)),
        (b"\xef\xbb\xbf <?xml version='1.0'?>\n<!-- <b> --><?p <b>?><r/>", Prolog("r", 47)),
        (b"<!DOCTYPE r [<!ENTITY b '<b>'>]><r>", Prolog("r", 32, subset=(12, 31))),
        (b"<?xml-stylesheet href='&amp;x'?><?xml-stylesheet href='#y'?><r>", Prolog("r", 60, stylesheets=("&x",))),
        (b"PHP Warning: <b>x</b> <rss>", Prolog("rss", 22, 22)),
        (b"<br /><b>Warning</b><urlset>", Prolog("urlset", 20, 20)),
        (b"x" * MAX_BEFORE_BYTES + b"<rss>", Prolog()),
        (b"http://a.test/", Prolog()),
        (b"", Prolog()),
    ],
)
def test_a_prolog_ends_at_the_first_element_of_the_document(data: bytes, prolog: Prolog) -> None:
    """Behind declarations and comments, and behind up to 16 KiB of what a program printed."""
    assert prolog_of(data) == prolog


def test_style_sheets_of_a_prolog_are_bounded() -> None:
    """Before a document there is room for millions."""
    assert len(prolog_of(b"<?xml-stylesheet href='x'?>" * 500 + b"<r>").stylesheets) == 100


@pytest.mark.parametrize(
    ("raw", "attributes", "faults"),
    [
        (b' a="1" B="2"', {b"a": b"1", b"b": b"2"}, 0),
        (b" a='1' b=2 c", {b"a": b"1", b"b": b"2", b"c": b""}, 1),
        (b' a="1" A="2"', {b"a": b"1"}, 1),
        (b' a="1" "', {b"a": b"1"}, 1),
    ],
)
def test_the_first_of_equal_attributes_counts_and_all_faults_of_a_tag_are_one(raw, attributes, faults) -> None:
    """Names are in lower case."""
    counted: Counter[str] = Counter()
    assert (attributes_of(raw, counted), counted["attributes"]) == (attributes, faults)


def test_a_tag_is_read_up_to_64_kib() -> None:
    """Whether its attributes are good or not."""
    many = b"".join(b' a%d="%d"' % (number, number) for number in range(10_000))
    for raw in (many, many + b" b"):
        read = attributes_of(raw, faults := Counter())
        assert sum(map(len, [*read, *read.values()])) < 64 << 10
        assert faults == {"attributes": 1}


@each_row(
    ("raw", "text", "faults"),
    [
        (b"a&amp;b&#38;c&#x26;", "a&b&c&", {}),
        (b"?a=1&b=2&eacute;&nbsp", "?a=1&b=2é&nbsp", {"references": 3}),
        (b"&#0;&#xd800;&#x110000;", "&#0;&#xd800;&#x110000;", {"references": 3}),
        (b"caf\xe9", "caf%E9", {"bytes": 1}),
        (b"a\0\x1fb\tc", "ab\tc", {"controls": 2}),
    ],
)
def test_a_text_has_the_characters_of_its_references(raw: bytes, text: str, faults: dict[str, int]) -> None:
    """Those of HTML, too. What is no reference stays; bad bytes are percent-encoded; controls are left out."""
    counted: Counter[str] = Counter()
    assert decoded(raw, counted) == text
    assert +counted == faults


def test_a_page_loses_prefixes_and_declared_entities() -> None:
    """An HTML parser knows neither; other prefixes stay."""
    page = b'<!DOCTYPE h:html [<!ENTITY x "<a>">]><h:html xmlns:h="http://www.w3.org/1999/xhtml"><h:a/><o:b/></h:html>'
    assert as_html(text_of(page)) == (
        b'<!DOCTYPE h:html ><html xmlns:h="http://www.w3.org/1999/xhtml"><a/><o:b/></html>'
    )


def test_prefixes_of_a_page_are_removed_up_to_a_number() -> None:
    """Each makes the search for tags slower."""
    names = b"".join(b' xmlns:p%d="http://www.w3.org/2000/svg"' % number for number in range(10, 30))
    tags = b"".join(b"<p%d:a/>" % number for number in range(10, 30))
    page = as_html(text_of(b"<svg%b>%b</svg>" % (names, tags)))
    assert (page.count(b"<a/>"), page.count(b":a/>")) == (8, 12)


def test_a_document_is_asked_for_no_more_than_is_read() -> None:
    """A packed one may unpack to any size."""
    asked = []

    def chunks() -> Iterator[bytes]:
        for number in range(1000):
            asked.append(number)
            yield b"x" * 1000

    text = xml_text(chunks(), "", 200_000)
    assert (len(text.data), text.is_cut, len(asked)) == (200_000, True, 201)


def test_a_text_beyond_the_longest_url_is_left_out() -> None:
    """With its element, so that the fault can be counted; alone or behind a comment."""
    for long in (b"x" * 10**6, b"<!-- -->" + b"x" * 10**6, b"<![CDATA[" + b"x" * 10**6 + b"]]>"):
        reader = XmlReader(text_of(b"<r><a>%b</a><a>1</a></r>" % long, 4 << 20), URL, {("r", "a"): True}, ())
        assert [element.text for element in reader] == [None, "1"]


def test_names_of_elements_are_kept_up_to_a_number() -> None:
    """A document may have a million different ones."""
    tags = b"".join(b"<n%d/>" % number for number in range(5_000))
    reader = XmlReader(text_of(b"<r>%b<a>1</a></r>" % tags), URL, {("r", "a"): True}, ())
    assert [element.text for element in reader] == ["1"]
    assert len(reader._names) <= 1000
