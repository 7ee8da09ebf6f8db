"""Crawlee's request queue client over a Frontier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from crawlee import Request
from crawlee.storage_clients._base import RequestQueueClient
from crawlee.storage_clients.models import AddRequestsResponse, ProcessedRequest, RequestQueueMetadata

from anabranch.frontier.adapters.crawlee.identity import IDENTITY_FILE, Identity, check_free, identity_in
from anabranch.frontier.adapters.crawlee.queue import FrontierQueue


class FrontierRequestQueueClient(RequestQueueClient):
    """What Crawlee's `RequestQueue` asks; everything is `queue`'s. Its times are of this opening, but for `created_at`."""

    def __init__(
        self,
        queue: FrontierQueue,
        identity: Identity,
        folder: Path | None,
        on_close: Callable[[FrontierRequestQueueClient], None] = lambda _: None,
    ) -> None:
        """`on_close` hears when it was dropped or closed."""
        self._queue = queue
        self._identity = identity
        self._on_close = on_close
        self.folder = folder  #: where it is; None: in memory, dropped or closed
        self._accessed_at = self._modified_at = datetime.now(UTC)
        self._is_dropped = False

    @classmethod
    async def open(
        cls,
        folder: Path | None,
        settings: Mapping[str, object],
        *,
        name: str | None = None,
        on_close: Callable[[FrontierRequestQueueClient], None] = lambda _: None,
    ) -> Self:
        """Open or create the queue in a folder, None: in memory. Raises: as `FrontierQueue.open`."""
        if folder is None:
            return cls(await FrontierQueue.open(None, settings), Identity.new(name), None)
        await asyncio.to_thread(check_free, folder)
        queue = await FrontierQueue.open(folder, settings)
        try:
            return cls(queue, await asyncio.to_thread(identity_in, folder, name), folder, on_close)
        except BaseException:
            await queue.close()
            raise

    @property
    def queue(self) -> FrontierQueue:
        """What it is the face of."""
        return self._queue

    @property
    def id(self) -> str:
        """The queue's id, the same at each opening."""
        return self._identity.id

    @property
    def name(self) -> str | None:
        """The queue's name, if it was made with one."""
        return self._identity.name

    async def close(self) -> None:
        """Write all and let go of the folder."""
        self.folder = None
        self._on_close(self)
        await self._queue.close()

    async def get_metadata(self) -> RequestQueueMetadata:
        """Counts that are exact, retired queues included."""
        handled, pending = (0, 0) if self._is_dropped else (self._queue.handled, self._queue.pending)
        return RequestQueueMetadata(
            id=self.id,
            name=self.name,
            created_at=self._identity.created_at,
            accessed_at=self._accessed_at,
            modified_at=self._modified_at,
            had_multiple_clients=False,
            handled_request_count=handled,
            pending_request_count=pending,
            total_request_count=handled + pending,
        )

    async def drop(self) -> None:
        """Remove the queue and what it wrote; its folder, too, if nothing else is in it."""
        self._is_dropped = True
        folder, self.folder = self.folder, None
        self._on_close(self)
        if folder is not None:
            await asyncio.to_thread((folder / IDENTITY_FILE).unlink, missing_ok=True)
        await self._queue.drop()

    async def purge(self) -> None:
        """Forget all requests."""
        await self._queue.purge()
        self._touch()

    async def add_batch_of_requests(
        self, requests: Sequence[Request], *, forefront: bool = False
    ) -> AddRequestsResponse:
        """As `FrontierQueue.add`."""
        answer = await self._queue.add(requests, front=forefront)
        self._touch()
        return answer

    async def get_request(self, unique_key: str) -> Request | None:
        """As `FrontierQueue.get`."""
        self._accessed_at = datetime.now(UTC)
        return await self._queue.get(unique_key)

    async def fetch_next_request(self) -> Request | None:
        """As `FrontierQueue.fetch`."""
        self._accessed_at = datetime.now(UTC)
        return await self._queue.fetch()

    async def mark_request_as_handled(self, request: Request) -> ProcessedRequest | None:
        """As `FrontierQueue.mark_handled`, and it is durable: a process that is killed repeats only what is in progress."""
        self._touch()
        answer = self._queue.mark_handled(request)
        await self._queue.until_durable()
        return answer

    async def reclaim_request(self, request: Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """As `FrontierQueue.reclaim`, and it is durable."""
        self._touch()
        answer = self._queue.reclaim(request, front=forefront)
        await self._queue.until_durable()
        return answer

    async def is_empty(self) -> bool:
        """As `FrontierQueue.is_empty`."""
        self._accessed_at = datetime.now(UTC)
        return await self._queue.is_empty()

    async def is_finished(self) -> bool:
        """As `FrontierQueue.is_finished`."""
        return self._queue.is_finished

    def _touch(self) -> None:
        self._accessed_at = self._modified_at = datetime.now(UTC)
