"""Which filter and which store belong together: each keeps the pair's name, and how many openings took both. Pure.

A store that was restored from a copy, or made anew, lacks URLs that the filter beside it knows; they would never be crawled.
The filter's position tells that only after a clean end. So the store notes each opening that takes both, the filter's folder
after it: the filter may be behind, then it is told what it lacks, but never ahead. What cannot be told: a copy that was made
and put back within one opening; and, if a job was copied and both went on, the store of one beside the filter of the other,
where that store was opened as often or more often.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple, Self

from anabranch.frontier.errors import FormatMismatch

#: The name of the store's note.
PAIR = "pair"


class Pair(NamedTuple):
    """What both keep."""

    name: str  #: 32 random hex digits, of the first opening that took both
    openings: int  #: from 1

    def __str__(self) -> str:
        """The text that both keep."""
        return f"{self.name}-{self.openings}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """None for an empty text. Raises: ValueError."""
        if not text:
            return None
        name, _, openings = text.rpartition("-")
        if not name or not openings.isdecimal():
            raise ValueError(text)
        return cls(name, int(openings))


def next_pair(noted: Pair | None, kept: Pair | None) -> Pair:
    """What both keep from this opening on; `noted` by the store, `kept` by the filter.

    A filter that keeps nothing is new, or from before there were pairs: its position is compared all the same. Raises:
    FormatMismatch for a filter that was used with another store, or with a later state of this one.
    """
    if kept is None:
        return Pair(secrets.token_hex(16), 1) if noted is None else Pair(noted.name, noted.openings + 1)
    if noted is None or noted.name != kept.name:
        has = "never saw it" if noted is None else f"belongs to filter {noted.name:.8}"
        raise _mismatch(f"it is filter {kept.name:.8}, the store {has}")
    if kept.openings > noted.openings:
        raise _mismatch(f"it was opened {kept.openings} times, the store {noted.openings} times: that is an older copy")
    return Pair(noted.name, noted.openings + 1)


def _mismatch(why: str) -> FormatMismatch:
    return FormatMismatch(
        f"the filter belongs to another state of the crawl ({why}), and URLs that only it knows would be lost; "
        "restore store and filter from the same copy, or remove the filter, which is then made again from the store"
    )
