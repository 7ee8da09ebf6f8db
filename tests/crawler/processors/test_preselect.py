"""Preselect: a URL is judged again before it is fetched."""

from __future__ import annotations

import pytest

from anabranch.crawler.chain import Step
from anabranch.crawler.orders.scope import ScopeSection
from anabranch.crawler.outcomes.failures import FetchError, retry_after
from anabranch.crawler.outcomes.status import FetchStatus, StatusClass, class_of
from anabranch.crawler.processors.disposition import decide
from anabranch.crawler.processors.preselect import (
    BlockedByOperator,
    OutOfScope,
    Preselect,
    QuotaReached,
    TimeReached,
)
from anabranch.crawler.processors.recorder import annotations_of
from anabranch.crawler.scope.opening import open_scope
from anabranch.crawler.scope.quotas import OverQuota
from anabranch.frontier.models import OutcomeKind
from tests.crawler.builder import START_S, visit


def preselect(*, block=(), over=None, **scope):
    made = open_scope(ScopeSection(**scope))
    made.add_seed("http://a.test/")
    return Preselect(made, block, over)


async def refusal_of(process, **kw) -> FetchError:
    with pytest.raises(FetchError) as raised:
        await process(visit(**kw))
    return raised.value


async def test_a_url_in_scope_passes() -> None:
    """Nothing is said, nothing is changed."""
    one = visit(url="http://a.test/x", hops="L")
    assert await preselect()(one) is Step.PROCEED
    assert one.failure is None


async def test_a_url_that_the_scope_has_left_is_out() -> None:
    """The order may have changed since it was queued."""
    error = await refusal_of(preselect(exclude=["/old/"]), url="http://a.test/old/x", hops="L")
    assert isinstance(error, OutOfScope)
    assert error.status == -5000


async def test_the_hops_count_again() -> None:
    """A lower limit of hops holds for what is queued."""
    assert isinstance(await refusal_of(preselect(max_hops=1), url="http://a.test/x", hops="LL"), OutOfScope)


async def test_a_blocked_url_is_blocked_even_if_it_is_a_seed() -> None:
    """The operator's word is the last, whatever the scope."""
    error = await refusal_of(preselect(block=[r"\.zip$", "^http://a"]), url="http://a.test/")
    assert isinstance(error, BlockedByOperator)
    assert error.status == -5001


@pytest.mark.parametrize(
    ("over", "kind"),
    [
        (OverQuota(FetchStatus.OVER_QUOTA, "Q:pages_per_host"), QuotaReached),
        (OverQuota(FetchStatus.OVER_TIME, "Q:time"), TimeReached),
    ],
)
async def test_a_host_over_its_quota_is_left_alone(over, kind) -> None:
    """The quota's status, and its name as an annotation of crawl.log."""
    asked = []
    error = await refusal_of(
        preselect(scope="any", over=lambda host: asked.append(host) or over), url="http://a.test:81/"
    )
    assert isinstance(error, kind)
    assert (error.status, error.annotation, asked) == (over.status, over.annotation, ["a.test"])


async def test_a_host_within_its_quota_is_fetched() -> None:
    """None is no objection."""
    assert await preselect(over=lambda host: None)(visit(url="http://a.test/")) is Step.PROCEED


@pytest.mark.parametrize(
    "error", [OutOfScope(""), BlockedByOperator(""), QuotaReached("Q:pages"), TimeReached("Q:time")]
)
def test_a_refused_url_ends_disregarded_without_a_fetch(error) -> None:
    """It is not tried again, and its host's slot does not rest."""
    one = visit(failure=error)
    outcome = decide(one, START_S)
    assert outcome is not None
    assert (outcome.kind, outcome.start_s, outcome.end_s) == (OutcomeKind.DISREGARDED, None, None)
    assert class_of(one.status) is StatusClass.DISREGARDED
    assert retry_after(error, 0) is None
    assert annotations_of(one) == ((error.annotation,) if error.annotation else ())
