"""From candidates to rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from anabranch.frontier import admission
from anabranch.frontier.admission import SLICE, ForeignKeys, Marking
from anabranch.frontier.errors import PolicyError, StoreUnavailable
from anabranch.frontier.parts import flushed
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.records import (
    FRONT,
    LATER,
    NEW,
    NORMAL,
    SEEN,
    Candidate,
    Lease,
    Outcome,
    OutcomeKind,
    QueueKey,
    Row,
    VerdictKind,
    name_id,
)
from anabranch.frontier.seen import ExactFilter
from tests.frontier.builder import (
    HASTE,
    START_S,
    CountingStore,
    DelayingStore,
    FullFilter,
    Rig,
    build,
    candidates,
    pages,
)

URL = "http://a.test/"


def kinds(verdicts: list) -> list[VerdictKind]:
    return [verdict.kind for verdict in verdicts]


def test_verdicts_stand_in_the_order_of_the_batch() -> None:
    """New, seen and refused ones mixed: one answer each, at its place."""
    rig = build()
    rig.add("http://a.test/1")
    verdicts = rig.add("http://a.test/2", "http://a.test/1", "mailto:me@a.test", "http://b.test/", "http://a.test/2")
    assert kinds(verdicts) == [
        VerdictKind.NEW,
        VerdictKind.SEEN,
        VerdictKind.REFUSED,
        VerdictKind.NEW,
        VerdictKind.SEEN,
    ]
    assert rig.core.pending == 3


@pytest.mark.parametrize("url", ["", "/x", "mailto:me@a.test", "http:///x"])
def test_a_url_without_a_host_is_refused(url: str) -> None:
    """No queue and no gate can be found for it; the reason says what is needed."""
    rig = build()
    (verdict,) = rig.add(url)
    assert verdict.kind is VerdictKind.REFUSED
    assert verdict.reason == "it has no host; an absolute URL is needed"
    assert rig.core.is_done


def test_a_url_that_is_no_text_is_refused() -> None:
    """A lone surrogate cannot be stored; with a key of its own neither."""
    rig = build()
    text = "http://a.test/\udce4"
    verdicts = rig.core.schedule([Candidate(url=text), Candidate(url=text, key=b"own"), Candidate(url=URL)])
    assert kinds(verdicts) == [VerdictKind.REFUSED, VerdictKind.REFUSED, VerdictKind.NEW]
    assert verdicts[0].reason == "it is not text that UTF-8 can hold"


def test_what_is_refused_is_refused_whatever_the_filter_says() -> None:
    """Each time, also twice in a batch; what is refused stands in nobody's way."""
    rig = build()
    rig.core.schedule([Candidate(url=URL, key=b"own")])
    text = Candidate(url="http://a.test/\udce4", key=b"own")
    place = Candidate(url="/x")
    verdicts = rig.core.schedule([text, text, place, place, Candidate(url="http://b.test/", key=b"/x")])
    refused = VerdictKind.REFUSED
    assert kinds(verdicts) == [refused, refused, refused, refused, VerdictKind.NEW]


def test_a_url_is_forced_though_the_same_batch_asks_for_it_in_vain() -> None:
    """A seen URL stays seen; a forced one is enqueued, once in a batch."""
    rig = build()
    rig.add(URL)
    batch = [Candidate(url=URL), Candidate(url=URL, force=True), Candidate(url=URL), Candidate(url=URL, force=True)]
    assert rig.core.schedule(batch) == [SEEN, NEW, SEEN, SEEN]
    assert rig.core.pending == 2


def test_a_batch_of_nothing_says_nothing() -> None:
    """No candidates, or none that is new: no batch is written and no number used."""
    store = CountingStore()
    rig = build(store=store)
    assert rig.add() == []
    rig.add(URL)
    assert rig.add(URL) == [SEEN]
    assert (len(store.batches), rig.core.unacknowledged.last) == (1, 1)


