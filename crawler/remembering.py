"""Functions of short texts whose answers are remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

T = TypeVar("T")

#: Sites choose what they send: of longer texts nothing is kept.
SHORT_CHARS = 256


def remembered(entries: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Remember the answers to so many short texts, those asked for last; longer ones are worked out each time.

    The function must be pure.
    """

    def decorated(function: Callable[[str], T]) -> Callable[[str], T]:
        known = lru_cache(entries)(function)

        @wraps(function)
        def answer(text: str) -> T:
            return known(text) if len(text) <= SHORT_CHARS else function(text)

        return answer

    return decorated
