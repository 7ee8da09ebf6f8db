"""Many candidates go into the Frontier by and by, and none is lost to a store that is behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest
import structlog

from anabranch.crawler.job import seeding as seeding_module
from anabranch.crawler.job.database import JobDatabase, make_tables
from anabranch.crawler.job.seeding import HIDDEN, CandidateMaker, SeedFact, Seeding, schedule_all
from anabranch.crawler.job.seeds import Seed, SourceTags
from anabranch.crawler.job.seedtable import Seeds, opened_seeds
from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.userfunctions import KEY, UserFunctionFailed
from anabranch.crawler.scope.scope import open_scope
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.errors import StoreFull
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind, VerdictKind
from anabranch.frontier.seen import ExactFilter
from anabranch.frontier.stores.memory.store import MemoryStore
from tests.crawler.builder import memory_frontier, settle
from tests.frontier.builder import HASTE, DelayingStore, build

URLS = [f"http://a.test/{number}" for number in range(7)]


async def test_the_loop_gets_its_turn_between_chunks(monkeypatch) -> None:
    """A sitemap's 50,000 would hold it up for half a second."""
    monkeypatch.setattr(seeding_module, "CHUNK", 2)
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


A, B, C = "http://a.test/", "http://b.test/", "http://c.test/"
DONE, FAILED, DISREGARDED, RETRY = (
    OutcomeKind.DONE,
    OutcomeKind.FAILED,
    OutcomeKind.DISREGARDED,
    OutcomeKind.RETRY,
)


@pytest.fixture
def recorded(tmp_path):
    with opened_seeds(tmp_path) as recorded:
        yield recorded


@pytest.fixture
async def frontier():
    async with memory_frontier() as frontier:
        yield frontier


@pytest.fixture
def scope():
    return open_scope(ScopeSection())


@pytest.fixture
def seeding(recorded, scope, frontier):
    return Seeding(recorded, scope, frontier, maker())


def given(*urls):
    return [Seed(url=url, source="command line") for url in urls]


async def end(frontier, kind, status):
    """End the next URL so."""
    frontier.finish(await frontier.lease(), Outcome(kind=kind, status=status))


async def test_new_seeds_are_noted_opened_and_scheduled(seeding, recorded, scope, frontier) -> None:
    """A seed is recorded, its host is in scope, and its URL is queued without hops."""
    await seeding.begin(given(A, B))
    assert list(recorded) == given(A, B)
    assert (scope.accepts(f"{A}1", "L"), scope.accepts(f"{C}1", "L")) == (True, False)
    leases = [await frontier.lease(), await frontier.lease()]
    assert sorted((lease.url, lease.hops) for lease in leases) == [(A, ""), (B, "")]


async def test_seeds_of_earlier_runs_are_seeds_though_nobody_names_them_again(seeding, recorded, frontier) -> None:
    """The rows say what the job began with."""
    recorded.add_all(given(A))
    await seeding.begin(given(B))
    assert frontier.core.pending == 2


async def test_a_seed_that_is_known_is_not_scheduled_twice(seeding, frontier) -> None:
    """Queued or answered, it stays as it is."""
    await seeding.begin(given(A, B))
    await end(frontier, DONE, 200)
    await seeding.begin(given(A, B))
    assert frontier.core.pending == 1
    assert frontier.core.operations.statistics().accepted == 2


@pytest.mark.parametrize(
    ("kind", "status", "is_again"),
    [
        (FAILED, -2, True),  # connect failed
        (FAILED, -5, True),  # a fault of ours
        (DISREGARDED, -5001, True),  # a private address, which this run may allow
        (FAILED, 503, False),  # that is an answer
        (DONE, 404, False),
        (DISREGARDED, -9998, False),  # robots.txt was read
    ],
)
async def test_a_seed_that_was_never_answered_is_tried_again(seeding, frontier, kind, status, is_again) -> None:
    """A repeated command retries such a seed, and no seed that was answered."""
    await seeding.begin(given(A))
    await end(frontier, kind, status)
    await seeding.begin(given(A))
    assert frontier.core.pending == is_again


async def test_a_seed_that_waits_for_a_retry_is_not_scheduled_again(seeding, frontier) -> None:
    """It is tried again anyway."""
    await seeding.begin(given(A))
    frontier.finish(await frontier.lease(), Outcome(kind=RETRY, status=-2, after_s=3600.0))
    await seeding.begin(given(A))
    assert frontier.core.pending == 1


