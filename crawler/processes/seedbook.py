"""The job's book of seeds as a share sees it: the parent alone writes, and tells every share what is new."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.processes.channel import Channel

SEED, NOTED = "seed", "noted"


class SharedBook:
    """A copy of the book, in its order. `add` and `add_all` are for other threads than the loop's: they wait for the parent."""

    def __init__(self, seeds: Iterable[Seed], channel: Channel) -> None:
        self._seeds = {seed.url: seed for seed in seeds}
        self._channel = channel
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[Seed]:
        return iter(list(self._seeds.values()))

    def __contains__(self, url: object) -> bool:
        return url in self._seeds

    def after(self, count: int) -> Sequence[Seed]:
        """The seeds after the first `count`."""
        return list(self._seeds.values())[count:]

    def note(self, seeds: Sequence[Seed]) -> None:
        """The parent has these, too."""
        for seed in seeds:
            self._seeds.setdefault(seed.url, seed)

    def add(self, seed: Seed) -> bool:
        """Have a seed written down: durable, and known to every share, when this returns.

        Raises: ChannelClosed, StorageError.
        """
        return bool(self.add_all((seed,)))

    def add_all(self, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
        """The same of several; those that are new."""
        new = tuple(seed for seed in seeds if seed.url not in self._seeds)
        if new:
            asking = self._channel.ask(SEED, seeds=seed_facts(new))
            said = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
            if "error" in said:
                raise StorageError(said["error"])
        return new


def seed_facts(seeds: Iterable[Seed]) -> list[dict[str, Any]]:
    """Seeds as JSON holds them."""
    return [{"url": seed.url, "source": seed.source, "via": seed.via} for seed in seeds]


def seeds_of(facts: Iterable[Mapping[str, Any]]) -> list[Seed]:
    """And back."""
    return [Seed(url=fact["url"], source=fact["source"], via=fact["via"]) for fact in facts]
