"""What several processes cannot do is refused; what a share is told."""

from typing import Any

import pytest

from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.processes.orders import refuse_another_round, share_order


def order(processes: int = 2, **sections: dict[str, Any]) -> CrawlOrder:
    crawl = {"processes": processes, **sections.pop("crawl", {})}
    return CrawlOrder.model_validate({"crawl": crawl, **sections})


def test_another_round_is_for_jobs_of_one_process() -> None:
    """It is refused before anything is removed."""
    with pytest.raises(UsageError, match="--again"):
        refuse_another_round(order())
    refuse_another_round(order(processes=1))


def test_the_shares_have_the_workers_together() -> None:
    """So many fetches at once, however many processes there are; each has one at least."""
    asked = order(processes=3, crawl={"workers": 10})
    assert [share_order(asked, share)["crawl"]["workers"] for share in range(3)] == [4, 3, 3]
    assert share_order(order(processes=3, crawl={"workers": 1}), 2)["crawl"]["workers"] == 1


def test_limits_and_seeds_are_the_parents() -> None:
    """A share would end too soon, or too late; its order can be read again."""
    asked = order(limits={"pages": 5, "bytes": 10, "time": 3.0, "pages_per_host": 4}, job={"seeds": ["http://a.test/"]})
    told = CrawlOrder.model_validate(share_order(asked, 1))
    assert (told.limits.pages, told.limits.fetched_bytes, told.limits.time_s, told.limits.pages_per_host) == (
        0,
        0,
        0,
        4,
    )
    assert told.job.seeds == ()
    assert told.write.warc_prefix.endswith("-1")
    assert not told.report.reports
