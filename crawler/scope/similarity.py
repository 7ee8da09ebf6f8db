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
from typing import TYPE_CHECKING, Self, TypeVar

from anabranch.crawler.order.frontier import DedupSection
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import OrderError, storage_errors
from anabranch.dedup.errors import BadParameters, DedupError

if TYPE_CHECKING:  # numpy is slow to import, and few crawls have this filter
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
    async def open(cls, folder: Path, parameters: SimilarityParameters) -> Self:
        """Open or make the filter. Raises: StorageError, OrderError."""
        from anabranch.dedup.similarity.filter import SimilarityFilter  # noqa: PLC0415 - as above

        thread = ThreadPoolExecutor(1, thread_name_prefix="similar")
        try:
            with storage_errors(folder):
                known = await _in(thread, lambda: SimilarityFilter.open(folder, parameters))
        except BaseException as error:
            thread.shutdown(wait=False)
            if isinstance(error, DedupError):
                raise OrderError(f"[dedup] similar: {error}") from error
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


def similarity_of(order: CrawlOrder) -> SimilarityParameters | None:
    """The filter that the order asks for, None if it asks for none; [scope] similar is its older name. Raises: OrderError."""
    dedup, scope = order.dedup, order.scope
    if dedup.similar and scope.similar and dedup.similar != scope.similar:
        raise OrderError(
            f"[dedup] similar is {dedup.similar}, [scope] similar is {scope.similar}; leave the second out"
        )
    mode = dedup.similar or scope.similar
    if not mode:
        return None
    if not dedup.similar and dedup.similar_expect not in {DedupSection().similar_expect, scope.similar_expect}:
        raise OrderError("[dedup] similar_expect needs [dedup] similar; [scope] similar has its own similar_expect")
    from anabranch.dedup.similarity.filter import SimilarityParameters  # noqa: PLC0415 - as above

    try:
        return SimilarityParameters(
            expected=dedup.similar_expect if dedup.similar else scope.similar_expect,
            false_positive=dedup.similar_false_positive,
            features=dedup.similar_features,
            site_bound=mode == "site-bound",
        )
    except BadParameters as error:
        raise OrderError(f"[dedup] similar: {error}") from error


async def open_similar_filter(state: Path, order: CrawlOrder) -> SimilarUrlFilter | None:
    """Open the filter of the job's state folder; None if the order asks for none. Raises: as `SimilarUrlFilter.open`."""
    parameters = similarity_of(order)
    return None if parameters is None else await SimilarUrlFilter.open(state / "similar", parameters)


async def _chunks(urls: Sequence[str]) -> AsyncIterator[Sequence[str]]:
    for start in range(0, len(urls), CHUNK):
        yield urls[start : start + CHUNK]
        await asyncio.sleep(0)


def _keys(urls: Sequence[str]) -> list[bytes]:
    return [url.encode() for url in urls]


async def _in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)
