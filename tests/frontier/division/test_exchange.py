"""Several Frontiers as one: each fetches what is its own, and no link is lost between them."""

import json
import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from anabranch.frontier.division.exchange import LinkExchange
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.division.parcels import unpacked
from anabranch.frontier.errors import FormatMismatch, PolicyError
from anabranch.frontier.inspect.dump import load_dump
from anabranch.frontier.inspect.load import Known, Queued, Refusal
from anabranch.frontier.records import Candidate, QueueKey
from anabranch.frontier.stores.memory.store import MemoryStore
from tests.frontier.builder import HASTE, DelayingStore, FakeClock, Rig, build, candidates

#: Hosts of the first and of the second of two shares.
HERE, THERE = (
    [
        host
        for host in (f"h{number}.test" for number in range(40))
        if Division(shares=2, share=0).owner_of(host) == share
    ]
    for share in (0, 1)
)


def share(number: int = 0, shares: int = 2, **more: Any) -> Rig:
    return build(**{"division": Division(shares=shares, share=number), "politeness": HASTE, **more})


def exchange(rig: Rig) -> LinkExchange:
    assert rig.core.exchange is not None
    return rig.core.exchange


def url(host: str, path: str = "") -> str:
    return f"http://{host}/{path}"


def sent(rig: Rig, to: int = 1) -> list[Candidate]:
    """All that waits for a share."""
    content = b"".join(parcel.content for parcel in exchange(rig).waiting(to, 0, 1000))
    return [candidate for page in unpacked(content) for candidate in page.candidates]


def test_a_link_of_another_share_goes_into_a_parcel_and_into_no_queue() -> None:
    """It is nobody's here: no queue, no gate, no count."""
    rig = share()
    rig.add(url(HERE[0]), url(THERE[0]))
    assert rig.core.pending == 1
    assert [candidate.url for candidate in sent(rig)] == [url(THERE[0])]
    rig.core.operations.check()


def test_a_parcel_is_written_with_the_page_that_it_comes_from() -> None:
    """In one batch, so in one transaction: no page is done whose links elsewhere could be lost."""
    store = DelayingStore()
    rig = share(store=store)
    rig.add(url(HERE[0]))
    rig.finish(rig.settled(), links=[url(THERE[0], "a"), url(HERE[0], "b"), url(THERE[1], "c")])
    store.flush()
    (batch,) = [batch for batch in store.batches if batch.ended]
    assert batch.exchanged is not None
    assert len(batch.exchanged.parcels) == 1
    assert [row.url for row in batch.new] == [url(HERE[0], "b")]
    assert [candidate.url for candidate in sent(rig)] == [url(THERE[0], "a"), url(THERE[1], "c")]


def test_a_link_that_was_sent_lately_is_not_sent_again() -> None:
    """It stands on every page of a site."""
    rig = share()
    for number in range(5):
        rig.add(url(THERE[0], "home"), url(THERE[0], str(number)))
    assert Counter(candidate.url for candidate in sent(rig))[url(THERE[0], "home")] == 1
    assert len(sent(rig)) == 6


def test_a_call_that_a_function_of_ones_own_fails_for_sends_nothing() -> None:
    """It changes nothing at all, so a link of its page is new when it is met again."""
    rig = share()
    assign = rig.admission.assignment.queues_of

    def assigned(urls: Sequence[str]) -> Sequence[QueueKey]:
        if any(each.endswith("/bad") for each in urls):
            raise PolicyError("it failed")
        return assign(urls)

    rig.admission.assignment.queues_of = assigned
    with pytest.raises(PolicyError):
        rig.core.schedule(candidates(url(THERE[0]), url(HERE[0], "bad")))
    rig.add(url(HERE[0]))
    assert sent(rig) == []
    rig.add(url(THERE[0]))
    assert [candidate.url for candidate in sent(rig)] == [url(THERE[0])]


def test_all_that_belongs_to_a_link_travels_with_it() -> None:
    """Its key, path, payload and precedence, and the page it was found on."""
    here, there = share(0), share(1)
    whole = Candidate(url(THERE[0], "x"), b"\x00key", "LE", b"\xff\x00", front=True, precedence=7)
    here.add(url(HERE[0]))
    lease = here.settled()
    here.core.schedule([whole], lease)
    deliver(here, there)
    got = there.settled()
    assert (got.url, got.key, got.hops, got.payload, got.via) == (whole.url, whole.key, "LE", b"\xff\x00", url(HERE[0]))


def deliver(sender: Rig, receiver: Rig) -> None:
    """All that waits, once."""
    receivers = exchange(receiver).division.share
    for parcel in exchange(sender).waiting(receivers, 0, 1000):
        assert exchange(receiver).receive(unpacked(parcel.content))
        exchange(sender).delivered(receivers, parcel.number)


def test_what_is_received_twice_is_queued_once() -> None:
    """A parcel is sent again if nobody said that it had arrived."""
    here, there = share(0), share(1)
    here.add(url(THERE[0]), url(THERE[1]))
    (parcel,) = exchange(here).waiting(1, 0, 10)
    for _ in range(3):
        assert exchange(there).receive(unpacked(parcel.content))
    assert there.core.pending == 2
    there.core.operations.check()


