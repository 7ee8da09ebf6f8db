"""Drops URLs that resemble URLs already accepted: dedup's similarity filter, applied after the scope.

It must not remember a URL that the Frontier never received, so the links of a page pass it in two steps:

    kept = await similar.unlike(urls)          URLs in scope go in; nothing is changed
    frontier.finish(lease, outcome, …kept…)    may fail: then nothing was remembered
    await similar.keep(kept)                   remembered from now on, in memory; `store` writes it to disk

A crash before `store` makes the filter forget: more URLs are accepted, never fewer. Pages that are processed at the same time,
and the chunks of a page with very many links, may each accept one URL of the same kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from pathlib import Path
from typing import Self, TypeVar

from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.outcomes.errors import OrderError, storage_errors
from anabranch.dedup.errors import DedupError
from anabranch.dedup.similarity.filter import SimilarityFilter, SimilarityParameters

T = TypeVar("T")

#: URLs that are compared before other tasks of the event loop run: some ms.
CHUNK = 250


class SimilarUrlFilter:
    """The filter of one job. Its table is read and written in a thread of its own, its bits on the event loop."""

    def __init__(self, known: SimilarityFilter, thread: ThreadPoolExecutor, folder: Path) -> None:
        self._known = known
        self._thread = thread
        self._folder = folder
        self._unstored: list[bytes] = []
        self._storing = asyncio.Lock()

    @classmethod
    async def open(cls, folder: Path, mode: str, expect: int) -> Self:
        """Open or make the filter. `mode`: published or site-bound. Raises: StorageError, OrderError."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="similar")
        parameters = SimilarityParameters(expected=expect, site_bound=mode == "site-bound")
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
        """The number of URLs on disk."""
        return len(self._known)

    def is_similar(self, url: str) -> bool:
        """Whether the URL, or one like it, was accepted. Cost: 10 µs."""
        return self._known.is_similar(url.encode())

    async def unlike(self, urls: Sequence[str]) -> list[str]:
        """The URLs of a page that resemble neither an accepted URL nor a near neighbour on the page; in order. 10 µs each."""
        kept: list[str] = []
        async for chunk in _chunks(urls):
            kept += compress(chunk, (~self._known.are_similar(_keys(chunk))).tolist())
        return kept

    async def keep(self, urls: Sequence[str]) -> None:
        """Remember URLs that the Frontier has received. Other tasks run between chunks. Cost: 10 µs each."""
        async for chunk in _chunks(urls):
            keys = _keys(chunk)
            self._unstored += compress(keys, self._known.mark(keys).tolist())

    async def store(self, durable: Callable[[], Awaitable[object]]) -> None:
        """Write the kept URLs to disk, after `durable` has made the Frontier durable. Raises: StorageError."""
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
        """Close the file. What was not stored is forgotten."""
        async with self._storing:
            try:
                await _in(self._thread, self._known.close)
            finally:
                self._thread.shutdown(wait=False)


async def open_similar_filter(state: Path, section: ScopeSection) -> SimilarUrlFilter | None:
    """Open the filter of the job's state folder; None if the order asks for none. Raises: as `SimilarUrlFilter.open`."""
    if not section.similar:
        return None
    return await SimilarUrlFilter.open(state / "similar", section.similar, section.similar_expect)


async def _chunks(urls: Sequence[str]) -> AsyncIterator[Sequence[str]]:
    for start in range(0, len(urls), CHUNK):
        yield urls[start : start + CHUNK]
        await asyncio.sleep(0)


def _keys(urls: Sequence[str]) -> list[bytes]:
    return [url.encode() for url in urls]


async def _in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)
