"""What several processes cannot do yet, or cannot do at all, is refused before anything is begun; and what a share is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.outcomes.errors import UsageError

#: Policies whose queues have URLs of one host only, so that a queue is one share's.
_OF_HOSTS = ("host", "surt")


def refuse_another_round(order: CrawlOrder) -> None:
    """Raises: UsageError for a job of several processes."""
    if order.crawl.processes > 1:
        raise UsageError(f"--again is for jobs of one process; this one has {order.crawl.processes}")


def undivided(order: CrawlOrder) -> Iterator[str]:
    """What the order asks for that needs all hosts in one process, a line each, if it wants several."""
    processes = order.crawl.processes
    if processes > 1:
        yield from (f"[crawl] processes = {processes}: {refused}" for refused in _refused(order))


def _refused(order: CrawlOrder) -> Iterator[str]:
    frontier, politeness = order.frontier, order.politeness
    if politeness.group or politeness.groups:
        yield "hosts of one group would be in several processes, each with a gate of its own; leave [politeness] group out"
    if frontier.politeness == "queue" and frontier.policy != "host":
        yield "a queue's hosts would be in several processes; use politeness host, or policy host"
    if frontier.total_budget >= 0 and frontier.policy not in _OF_HOSTS:
        yield "a queue's URLs would be in several processes, each with the whole total_budget; use policy host or surt"
    if frontier.store:
        yield "each process has a store of its own in the job's folder; leave [frontier] store out"
    if order.dedup.leaves:
        yield "each process has a filter for its own hosts; leave [dedup] leaves out"
    if order.scope.similar:
        yield "the similarity filter must see all URLs; leave [scope] similar out"


def share_order(order: CrawlOrder, share: int) -> dict[str, Any]:
    """The order of one share, as JSON holds it: its part of the workers; limits, seeds and reports are the parent's."""
    processes = order.crawl.processes
    workers = max(order.crawl.workers // processes + (share < order.crawl.workers % processes), 1)
    asked = order.model_copy(
        update={
            "job": order.job.model_copy(update={"seeds": (), "seed_files": ()}),
            "crawl": order.crawl.model_copy(update={"workers": workers}),
            "limits": order.limits.model_copy(update={"pages": 0, "fetched_bytes": 0, "time_s": 0.0}),
            "write": order.write.model_copy(update={"warc_prefix": f"{order.write.warc_prefix}-{share}"}),
            "report": order.report.model_copy(update={"reports": False}),
        }
    )
    return asked.model_dump(mode="json", by_alias=True, exclude_none=True)
