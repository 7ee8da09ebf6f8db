"""Which URLs a run accepts: the preselector, quotas, and what is opened for an order."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import LimitsSection, ScopeSection, UrlsSection
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.outcomes.failures import FetchError, retry_after
from anabranch.crawler.outcomes.status import FetchStatus, StatusClass, class_of
from anabranch.crawler.processors.admission import (
    BlockedByOperator,
    OutOfScope,
    Preselector,
    QuotaReached,
    TimeReached,
    host_quotas,
    open_admission,
)
from anabranch.crawler.processors.disposition import decide
from anabranch.crawler.processors.recorder import visit_annotations
from anabranch.crawler.scope.scope import OverQuota, open_scope
from anabranch.crawler.visit import Step
from anabranch.frontier.records import Candidate, OutcomeKind
from tests.crawler.accounts.test_accounts import Entry
from tests.crawler.builder import END_S, START_S, memory_frontier, visit


def preselect(*, block=(), over=None, **scope):
    made = open_scope(ScopeSection(**scope))
    made.add_seed("http://a.test/")
    return Preselector(made, block, over)


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
    assert visit_annotations(one) == ((error.annotation,) if error.annotation else ())


@pytest.fixture
def accounts(tmp_path):
    made = Accounts(tmp_path, tmp_path / "crawl.log", lambda: START_S)
    yield made
    made.close()


def fetched(accounts, *urls) -> None:
    """These were answered with 10 bytes each."""
    lines = [
        crawl_log_line(
            CrawlLogEntry(
                logged_s=END_S, status=200, size_bytes=10, url=url, worker=1, start_s=START_S, end_s=END_S, hops=hops
            )
        )
        for url, hops in urls
    ]
    accounts.append([Entry(line) for line in lines])
    accounts.keep()


URLS = [("http://a.test/robots.txt", "P"), ("http://a.test/", ""), ("http://a.test:81/1", "L"), ("http://b.test/", "")]


@pytest.mark.parametrize(
    ("limits", "over"),
    [
        ({"pages_per_host": 2}, OverQuota(FetchStatus.OVER_QUOTA, "Q:pages_per_host")),
        ({"pages_per_host": 3}, None),
        ({"bytes_per_host": 30}, OverQuota(FetchStatus.OVER_QUOTA, "Q:bytes_per_host")),
        ({"bytes_per_host": 31}, None),
        ({"time_per_host": 60.0}, OverQuota(FetchStatus.OVER_TIME, "Q:time_per_host")),
        ({"time_per_host": 61.0}, None),
    ],
)
def test_a_host_is_judged_by_what_the_jobs_accounts_have_of_it(accounts, limits, over) -> None:
    """Pages without robots.txt, bytes of all, the time since its first answer; all its ports; what others used is theirs."""
    fetched(accounts, *URLS)
    over_of = host_quotas(LimitsSection(**limits), accounts, lambda: START_S + 60.0)
    assert over_of is not None
    assert over_of("a.test") == over
    assert over_of("new.test") is None


def test_without_limits_of_hosts_nobody_is_asked(accounts) -> None:
    """Those of the crawl are another matter: they end it."""
    assert host_quotas(LimitsSection(pages=1, bytes="1B", time="1s"), accounts, lambda: START_S) is None


def test_accounts_that_cannot_be_read_end_the_crawl_and_not_the_url(accounts, monkeypatch) -> None:
    """It is the disk's fault, not the site's."""
    over_of = host_quotas(LimitsSection(pages_per_host=1), accounts, lambda: START_S)
    monkeypatch.setattr(accounts, "of_host", lambda host: (_ for _ in ()).throw(OSError(5, "no disk")))
    assert over_of is not None
    with pytest.raises(StorageError):
        over_of("a.test")


async def test_without_the_key_there_is_no_similarity_filter(tmp_path) -> None:
    """And no folder of it; scope and keys are always there."""
    order = CrawlOrder(urls=UrlsSection(canonicalization=("www",)))
    async with memory_frontier() as frontier, AsyncExitStack() as opened:
        admission = await open_admission(order, tmp_path, frontier, lambda _: None, (), opened)
        assert (admission.similar, admission.drop_similar) == (None, None)
        assert not (tmp_path / "similar").exists()
        assert admission.canonicalizer.key("http://www.a.test/1") == b"http://a.test/1"


@pytest.mark.parametrize(
    ("order", "is_kept"),
    [
        (CrawlOrder(), True),
        (CrawlOrder(scope=ScopeSection(exclude=("x",)), urls=UrlsSection(canonicalization=("www",))), True),
        (CrawlOrder(scope=ScopeSection(rules=("os.path:isabs",))), False),
        (CrawlOrder(urls=UrlsSection(canonicalization=("www", "os.path:normpath"))), False),
    ],
)
async def test_functions_of_the_operators_own_see_each_link(tmp_path, order, is_kept) -> None:
    """So where they judge, or make keys, no URL is taken for known before; rules of ours would say the same again."""
    async with memory_frontier() as frontier, AsyncExitStack() as opened:
        admission = await open_admission(order, tmp_path, frontier, lambda _: None, (), opened)
        assert (admission.seen is not None) is is_kept


async def test_the_filter_of_the_order_is_written_down_when_all_is_closed(tmp_path) -> None:
    """Before the Frontier: what it has learnt must be durable there first."""
    order = CrawlOrder(scope=ScopeSection(similar="site-bound"))
    async with memory_frontier() as frontier:
        for known in (False, True):
            async with AsyncExitStack() as opened:
                admission = await open_admission(order, tmp_path, frontier, lambda _: None, (), opened)
                assert admission.similar is not None
                assert admission.drop_similar is not None
                assert admission.similar.is_similar("http://a.test/") is known
                await admission.drop_similar.learn([Candidate("http://a.test/")])


@pytest.mark.parametrize(("similar", "are_new"), [("", False), ("site-bound", True)])
async def test_a_filter_of_similar_urls_hears_of_what_the_frontier_has(tmp_path, similar, are_new) -> None:
    """After a crash it may have forgotten that; without one nobody need hear of a URL that was queued before."""
    order = CrawlOrder(scope=ScopeSection(similar=similar))
    urls = [f"http://a.test/{number}" for number in range(5)]
    async with memory_frontier(*urls) as frontier, AsyncExitStack() as opened:
        admission = await open_admission(order, tmp_path, frontier, lambda _: None, (), opened)
        assert admission.seen is not None
        assert list(await admission.seen.are_new(urls, [None] * 5)) == [are_new] * 5
