"""Tests of the section `[dedup]` of an order."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from anabranch.crawler.order.frontier import DedupSection
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import OrderError
from tests.rows import each_row


def test_without_leaves_nothing_is_shared() -> None:
    """A crawl has a filter for itself."""
    dedup = CrawlOrder().dedup
    assert (dedup.exact, dedup.expect, dedup.false_positive, dedup.leaves) == (False, 10_000_000, 1e-3, ())


def test_exact_is_an_older_name_of_a_filter() -> None:
    """Jobs of earlier versions have it; it contradicts no default."""
    assert (DedupSection().chosen, DedupSection(exact=True).chosen) == ("both", "exact")
    assert DedupSection(filter="smm").chosen == "smm"
    with pytest.raises(ValidationError, match="filter smm and exact are both given"):
        DedupSection(filter="smm", exact=True)


def test_leaves_may_come_from_the_command_line() -> None:
    """They are words, like other lists."""
    order = load_order(None, {}, ["dedup.leaves=redis://one:6379/0 rediss://two:6380", "dedup.leaves_name=news"])
    assert order.dedup.leaves == ("redis://one:6379/0", "rediss://two:6380")
    assert order.dedup.leaves_name == "news"


@each_row(
    ("leaf", "words"),
    [
        ("one:6379", "must be URLs of Redis servers, like redis://127.0.0.1:6379/0; not 'one:6379'"),
        ("http://one", "not 'http://one'"),
        ("redis://", "not 'redis://'"),
        ("redis://one:x", "not 'redis://one:x'"),
        ("redis://[::1", "not 'redis://[::1'"),
        ("redis://me:secret@one", "must not hold a password; put it into the variable REDISCLI_AUTH"),
        ("redis://one/0?password=secret", "must not hold a password"),
    ],
)
def test_what_is_no_server_is_refused_in_a_line_that_names_the_key(leaf: str, words: str) -> None:
    """And a password, which everyone could read in the job's folder."""
    with pytest.raises(OrderError) as refused:
        load_order(None, {}, [f'dedup.leaves=["{leaf}"]'])
    assert str(refused.value).startswith("-s dedup.leaves ")
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_server_that_is_named_twice_is_refused() -> None:
    """Each leaf stands on one server."""
    with pytest.raises(ValidationError, match="must not name a server twice"):
        DedupSection(leaves=("redis://one", "redis://one"))


@pytest.mark.parametrize("share", [0, 1, -0.5, 2])
def test_a_rate_is_a_share(share: float) -> None:
    """Between none and all."""
    with pytest.raises(ValidationError):
        DedupSection(false_positive=share)
