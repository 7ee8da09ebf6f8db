"""Crawlee's request manager: delays for every host, by a Frontier."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from crawlee import Request
from crawlee.request_loaders import ThrottlingRequestManager
from crawlee.storage_clients.models import ProcessedRequest
from crawlee.storages import RequestQueue

from anabranch.frontier.hosts.crawlee.queue import FrontierQueue
from anabranch.frontier.hosts.crawlee.storage import FrontierRequestQueueClient


class FrontierRequestManager(ThrottlingRequestManager[RequestQueue]):
    """The `request_manager` of a crawler: the Frontier's queues and gates behind Crawlee's own interface.

    It is a `ThrottlingRequestManager` because crawlers report 429, Retry-After and Crawl-delay only to those. No host has to be
    named: each has a gate. Its `inner` is a `RequestQueue` over the Frontier, named if it has a folder, so that a crawler's
    second run does not purge it.

    A crawl is given up (`get_stall_reason`) when for longer than `max_domain_stall` no request was handled and each was
    answered by 429.
    """

    def __init__(
        self, client: FrontierRequestQueueClient, *, max_domain_stall: timedelta = timedelta(seconds=900)
    ) -> None:
        inner = RequestQueue(client, client.id, client.name)
        super().__init__(inner, domains=(), request_manager_opener=RequestQueue.open, max_domain_stall=max_domain_stall)
        self._client = client
        self._longest_stall_s = max_domain_stall.total_seconds()

    @classmethod
    async def open(
        cls,
        folder: Path | None = None,
        *,
        max_domain_stall: timedelta = timedelta(seconds=900),
        **settings: object,
    ) -> Self:
        """Open it in a folder of its own, or in memory. `settings` are the Frontier's, see `frontier.hosts.embedding.settings`.

        Raises: PolicyError, FormatMismatch, StoreInUse, StoreUnavailable.
        """
        client = await FrontierRequestQueueClient.open(folder, settings, name=None if folder is None else "frontier")
        return cls(client, max_domain_stall=max_domain_stall)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def queue(self) -> FrontierQueue:
        """The queue behind it."""
        return self._client.queue

    async def close(self) -> None:
        """Write all and release the folder. Without it, the end of the process closes it; `kill -9` loses nothing."""
        await self._client.close()

    # Crawlee's own methods would ask one queue for each host, in tasks of their own, where `requests.Runs` could not recognise
    # the pool's task.

    async def add_request(self, request: str | Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """Add a request, as a `RequestQueue` does."""
        return await self.inner.add_request(request, forefront=forefront)

    async def add_requests(self, requests: Sequence[str | Request], *, forefront: bool = False, **how: Any) -> None:
        """Add requests, as a `RequestQueue` does."""
        await self.inner.add_requests(requests, forefront=forefront, **how)

    async def fetch_next_request(self) -> Request | None:
        """Return the next request, as a `RequestQueue` does; None while no host may be fetched from."""
        return await self.inner.fetch_next_request()

    async def mark_request_as_handled(self, request: Request) -> ProcessedRequest | None:
        """Mark a request as handled, as a `RequestQueue` does."""
        return await self.inner.mark_request_as_handled(request)

    async def reclaim_request(self, request: Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """Queue a request again, as a `RequestQueue` does."""
        return await self.inner.reclaim_request(request, forefront=forefront)

    async def is_empty(self) -> bool:
        """Whether no host may be fetched from now."""
        return await self.inner.is_empty()

    async def is_finished(self) -> bool:
        """Whether all requests are handled, as a `RequestQueue` says."""
        return await self.inner.is_finished()

    def record_domain_delay(self, url: str, *, retry_after: timedelta | None = None) -> bool:
        """A 429: the host's gate closes, for longer with each in a row, and never for less than the host asks."""
        return self.queue.hosts.throttle(url, retry_after)

    def record_success(self, url: str) -> None:
        """Does nothing: a host is forgiven when one of its requests was handled."""

    def is_throttled(self, url: str) -> bool:
        """Whether the host answered 429 and is not fetched from now."""
        return self.queue.hosts.is_throttled(url)

    def set_crawl_delay(self, url: str, delay_seconds: float) -> None:
        """Start fetches of the host at least so far apart; the first call for a host counts."""
        self.queue.hosts.set_crawl_delay(url, delay_seconds)

    async def get_stall_reason(self) -> str | None:
        """Why the crawl should be given up, if it should."""
        found = self.queue.hosts.refused(self._longest_stall_s)
        if found is None:
            return None
        refused_s, hosts = found
        named = ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
        return (
            f"every request of the last {refused_s:.0f} s was answered by 429 ({named}), longer than `max_domain_stall` "
            f"({self._longest_stall_s:g} s). The requests are still queued: a later run goes on with them"
        )
