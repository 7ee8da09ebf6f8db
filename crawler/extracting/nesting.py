"""Keeps HTML that is nested like no honest page away from the tree builder.

Building the tree of a document is not linear for every input, by the standard's own rules: open elements are searched at each
tag, unclosed formatting elements are opened again in every paragraph, the attributes of a tag are compared with each other.
Cost grows with the square of what is left open: 50,000 `<div>` take seconds, 2,000 `<b id=…><p>` in 27 KB take 700 MB. So a
document that is large enough to hurt is read once, linearly, and if too much stays open in it, it is flattened: only the tags
that a reader of links needs stay, each closed at once. Honest documents go through untouched.

The measure is strict rather than exact: an end tag closes only the element opened last. Tag soup may be flattened without
need, which loses no links. It is a net for what is known to hurt, not a proof.
"""

from __future__ import annotations

import re
from collections.abc import Collection

#: Below both sizes a document is not looked at: even the worst costs less than half a second and 100 MB.
SMALL_BYTES = 64 * 1024
SMALL_TAGS = 1000
#: Elements open at once, plus end tags that close nothing, that an honest page may have (browsers stop nesting at 512).
MAX_DISORDER = 512
#: Bytes of a tag outside its quotes; what has more is a bomb of attributes and is dropped from a flattened document.
MAX_BARE_BYTES = 2048

#: Elements that may stay open (their next sibling closes them), and those that have no end tag.
_UNCLOSED = frozenset(
    b"p li dd dt tr td th thead tbody tfoot colgroup option "
    b"area base br col embed frame hr img input link meta param source track wbr".split()
)
#: Elements whose content is text, up to their own end tag.
_RAW = frozenset(b"script style title textarea xmp iframe noembed noframes".split())
#: Elements of SVG in which, and of which, `/>` closes an element. Any other one inside an <svg> may lead out of it.
_SVG = frozenset(
    b"svg a animate animatemotion animatetransform circle clippath defs ellipse feblend fecolormatrix fecomposite feflood "
    b"fegaussianblur femerge femergenode feoffset filter g image line lineargradient marker mask metadata mpath path pattern "
    b"polygon polyline radialgradient rect script set stop style switch symbol text textpath title tspan use view".split()
)

#: A comment, or a tag: slash, name, attributes, end. It matches whatever begins like one, so that reading on is linear.
_TAG = re.compile(
    rb"""<!--(?:>|->|.*?(?:--!?>|\Z))
    |<(/?)([a-z][^\s/>]*+)((?:[^>=]++|=\s*+"[^"]*+(?:"|\Z)|=\s*+'[^']*+(?:'|\Z)|=)*+)(>|\Z)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_QUOTED = re.compile(rb"""=\s*+(?:"[^"]*+"|'[^']*+')""")


def tame(body: bytes, needed: Collection[bytes]) -> bytes:
    """The document itself; or its start tags of the `needed` names alone, in order, if it is nested beyond `MAX_DISORDER`.

    The encoding must be one in which ASCII is ASCII. A flattened `frame` is written as `iframe`, since a `frame` counts only
    inside a `frameset`. Templates are not kept apart in a flattened document. Cost: two counts for a small document, else about
    0.8 µs a tag.
    """
    if len(body) <= SMALL_BYTES and body.count(b"<") - body.count(b"</") <= SMALL_TAGS:
        return body
    flat, disorder = _flattened(body, needed)
    return flat if disorder > MAX_DISORDER else body


def _flattened(body: bytes, needed: Collection[bytes]) -> tuple[bytes, int]:
    """The needed start tags, each closed at once; and the disorder of the document."""
    kept: list[bytes] = []
    disorder = Disorder()
    lower = body.lower()
    tags = _TAG.finditer(body)
    while (tag := next(tags, None)) is not None:
        slash, name, attributes, end = tag.groups()
        if not end:  # a comment, or a tag that the end of the document cuts off
            continue
        name = name.lower()
        if len(attributes) > MAX_BARE_BYTES and _is_bomb(attributes):
            disorder.misfits = MAX_DISORDER + 1
            continue
        disorder.note(name, slash != b"", attributes[-1:] == b"/")
        if slash:
            continue
        if name in _RAW:
            content_end = lower.find(b"</" + name, tag.end())
            tags = _TAG.finditer(body, len(body) if content_end < 0 else content_end)
        if name in needed:
            name = b"iframe" if name == b"frame" else name
            kept.append(b"<%b%b></%b>" % (name, attributes, name))
    return b"".join(kept), disorder.peak


def _is_bomb(attributes: bytes) -> bool:
    return len(_QUOTED.sub(b"", attributes)) > MAX_BARE_BYTES


class Disorder:
    """How much a document leaves open, tag by tag: elements that are open at once, and end tags that fit none."""

    __slots__ = ("_deepest", "_has_left_svg", "_open", "_svgs", "misfits")

    def __init__(self) -> None:
        self._open: list[bytes] = []
        self._deepest = 0
        self._svgs = 0
        self._has_left_svg = False
        self.misfits = 0  #: end tags that did not close the element opened last

    @property
    def peak(self) -> int:
        """The most elements open at once, plus the misfits."""
        return self._deepest + self.misfits

    def note(self, name: bytes, closes: bool, closes_itself: bool) -> None:
        """The next tag, its name in lower case."""
        if self._svgs:
            self._has_left_svg = self._has_left_svg or name not in _SVG
        if name in _UNCLOSED:
            return
        if closes:
            self._close(name)
        elif not (closes_itself and self._svgs and not self._has_left_svg):
            self._open.append(name)
            if name == b"svg":
                self._svgs += 1
            self._deepest = max(self._deepest, len(self._open))

    def _close(self, name: bytes) -> None:
        if self._open and self._open[-1] == name:
            self._open.pop()
            if name == b"svg":
                self._svgs -= 1
                self._has_left_svg = self._has_left_svg and self._svgs > 0
        else:
            self.misfits += 1
