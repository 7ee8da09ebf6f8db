"""How links for another share are written: a line of JSON for each page, so that contents can be joined.

    ["https://a.example/page", ["https://b.example/", "L", …], …]

A link is its URL and what follows of key, hops, payload, front, force and precedence, up to the last that says something;
bytes are text of the characters 0 to 255.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from anabranch.frontier.records import Candidate

#: What follows the URL, if nothing is said.
_PLAIN: Final = ("", None, None, False, False, None)


class Consigned(NamedTuple):
    """The links of one page for one share."""

    page: str | None  #: the URL they were found on
    candidates: list[Candidate]


def packed(page: str | None, candidates: Sequence[Candidate]) -> bytes:
    """A page's links as content of a parcel. Cost: 1 to 2 µs a link."""
    return json.dumps([page, *map(_fields, candidates)], separators=(",", ":")).encode() + b"\n"


def unpacked(content: bytes) -> Iterator[Consigned]:
    """The pages of a parcel, in their order."""
    for line in content.splitlines():
        fields: list[Any] = json.loads(line)
        yield Consigned(fields[0], [_candidate(*link) for link in fields[1:]])


def _fields(candidate: Candidate) -> list[Any]:
    url, key, hops, payload, front, force, precedence = candidate
    fields = [url, hops, _text(payload), _text(key), front, force, precedence]
    while len(fields) > 1 and fields[-1] is _PLAIN[len(fields) - 2]:
        fields.pop()
    return fields


def _candidate(url: str, *fields: Any) -> Candidate:
    said: tuple[Any, ...] = fields + _PLAIN[len(fields) :]
    hops, payload, key, front, force, precedence = said
    return Candidate(url, _bytes(key), hops, _bytes(payload), front, force, precedence)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")
