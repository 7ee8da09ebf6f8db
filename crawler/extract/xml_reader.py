"""Reads XML that need not be well-formed: what can be read is read, and what is wrong with it is counted.

Servers send sitemaps and feeds with bare `&`, `&eacute;`, bytes of another encoding, tags that are never closed, and a warning
of PHP before `<?xml`. A parser that obeys XML gives up there; libxml2's recovery goes on, but reads `?a=1&b=2` as `?a=1=2`. So
this is a scanner of our own, one pattern that finds the next tag. It expands no entities, loads nothing, keeps no tree. Each
byte is looked at a few times, whatever the document; memory: the document in UTF-8, and `MAX_NESTING` names.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from html.entities import html5
from typing import NamedTuple

from anabranch.crawler.extract.encoding import UTF_8, xml_codec
from anabranch.crawler.urls.parsing import MAX_URL_CHARS, canonical

#: Elements open at once in a document that is read to its end.
MAX_NESTING = 64
#: How much text may precede a document, such as a warning of the server's program.
MAX_BEFORE_BYTES = 16 * 1024
#: Bytes of a tag's attributes that are read, and of a text: characters of a URL may be written as `&#x10FFFF;`.
_MAX_ATTRIBUTES_BYTES = 64 * 1024
_MAX_TEXT_BYTES = 10 * MAX_URL_CHARS
#: Different names that are cached.
_MAX_NAMES = 1000
_DECODED_BYTES = 64 * 1024

#: Roots of sitemaps and feeds, and of pages, in lower case.
SITEMAPS = frozenset({"urlset", "sitemapindex", "rss", "feed", "rdf"})
PAGES = frozenset({"html", "svg", "math"})

_NAME = rb"[A-Za-z_:\x80-\xff][\w:.\x80-\xff-]*+"
#: A whole entry of a sitemap in its usual form; whole elements of feeds that hold no URL; another element of text; a start tag
#: (name, attributes, end); an end tag; anything else that begins with a bracket.
_MARKUP = rb"""<(url|sitemap)>\s*+<loc>([^<]*+)</loc>\s*+
        (?:<(?:lastmod>[^<]*+</lastmod|changefreq>[^<]*+</changefreq|priority>[^<]*+</priority)>\s*+)*+</\1>
    |(?:<(title|description|pubDate|category|dc:creator|dc:date|content:encoded|author|comments|slash:comments|wfw:commentRss
        |summary|updated|published|id|name|lastBuildDate|media:title|media:description)>[^<]*+SECTIONS</\3>\s*+)++
    |<(NAME)>([^<]*+SECTIONS)</\4[ \t\r\n]*+>
    |<(NAME)((?:[^<>"']++|"(?:[^"<]*+"|[^">]*+"|[^"]*+"(?=[\s/>]))|'(?:[^'<]*+'|[^'>]*+'|[^']*+'(?=[\s/>]))|["'])*+)(>?)
    |</(NAME)[^<>]*+>?+
    |<(!--|!\[CDATA\[|[?!])
    |(<)""".replace(b"NAME", _NAME)
_CDATA = rb"(?:<!\[CDATA\[(?:[^\]]++|\](?!\]>))*+\]\]>[^<]*+)*+"
_MARKUPS = re.compile(_MARKUP.replace(b"SECTIONS", _CDATA), re.VERBOSE)
#: For the rest of a document without an end of CDATA, which is searched for once.
_MARKUPS_WITHOUT_CDATA = re.compile(_MARKUP.replace(b"SECTIONS", b""), re.VERBOSE)
# The last group of a match.
_ENTRY, _UNWANTED, _LEAF = 2, 3, 5
_START, _END, _SPECIAL, _STRAY = 8, 9, 10, 11
#: What follows a bracket -> the end of what they begin.
_CDATA_START, _CDATA_END = b"<![CDATA[", b"]]>"
_ENDS = {b"!--": b"-->", b"![CDATA[": _CDATA_END, b"?": b"?>", b"!": b">"}
#: Attributes as most are written.
_GOOD_ATTRIBUTES = re.compile(rb"""(?:\s++[\w:.-]++="[^"<]*+")*+\s*+/?""")
_GOOD_ATTRIBUTE = re.compile(rb"""([\w:.-]++)="([^"]*+)\"""")
_ATTRIBUTE = re.compile(rb"""([^\s=/"'<>]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>]++)))?|[^\s/]""")
_TEXT = re.compile(rb"[^<]*+(?:<(?![A-Za-z_:\x80-\xff/!?])[^<]*+)*+")
_REFERENCE = re.compile(r"&(?:#(?:([0-9]{1,8})|[xX]([0-9a-fA-F]{1,6}));|([A-Za-z][A-Za-z0-9]*);)?")
_PREDEFINED = frozenset({"amp", "lt", "gt", "quot", "apos"})
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BAD_BYTES = re.compile("[\udc80-\udcff]")

#: White space, marks and NUL are ignored before the document.
_IGNORED = re.compile(rb"(?:[\s\0]|\xef\xbb\xbf)*+")
_ROOT = re.compile(rb"<(?:(%b):)?(%b)(?=[\s/>:]|\Z)" % ((rb"[A-Za-z_][\w.-]*+",) * 2))
_DOCTYPE = re.compile(rb"""<!(?:[^<>\["']++|"[^"]*+"|'[^']*+')*+(?:>|\[)""")
#: The inside of a document type, to its end. A comment or instruction that is not closed before the next one begins is text.
_SUBSET = re.compile(
    rb"""(?:[^\]"'<]++|<!--(?:[^<-]++|-(?!->)|<(?!!--))*+-->|<\?(?:[^<?]++|\?(?!>)|<(?!\?))*+\?>|"[^"]*+"|'[^']*+'|<)*+\]\s*+>"""
)
#: The declaration, or the name of a style sheet. Both are often written without the second question mark.
_DECLARATION = re.compile(rb"<\?xml(-stylesheet)?+\s([^<>]*+)>")
#: Where a document begins behind a text; what is in quotes is a part of a script.
_BEGINNING = re.compile(
    rb"(?<![\w\"'`=])<(?:\?xml\s|!doctype\s+html|(?:[\w.-]+:)?(?:urlset|sitemapindex|rss|feed|rdf|html|svg|math)[\s/>])",
    re.IGNORECASE,
)
#: A prefix of XHTML, SVG or MathML.
_PREFIX = re.compile(
    rb"""\sxmlns:([\w.-]+)\s*=\s*["']http://www\.w3\.org/(?:1999/xhtml|2000/svg|1998/Math/MathML)["']"""
)
_MAX_PREFIXES = 8
_MAX_STYLESHEETS = 100
#: What a server's program prints before the document.
_PRINTED = frozenset(
    {"a", "b", "br", "code", "div", "font", "hr", "i"}
    | {"p", "pre", "script", "small", "span", "strong", "style", "table"}
)

#: Elements that mean something else in a namespace of sitemaps: their names get a colon there.
_SPACED = frozenset({"image", "video"})
#: Elements of HTML that have no end tag.
_VOID = frozenset({"br", "hr", "img", "input", "meta", "wbr"})
#: Other elements of sitemaps and feeds that hold a text only.
_OTHER_TEXTS = frozenset(
    {"lastmod", "changefreq", "priority", "title", "pubdate", "category", "language", "ttl", "updated", "published"}
    | {"id", "name", "caption", "duration", "publication_date"}
)

#: A place: the names of the parent and of the element, without prefixes, in lower case.
Place = tuple[str, str]


class Prolog(NamedTuple):
    """The part of a document before its first element."""

    root: str = ""  #: its name without a prefix, in lower case; empty without one
    start: int = 0  #: where its tag begins
    before: int = 0  #: bytes of text before the document
    stylesheets: tuple[str, ...] = ()  #: the `href` of each `<?xml-stylesheet?>`
    subset: tuple[int, int] | None = None  #: where declarations inside the document type begin and end


class XmlText(NamedTuple):
    """An XML document in UTF-8."""

    data: bytes  #: bad bytes are kept
    prolog: Prolog
    has_known_encoding: bool = True
    is_cut: bool = False  #: it was longer

    @property
    def declares(self) -> bool:
        """Whether it declares entities of its own, which are not expanded."""
        start, end = self.prolog.subset or (0, 0)
        return b"<!ENTITY" in self.data[start:end]


def xml_text(chunks: Iterable[bytes], content_type: str, most_bytes: int) -> XmlText:
    """The document of these chunks, of at most `most_bytes` in UTF-8. Cost: 1 ms a MB if it is in UTF-8, else about 10."""
    pieces, size, codec = [], 0, ""
    is_known, decoder = True, None
    for chunk in _with_long_start(chunks):
        piece = chunk
        if not codec:
            codec, mark, is_known = xml_codec(chunk, content_type)
            piece = chunk[len(mark) :]
            if codec != UTF_8:
                decoder = codecs.getincrementaldecoder(codec)(_KEEP_BAD_BYTES)
        if decoder is not None:
            piece = b"".join(
                decoder.decode(piece[at : at + _DECODED_BYTES]).encode(UTF_8, "surrogateescape")
                for at in range(0, len(piece), _DECODED_BYTES)
            )
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            break
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return XmlText(data[:most_bytes], prolog_of(data), is_known, is_cut=size > most_bytes)


def _with_long_start(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same chunks, the first one long enough to show the encoding."""
    start = b""
    rest = iter(chunks)
    while len(start) < _DECODED_BYTES and (chunk := next(rest, None)) is not None:
        start += chunk
    yield start
    yield from rest


def _kept(error: UnicodeError) -> tuple[str, int]:
    """Undecodable bytes become surrogates, as with `surrogateescape`, and those of ASCII stay."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("ascii", "surrogateescape"), error.end


_KEEP_BAD_BYTES = "anabranch.keep"
codecs.register_error(_KEEP_BAD_BYTES, _kept)


def prolog_of(data: bytes) -> Prolog:
    """Find the prolog, also behind a warning that a server's program has printed. Cost: linear."""
    found = _prolog_at(data, 0)
    if found.root and found.root not in _PRINTED:
        return found
    if (beginning := _BEGINNING.search(data, found.start, found.start + MAX_BEFORE_BYTES)) is None:
        return Prolog(stylesheets=found.stylesheets)
    again = _prolog_at(data, beginning.start())
    return again._replace(before=beginning.start(), stylesheets=found.stylesheets + again.stylesheets)


def _prolog_at(data: bytes, position: int) -> Prolog:
    """The prolog that begins at a position. Without a root, its `start` is where something else begins."""
    stylesheets: list[str] = []
    subset = None
    while True:
        position = _IGNORED.match(data, position).end()  # type: ignore[union-attr]  # it matches nothing, too
        if (root := _ROOT.match(data, position)) is not None:
            return Prolog(root[2].decode("ascii").lower(), position, 0, tuple(stylesheets), subset)
        start = position
        if (declared := _DECLARATION.match(data, position)) is not None:
            position = declared.end()
            if declared[1] and len(stylesheets) < _MAX_STYLESHEETS:
                stylesheets += _stylesheet(declared[2])
        elif data.startswith(b"<!--", position):
            position = data.find(b"-->", position) + 3
        elif data.startswith(b"<?", position):
            position = data.find(b"?>", position) + 2
        elif (doctype := _DOCTYPE.match(data, position)) is not None:
            position = doctype.end()
            if doctype[0].endswith(b"["):
                inside = _SUBSET.match(data, position)
                subset = (position - 1, len(data) if inside is None else inside.end() - 1)
                position = subset[1] + 1
        if position <= start:  # neither of these, or one without an end
            return Prolog(start=start, stylesheets=tuple(stylesheets))


def _stylesheet(raw: bytes) -> list[str]:
    """The `href` in a `<?xml-stylesheet?>`; empty if it is a part of the document."""
    attributes = attributes_of(raw.removesuffix(b"?"), Counter())
    href = decoded(attributes.get(b"href", b""), Counter()).strip()
    return [href] if href and not href.startswith("#") else []


def attributes_of(raw: bytes, faults: Counter[str]) -> dict[bytes, bytes]:
    """Attributes as written, by their names in lower case, with prefixes; the first of equal ones counts, as in HTML.

    All faults of a tag count as one.
    """
    if (good := _good_attributes(raw)) is not None:
        return good
    found: dict[bytes, bytes] = {}
    is_bad = len(raw) > _MAX_ATTRIBUTES_BYTES
    for attribute in _ATTRIBUTE.finditer(raw[:_MAX_ATTRIBUTES_BYTES]):
        name, double, single, bare = attribute.groups()
        value = double if double is not None else single
        # No attribute, or one without quotes or a value, or a repeated one.
        is_bad = is_bad or name is None or value is None or name.lower() in found
        if name is not None:
            found.setdefault(name.lower(), (bare or b"") if value is None else value)
    faults["attributes"] += is_bad
    return found


def _good_attributes(raw: bytes) -> dict[bytes, bytes] | None:
    """Attributes that are written as most are; None if one is not, or is repeated."""
    if len(raw) > _MAX_ATTRIBUTES_BYTES or not _GOOD_ATTRIBUTES.fullmatch(raw):
        return None
    pairs = _GOOD_ATTRIBUTE.findall(raw)
    found = {name.lower(): value for name, value in pairs}
    return found if len(found) == len(pairs) else None


def decoded(raw: bytes, faults: Counter[str], *, is_literal: bool = False) -> str:
    """A text without references, unless it `is_literal`. Bad bytes are percent-encoded, control characters left out."""
    try:
        text = raw.decode(UTF_8)
    except UnicodeDecodeError:
        text, bad = _BAD_BYTES.subn(lambda byte: f"%{ord(byte[0]) - 0xDC00:02X}", raw.decode(UTF_8, "surrogateescape"))
        faults["bytes"] += bad
    if "&" in text and not is_literal:
        text = _REFERENCE.sub(lambda reference: _referenced(reference, faults), text)
    if not text.isprintable():
        text, controls = _CONTROLS.subn("", text)
        faults["controls"] += controls
    return text


def _referenced(reference: re.Match[str], faults: Counter[str]) -> str:
    """The character of a reference, those of HTML included; any other text as it is written."""
    decimal, hexadecimal, name = reference.groups()
    if name in _PREDEFINED:
        return html5[name + ";"]
    if name is not None:
        faults["references"] += 1
        return html5.get(name + ";", reference[0])
    if decimal or hexadecimal:
        number = int(decimal) if decimal else int(hexadecimal, 16)
        if 0 < number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF:
            return chr(number)
    faults["references"] += 1
    return reference[0]


def as_html(text: XmlText) -> bytes:
    """An XML page (XHTML, SVG, MathML) as an HTML parser reads it: without declared entities and the prefixes of these."""
    data = text.data
    if text.prolog.subset is not None:
        start, end = text.prolog.subset
        data = data[:start] + data[end:]
    prefixes = sorted(set(_PREFIX.findall(data, 0, text.prolog.start + MAX_BEFORE_BYTES)))[:_MAX_PREFIXES]
    if prefixes:
        data = re.sub(rb"<(/?)(?:%b):" % b"|".join(map(re.escape, prefixes)), rb"<\1", data)
    return data


class Element(NamedTuple):
    """An element that was asked for."""

    place: Place
    attributes: Mapping[bytes, bytes]  #: as written
    text: str | None  #: at its beginning, up to the next tag; None if it is too long, or the document ends in it
    base: str | None  #: of its URLs, by `xml:base`; None: the document's own URL


class XmlReader:
    """Finds the elements in certain places of a document.

    A tag that is not closed is closed by its parent's end, by the next record, and, if it holds a text, by the next of its
    siblings. An end tag without its start is ignored. Reading ends where more than `MAX_NESTING` elements are open.
    """

    def __init__(self, document: XmlText, url: str, wanted: Mapping[Place, bool], records: Collection[str]) -> None:
        """`url`: the document's. `wanted`: places, and whether the text there is wanted.

        `records`: elements that never contain each other.
        """
        self.faults: Counter[str] = Counter()  #: what was wrong -> how often
        self._data = document.data
        self._wanted, self._records = wanted, records
        parents = {parent for parent, _ in wanted}
        self._siblings = {name for _, name in wanted}
        self._is_text = {name for name in self._siblings | _OTHER_TEXTS if name not in parents}
        self._names: dict[bytes, str] = {}
        self._path = [""]
        self._bases: list[tuple[int, str]] = []  # (length of the path at the element, base)
        self._base: str | None = None  # that holds now
        self._url = url
        self._absent: set[bytes] = set()  # ends that the rest of the document does not have
        self._pattern = _MARKUPS
        self._markups = self._pattern.finditer(self._data, document.prolog.start)

    def __iter__(self) -> Iterator[Element]:
        """The elements in their order. Cost: about 1 µs a tag, 2 µs for a whole entry of a sitemap."""
        take: Mapping[int | None, Callable[[re.Match[bytes]], Element | None]] = {
            _ENTRY: self._entry,
            _UNWANTED: self._unwanted,
            _LEAF: self._leaf,
            _START: self._start,
            _END: self._end,
            _SPECIAL: self._special,
            _STRAY: self._stray,
        }
        path = self._path
        while (found := next(self._markups, None)) is not None:
            if (element := take[found.lastindex](found)) is not None:
                yield element
            if len(path) > MAX_NESTING:
                self.faults["nesting"] += 1
                return
        self.faults["tags"] += len(path) > 1

    def _entry(self, found: re.Match[bytes]) -> Element | None:
        record = found[1].decode("ascii")
        if record in self._path:
            self._close_record(record)
        return Element((record, "loc"), {}, self._leaf_text(found[2], 0), self._base)

    def _unwanted(self, _: re.Match[bytes]) -> None:
        """Titles, dates and texts, which are most of a feed. They are whole, so they change nothing."""

    def _leaf(self, found: re.Match[bytes]) -> Element | None:
        raw, text = found.group(4, 5)
        name = self._names.get(raw) or self._name(raw)
        place = (self._path[-1], name)
        if place not in self._wanted:
            if place[0] not in self._is_text:
                return None
            place = self._in_place(name)
        if not self._wanted.get(place):
            return None
        return Element(place, {}, self._leaf_text(text, found.start(5)), self._base)

    def _start(self, found: re.Match[bytes]) -> Element | None:
        raw, tail, end = found.group(6, 7, 8)
        name = self._names.get(raw) or self._name(raw)
        if not end:
            self.faults["tags"] += 1
        if name in self._records and name in self._path:
            self._close_record(name)
        place = (self._path[-1], name)
        if place not in self._wanted and place[0] in self._is_text:
            place = self._in_place(name)
        is_closed = name in _VOID or tail.endswith(b"/")
        attributes, base = self._opened(name, tail, is_closed=is_closed)
        is_text_wanted = self._wanted.get(place)
        if is_text_wanted is None:
            return None
        if not is_text_wanted or is_closed:
            return Element(place, attributes, "", base)
        text, position = self._text(found.end())
        self._markups = self._pattern.finditer(self._data, position)
        return Element(place, attributes, text, base)

    def _opened(self, name: str, tail: bytes, *, is_closed: bool) -> tuple[Mapping[bytes, bytes], str | None]:
        """Open an element, unless it is closed at once; returns its attributes and the base that holds for it."""
        attributes = attributes_of(tail, self.faults) if b"=" in tail else {}
        if not is_closed:
            in_space = name in _SPACED and b"sitemap-" in attributes.get(b"xmlns", b"")
            self._path.append(f"{name}:" if in_space else name)
        if b"xml:base" not in attributes:
            return attributes, self._base
        return attributes, self._based(attributes[b"xml:base"], is_closed=is_closed)

    def _based(self, written: bytes, *, is_closed: bool) -> str:
        """The base by an `xml:base`, which holds for what is in its element, too."""
        outer = self._base or self._url
        base = canonical(decoded(written, self.faults), outer) or outer
        if not is_closed:
            self._bases.append((len(self._path), base))
            self._base = base
        return base

    def _end(self, found: re.Match[bytes]) -> None:
        raw = found[9]
        name, path = self._names.get(raw) or self._name(raw), self._path
        if found[0][-1:] != b">":
            self.faults["tags"] += 1
        if path[-1] == name and not self._bases:  # most are so
            path.pop()
            return
        if path[-1] != name:
            if name in _SPACED and f"{name}:" in path:
                name += ":"
            elif name not in _VOID:
                self.faults["tags"] += 1
        if name in path:
            self._close_at(len(path) - 1 - path[::-1].index(name))

    def _special(self, found: re.Match[bytes]) -> None:
        position = self._behind(found[10], found.end())
        if _CDATA_END in self._absent:
            self._pattern = _MARKUPS_WITHOUT_CDATA
        self._markups = self._pattern.finditer(self._data, position)

    def _stray(self, _: re.Match[bytes]) -> None:
        self.faults["tags"] += 1

    def _close_record(self, name: str) -> None:
        """The record before another one was not closed."""
        self._close_at(self._path.index(name))
        self.faults["tags"] += 1

    def _in_place(self, name: str) -> Place:
        """The place of an element, after closing elements of text that were left open before it."""
        path = self._path
        if name in self._siblings:
            depth = len(path) - 1
            while path[depth] in self._is_text:
                depth -= 1
            if (path[depth], name) in self._wanted:
                self._close_at(depth + 1)
                self.faults["tags"] += 1
        return path[-1], name

    def _close_at(self, depth: int) -> None:
        del self._path[depth:]
        while self._bases and self._bases[-1][0] > depth:
            self._bases.pop()
            self._base = self._bases[-1][1] if self._bases else None

    def _text(self, position: int) -> tuple[str | None, int]:
        """The text that begins there, of CDATA, too, up to the next tag, and where that begins."""
        data, pieces, size = self._data, [], 0
        while True:
            end = _TEXT.match(data, position).end()  # type: ignore[union-attr]  # it matches nothing, too
            size += end - position
            if size <= _MAX_TEXT_BYTES:
                pieces.append(decoded(data[position:end], self.faults))
            position = end
            if data.startswith(_CDATA_START, position):
                end = self._behind(b"![CDATA[", position + len(_CDATA_START))
                size += end - position
                if size <= _MAX_TEXT_BYTES:
                    literal = data[position + len(_CDATA_START) : end].removesuffix(_CDATA_END)
                    pieces.append(decoded(literal, self.faults, is_literal=True))
                position = end
            elif data.startswith(b"<!--", position):
                position = self._behind(b"!--", position + 4)
            else:
                is_whole = size <= _MAX_TEXT_BYTES and position < len(data)
                return ("".join(pieces) if is_whole else None), position

    def _leaf_text(self, raw: bytes, position: int) -> str | None:
        """The text of a whole element, which begins there."""
        if _CDATA_START in raw:
            return self._text(position)[0]
        return decoded(raw, self.faults) if len(raw) <= _MAX_TEXT_BYTES else None

    def _behind(self, sign: bytes, position: int) -> int:
        """The position behind the end of what a sign begins; without an end, that behind the sign itself.

        An end that is missing is searched for once in a document.
        """
        end = _ENDS[sign]
        if end not in self._absent:
            found = self._data.find(end, position)
            if found >= 0:
                self.faults["tags"] += sign == b"!"
                return found + len(end)
            self._absent.add(end)
        self.faults["tags"] += 1
        return position

    def _name(self, raw: bytes) -> str:
        """The name without a prefix, in lower case; with a colon if it means something else with a prefix."""
        prefix, _, local = raw.decode(UTF_8, "replace").lower().rpartition(":")
        name = f"{local}:" if prefix and local in _SPACED else local
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        self._names[raw] = name
        return name
