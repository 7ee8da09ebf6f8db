"""Quotas: which limit is reached first, and what is said of it."""

from __future__ import annotations

import pytest

from anabranch.crawler.outcomes.status import FetchStatus, StatusClass, class_of
from anabranch.crawler.scope.quotas import OverQuota, Quotas, Used, over_quota

NONE = Used()


@pytest.mark.parametrize(
    ("quotas", "crawl", "host", "annotation", "status"),
    [
        (Quotas(pages=2), Used(pages=2), NONE, "Q:pages", -5003),
        (Quotas(bytes=10), Used(bytes=11), NONE, "Q:bytes", -5003),
        (Quotas(time=1.5), Used(time=1.5), NONE, "Q:time", -5004),
        (Quotas(pages_per_host=2), NONE, Used(pages=2), "Q:pages_per_host", -5003),
        (Quotas(bytes_per_host=10), NONE, Used(bytes=10), "Q:bytes_per_host", -5003),
        (Quotas(time_per_host=1.5), NONE, Used(time=2), "Q:time_per_host", -5004),
    ],
)
def test_a_limit_that_is_reached_is_named(
    quotas: Quotas, crawl: Used, host: Used, annotation: str, status: int
) -> None:
    """Pages and bytes are quotas, time is the time to run; the codes are Heritrix's."""
    assert over_quota(quotas, crawl, host) == OverQuota(FetchStatus(status), annotation)
    assert class_of(status) is StatusClass.DISREGARDED


def test_below_its_limit_a_host_may_be_fetched() -> None:
    """One page, byte or second less."""
    quotas = Quotas(pages=2, bytes=10, time=1.5, pages_per_host=2, bytes_per_host=10, time_per_host=1.5)
    assert over_quota(quotas, Used(1, 9, 1.4), Used(1, 9, 1.4)) is None


def test_without_limits_everything_may_be_fetched() -> None:
    """0 is no limit."""
    assert over_quota(Quotas(), Used(10**9, 10**15, 1e9), Used(10**9, 10**15, 1e9)) is None


def test_the_crawls_limits_are_named_before_the_hosts() -> None:
    """If both are reached, the operator wants to know the larger one."""
    over = over_quota(Quotas(bytes=1, pages_per_host=1), Used(bytes=1), Used(pages=1))
    assert over is not None
    assert over.annotation == "Q:bytes"


def test_a_host_is_not_charged_with_what_others_used() -> None:
    """The limits per host look at the host alone."""
    assert over_quota(Quotas(pages_per_host=1), Used(pages=100), Used(pages=0)) is None
