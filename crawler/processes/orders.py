"""What several processes cannot do yet, or cannot do at all, is refused before anything is begun; and what a share is told."""

from __future__ import annotations

from typing import Any

from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import UsageError


def refuse_another_round(order: CrawlOrder) -> None:
    """Raises: UsageError for a job of several processes."""
    if order.crawl.processes > 1:
        raise UsageError(f"--again is for jobs of one process; this one has {order.crawl.processes}")


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