def test_what_was_delivered_waits_no_more() -> None:
    """What came later does."""
    here, there = share(0), share(1)
    here.add(url(THERE[0]))
    deliver(here, there)
    here.add(url(THERE[1]))
    assert [candidate.url for candidate in sent(here)] == [url(THERE[1])]


def test_a_share_that_is_behind_takes_nothing() -> None:
    """The other keeps it, and sends it again later."""
    store = DelayingStore()
    there = share(1, store=store, max_unacknowledged=1)
    there.add(url(THERE[0]))
    there.finish(there.settled(), links=[url(THERE[1])])
    assert not exchange(there).receive([])
    store.flush()
    there.core.take_answers()
    assert exchange(there).receive([])


def test_whoever_sends_is_told_of_each_parcel() -> None:
    """So nobody has to look for them."""
    told: list[int] = []
    rig = share(0, shares=3)
    exchange(rig).on_parcel(told.append)
    rig.add(*(url(f"h{number}.test") for number in range(30)))
    assert sorted(told) == [1, 2]
    assert set(exchange(rig).last) == {1, 2}


def test_a_store_is_not_opened_as_another_share() -> None:
    """Its hosts would be another's."""
    store = MemoryStore()
    share(0, store=store).core.close()
    for other in (Division(shares=2, share=1), Division(shares=3, share=0), None):
        with pytest.raises(FormatMismatch):
            build(store=store, division=other)
    share(0, store=store).core.close()


def test_what_is_loaded_into_a_share_is_its_own() -> None:
    """One file, loaded into each share, is divided; a host in two shares would have two gates."""
    rig = share()
    entries = [Queued(f"f:{line}", Candidate(url(host))) for line, host in enumerate((HERE[0], THERE[0]))]
    report = rig.core.operations.load([*entries, Known("f:3", url(THERE[1])), Known("f:4", url(HERE[1]))])
    assert (report.queued, report.known, report.foreign, report.refused) == (1, 1, 2, 0)
    assert report.first_foreign == Refusal("f:3", url(THERE[1]), "its host belongs to another share of the crawl")
    assert rig.core.pending == 1
    assert not sent(rig)
    rig.core.operations.check()


def test_a_parcel_outlives_the_run_that_put_it() -> None:
    """It is the next run's to send."""
    store = MemoryStore()
    first = share(0, store=store)
    first.add(url(THERE[0]))
    first.core.close()
    assert [candidate.url for candidate in sent(share(0, store=store))] == [url(THERE[0])]


WHOLE = Candidate(url(THERE[0], "x"), b"\x00key", "LE", b"\xff\x00", front=True, precedence=7)


def owing() -> Rig:
    """A share that has fetched a page, which had a link to each share; and has something that was found on no page."""
    rig = share()
    rig.add(url(HERE[0]), url(THERE[1]))
    lease = rig.settled()
    rig.core.schedule([WHOLE, Candidate(url(HERE[1]))], lease)
    rig.finish(lease)
    return rig


def consigned(rig: Rig, to: int = 1) -> set[tuple[str | None, Candidate]]:
    """What waits for a share, and where it was found."""
    content = b"".join(parcel.content for parcel in exchange(rig).waiting(to, 0, 1000))
    return {(page.page, candidate) for page in unpacked(content) for candidate in page.candidates}


def test_what_is_under_way_is_dumped_and_is_under_way_again() -> None:
    """A share that takes its own dump is owed, and owes, what it was: nothing is lost, and to load it twice changes nothing."""
    old, new = owing(), share()
    lines = list(old.core.operations.dump())
    assert '"share":1' in lines[-2]
    assert lines[-1] == '{"end":true,"ended":1,"queued":1,"under_way":2}\n'
    report = load_dump(lines, new.core.operations.loading)
    assert (report.known, report.queued, report.sent, report.refused, report.foreign) == (1, 1, 2, 0, 0)
    assert consigned(new) == consigned(old) == {(None, Candidate(url(THERE[1]))), (url(HERE[0]), WHOLE)}
    deliver(new, there := share(1))
    load_dump(lines, new.core.operations.loading)
    deliver(new, there)
    assert there.core.pending == 2
    new.core.operations.check()


@pytest.mark.parametrize("division", [None, Division(shares=2, share=1)])
def test_what_was_under_way_is_queued_where_it_is_loaded_by_its_owner(division: Division | None) -> None:
    """Which may be a crawl that is not divided."""
    rig = build(division=division, politeness=HASTE)
    report = load_dump(owing().core.operations.dump(), rig.core.operations.loading)
    assert report.sent == 0
    assert {rig.settled().url for _ in range(rig.core.pending)} >= {WHOLE.url, url(THERE[1])}


def test_what_is_owed_to_several_shares_names_each() -> None:
    """However it was parted."""
    rig = share(0, shares=3)
    rig.add(*(url(f"h{number}.test") for number in range(30)))
    told = [(each["url"], each["share"]) for each in map(json.loads, rig.core.operations.dump()) if "share" in each]
    division = Division(shares=3, share=0)
    assert {to for _, to in told} == {1, 2}
    assert all(division.owner_of_url(found) == to for found, to in told)