async def test_the_target_of_a_redirect_is_tried_again_too(seeding, recorded, frontier) -> None:
    """It is a seed: a dead target gets its second chance."""
    recorded.add_all([Seed(url=B, source="redirect", via=A)])
    frontier.schedule([Candidate(url=B, hops="R")])
    await end(frontier, FAILED, -2)
    await seeding.begin([])
    assert (await frontier.lease()).url == B


async def test_the_target_of_a_redirect_comes_with_its_page(seeding, recorded, scope, frontier) -> None:
    """When a run ended between the record and the page's end, the page is fetched again and brings it."""
    recorded.add_all([Seed(url=B, source="redirect", via=A)])
    await seeding.begin([])
    assert frontier.core.is_done
    assert scope.accepts(f"{B}1", "RL"), "its place is open"


class AskedStore(MemoryStore):
    """Notes who asks how much about ended URLs; a look-up of a single one, which may cost a scan, is a defect."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = []

    def look_up(self, key):
        assert self.is_answering, "one question for all seeds, not one each"
        return super().look_up(key)

    is_answering = False

    def ended(self, keys):
        self.asked.append((len(keys), threading.current_thread() is threading.main_thread()))
        self.is_answering = True
        try:
            return super().ended(keys)
        finally:
            self.is_answering = False


async def test_the_seeds_are_asked_about_once_and_off_the_loop(recorded, scope) -> None:
    """However many they are: at the start, and again at the end."""
    store = AskedStore()
    core = build(store=store, politeness=HASTE).core
    async with AsyncFrontier(lambda on_change: core) as frontier:
        seeding = Seeding(recorded, scope, frontier, maker())
        await seeding.begin(given(A, B, C))
        await end(frontier, DONE, 200)
        await seeding.facts({})
    assert store.asked == [(3, False), (3, False)]


async def test_many_seeds_go_in_by_and_by(seeding, frontier, monkeypatch) -> None:
    """More seeds than one batch takes are all scheduled."""
    monkeypatch.setattr(seeding_module, "CHUNK", 2)
    await seeding.begin(given(*(f"http://a.test/{number}" for number in range(5))))
    assert frontier.core.pending == 5


async def test_seeds_wait_until_the_store_has_caught_up(recorded, scope) -> None:
    """While the Frontier answers BUSY, begin flushes and sends again; no seed is lost."""
    store = DelayingStore()
    core = build(store=store, politeness=HASTE, max_unacknowledged=1).core
    async with AsyncFrontier(lambda on_change: core) as frontier:
        frontier.schedule([Candidate(url=C)])
        store.flush()
        core.lease()
        store.flush()
        lease = core.lease()
        core.finish(lease, Outcome(kind=DONE, status=200))
        assert core.wake().at_s is None, "the store is behind"
        await Seeding(recorded, scope, frontier, maker()).begin(given(A, B))
        assert core.pending == 2


# Redirects


async def test_the_target_of_a_seeds_redirect_is_a_seed_at_once(seeding, recorded, scope) -> None:
    """It is recorded and in scope when the call returns."""
    await seeding.redirected(B, A)
    assert list(recorded) == [Seed(url=B, source="redirect", via=A)]
    assert scope.accepts(f"{B}1", "RL")


class SlowSeeds(Seeds):
    """Seeds that are recorded when the test lets them; notes the threads, and what each call records."""

    def __init__(self, database) -> None:
        super().__init__(database)
        self.may_write = threading.Event()
        self.threads = []
        self.calls = []
        self.inside = self.most_inside = 0

    def add_all(self, seeds):
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.threads.append(threading.current_thread())
        self.calls.append([seed.url for seed in seeds])
        self.may_write.wait()
        self.inside -= 1
        return super().add_all(seeds)


@pytest.fixture
def slow(tmp_path):
    with JobDatabase(tmp_path / "job.db", is_sole=True) as database:
        make_tables(database)
        slow = SlowSeeds(database)
        yield slow
        slow.may_write.set()  # a test that fails must not leave a thread that waits


async def test_redirects_are_recorded_off_the_loop_those_that_wait_together(slow, scope, frontier) -> None:
    """A disk that takes its time holds up nobody else, and each is recorded when its call returns."""
    seeding = Seeding(slow, scope, frontier, maker())
    tasks = [asyncio.create_task(seeding.redirected(url, A)) for url in (A, B, C)]
    await settle()
    assert not any(task.done() for task in tasks)
    slow.may_write.set()
    await asyncio.gather(*tasks)
    assert threading.main_thread() not in slow.threads
    assert slow.most_inside == 1
    assert slow.calls == [[A], [B, C]]
    assert {seed.url for seed in slow} == {A, B, C}


async def test_a_redirect_that_could_not_be_recorded_is_not_forgotten(slow, scope, frontier) -> None:
    """Its page does not end; those that waited are recorded only when the disk takes them again."""
    seeding = Seeding(slow, scope, frontier, maker())
    slow.may_write.set()
    with slow._database.transaction() as connection:
        connection.exec_driver_sql("PRAGMA query_only = 1")  # until the next connection
    tasks = [asyncio.create_task(seeding.redirected(url, A)) for url in (A, B, C)]
    with pytest.raises(StoreFull):
        await tasks[0]
    await asyncio.gather(*tasks[1:])
    assert {seed.url for seed in slow} == {A, B, C}
    assert slow.calls == [[A], [A, B, C]]


async def test_a_cancelled_redirect_is_written_to_the_end(slow, scope, frontier) -> None:
    """Nobody else may write while the thread still does."""
    seeding = Seeding(slow, scope, frontier, maker())
    task = asyncio.create_task(seeding.redirected(B, A))
    await settle()
    task.cancel()
    await settle()
    assert not task.done()
    slow.may_write.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert B in slow


# How they fared


async def test_the_facts_are_of_the_seeds_that_the_operator_gave(seeding, frontier) -> None:
    """Status, reason and redirect of each, in their order; what was not tried yet has 0."""
    await seeding.begin(given(A, B, C))
    for _ in range(2):
        lease = await frontier.lease()
        kind, status = (DONE, 301) if lease.url == A else (FAILED, -2)
        frontier.finish(lease, Outcome(kind=kind, status=status))
    await seeding.redirected("http://new.test/", A)
    failures = {B: "refused"}
    assert await seeding.facts(failures) == [
        SeedFact(A, 301, "", "http://new.test/"),
        SeedFact(B, -2, "refused", None),
        SeedFact(C, 0, "", None),
    ]


async def test_a_seed_that_the_frontier_does_not_know_was_not_tried(seeding, recorded) -> None:
    """A run may end before it has scheduled all of them."""
    recorded.add_all(given(A))
    assert await seeding.facts({}) == [SeedFact(A, 0, "", None)]


async def test_a_seed_that_is_added_later_is_noted_opened_and_scheduled(seeding, recorded, scope, frontier) -> None:
    """Durably, and what became of each is answered in the order of the seeds."""
    await seeding.begin(given(A))
    verdicts = await seeding.add(given(B, A, C))
    assert verdicts == [("new", ""), ("known", "queued"), ("new", "")]
    assert [seed.url for seed in recorded] == [A, B, C]
    assert scope.accepts(f"{C}1", "L")
    assert frontier.core.unacknowledged.durable == frontier.core.unacknowledged.last


class Hiding(ExactFilter):
    """A filter that errs about one URL."""

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        return [is_new and key != B.encode() for key, is_new in zip(keys, super().unseen(keys), strict=True)]


async def test_a_seed_that_the_filter_hides_is_told_and_queued_by_force(recorded, scope) -> None:
    """It is in no state, which is not the same as known; the other seeds are added all the same."""
    core = build(seen=Hiding(), politeness=HASTE).core
    async with AsyncFrontier(lambda _: core) as frontier:
        seeding = Seeding(recorded, scope, frontier, maker())
        assert await seeding.add(given(A, B)) == [("new", ""), HIDDEN]
        assert core.pending == 1
        assert await seeding.add(given(A, B), force=True) == [("known", "queued"), ("new", "")]
        assert core.pending == 2, "one that is queued is not queued twice"
        assert await seeding.add(given(B), force=True) == [("known", "queued")]


async def test_force_queues_a_seed_again_that_has_ended(recorded, scope) -> None:
    """Without it the state is named."""
    core = build(politeness=HASTE).core
    async with AsyncFrontier(lambda _: core) as frontier:
        seeding = Seeding(recorded, scope, frontier, maker())
        await seeding.add(given(A))
        await end(frontier, DONE, 200)
        assert await seeding.add(given(A)) == [("known", "done with 200 OK")]
        assert core.pending == 0
        assert await seeding.add(given(A), force=True) == [("new", "")]
        assert core.pending == 1


# Keys, sitemaps, order's functions


def failing(url):
    raise UserFunctionFailed(KEY, "own:key", "failed")


def maker(key=None):
    return CandidateMaker(key or Canonicalizer().key, SourceTags())


async def test_a_seed_is_known_by_its_key(recorded, scope, frontier) -> None:
    """Under another session id it is the same URL: its end is found, it is not fetched again, and each has its line."""
    first, second = (f"{A}p;jsessionid={number:032x}" for number in (1, 2))
    seeding = Seeding(recorded, scope, frontier, maker())
    await seeding.begin(given(first))
    await end(frontier, DONE, 200)
    await seeding.begin(given(second))
    assert frontier.core.pending == 0
    facts = await seeding.facts({})
    assert [(fact.url, fact.status) for fact in facts] == [(first, 200), (second, 200)]


@pytest.mark.parametrize("status", [-5000, -5001, -5003, -5004])
async def test_a_seed_that_was_not_wanted_is_tried_again(seeding, frontier, status) -> None:
    """The scope, or the limits, may be others now."""
    await seeding.begin(given(A))
    await end(frontier, DISREGARDED, status)
    await seeding.begin(given(A))
    assert frontier.core.pending == 1


async def test_with_sitemaps_the_usual_place_of_one_is_asked_for_on_each_seeds_host(recorded, scope, frontier) -> None:
    """Once a host, with the hop M and the tag of its first seed; targets of redirects have none; nor have later ones twice."""
    recorded.add_all([Seed(url=C, source="redirect", via=A)])
    mapping = Seeding(recorded, scope, frontier, maker(), sitemaps=True)
    await mapping.begin(given(f"{A}1", f"{A}2"))
    assert len(await mapping.add(given(B, f"{B}1"))) == 2
    leases = []
    while frontier.core.pending:
        leases.append(await frontier.lease())
        frontier.finish(leases[-1], Outcome(kind=DONE, status=200))
    maps = {lease.url: (lease.hops, lease.payload) for lease in leases if lease.url.endswith(".xml")}
    payloads = {lease.url: lease.payload for lease in leases}
    assert maps == {f"{A}sitemap.xml": ("M", payloads[f"{A}1"]), f"{B}sitemap.xml": ("M", payloads[B])}
    assert len(leases) == 6


async def test_a_sitemap_out_of_scope_is_not_asked_for(recorded, frontier) -> None:
    """A prefix does not hold what lies above it."""
    seeding = Seeding(recorded, open_scope(ScopeSection(scope="prefix")), frontier, maker(), sitemaps=True)
    await seeding.begin(given(f"{A}wiki/"))
    assert frontier.core.pending == 1


async def test_what_the_frontier_was_given_is_told(recorded, scope, frontier) -> None:
    """The similarity filter learns the seeds."""
    told = []

    async def note(candidates) -> None:
        told.extend(candidate.url for candidate in candidates)

    await Seeding(recorded, scope, frontier, maker(), given=note).begin(given(A, B))
    assert told == [A, B]


async def test_a_function_of_the_order_that_fails_for_a_seed_is_one_line(recorded, scope, frontier) -> None:
    """The crawl does not begin with a seed that has no key."""
    seeding = Seeding(recorded, scope, frontier, maker(failing))
    for take in (seeding.begin, seeding.add):
        with pytest.raises(OrderError, match="a seed cannot be taken: key function own:key failed"):
            await take(given(A))
    assert list(recorded) == [], "else no later run could begin either"


async def test_the_report_of_seeds_does_without_one_that_has_no_key_any_more(recorded, scope, frontier) -> None:
    """It is told at the end of a crawl, which a function that has begun to fail must not spoil."""
    await Seeding(recorded, scope, frontier, maker()).begin([Seed(url=A, source="command line")])
    (fact,) = await Seeding(recorded, scope, frontier, maker(failing)).facts({})
    assert (fact.url, fact.status) == (A, 0)


async def test_a_sitemap_that_a_function_fails_for_is_left_out_and_the_crawl_begins(recorded, scope, frontier) -> None:
    """It is a link like others, and was named by nobody."""

    def key(url):
        return failing(url) if url.endswith("sitemap.xml") else None

    seeding = Seeding(recorded, scope, frontier, maker(key), sitemaps=True)
    with structlog.testing.capture_logs() as events:
        await seeding.begin([Seed(url=A, source="command line")])
    assert frontier.core.pending == 1
    assert [(event["event"], event["url"]) for event in events] == [("a sitemap is left out", f"{A}sitemap.xml")]
