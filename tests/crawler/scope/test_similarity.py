"""The similarity filter in the crawl: what it lets through, when it remembers, and what a crash makes it forget."""

from __future__ import annotations

import asyncio
import resource
import tomllib
from dataclasses import replace

import pytest

from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import OrderError, StorageError
from anabranch.crawler.scope import similarity
from anabranch.crawler.scope.similarity import SimilarUrlFilter, similarity_of
from anabranch.dedup.similarity.filter import SimilarityParameters
from tests.crawler.builder import settle
from tests.rows import each_row

PUBLISHED = SimilarityParameters(expected=1000)

A, B, C = "http://a.test/x/1.html", "http://a.test/x/2.html", "http://a.test/y/1.html"


async def on_disk() -> None:
    """The Frontier has everything."""


@pytest.fixture
async def known(tmp_path):
    made = await SimilarUrlFilter.open(tmp_path / "similar", PUBLISHED)
    yield made
    await made.close()


async def test_of_a_pages_urls_the_first_of_a_kind_are_kept(known) -> None:
    """A page's links count among themselves; site, depth, folder and last name are compared."""
    assert await known.unlike([A, B, A, C]) == [A, B, C]
    assert await known.unlike(["http://a.test/x/1.html", "http://a.test/y/2.html"]) == [
        "http://a.test/x/1.html",
        "http://a.test/y/2.html",
    ], "nothing was remembered"


async def test_what_was_kept_is_known_from_then_on(known) -> None:
    """Features of several URLs combine: y and 2.html were both seen."""
    await known.keep([A, B, C])
    assert await known.unlike([A, "http://a.test/y/2.html", "http://b.test/"]) == ["http://b.test/"]
    assert known.is_similar("http://a.test/y/2.html")
    assert not known.is_similar("http://b.test/")


async def test_only_what_the_frontier_has_on_disk_is_written_down(known, tmp_path) -> None:
    """A URL kept while the Frontier is still writing waits for the next time."""
    asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        asked.set()
        await may_go_on.wait()

    await known.keep([A])
    storing = asyncio.create_task(known.store(slow))
    asking = asyncio.create_task(asked.wait())
    await asyncio.wait({storing, asking}, return_when=asyncio.FIRST_COMPLETED)
    assert asking.done()
    await known.keep([B])
    assert len(known) == 0
    may_go_on.set()
    await storing
    assert len(known) == 1
    await known.store(on_disk)
    assert len(known) == 2


async def test_what_was_not_stored_is_taken_again_after_a_restart(tmp_path) -> None:
    """The filter may know less than the Frontier, never more."""
    first = await SimilarUrlFilter.open(tmp_path / "similar", PUBLISHED)
    await first.keep([A])
    await first.store(on_disk)
    await first.keep([B])
    await first.close()
    second = await SimilarUrlFilter.open(tmp_path / "similar", PUBLISHED)
    assert await second.unlike([A, B]) == [B]
    await second.close()


async def test_many_urls_leave_the_loop_its_turn(known, monkeypatch) -> None:
    """A page of thousands of links is compared in chunks."""
    monkeypatch.setattr(similarity, "CHUNK", 2)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    urls = [f"http://a.test/{number}/{number}" for number in range(20)]
    assert await known.unlike(urls) == urls
    assert turns >= 9
    await known.keep(urls)
    assert turns >= 18
    other.cancel()
    assert await known.unlike(urls) == []


async def test_a_disk_that_takes_no_more_is_said_and_the_next_time_tries_again(known, tmp_path) -> None:
    """Nothing that was kept is lost by it."""
    await known.keep([f"http://a.test/{number}/{'x' * 2000}{number}" for number in range(50)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(StorageError):
            await known.store(on_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(known) == 0
    await known.store(on_disk)
    assert len(known) == 50


async def test_another_mode_than_that_of_the_job_is_refused(known, tmp_path) -> None:
    """The bits mean something else; so does a folder that is in use."""
    with pytest.raises(OrderError, match=r"^\[dedup\] similar: .*mode"):
        await SimilarUrlFilter.open(tmp_path / "similar", replace(PUBLISHED, site_bound=True))
    with pytest.raises(OrderError, match=r"^\[dedup\] similar: .*open elsewhere"):
        await SimilarUrlFilter.open(tmp_path / "similar", PUBLISHED)
    await settle()


@each_row(
    ("text", "wanted"),
    [
        ("", None),
        ("[scope]\nsimilar = 'published'\nsimilar_expect = 5", SimilarityParameters(expected=5)),
        ("[dedup]\nsimilar = 'site-bound'", SimilarityParameters(site_bound=True)),
        (
            "[dedup]\nsimilar = 'published'\nsimilar_expect = 7\nsimilar_features = ['site']\nsimilar_false_positive = 0.5",
            SimilarityParameters(expected=7, features=("site",), false_positive=0.5),
        ),
        ("[dedup]\nsimilar = 'published'\n[scope]\nsimilar = 'published'", SimilarityParameters()),
    ],
)
def test_the_order_asks_for_it_in_dedup_or_by_its_older_name(text: str, wanted: SimilarityParameters | None) -> None:
    """Jobs of earlier versions have it in [scope]."""
    assert similarity_of(CrawlOrder.model_validate(tomllib.loads(text))) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[dedup]\nsimilar = 'published'\n[scope]\nsimilar = 'site-bound'", "leave the second out"),
        ("[dedup]\nsimilar_expect = 9\n[scope]\nsimilar = 'published'", r"\[dedup\] similar_expect needs"),
        ("[dedup]\nsimilar = 'published'\nsimilar_features = ['site', 'site']", r"\[dedup\] similar: features"),
    ],
)
def test_what_contradicts_itself_is_refused(text: str, words: str) -> None:
    """One line, which names the key."""
    with pytest.raises(OrderError, match=words):
        similarity_of(CrawlOrder.model_validate(tomllib.loads(text)))
