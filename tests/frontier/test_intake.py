"""From candidates to rows."""

import pytest

from frontier.assignment import PolitenessScope
from frontier.fingerprints import name_id
from frontier.models import FRONT, NEW, NORMAL, SEEN, Candidate, GateKey, VerdictKind
from frontier.stores.base import GateRow, LaneRow, QueueRow
from tests.frontier.builder import HASTE, CountingStore, DelayingStore, FullFilter, build, candidates, pages

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


def test_a_url_that_was_seen_before_it_was_forced_in_the_same_batch_stays_seen() -> None:
    """One answer per key and batch."""
    rig = build()
    rig.add(URL)
    assert rig.core.schedule([Candidate(url=URL), Candidate(url=URL, force=True)]) == [SEEN, SEEN]


def test_a_batch_of_nothing_says_nothing() -> None:
    """No candidates, or none that is new: no batch is written and no number used."""
    store = CountingStore()
    rig = build(store=store)
    assert rig.add() == []
    rig.add(URL)
    assert rig.add(URL) == [SEEN]
    assert (len(store.batches), rig.core.said) == (1, 1)


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
    assert rig.intake._pending == set()


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
    rig.core.check()


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


def test_queues_lanes_and_gates_are_written_when_they_are_new() -> None:
    """Each once, in the batch that needs it first."""
    store = CountingStore()
    rig = build(store=store, policy="bkdr:1")
    rig.add("http://a.test/1", "http://a.test:81/2", "http://b.test/")
    rig.add("http://b.test/2")
    first, second = store.batches
    queue, one, two = name_id("bkdr:0"), name_id("a.test"), name_id("b.test")
    assert first.queues == [QueueRow(queue, "bkdr:0")]
    assert first.lanes == [LaneRow(queue, one, 3, 1, 0), LaneRow(queue, two, 3, 2, 0)]
    assert [gate.key for gate in first.gates] == ["a.test", "b.test"]
    assert (second.queues, second.lanes, second.gates) == ([], [], [])


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
    rig.block("a.test", rig.clock.now_s + 60)
    (batch,) = store.batches
    assert batch.gates == [GateRow(name_id("a.test"), GateKey("a.test"), 0.0, rig.clock.now_s + 60, 0.0, 3.0)]
    rig.add(URL)
    assert rig.lease() is None
    assert store.batches[1].gates == []