def test_a_pending_url_is_seen_before_the_filter_knows_it() -> None:
    """Between acceptance and sync a set of keys answers."""
    store = DelayingStore()
    rig = build(store=store)
    assert rig.add(URL) == [NEW]
    assert list(rig.seen.unseen([URL.encode()])) == [True]
    assert rig.add(URL) == [SEEN]
    store.work()
    assert rig.core.wake()
    assert list(rig.seen.unseen([URL.encode()])) == [True], "written, not durable"
    store.commit()
    assert rig.add(URL) == [SEEN]
    assert list(rig.seen.unseen([URL.encode()])) == [False]
    assert rig.admission.marking.pending == set()


def test_a_key_is_unseen_as_long_as_it_would_be_new() -> None:
    """Asking changes nothing; from its acceptance on it is seen, durable or not."""
    rig = build(store=DelayingStore())
    for _ in range(2):
        assert list(rig.core.unseen([URL.encode(), b"own"])) == [True, True]
    rig.core.schedule([Candidate(url="http://b.test/", key=b"own")])
    assert list(rig.core.unseen([URL.encode(), b"own"])) == [True, False]
    assert rig.core.unacknowledged.last == 1


def dead(ordinal: int, url: str) -> Row:
    """A row that another crawl had first."""
    return Row(1, 1, NORMAL, ordinal, url, None, "", 0, 0, None, None)


def test_a_forced_url_that_is_not_durable_stays_pending_when_those_left_to_others_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its key was left to another crawl before; but now this one has a row of it under way, which a filter must not miss."""
    monkeypatch.setattr(admission, "REMEMBERED_KEYS", 1)
    rig = build(store=DelayingStore())
    rig.admission.marking.has_shared = True
    rig.add(URL)
    rig.add("http://b.test/")
    rig.admission.marking.synced(1, [dead(1, URL)])
    rig.admission.marking.mark_some()
    rig.add(URL, force=True)
    rig.admission.marking.synced(2, [dead(2, "http://b.test/")])
    rig.admission.marking.mark_some()
    assert rig.add(URL) == [SEEN]
    rig.admission.marking.synced(3)
    rig.admission.marking.mark_some()
    assert list(rig.seen.unseen([URL.encode(), b"http://b.test/"])) == [False, True]
    assert rig.admission.marking.pending == {b"http://b.test/"}


def test_a_forced_row_is_marked_though_another_of_its_key_died_with_the_same_sync() -> None:
    """The first of two rows with one key was left to another crawl; the second is this crawl's own."""
    rig = build(store=DelayingStore())
    rig.admission.marking.has_shared = True
    rig.add(URL)
    rig.add(URL, force=True)
    rig.admission.marking.synced(2, [dead(1, URL)])
    rig.admission.marking.mark_some()
    assert list(rig.seen.unseen([URL.encode()])) == [False]
    assert rig.admission.marking.pending == set()


def test_the_filter_is_marked_once_for_all_that_was_synced() -> None:
    """Several batches that became durable together are one call; nothing new, no call."""
    store, seen = DelayingStore(), FullFilter()
    rig = build(store=store, seen=seen)
    rig.add(*pages("a.test", 3))
    rig.add(*pages("b.test", 3))
    rig.block("a.test", 5.0)
    store.flush()
    assert rig.core.wake()
    assert seen.calls == ["mark"]
    rig.unblock("a.test")
    store.flush()
    assert rig.core.wake()
    assert seen.calls == ["mark"]
    assert seen.facts()["keys"] == 6.0


def test_a_key_of_ones_own_is_what_dedup_sees() -> None:
    """Two URLs with one key are the same; one URL with two keys is two; the lease brings the key back."""
    rig = build(politeness=HASTE)
    verdicts = rig.core.schedule(
        [
            Candidate(url="http://a.test/1", key=b"k"),
            Candidate(url="http://a.test/2", key=b"k"),
            Candidate(url="http://a.test/1"),
        ]
    )
    assert verdicts == [NEW, SEEN, NEW]
    leases = [rig.lease_now()]
    rig.finish(leases[0])
    leases.append(rig.lease_now())
    assert [(lease.url, lease.key) for lease in leases] == [
        ("http://a.test/1", b"k"),
        ("http://a.test/1", b"http://a.test/1"),
    ]


