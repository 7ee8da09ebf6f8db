"""The similarity filter of dedup at the end of the scope: of URLs that are alike, only the first are taken.

It cannot be a rule among the others: it remembers, so a URL that was taken is like itself when it is judged again; and it
must not remember what the Frontier never got. So a page's links pass it in two steps:

    kept = await similar.unlike(urls)          what the scope lets in: nothing is changed
    frontier.finish(lease, outcome, …kept…)    may fail: then nothing was remembered
    await similar.keep(kept)                   known from now on, in memory

and when the Frontier has made durable what it was told, `store` writes them down. A crash in between makes the filter forget:
more is taken, never less. Pages that are read at the same time may each let one of the same kind through, and so may the chunks
of a page of very many links.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from pathlib import Path
from typing import Self, TypeVar

from anabranch.crawler.orders.scope import ScopeSection
from anabranch.crawler.outcomes.errors import OrderError, storage_errors
from anabranch.dedup.errors import DedupError
from anabranch.dedup.similarity.filter import Mode, SimilarityFilter, SimilarityParameters

T = TypeVar("T")

#: URLs that are compared before the event loop gets its turn: some ms.
CHUNK = 250


class Similar:
    """The filter of one job. Its table is read and written in a thread of its own, its bits are looked at here."""

    def __init__(self, known: SimilarityFilter, thread: ThreadPoolExecutor, folder: Path) -> None:
        self._known = known
        self._thread = thread
        self._folder = folder
        self._unstored: list[bytes] = []
        self._storing = asyncio.Lock()

    @classmethod
    async def open(cls, folder: Path, mode: str, expect: int) -> Self:
        """Open the filter of this folder, or make it. `mode` is that of the order: published or site-bound.

        Raises: OrderError if the folder was made with other parameters or is in use; StorageError.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="similar")
        parameters = SimilarityParameters(expected=expect, mode=Mode(mode))
        try:
            with storage_errors(folder):
                known = await _in(thread, lambda: SimilarityFilter.open(folder, parameters))
        except BaseException as error:
            thread.shutdown(wait=False)
            if isinstance(error, DedupError):
                raise OrderError(f"[scope] similar: {error}") from error
            raise
        return cls(known, thread, folder)

    def __len__(self) -> int:
        """URLs that are written down."""
        return len(self._known)

    def is_similar(self, url: str) -> bool:
        """Whether it, or URLs like it, were taken. Cost: 10 µs."""
        return self._known.is_similar(url.encode())

    async def unlike(self, urls: Sequence[str]) -> list[str]:
        """Those of a page's URLs that are not like any taken before, nor like another one of the page near it; in order.

        Nothing is remembered. The loop gets its turn after each chunk. Cost: 10 µs per URL.
        """
        kept: list[str] = []
        async for chunk in _chunks(urls):
            kept += compress(chunk, (~self._known.are_similar(_keys(chunk))).tolist())
        return kept

    async def keep(self, urls: Sequence[str]) -> None:
        """Remember URLs that the Frontier was given. The loop gets its turn after each chunk. Cost: 10 µs per URL."""
        async for chunk in _chunks(urls):
            keys = _keys(chunk)
            self._unstored += compress(keys, self._known.mark(keys).tolist())

    async def store(self, durable: Callable[[], Awaitable[object]]) -> None:
        """Write down what was kept until now, once `durable` says that the Frontier has it on the disk.

        Raises: StorageError; the next call tries again.
        """
        async with self._storing:
            count = len(self._unstored)
            if not count:
                return
            await durable()
            urls = self._unstored[:count]
            with storage_errors(self._folder):
                await _in(self._thread, lambda: self._known.store(urls))
            del self._unstored[:count]

    async def close(self) -> None:
        """Let go of the file. What was not stored is forgotten."""
        async with self._storing:
            try:
                await _in(self._thread, self._known.close)
            finally:
                self._thread.shutdown(wait=False)


async def open_similar(state: Path, section: ScopeSection) -> Similar | None:
    """The filter that the order asks for, in the job's state folder; None if it asks for none. Raises: as `Similar.open`."""
    if not section.similar:
        return None
    return await Similar.open(state / "similar", section.similar, section.similar_expect)


async def _chunks(urls: Sequence[str]) -> AsyncIterator[Sequence[str]]:
    for start in range(0, len(urls), CHUNK):
        yield urls[start : start + CHUNK]
        await asyncio.sleep(0)


def _keys(urls: Sequence[str]) -> list[bytes]:
    return [url.encode() for url in urls]


async def _in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)
