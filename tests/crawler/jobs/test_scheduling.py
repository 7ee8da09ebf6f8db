"""Many candidates go into the Frontier by and by, and none is lost to a store that is behind."""

import asyncio

from anabranch.crawler.jobs import scheduling
from anabranch.crawler.jobs.scheduling import schedule_all
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.models import Candidate, Outcome, OutcomeKind, VerdictKind
from tests.crawler.builder import memory_frontier
from tests.frontier.builder import HASTE, DelayingStore, build

URLS = [f"http://a.test/{number}" for number in range(7)]


async def test_the_loop_gets_its_turn_between_chunks(monkeypatch) -> None:
    """A sitemap's 50,000 would hold it up for half a second."""
    monkeypatch.setattr(scheduling, "CHUNK", 2)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with memory_frontier() as frontier:
        other = asyncio.create_task(count())
        verdicts = await schedule_all(frontier, [Candidate(url) for url in [*URLS, URLS[0]]])
        other.cancel()
        assert [verdict.kind for verdict in verdicts] == [VerdictKind.NEW] * 7 + [VerdictKind.SEEN]
        assert turns >= 3


async def test_what_the_store_is_too_busy_for_is_sent_again() -> None:
    """While the Frontier answers BUSY it is flushed; the verdicts are those of the last time."""
    store = DelayingStore()
    core = build(store=store, politeness=HASTE, max_unacknowledged=1).core
    async with AsyncFrontier(lambda on_change: core) as frontier:
        frontier.schedule([Candidate(url=URLS[0])])
        store.flush()
        core.lease()
        store.flush()
        lease = core.lease()
        assert lease is not None
        core.finish(lease, Outcome(kind=OutcomeKind.DONE, status=200))
        assert core.wake().at_s is None, "the store is behind"
        verdicts = await schedule_all(frontier, [Candidate(url) for url in URLS[:2]])
        assert [verdict.kind for verdict in verdicts] == [VerdictKind.SEEN, VerdictKind.NEW]


async def test_what_is_found_on_a_page_before_its_end_comes_from_that_page() -> None:
    """Its links may be leased while it is still out: they know where they were found."""
    async with memory_frontier("http://a.test/map.xml") as frontier:
        page = await frontier.lease()
        await schedule_all(frontier, [Candidate("http://b.test/", hops="M")], page)
        found = await frontier.lease()
        assert (found.url, found.hops, found.via) == ("http://b.test/", "M", "http://a.test/map.xml")
