"""Parts of the Frontier for Scrapy's own scheduler: a dupe filter and a priority queue.

They serve projects that keep the stock scheduler: `FrontierDupeFilter` (DUPEFILTER_CLASS) is the Frontier's filter alone,
`FrontierPriorityQueue` (SCHEDULER_PRIORITY_QUEUE) its queue policies alone.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.pqueues import ScrapyPriorityQueue

from anabranch.frontier.composition import open_filter, user_function
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.hosts.scrapy.engine import Engine
from anabranch.frontier.hosts.scrapy.settings import FRONTIER, UNAVAILABLE, folder
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import parse_policy
from anabranch.frontier.policies.hosts import unknown_address
from anabranch.frontier.records import QueueKey
from anabranch.frontier.seen import SeenFilter

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


logger = logging.getLogger(__name__)


class FrontierDupeFilter(BaseDupeFilter):
    """Fingerprints in a memory-mapped signature store joined with a Bloom filter: memory that does not grow with the crawl.

    With JOBDIR the filter is in `JOBDIR/frontier/seen` and survives a process that dies; without, it is a set in memory.
    A new request is taken for a known one at the filter's error rate (`dedup.uniq`: one in a million by default).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._seen: SeenFilter | None = None
        self._is_closing = False
        self._log = RFPDupeFilter(debug=crawler.settings.getbool("DUPEFILTER_DEBUG"))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FrontierDupeFilter:
        """Make a dupe filter for Scrapy, which calls this."""
        return cls(crawler)

    def open(self) -> None:
        """Open it (blocks). If it cannot be opened, the spider is closed at its first request."""
        place = folder(self._crawler.settings)
        try:
            self._seen = open_filter(None if place is None else place / "seen")
        except FrontierError as error:
            logger.error("the dupe filter cannot be opened: %s", error)  # noqa: TRY400 - one line

    def request_seen(self, request: Request) -> bool:
        """Whether a request with this fingerprint came before; remembers it. Cost: microseconds."""
        if self._seen is None:
            if not self._is_closing:
                self._is_closing = True
                Engine(self._crawler).close_spider(UNAVAILABLE)
            return True
        key = self._crawler.request_fingerprinter.fingerprint(request)
        if not self._seen.unseen([key])[0]:
            return True
        self._seen.mark([key])
        return False

    def close(self, reason: str) -> None:
        """Make all durable (blocks)."""
        del reason
        if self._seen is not None:
            self._seen.close()

    def log(self, request: Request, spider: Spider) -> None:
        """Log a duplicate as Scrapy's own filter does."""
        self._log.log(request, spider)


class FrontierPriorityQueue:
    """A `ScrapyPriorityQueue` for each work queue of `FRONTIER["policy"]` (bkdr:997), served in turn.

    It compares policies inside stock Scrapy: no gates, no dedup, no leases. Priorities order the requests of one work queue.
    """

    @classmethod
    def from_crawler(cls, *given: Any, **named: Any) -> FrontierPriorityQueue:
        """Make a queue for Scrapy, which calls this with the arguments of the class."""
        return cls(*given, **named)

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: type[Any],
        key: str,
        startprios: Mapping[str, Iterable[int]] | None = None,
        *,
        start_queue_cls: type[Any] | None = None,
    ) -> None:
        """`startprios` is the result of `close`."""
        self._crawler = crawler
        self._kinds = downstream_queue_cls, start_queue_cls
        self._key = key
        policy = crawler.settings.getdict(FRONTIER).get("policy", FrontierOrder().policy)
        self._assign = parse_policy(policy, ip_of=unknown_address, imported=user_function)
        self._queues: dict[QueueKey, ScrapyPriorityQueue] = {}  # the first one is served next
        for name, priorities in (startprios or {}).items():
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
        """The first request of the queue that is next in turn."""
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
        """The request that `pop` would return. Raises: NotImplementedError where the queue class cannot peek."""
        queue = next(iter(self._queues.values()), None)
        return None if queue is None else queue.peek()

    def close(self) -> dict[str, list[int]]:
        """Close all; returns the priorities of each queue, for the next run."""
        state = {str(name): queue.close() for name, queue in self._queues.items()}
        self._queues.clear()
        return state

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    def _remove(self, queue: ScrapyPriorityQueue) -> None:
        """Close an empty queue and remove its folder: a crawl may see more hosts than a disk should have folders."""
        queue.close()
        if self._key:  # without, the queue is in memory
            with suppress(OSError):  # a queue class that leaves files there
                Path(queue.key).rmdir()

    def _made(self, name: QueueKey, priorities: Iterable[int]) -> ScrapyPriorityQueue:
        """Make a queue. Its folder is named by a digest, since a queue's name may hold any character."""
        kind, start_kind = self._kinds
        folder = f"{self._key}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return ScrapyPriorityQueue.from_crawler(self._crawler, kind, folder, priorities, start_queue_cls=start_kind)
