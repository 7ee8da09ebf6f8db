"""Matches a path against the patterns of robots.txt rules, tens of thousands at once (RFC 9309, 2.2.2 and 2.2.3).

A pattern matches from the start of a URL's path and query; `*` matches any characters, `$` at the end matches the end. Patterns
and paths are normalised first. The rule with the most octets decides; of equal ones the one that allows.

Rules and URLs both come from the site, so the worst case counts: rules without `*` are looked up in tables; those with `*` are
found by a piece of text that the URL must contain, and matched without backtracking. A URL that costs too much is refused.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

#: The most that one URL may cost: each rule with `*` that is tried costs `_COST_OF_TRY`, each piece `_COST_OF_PIECE`, each
#: character of the path 1. Enough for 2,500 such rules at a path of 100 characters; a millisecond, about.
BUDGET = 500_000
_COST_OF_TRY = 100
_COST_OF_PIECE = 16

#: Characters of the text that finds a rule with `*`, and how many such texts are searched one by one.
_GRAM = 3
_FEW = 32

#: An octet to be escaped: one that is already, or one that is neither unreserved nor reserved; in a URL also `*` and `$`.
_KEPT = r"A-Za-z0-9\-._~:/?#\[\]@!&'()+,;="
_ODD_IN_PATH = re.compile(rf"%[0-9A-Fa-f]{{2}}|[^{_KEPT}%]")
_ODD_IN_PATTERN = re.compile(rf"%[0-9A-Fa-f]{{2}}|[^{_KEPT}%*]")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def rank(octets: int, line: int, *, allows: bool) -> int:
    """The weight of a rule; of several that match, the heaviest decides."""
    return octets << 33 | allows << 32 | line


def allows_by(weight: int) -> bool:
    """Whether the rule of this weight allows."""
    return bool(weight >> 32 & 1)


def line_of(weight: int) -> int:
    """The line of the rule of this weight, from 1."""
    return weight & 0xFFFF_FFFF


def normalised_path(path: str) -> str:
    """Path and query of a URL, normalised for matching; non-ASCII as UTF-8. Linear."""
    if not path.isascii():
        path = path.encode("utf-8", "surrogateescape").decode("latin-1")
    return _ODD_IN_PATH.sub(_escaped, path)


def normalised_pattern(pattern: str) -> str:
    """A pattern, one character per octet (Latin-1), normalised for matching, except `*` and a final `$`. Linear."""
    if pattern.endswith("$"):
        return _ODD_IN_PATTERN.sub(_escaped, pattern[:-1]) + "$"
    return _ODD_IN_PATTERN.sub(_escaped, pattern)


def _escaped(found: re.Match[str]) -> str:
    text = found.group()
    if len(text) == 1:
        return f"%{ord(text):02X}"
    character = chr(int(text[1:], 16))
    return character if character in _UNRESERVED else text.upper()


class _Pieces(NamedTuple):
    """A pattern with `*`, split at them."""

    weight: int
    start: str  #: the path starts with it
    between: tuple[str, ...]  #: then come these, in this order
    end: str | None  #: and the path ends with it; None: any end

    def matches(self, path: str) -> bool:
        """Takes each piece at its first place: if any choice of places matches, this one does. No backtracking."""
        last = len(path) - len(self.end or "")
        if not path.startswith(self.start) or len(self.start) > last or not path.endswith(self.end or ""):
            return False
        at = len(self.start)
        for piece in self.between:
            at = path.find(piece, at, last)
            if at < 0:
                return False
            at += len(piece)
        return True

    def cost(self, path: str) -> int:
        return len(path) + _COST_OF_TRY + _COST_OF_PIECE * min(len(self.between), len(path))


class _Hashed:
    """Texts and their weights in 16 bytes each: a text is kept as its 64-bit hash, salted in each process. O(log texts)."""

    __slots__ = ("_hashes", "_weights")

    def __init__(self, table: Mapping[str, int]) -> None:
        pairs = sorted((hash(text), weight) for text, weight in table.items())
        self._hashes = array("q", [key for key, _ in pairs])
        self._weights = array("Q", [weight for _, weight in pairs])

    def get(self, text: str, default: int) -> int:
        key = hash(text)
        place = bisect_left(self._hashes, key)
        return self._weights[place] if place < len(self._hashes) and self._hashes[place] == key else default

    def __len__(self) -> int:
        return len(self._hashes)


class PatternIndex:
    """The rules of one group. Memory: 16 bytes for a rule without `*` after `compact`, 200 to 400 and its text for another."""

    __slots__ = ("_by_gram", "_exact", "_gram_sizes", "_lengths", "_prefixes", "_starred_bytes")

    def __init__(self) -> None:
        self._prefixes: dict[str, int] | _Hashed = {}
        self._lengths: list[int] | None = []  #: of the prefixes, ascending; None: not computed yet
        self._exact: dict[str, int] | _Hashed = {}
        self._by_gram: dict[str, list[_Pieces]] = {}
        self._gram_sizes: set[int] = set()
        self._starred_bytes = 0

    def add(self, pattern: str, line: int, *, allows: bool) -> None:
        """Add a rule: its normalised pattern, not empty, and its line. O(pattern)."""
        weight, is_anchored = rank(len(pattern), line, allows=allows), pattern.endswith("$")
        if "*" not in pattern and is_anchored:
            _keep_heaviest(self._exact, pattern[:-1], weight)
            return
        start, *rest = pattern.removesuffix("$").split("*") if is_anchored else pattern.split("*")
        end = rest.pop() if is_anchored else ""
        between = tuple(filter(None, rest))
        if not between and not end:
            self._lengths = None
            _keep_heaviest(self._prefixes, start, weight)  # "/fish*" matches what "/fish" matches, but weighs more
            return
        pieces = _Pieces(weight, start, between, end or None)
        gram = max((start, *between, end), key=len)[:_GRAM]
        self._gram_sizes.add(len(gram))
        others = self._by_gram.setdefault(gram, [])
        self._starred_bytes += (200 if others else 400) + len(pattern) + 60 * len(between)
        others.append(pieces)

    def compact(self) -> None:
        """All rules have been added: reduce their memory. O(rules log rules)."""
        self._prefix_lengths()
        if isinstance(self._prefixes, dict):
            self._prefixes = _Hashed(self._prefixes)
        if isinstance(self._exact, dict):
            self._exact = _Hashed(self._exact)

    @property
    def size_bytes(self) -> int:
        """Approximate memory after `compact`."""
        return 16 * (len(self._prefixes) + len(self._exact)) + self._starred_bytes

    def heaviest(self, path: str) -> int | None:
        """The weight of the rule that decides about a normalised path; 0 if none matches; None if it costs over `BUDGET`."""
        best = self._exact.get(path, 0)
        for length in self._prefix_lengths():
            if length > len(path):
                break
            best = max(best, self._prefixes.get(path[:length], 0))
        left = BUDGET
        for gram in self._grams_in(path):
            for pieces in self._by_gram[gram]:
                if pieces.weight <= best:
                    continue
                left -= pieces.cost(path)
                if left < 0:
                    return None
                if pieces.matches(path):
                    best = pieces.weight
        return best

    def _prefix_lengths(self) -> list[int]:
        if self._lengths is None:
            assert isinstance(self._prefixes, dict)
            self._lengths = sorted(set(map(len, self._prefixes)))
        return self._lengths

    def _grams_in(self, path: str) -> list[str]:
        """The texts of rules that the path contains; few are searched one by one."""
        known = self._by_gram
        if len(known) <= _FEW:
            return [gram for gram in known if gram in path]
        found: set[str] = set()
        for size in self._gram_sizes:
            found |= known.keys() & {path[at : at + size] for at in range(len(path) - size + 1)}
        return sorted(found)

    def __len__(self) -> int:
        """Rules that can decide; one that weighs less than another for the same paths is dropped."""
        return len(self._prefixes) + len(self._exact) + sum(map(len, self._by_gram.values()))


def _keep_heaviest(table: dict[str, int] | _Hashed, text: str, weight: int) -> None:
    assert isinstance(table, dict), "rules are added before `compact`"
    if weight > table.get(text, 0):
        table[text] = weight
