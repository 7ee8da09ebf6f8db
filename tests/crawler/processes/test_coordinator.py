"""What the parent does with what its shares say."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeds import Seed, SeedBook
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.processes.channel import Message
from anabranch.crawler.processes.coordinator import Coordinator
from anabranch.crawler.processes.nursery import Nursery
from anabranch.crawler.processes.seedbook import SEED, seed_facts
from anabranch.crawler.run.controller import RunHooks

FOUND = [Seed(url=f"http://{host}.test/", source="redirect", via="http://s.test/") for host in "ab"]


class SlowBook(SeedBook):
    """A book on a disk that waits until it may write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_writing, self.may_write = threading.Event(), threading.Event()

    def add_all(self, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
        self.is_writing.set()
        self.may_write.wait()
        return super().add_all(seeds)


class Told(Coordinator):
    """A parent with such a book, whose shares the test plays."""

    def __init__(self, job: JobFolder, book: SeedBook) -> None:
        outside = RunHooks(notify=print, show=cast("Any", None), force_exit=lambda: None)
        super().__init__(CrawlOrder(), job, (), outside, cast("Nursery", None))
        self._book = book
        self.told: list[str] = []
        self._shares.tell_all = self._tell_all  # type: ignore[method-assign]

    async def _tell_all(self, kind: str, **facts: Any) -> None:
        self.told += [seed["url"] for seed in facts["seeds"]]

    async def hear(self, seed: Seed) -> None:
        await self._handle(0, Message(SEED, {"seeds": seed_facts([seed])}))


async def test_a_seed_of_a_share_that_dies_meanwhile_is_told_to_the_others(tmp_path: Path) -> None:
    """It is in the book, and in the book's order: the numbers of seeds are the same in every share."""
    with JobFolder.open(tmp_path / "job") as job, SlowBook(tmp_path / "seeds.jsonl") as book:
        parent = Told(job, book)
        of_dying, of_other = [asyncio.create_task(parent.hear(seed)) for seed in FOUND]
        await asyncio.to_thread(book.is_writing.wait)
        of_dying.cancel()
        await asyncio.sleep(0)
        book.may_write.set()
        await asyncio.gather(of_dying, of_other, return_exceptions=True)
        assert of_dying.cancelled()
        assert parent.told == [seed.url for seed in book] == [seed.url for seed in FOUND]