class Crawl:
    """Shares over slow stores that exchange what they have by a post which may deliver late, and twice."""

    def __init__(self, web: Mapping[str, Sequence[str]], shares: int, seed: int) -> None:
        self._web = web
        self._chance = random.Random(seed)
        clock = FakeClock()
        self._rigs = [share(number, shares, store=DelayingStore(), clock=clock) for number in range(shares)]
        self._post: list[tuple[int, int, int, bytes]] = []
        self.fetched: Counter[str] = Counter()
        self.owed = 0  # links that were under way when the shares were moved
        for rig in self._rigs:
            rig.add("http://h0.test/")

    def run(self) -> None:
        """Until nothing moves any more."""
        steps = [self._step_fetch, self._step_post, self._step_deliver]
        while True:
            moved = [step() for _ in range(20) for step in self._chance.sample(steps, 3)]
            if not any(moved) and not sum(step() for step in steps for _ in range(5)):
                break
        for rig in self._rigs:
            rig.core.operations.check()

    def move(self) -> None:
        """Each share is dumped, and the dumps are loaded into shares that know nothing; what the post has is lost."""
        clock, count = FakeClock(), len(self._rigs)
        moved = [share(number, count, store=DelayingStore(), clock=clock) for number in range(count)]
        for rig, new in zip(self._rigs, moved, strict=True):
            report = load_dump(rig.core.operations.dump(), new.core.operations.loading)
            assert not report.foreign
            self.owed += report.sent
        self._rigs, self._post = moved, []

    def step(self, steps: int) -> None:
        """Some way towards the end."""
        for _ in range(steps):
            self._chance.choice([self._step_fetch, self._step_post, self._step_deliver])()

    def _step_fetch(self) -> bool:
        rig = self._chance.choice(self._rigs)
        if self._chance.random() < 0.3:
            rig.store.flush()
        lease = rig.lease_next()
        if lease is None:
            for rig in self._rigs:
                rig.store.flush()
                rig.core.take_answers()
            return False
        self.fetched[lease.url] += 1
        rig.fetch(lease, links=self._web.get(lease.url, ()))
        return True

    def _step_post(self) -> bool:
        rig = self._chance.choice(self._rigs)
        found = [
            (exchange(rig).division.share, to, parcel.number, parcel.content)
            for to in range(len(self._rigs))
            for parcel in exchange(rig).waiting(to, 0, 3)
        ]
        self._post += found
        return bool(found)

    def _step_deliver(self) -> bool:
        if not self._post:
            return False
        source, to, number, content = self._post.pop(self._chance.randrange(len(self._post)))
        receiver = self._rigs[to]
        if exchange(receiver).receive(unpacked(content)):
            receiver.store.flush()
            # Only the oldest may be taken away: a later one that is there says nothing of those before it.
            first = exchange(self._rigs[source]).waiting(to, 0, 1)
            if first and first[0].number == number:
                exchange(self._rigs[source]).delivered(to, number)
        return True


def page_of(number: int) -> str:
    return f"http://h{number % 17}.test/{number or ''}"


def made_web(chance: random.Random) -> Mapping[str, Sequence[str]]:
    pages = [page_of(number) for number in range(200)]
    return {page: [*chance.sample(pages, 6), pages[(number + 1) % 200]] for number, page in enumerate(pages)}


@pytest.mark.parametrize(("seed", "shares"), [(1, 2), (2, 3), (3, 5)])
def test_shares_together_fetch_every_url_once(seed: int, shares: int) -> None:
    """However late parcels come, and however often: the set is the one that a single Frontier fetches."""
    web = made_web(random.Random(seed))
    crawl = Crawl(web, shares, seed)
    crawl.run()
    assert crawl.fetched == Counter(reached(web))


@pytest.mark.parametrize(("seed", "shares"), [(1, 2), (2, 3)])
def test_shares_that_are_dumped_and_loaded_fetch_every_url_once(seed: int, shares: int) -> None:
    """Though links are under way between them: each page is linked once, so one that was left behind would be missing."""
    web = {page_of(number): [page_of(2 * number + 1), page_of(2 * number + 2)] for number in range(150)}
    crawl = Crawl(web, shares, seed)
    for _ in range(4):
        crawl.step(60)
        crawl.move()
    assert crawl.owed
    crawl.run()
    assert crawl.fetched == Counter(reached(web))


def reached(web: Mapping[str, Sequence[str]]) -> Iterator[str]:
    known, queue = {"http://h0.test/"}, deque(["http://h0.test/"])
    while queue:
        page = queue.popleft()
        yield page
        for link in web.get(page, ()):
            if link not in known:
                known.add(link)
                queue.append(link)


def test_a_frontier_that_is_all_of_its_crawl_has_no_exchange() -> None:
    """Nothing is asked of whom a URL belongs to."""
    rig = build()
    assert rig.core.exchange is None
    assert rig.admission.elsewhere is None
    assert [verdict.kind.value for verdict in rig.core.schedule(candidates(url(THERE[0])))] == ["new"]