def test_payload_and_hops_come_back_in_the_lease() -> None:
    """They are the host's; the Frontier only carries them."""
    rig = build()
    rig.core.schedule([Candidate(url=URL, payload=b"\0\xff", hops="LLR")])
    lease = rig.lease_now()
    assert (lease.payload, lease.hops, lease.via) == (b"\0\xff", "LLR", None)


def test_force_enqueues_what_was_seen() -> None:
    """Though pending, marked or done; but once in a batch."""
    rig = build(politeness=HASTE)
    assert rig.add(URL) == [NEW]
    assert rig.add(URL, force=True) == [NEW]
    assert rig.add(URL, URL, force=True) == [NEW, SEEN]
    assert rig.core.pending == 3
    assert rig.drain(0.0) == [URL] * 3
    assert rig.add(URL) == [SEEN]
    assert rig.add(URL, force=True) == [NEW]
    rig.core.operations.check()


def test_rows_are_numbered_in_the_order_of_acceptance() -> None:
    """From 1, without holes; `front` has a smaller precedence."""
    store = CountingStore()
    rig = build(store=store)
    rig.add(URL, "nothing", "http://b.test/")
    rig.core.schedule(candidates("http://c.test/", front=True))
    rows = [row for batch in store.batches for row in batch.new]
    assert [(row.ordinal, row.url, row.precedence, row.via) for row in rows] == [
        (1, URL, NORMAL, 0),
        (2, "http://b.test/", NORMAL, 0),
        (3, "http://c.test/", FRONT, 0),
    ]


def test_queues_lanes_and_gates_are_named_when_they_are_new() -> None:
    """Each once: a lane whose rows are awaited in memory is not announced again."""
    store = CountingStore()
    rig = build(store=store, policy="bkdr:1")
    rig.add("http://a.test/1", "http://a.test:81/2", "http://b.test/")
    rig.add("http://b.test/2")
    first, second = store.batches[:2]
    queue, one, two = name_id("bkdr:0"), name_id("a.test"), name_id("b.test")
    assert {(name[0], name[1]) for name in first.queue_names} == {(queue, "bkdr:0")}
    assert {(lane.queue, lane.gate) for lane in first.announced} == {(queue, one), (queue, two)}
    assert (second.queue_names, second.announced, second.gate_names) == ([], [], [])
    assert [row.url for row in second.new] == ["http://b.test/2"]


def test_politeness_by_queue_has_a_gate_per_queue() -> None:
    """The published behaviour: one host is hit by as many fetches as it has queues."""
    rig = build(policy="bkdr:50", scope=PolitenessScope.QUEUE)
    rig.add(*pages("a.test", 30))
    leases = rig.lease_all()
    assert len(leases) == len({lease.queue for lease in leases}) > 10
    assert all(lease.gate == f"queue:{lease.queue}" for lease in leases)


def test_a_gate_can_be_changed_before_it_has_urls() -> None:
    """It is made, written with its block, and found by the first URL."""
    store = CountingStore()
    rig = build(store=store)
    rig.block("a.test", START_S + 60.0)
    rig.core.flush()
    row = store.gate(name_id("a.test"))
    assert row is not None
    assert (row.key, row.blocked_until_s) == ("a.test", START_S + 60.0)
    rig.add(URL)
    assert rig.lease() is None
    assert rig.core.wake().at_s == START_S + 60.0
    rig.clock.advance(60.0)
    assert rig.lease_now().url == URL


# Precedence


