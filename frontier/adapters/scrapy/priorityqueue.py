"""Scrapy's SCHEDULER_PRIORITY_QUEUE: its own queues, spread by a queue policy of the Frontier."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.pqueues import ScrapyPriorityQueue

from anabranch.frontier.adapters.scrapy.settings import FRONTIER
from anabranch.frontier.composition import own_function
from anabranch.frontier.models import QueueKey
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import parse_policy

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class FrontierPriorityQueue:
    """A `ScrapyPriorityQueue` for each work queue of `FRONTIER["policy"]` (bkdr:997), served in turn.

    It compares policies inside stock Scrapy: no gates, no dedup, no leases. Priorities order the requests of one work queue.
    """

    @classmethod
    def from_crawler(
        cls,
        crawler: Crawler,
        downstream_queue_cls: type[Any],
        key: str,
        startprios: Mapping[str, Iterable[int]] | None = None,
        *,
        start_queue_cls: type[Any] | None = None,
    ) -> FrontierPriorityQueue:
        """As Scrapy builds it; `startprios` is what `close` answered."""
        return cls(crawler, downstream_queue_cls, key, startprios or {}, start_queue_cls=start_queue_cls)

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: type[Any],
        key: str,
        startprios: Mapping[str, Iterable[int]],
        *,
        start_queue_cls: type[Any] | None,
    ) -> None:
        self._crawler = crawler
        self._kinds = downstream_queue_cls, start_queue_cls
        self._key = key
        policy = crawler.settings.getdict(FRONTIER).get("policy", FrontierOrder().policy)
        self._assign = parse_policy(policy, ip_of=_unknown, imported=own_function)
        self._queues: dict[QueueKey, ScrapyPriorityQueue] = {}  # the first is served next
        for name, priorities in startprios.items():
            self._queues[QueueKey(name)] = self._made(QueueKey(name), priorities)

    def push(self, request: Request) -> None:
        """Queue it. Raises: ValueError if it cannot be serialised."""
        (name,) = self._assign([request.url])
        queue = self._queues.get(name)
        if queue is None:
            queue = self._made(name, ())
        try:
            queue.push(request)
        except ValueError:
            if name not in self._queues:
                self._remove(queue)  # or its file stays open
            raise
        self._queues.setdefault(name, queue)

    def pop(self) -> Request | None:
        """The first request of the queue whose turn it is."""
        while self._queues:
            name = next(iter(self._queues))
            queue = self._queues.pop(name)
            request = queue.pop()
            if len(queue):
                self._queues[name] = queue  # behind the others
            else:
                self._remove(queue)
            if request is not None:
                return request
        return None

    def peek(self) -> Request | None:
        """What `pop` would answer. Raises: NotImplementedError where the queue class does not tell."""
        queue = next(iter(self._queues.values()), None)
        return None if queue is None else queue.peek()

    def close(self) -> dict[str, list[int]]:
        """Close all; the priorities of each queue, for the next run."""
        state = {str(name): queue.close() for name, queue in self._queues.items()}
        self._queues.clear()
        return state

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    def _remove(self, queue: ScrapyPriorityQueue) -> None:
        """Close one that is empty. Its folder goes, too, for a crawl may see more hosts than a disk should have folders."""
        queue.close()
        if self._key:  # without, the queue is in memory
            with suppress(OSError):  # a queue class that leaves files there
                Path(queue.key).rmdir()

    def _made(self, name: QueueKey, priorities: Iterable[int]) -> ScrapyPriorityQueue:
        """Its folder is named by a digest: a queue's name may hold anything."""
        kind, start_kind = self._kinds
        folder = f"{self._key}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return ScrapyPriorityQueue.from_crawler(self._crawler, kind, folder, priorities, start_queue_cls=start_kind)


def _unknown(host: str) -> None:
    """No host's address is known here."""
