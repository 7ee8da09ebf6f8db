"""Protects the tree builder from HTML that is nested beyond reason.

Building a tree is not linear for every input, by the standard's own rules: 50,000 `<div>` take seconds, 2,000 `<b id=…><p>` in
27 KB take 700 MB. So a document that is large enough to hurt is scanned once, linearly. If too much stays open in it, it is
flattened: only the tags that the reader of links needs are kept, each closed at once. Honest documents pass unchanged.

The measure is strict: an end tag closes only the element opened last. Tag soup may be flattened without need, which loses no
links. It covers the known attacks and proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from types import MappingProxyType

#: Below both sizes a document is not scanned: the worst that fits (`<b id=1><p><b id=2><p> …`) costs 25 ms and 20 MB.
SMALL_BYTES = 16 * 1024
SMALL_TAGS = 500
#: Above either size a document is not light: reading it may take more than 50 ms.
LIGHT_BYTES = 64 * 1024
LIGHT_TAGS = 3000
#: A larger document is always flattened, and read in pieces of this size.
HUGE_BYTES = 1 << 20
PIECE_BYTES = 256 << 10
#: Elements open at once, plus end tags that close nothing, that an honest page may have (browsers stop nesting at 512).
MAX_DISORDER = 512
#: Formatting elements that a tree builder may have to open again, summed over all tags, for each tag and for any document.
REOPENED_PER_TAG = 2
REOPENED_ALWAYS = 50_000
#: Bytes of a tag outside its quotes. A tag with more is an attribute bomb and is dropped from a flattened document.
MAX_BARE_BYTES = 2048

#: Elements whose content is kept in a flattened document, and how much of it.
_KEPT_RAW = frozenset({b"style", b"title"})
MAX_STYLE_BYTES = 1 << 20

#: Elements that may stay open (their next sibling closes them), and those that have no end tag.
_UNCLOSED = frozenset(
    b"p li dd dt tr td th thead tbody tfoot colgroup option "
    b"area base br col embed frame hr img input link meta param source track wbr".split()
)
#: Elements that are opened again in the next block if they are left open. (Not `a`: the next one closes it.)
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
#: Elements with text as content, up to their own end tag.
_RAW = frozenset(b"script style title textarea xmp iframe noembed noframes".split())
#: SVG elements, which `/>` closes. Any other element inside an <svg> may end it.
_SVG = frozenset(
    b"svg a animate animatemotion animatetransform circle clippath defs ellipse feblend fecolormatrix fecomposite feflood "
    b"fegaussianblur femerge femergenode feoffset filter g image line lineargradient marker mask metadata mpath path pattern "
    b"polygon polyline radialgradient rect script set stop style switch symbol text textpath title tspan use view".split()
)

#: Where other browsers see a document: conditional comments, and elements that are shown where frames are unknown. A flattened
#: document keeps the needed tags in them.
_COMMENT = b"!--"
_CONDITIONAL = b"<!--[if"
_INNER = frozenset({_COMMENT, b"iframe", b"noembed", b"noframes"})
#: A frame counts only inside a `frameset`.
_RENAMED = MappingProxyType({b"frame": b"iframe"})
_NOTHING = re.compile(rb"(?!)")
#: The new name of other elements that are kept for their attributes: this one is allowed anywhere.
_MARKED_NAME = b"i"

#: A comment, or a tag: slash, name, attributes, end. It matches anything that begins like one, so that the scan is linear.
_TAG = re.compile(
    rb"""<!--(?:>|->|.*?(?:--!?>|\Z))
    |<(/?)([a-z][^\s/>]*+)((?:[^>=]++|=\s*+"[^"]*+(?:"|\Z)|=\s*+'[^']*+(?:'|\Z)|=)*+)(>|\Z)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
#: The end of the content of such an element. A copy of the document in lower case would be large.
_RAW_END = MappingProxyType({name: re.compile(b"</" + name, re.IGNORECASE) for name in _RAW})
_QUOTED = re.compile(rb"""=\s*+(?:"[^"]*+"|'[^']*+')""")


def tame(
    body: bytes,
    needed: Collection[bytes],
    huge: int = HUGE_BYTES,
    marked: re.Pattern[bytes] = _NOTHING,
    shared: Disorder | None = None,
) -> Iterable[bytes]:
    """The document itself, or a flattened copy in pieces: its start tags of the `needed` names, in order.

    Of other elements those are kept that have attributes in which `marked` is found, under another name.

    A document is flattened if it is nested beyond `MAX_DISORDER`, if its formatting elements would be opened again too often,
    or if it is larger than `huge`; then pieces are made on demand, so that memory does not grow. The encoding must be a
    superset of ASCII. A `frame` becomes an `iframe`, since it counts only inside a `frameset`; `style` and `title` keep their
    content. Templates are not kept apart. Documents with a `shared` disorder are measured together, and small ones, too: a page
    may hold many. Cost: two counts for a small document, else about 0.8 µs a tag.
    """
    if shared is None and len(body) <= SMALL_BYTES:
        tags = body.count(b"<")
        if tags <= SMALL_TAGS or tags - body.count(b"</") <= SMALL_TAGS:
            return (body,)
    if len(body) > huge or _is_beyond_reason(body, Disorder() if shared is None else shared):
        return _pieces(_needed_tags(body, needed, marked))
    return (body,)


def is_light(body: bytes) -> bool:
    """Whether a tamed document is read within 50 ms, whatever it contains. Cost: a count or two."""
    return len(body) <= SMALL_BYTES or (len(body) <= LIGHT_BYTES and body.count(b"<") <= LIGHT_TAGS)


def _pieces(tags: Iterable[bytes]) -> Iterator[bytes]:
    piece: list[bytes] = []
    size = 0
    for tag in tags:
        piece.append(tag)
        size += len(tag)
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    yield b"".join(piece)


def _is_beyond_reason(body: bytes, disorder: Disorder) -> bool:
    disorder.begin()
    for name, closes, attributes, _ in _tags(body):
        if name != _COMMENT:
            disorder.note(name, closes, attributes[-1:] == b"/", is_bomb=_is_bomb(attributes))
    return disorder.is_beyond_reason


def _is_bomb(attributes: bytes) -> bool:
    return len(attributes) > MAX_BARE_BYTES and len(_QUOTED.sub(b"", attributes)) > MAX_BARE_BYTES


def _needed_tags(
    body: bytes, needed: Collection[bytes], marked: re.Pattern[bytes], *, is_inner: bool = False
) -> Iterator[bytes]:
    """The needed start tags, each closed at once."""
    for name, closes, attributes, content in _tags(body):
        if closes or _is_bomb(attributes):
            continue
        if name in _INNER and not is_inner:
            yield from _needed_tags(content, needed, marked, is_inner=True)
        if name in needed:
            if attributes or name in _KEPT_RAW:
                yield _closed(_RENAMED.get(name, name), attributes, content if name in _KEPT_RAW else b"")
        elif marked.search(attributes):
            yield _closed(_MARKED_NAME, attributes, b"")


def _closed(name: bytes, attributes: bytes, content: bytes) -> bytes:
    return b"<%b%b>%b</%b>" % (name, attributes, content, name)


def _tags(body: bytes) -> Iterator[tuple[bytes, bool, bytes, bytes]]:
    """All tags: name in lower case, whether it is an end tag, attributes, and the content of some elements with text.

    Conditional comments are among them.
    """
    tags = _TAG.finditer(body)
    while (tag := next(tags, None)) is not None:
        slash, name, attributes, end = tag.groups()
        if not end:  # a comment, or a tag that the end of the document cuts off
            if body[tag.start() : tag.start() + len(_CONDITIONAL)].lower() == _CONDITIONAL:
                yield _COMMENT, False, b"", body[tag.start() + len(_CONDITIONAL) : tag.end()]
            continue
        name = name.lower()
        content = b""
        if name in _RAW and not slash:
            closing = _RAW_END[name].search(body, tag.end())
            content_end = len(body) if closing is None else closing.start()
            if name in _KEPT_RAW or name in _INNER:
                content = body[tag.end() : min(content_end, tag.end() + MAX_STYLE_BYTES)]
            tags = _TAG.finditer(body, content_end)
        yield name, slash != b"", attributes, content


class Disorder:
    """Counts, tag by tag, the elements open at once, and the end tags that match none; of several documents, those of all."""

    __slots__ = ("_deepest", "_formatting", "_has_left_svg", "_open", "_reopened", "_svgs", "_tags", "misfits")

    def __init__(self) -> None:
        self._deepest = self._tags = self._reopened = 0
        self.misfits = 0  #: end tags that did not close the element opened last
        self.begin()

    def begin(self) -> None:
        """The next tag is the first of its document."""
        self._open: list[bytes] = []
        self._svgs = 0
        self._formatting = 0  # open ones
        self._has_left_svg = False

    @property
    def peak(self) -> int:
        """The most elements open at once, plus the misfits."""
        return self._deepest + self.misfits

    @property
    def is_beyond_reason(self) -> bool:
        """The document would cost a tree builder more than an honest one."""
        limit = REOPENED_ALWAYS + REOPENED_PER_TAG * self._tags
        return self.peak > MAX_DISORDER or self._reopened > limit

    def note(self, name: bytes, closes: bool, closes_itself: bool, *, is_bomb: bool = False) -> None:
        """Take the next tag, its name in lower case. An attribute bomb is beyond reason by itself."""
        if is_bomb:
            self.misfits = MAX_DISORDER + 1
            return
        self._tags += 1
        self._reopened += self._formatting
        if self._svgs:
            self._has_left_svg = self._has_left_svg or name not in _SVG
        if name in _UNCLOSED:
            return
        if not closes:
            if not (closes_itself and self._svgs and not self._has_left_svg):
                self._open.append(name)
                self._formatting += name in _FORMATTING
                self._svgs += name == b"svg"
                self._deepest = max(self._deepest, len(self._open))
        elif self._open and self._open[-1] == name:
            self._open.pop()
            self._formatting -= name in _FORMATTING
            if name == b"svg":
                self._svgs -= 1
                self._has_left_svg &= self._svgs > 0
        else:
            self.misfits += 1