def test_urls_of_smaller_precedence_go_first_and_front_goes_before_all() -> None:
    """Directive, then URI precedence, then the order of acceptance, also when heads are in memory already."""
    rig = build(politeness=HASTE)
    rig.core.schedule([Candidate(f"http://a.test/{number}") for number in range(3)])
    rig.finish(rig.lease_now())
    rig.core.schedule(
        [
            Candidate("http://a.test/last", precedence=255),
            Candidate("http://a.test/first", precedence=0),
            Candidate("http://a.test/front", front=True, precedence=200),
        ]
    )
    rig.core.operations.check()
    assert [url.rpartition("/")[2] for url in rig.drain(0.0)] == ["front", "first", "1", "2", "last"]


@pytest.mark.parametrize("precedence", [-1, 256, 2.5, True])
def test_a_precedence_that_is_none_is_refused(precedence: object) -> None:
    """The reason says what may be given; the others of the batch are taken."""
    rig = build()
    verdicts = rig.core.schedule([Candidate(URL, precedence=precedence), Candidate("http://b.test/")])  # type: ignore[arg-type]
    assert kinds(verdicts) == [VerdictKind.REFUSED, VerdictKind.NEW]
    assert verdicts[0].reason == "its precedence is not a whole number from 0 to 255"


def test_the_orders_rule_gives_precedence_to_what_brings_none() -> None:
    """Here: few links from the seed first."""
    rig = build(politeness=HASTE, uri_precedence="hops")
    rig.core.schedule([Candidate(f"http://a.test/{hops}", hops=hops) for hops in ("LLL", "L", "LL")])
    assert [url.rpartition("/")[2] for url in rig.drain(0.0)] == ["L", "LL", "LLL"]


# Bad input


def test_a_url_with_a_nul_is_refused() -> None:
    """PostgreSQL cannot keep one."""
    (verdict,) = build().add("http://a.test/\0")
    assert (verdict.kind, verdict.reason) == (VerdictKind.REFUSED, "it holds a NUL character")


def test_long_keys_and_urls_are_taken_as_they_are() -> None:
    """10,000 characters of URL, 10,000 bytes of key: nothing is cut."""
    rig = build(politeness=HASTE)
    url, key = f"http://a.test/{'x' * 10_000}", bytes(range(250)) * 40
    assert rig.core.schedule([Candidate(url), Candidate("http://a.test/k", key=key)]) == [NEW, NEW]
    assert rig.core.schedule([Candidate(url), Candidate("http://a.test/other", key=key)]) == [SEEN, SEEN]
    leases = [rig.lease_now()]
    rig.finish(leases[0])
    leases.append(rig.lease_now())
    assert [(lease.url, lease.key) for lease in leases] == [(url, url.encode()), ("http://a.test/k", key)]


def test_a_host_of_ten_thousand_characters_is_a_host() -> None:
    """No name server knows it; the queue, the gate and the store take it."""
    rig = build()
    host = f"{'a' * 10_000}.test"
    assert rig.add(f"http://{host}/") == [NEW]
    lease = rig.lease_now()
    assert (lease.gate, lease.queue) == (host, host)
    rig.finish(lease)
    rig.core.operations.check()


def test_a_payload_of_ten_megabytes_comes_back() -> None:
    """It is opaque; it goes through memory as it is."""
    rig = build()
    payload = b"\0\xff" * 5_000_000
    rig.core.schedule([Candidate(URL, payload=payload)])
    assert rig.lease_now().payload == payload


# Functions of the user's own


