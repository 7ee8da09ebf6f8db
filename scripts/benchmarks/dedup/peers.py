"""Other filters that a Python program can ask whether a key was seen: pybloom-live, rbloom, a set.

Each is made for the same number of keys and the same rate, answers for each key of a batch as the UniqFilter does, and is
called in the fastest way that does so. None of them lasts beyond the process unless it is saved as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pybloom_live  # type: ignore[import-untyped]
import rbloom
import xxhash

from scripts.benchmarks.dedup.keys import Call, Keys

_RATE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A peer."""

    name: str
    what: str
    make: Callable[
        [int], tuple[Call, Call]
    ]  #: for so many keys: the call for new keys (test and set), and for known ones
    times: float | None = None  #: how many times as fast the UniqFilter is meant to be, at least


def _pybloom(expected: int) -> tuple[Call, Call]:
    bloom = pybloom_live.BloomFilter(capacity=expected, error_rate=_RATE)
    return lambda batch: [not bloom.add(key) for key in batch], lambda batch: [key not in bloom for key in batch]


def _rbloom(expected: int) -> tuple[Call, Call]:
    return tested_then_updated(rbloom_with_xxh3(expected))


def _salted_rbloom(expected: int) -> tuple[Call, Call]:
    return tested_then_updated(rbloom.Bloom(expected, _RATE))


def _set(_: int) -> tuple[Call, Call]:
    return tested_then_updated(set())


def rbloom_with_xxh3(expected: int) -> rbloom.Bloom:
    """An rbloom for so many keys that can be saved."""
    return rbloom.Bloom(expected, _RATE, _signed_128)


def tested_then_updated(held: Any) -> tuple[Call, Call]:
    """The calls of what has `in` and `update`; both answer for each key."""

    def ask(batch: Keys) -> list[bool]:
        return [key not in held for key in batch]

    def ask_and_add(batch: Keys) -> list[bool]:
        new = ask(batch)
        held.update(batch)
        return new

    return ask_and_add, ask


def _signed_128(key: bytes) -> int:
    """A hash that is the same in every process: rbloom saves no filter without one."""
    return xxhash.xxh3_128_intdigest(key) - (1 << 127)


PEERS = (
    Peer(name="pybloom-live", what="pybloom-live, BloomFilter", make=_pybloom, times=5.0),
    Peer(name="rbloom", what="rbloom, with XXH3 (can be saved)", make=_rbloom),
    Peer(name="rbloom-salted", what="rbloom, with hash() (cannot)", make=_salted_rbloom),
    Peer(name="set", what="a Python set (exact, ~150 bytes a key)", make=_set),
)
