"""Source tags: which of the operator's seeds led to a URL.

A URL carries its seed's number in the seed book as the Frontier's payload, two bytes for most jobs: the book keeps its order
for ever, so a number means the same seed in every run. What is found on a page has the page's payload; so has the target of a
redirect, also of a seed's.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.crawler.jobs.seeds import Seed


class SourceTags:
    """Numbers of seeds, and back. Memory: a reference a seed. Seeds are noted in the book's order, redirects included."""

    def __init__(self, seeds: Iterable[Seed] = ()) -> None:
        self._urls: list[str] = []
        self._numbers: dict[str, int] = {}
        self.note(seeds)

    def note(self, seeds: Iterable[Seed]) -> None:
        """Seeds that were added to the book, in its order; what is known already stays as it is."""
        for seed in seeds:
            if seed.url not in self._numbers:
                self._numbers[seed.url] = len(self._urls)
                self._urls.append(seed.url)

    def payload_of(self, seed: str) -> bytes | None:
        """What a seed's candidate carries; None if it is in no book."""
        number = self._numbers.get(seed)
        return None if number is None else number.to_bytes(max((number.bit_length() + 7) // 8, 1), "big")

    def tag_of(self, payload: bytes | None) -> str | None:
        """The seed that a lease's payload names; None if it names none."""
        if not payload:
            return None
        number = int.from_bytes(payload, "big")
        return self._urls[number] if number < len(self._urls) else None