def failing(_: object, *more: object) -> int:
    """Fails for every URL with "bad" in it."""
    if "bad" in str(getattr(_, "url", _)):
        raise ValueError("no idea")
    return 7


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("uri_precedence", r"URI precedence .*:failing for http://a\.test/bad failed: ValueError: no idea"),
        ("policy", r"policy .*:failing_policy for http://a\.test/bad failed: ValueError: no idea"),
    ],
)
def test_a_function_that_fails_changes_nothing(field: str, message: str) -> None:
    """Neither `schedule` nor `finish` takes anything of the batch; the lease is still out, and the call can be made again."""
    name = f"{__name__}:{'failing_policy' if field == 'policy' else 'failing'}"
    store = CountingStore()
    rig = build(store=store, **{field: name})
    rig.add(URL)
    sent = rig.core.unacknowledged.last
    with pytest.raises(PolicyError, match=message):
        rig.add("http://a.test/good", "http://a.test/bad")
    assert (rig.core.unacknowledged.last, rig.core.pending) == (sent, 1)
    lease = rig.lease_now()
    sent = rig.core.unacknowledged.last
    with pytest.raises(PolicyError, match=message):
        rig.finish(lease, links=["http://a.test/good", "http://a.test/bad"])
    assert (rig.core.unacknowledged.last, rig.core.pending, rig.core.in_flight) == (sent, 0, 1)
    rig.core.operations.check()
    assert rig.finish(lease, links=["http://a.test/good"]) == [NEW]
    rig.core.operations.check()
    assert rig.core.pending == 1


def failing_policy(url: str) -> str:
    """One queue for all, unless it fails."""
    failing(url)
    return "all"


# A filter that blocks


class BlockingFilter(ExactFilter):
    """One that may wait for a network: the core may not ask it."""

    blocks = True

    def unseen(self, keys: object) -> list[bool]:
        raise AssertionError("it is asked by the store's thread only")

    def mark(self, keys: object) -> None:
        raise AssertionError("it is marked by the store's thread only")


def test_with_a_filter_that_blocks_every_key_is_unseen() -> None:
    """Only the store may ask it."""
    rig = build()
    rig.parts.admission._seen = BlockingFilter()
    assert list(rig.core.unseen([URL.encode()])) == [True]


def test_a_filter_that_blocks_is_not_asked_here() -> None:
    """The store decides later; what is refused is refused at once, what is twice in a batch is seen."""
    store = DelayingStore()
    rig = build(store=store)
    rig.parts.admission._seen = BlockingFilter()
    assert kinds(rig.add(URL, "nothing", URL)) == [VerdictKind.LATER, VerdictKind.REFUSED, VerdictKind.SEEN]
    assert rig.add(URL) == [LATER], "nobody here knows that it is pending"
    assert rig.core.pending == 2
    store.flush()
    rig.core.take_answers()
    assert rig.core.pending == 1, "the duplicate died in the store"
    assert rig.admission.marking.ordinal == 2, "what is durable is marked"


def test_outcomes_take_links_later_too() -> None:
    """`finish` answers LATER for them, as `schedule` does."""
    rig = build()
    rig.parts.admission._seen = BlockingFilter()
    rig.add(URL)
    lease = rig.lease_now()
    assert rig.core.finish(lease, Outcome(OutcomeKind.DONE), candidates("http://b.test/")) == [LATER]
    assert rig.core.operations.explain(QueueKey("b.test")).state == "inactive"


MANY = 10 * SLICE


class CountingFilter(ExactFilter):
    """Notes how many keys each call marks."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def mark(self, keys: Sequence[bytes]) -> None:
        self.calls.append(len(keys))
        super().mark(keys)


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def keys(first: int, count: int) -> list[bytes]:
    return [key(number) for number in range(first, first + count)]


@pytest.fixture
def seen() -> CountingFilter:
    return CountingFilter()


@pytest.fixture
def durable(seen: CountingFilter) -> Rig:
    """Very many rows, that one commit made durable; nothing was asked since."""
    store = DelayingStore()
    rig = build(store=store, seen=seen)
    for url in pages("a.test", MANY):
        rig.add(url)
    store.flush()
    return rig


def test_a_call_marks_one_slice_of_what_became_durable(durable: Rig, seen: CountingFilter) -> None:
    """However much one commit brought: a host's event loop waits for each call."""
    for _ in range(5):
        durable.core.counts()
    assert max(seen.calls) <= SLICE + 1
    assert len(seen.calls) == 5


