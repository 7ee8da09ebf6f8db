"""What decides which URLs a run takes is opened by the order, and closed before the Frontier."""

from contextlib import AsyncExitStack

import pytest

from anabranch.crawler.admission import host_quotas, open_admission
from anabranch.crawler.orders.limits import LimitsSection
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.orders.scope import ScopeSection, UrlsSection
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.scope.quotas import OverQuota
from anabranch.frontier.models import Candidate
from tests.crawler.builder import END_S, START_S, memory_frontier
from tests.crawler.reporting.test_accounts import Entry


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
        admission = await open_admission(order, tmp_path, frontier, opened)
        assert (admission.similar, admission.unlike) == (None, None)
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
        admission = await open_admission(order, tmp_path, frontier, opened)
        assert (admission.known is not None) is is_kept


async def test_the_filter_of_the_order_is_written_down_when_all_is_closed(tmp_path) -> None:
    """Before the Frontier: what it has learnt must be durable there first."""
    order = CrawlOrder(scope=ScopeSection(similar="site-bound"))
    async with memory_frontier() as frontier:
        for known in (False, True):
            async with AsyncExitStack() as opened:
                admission = await open_admission(order, tmp_path, frontier, opened)
                assert admission.similar is not None
                assert admission.unlike is not None
                assert admission.similar.is_similar("http://a.test/") is known
                await admission.unlike.keep([Candidate("http://a.test/")])


@pytest.mark.parametrize(("similar", "are_new"), [("", False), ("site-bound", True)])
async def test_a_filter_of_similar_urls_hears_of_what_the_frontier_has(tmp_path, similar, are_new) -> None:
    """After a crash it may have forgotten that; without one nobody need hear of a URL that was queued before."""
    order = CrawlOrder(scope=ScopeSection(similar=similar))
    urls = [f"http://a.test/{number}" for number in range(5)]
    async with memory_frontier(*urls) as frontier, AsyncExitStack() as opened:
        admission = await open_admission(order, tmp_path, frontier, opened)
        assert admission.known is not None
        assert list(await admission.known.are_new(urls, [None] * 5)) == [are_new] * 5
