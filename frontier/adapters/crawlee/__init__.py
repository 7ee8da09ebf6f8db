"""Crawlee's requests in a Frontier: the extra `crawlee`, for Crawlee >= 1.11.

    manager = await FrontierRequestManager.open(Path("job"), policy="bkdr:64", min_delay=0.5)
    crawler = HttpCrawler(request_manager=manager)

A request goes in as a candidate whose key is its `unique_key` and whose payload is its JSON; a lease comes out as that
request again, and ends when Crawlee has handled it. One that Crawlee reclaims has changed (its retry_count, its user_data):
its row ends, and a new one takes its place in the same transaction, so `kill -9` loses neither the request nor what it has
become.

    queue     FrontierQueue: requests in, requests out, how they end
    incoming  Incoming: requests in, and what Crawlee is told of them
    runs      which run has a request: what an aborted one had comes again
    hosts     what Crawlee says of hosts: 429, Retry-After, Crawl-delay
    manager   FrontierRequestManager: what a crawler is given; it alone hears of 429 and of Crawl-delay
    client    FrontierRequestQueueClient: the queue as Crawlee's RequestQueue asks for it
    storage   FrontierStorageClient: such queues as Crawlee's storages, by name
    identity  by which id and name Crawlee knows a queue, kept in its folder
    requests  requests as candidates, and back
    waiting   tasks that wait until something has changed
"""

from anabranch.frontier.adapters.crawlee.client import FrontierRequestQueueClient
from anabranch.frontier.adapters.crawlee.manager import FrontierRequestManager
from anabranch.frontier.adapters.crawlee.queue import FrontierQueue
from anabranch.frontier.adapters.crawlee.storage import FrontierStorageClient

__all__ = ["FrontierQueue", "FrontierRequestManager", "FrontierRequestQueueClient", "FrontierStorageClient"]