def test_what_waits_for_its_slice_is_seen(durable: Rig, seen: CountingFilter) -> None:
    """The pending set has it until the filter knows it."""
    last = pages("a.test", MANY)[-1]
    assert durable.add(last) == [SEEN]
    assert list(seen.unseen([last.encode()])) == [True]
    durable.core.flush()
    assert durable.add(last) == [SEEN]
    assert list(seen.unseen([last.encode()])) == [False]


def test_a_flush_marks_the_rest(durable: Rig, seen: CountingFilter) -> None:
    """Slice by slice; then nothing is pending, and every row may stand in a checkpoint."""
    durable.core.flush()
    assert seen.facts()["keys"] == MANY
    assert durable.admission.marking.pending == set()
    assert durable.admission.marking.ordinal == MANY


def test_a_flush_in_steps_lets_others_in_between_the_slices(durable: Rig, seen: CountingFilter) -> None:
    """An event loop goes on between them."""
    durable.core.counts()  # with the keys that came in since the last slice
    marked = [sum(seen.calls)]
    steps = flushed(durable.parts, durable.store)
    question = next(steps)
    try:
        while True:
            question = steps.send(question())
            marked.append(sum(seen.calls))
    except StopIteration:
        marked.append(sum(seen.calls))
    assert marked[-1] == MANY
    assert max(after - before for before, after in pairwise(marked)) <= 2 * SLICE


def test_a_close_marks_the_rest(durable: Rig, seen: CountingFilter) -> None:
    """A clean end says that the filter knows every row."""
    durable.core.close()
    assert seen.facts()["keys"] == MANY


def test_a_failing_filter_ends_the_call_that_marks(durable: Rig) -> None:
    """It raises the filter's error, and so does every further call."""
    rig = build(store=DelayingStore(), seen=FullFilter("mark"))
    rig.add("http://a.test/")
    rig.store.flush()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="the filter"):
            rig.core.counts()


def test_no_row_is_called_known_before_its_last_key_is_marked(seen: CountingFilter) -> None:
    """A checkpoint takes that number; after a kill only rows above it are marked again."""
    marking = Marking(seen)
    marking.remember(1, 100, keys(0, SLICE - 1))
    marking.remember(2, 200, keys(SLICE, SLICE))
    marking.mark_some()  # takes in how many came
    marking.synced(1)
    marking.synced(2)
    assert marking.ordinal == 0
    marking.mark_some()
    assert (seen.calls, marking.ordinal) == ([SLICE], 100)
    marking.mark_some()
    assert (seen.calls, marking.ordinal) == ([SLICE, SLICE - 1], 200)


def test_batches_without_keys_are_known_at_once(seen: CountingFilter) -> None:
    """A filter that blocks is marked by the store."""
    marking = Marking(seen)
    marking.remember(1, 7, [])
    marking.synced(1)
    marking.mark_some()
    assert (seen.calls, marking.ordinal) == ([], 7)


def test_what_is_to_be_marked_does_not_pile_up(seen: CountingFilter) -> None:
    """Pages of more links than a slice has keys, each with one call: a slice is larger by what came in."""
    store = DelayingStore()
    rig = build(store=store, seen=seen)
    per_page = 3 * SLICE
    for number in range(20):
        rig.add(*pages("a.test", per_page, str(number)))
        store.flush()
    assert len(rig.admission.marking.pending) <= 2 * per_page


A, B, C, D = (f"http://{name}.test/".encode() for name in "abcd")


def died(*keys: bytes) -> list[Row]:
    return [Row(1, 1, NORMAL, 1, key.decode(), None, "", 0, 0, None, None) for key in keys]


def nothing() -> list[bytes]:
    return []


def test_what_died_is_left_and_stays_pending() -> None:
    """The rest is this crawl's, and known from now on."""
    assert ForeignKeys().sort_out([A, B, C], died(B), nothing) == ([A, C], {A, C})


