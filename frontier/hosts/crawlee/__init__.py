"""Crawlee's requests in a Frontier: the extra `crawlee`, for Crawlee >= 1.11.

    manager = await FrontierRequestManager.open(Path("job"), policy="bkdr:64", min_delay=0.5)
    crawler = HttpCrawler(request_manager=manager)

A request goes in as a candidate with its `unique_key` as the key and its JSON as the payload; a lease comes out as that request
again. One that Crawlee reclaims has changed: its row ends and a new one replaces it in the same transaction.

    requests  requests as candidates, and back; the run that has a request
    hosts     what Crawlee reports about hosts: 429, Retry-After, Crawl-delay
    queue     FrontierQueue: requests in, requests out, how they end
    storage   FrontierStorageClient: queues as Crawlee's storages, by name; FrontierRequestQueueClient: one of them
    manager   FrontierRequestManager: for a crawler; only a manager gets reports of 429 and of Crawl-delay
"""

from anabranch.frontier.hosts.crawlee.manager import FrontierRequestManager
from anabranch.frontier.hosts.crawlee.queue import FrontierQueue
from anabranch.frontier.hosts.crawlee.storage import FrontierRequestQueueClient, FrontierStorageClient

__all__ = ["FrontierQueue", "FrontierRequestManager", "FrontierRequestQueueClient", "FrontierStorageClient"]