def test_a_key_of_a_row_that_died_and_of_one_that_lives_is_own() -> None:
    """One of two rows with the key died: the other was forced."""
    left = ForeignKeys()
    assert left.sort_out([A, B, A], died(A), nothing) == ([A, B], {A, B})


def test_of_too_many_those_left_before_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are pending no more, so they are asked about again; those that died last stay."""
    monkeypatch.setattr(admission, "REMEMBERED_KEYS", 2)
    left = ForeignKeys()
    assert left.sort_out([A, B], died(A, B), nothing) == ([], set())
    assert left.sort_out([C], died(C), nothing) == ([], {A, B})
    assert left.sort_out([D], died(D), nothing) == ([], set())


def test_a_key_that_is_under_way_again_stays_pending_when_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forced row of it is not durable yet."""
    monkeypatch.setattr(admission, "REMEMBERED_KEYS", 1)
    left = ForeignKeys()
    left.sort_out([A], died(A), nothing)
    assert left.sort_out([B], died(B), lambda: [A]) == ([], set())
    assert left.sort_out([A], [], nothing) == ([A], {A})


def test_a_key_that_is_own_by_now_is_not_left_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it take room."""
    monkeypatch.setattr(admission, "REMEMBERED_KEYS", 1)
    left = ForeignKeys()
    left.sort_out([A], died(A), nothing)
    left.sort_out([A, C], [], nothing)
    assert left.sort_out([B], died(B), nothing) == ([], set())


# A page's end that is prepared


ASKED: list[str] = []


def noted_key(url: str) -> str:
    """A queue policy of the user that remembers what it was asked."""
    ASKED.append(url)
    return "one"


def linked(rig: Rig, url: str) -> tuple[Lease, list[Candidate]]:
    """A leased page, and its links: a known one twice, a new one, one that cannot be queued, another new one."""
    rig.add(url)
    links = candidates(url, "http://a.test/new", url, "mailto:me@a.test", "http://a.test/newer")
    return rig.settled(), links


def ended(rig: Rig, lease: Lease) -> Outcome:
    return Outcome(OutcomeKind.DONE, 200, lease.since_s, rig.clock.now_s)


def test_a_page_whose_end_was_prepared_asks_no_policy_and_asks_the_filter_only_for_what_was_new() -> None:
    """And nothing is changed by the preparation."""
    rig = build(policy=f"{__name__}:noted_key")
    lease, links = linked(rig, URL)
    before = rig.core.unacknowledged.last
    prepared = rig.core.prepare(lease, OutcomeKind.DONE, links)
    assert rig.core.unacknowledged.last == before
    ASKED.clear()
    asked = rig.seen.facts()["asked"]
    verdicts = rig.core.finish(lease, ended(rig, lease), links, prepared)
    assert kinds(verdicts) == [VerdictKind(word) for word in ("seen", "new", "seen", "refused", "new")]
    assert ASKED == []
    assert rig.seen.facts()["asked"] == asked + 2
    assert rig.core.pending == 2


def test_a_link_that_another_page_queued_since_the_preparation_is_known_by_then() -> None:
    rig = build(policy=f"{__name__}:noted_key")
    lease, links = linked(rig, URL)
    prepared = rig.core.prepare(lease, OutcomeKind.DONE, links)
    rig.add("http://a.test/new")
    verdicts = rig.core.finish(lease, ended(rig, lease), links, prepared)
    assert kinds(verdicts) == [VerdictKind(word) for word in ("seen", "seen", "seen", "refused", "new")]
    assert rig.core.pending == 2
    assert rig.core.known.facts() == plain_facts_of_the_same()


def plain_facts_of_the_same() -> dict[str, int]:
    """The counts of known links of a page whose end was not prepared."""
    rig = build()
    lease, links = linked(rig, URL)
    rig.add("http://a.test/new")
    rig.core.finish(lease, ended(rig, lease), links)
    return rig.core.known.facts()
