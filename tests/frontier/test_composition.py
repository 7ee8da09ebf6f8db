"""A Frontier from its order: in memory, and on disk where it is taken up again."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from anabranch.dedup.smm.growing import GrowingBits
from anabranch.dedup.uniq import UniqParameters
from anabranch.frontier.composition import open_frontier
from anabranch.frontier.errors import FormatMismatch, FrontierError, PolicyError, StoreInUse, StoreUnavailable
from anabranch.frontier.filters import DedupFilter
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.sheets import Override, Settings
from anabranch.frontier.records import (
    LATER,
    NEW,
    SEEN,
    Candidate,
    GateKey,
    HostTrouble,
    Lease,
    Outcome,
    OutcomeKind,
    QueueKey,
    VerdictKind,
    WaitsFor,
)
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.seen import ExactFilter
from anabranch.frontier.stores.memory.store import MemoryStore
from anabranch.frontier.stores.sql.store import SqlStore
from tests.frontier.builder import HASTE, START_S, FakeClock, candidates, pages

#: A small filter, so that opening it costs nothing.
SMALL = UniqParameters(levels=(1, 1), expected=1000, leaf_bits=1 << 14)
ORDER = FrontierOrder(policy="bkdr:7", uniq=SMALL)
DONE = Outcome(kind=OutcomeKind.DONE, status=200)


def opened(state: Path | None, clock: FakeClock | None = None, order: FrontierOrder = ORDER) -> Frontier:
    return open_frontier(state, order, clock=clock or FakeClock())


Opens = Callable[..., Frontier]


@pytest.fixture
def opened_in_memory() -> Iterator[Opens]:
    """Opens a Frontier in memory from its order (and a clock); it is closed at the end of the test."""
    with ExitStack() as open_ones:
        yield lambda order, clock=None: open_ones.enter_context(opened(None, clock, order))


def crash(frontier: Frontier) -> None:
    """End as a killed process does, as far as a test can: all is committed, nothing is called clean."""
    frontier._store.flush()
    frontier._checkpoints.close(final=False)
    frontier._seen.close()
    frontier._store.close(clean=False)


def lease_all(frontier: Frontier) -> list[Lease]:
    """Every lease that can be had at this moment, waiting for the store only."""
    leases: list[Lease] = []
    while True:
        lease = frontier.lease()
        if lease is not None:
            leases.append(lease)
            continue
        wake = frontier.wake()
        if WaitsFor.STORE not in wake.waits_for:
            if wake.at_s is None or wake.at_s > frontier.now_s():
                return leases
            continue
        frontier.flush()


def drain(frontier: Frontier, clock: FakeClock) -> list[str]:
    """Fetch everything, in no time; answers the URLs."""
    fetched: list[str] = []
    while not frontier.is_done:
        for lease in lease_all(frontier):
            fetched.append(lease.url)
            frontier.finish(lease, DONE)
        at_s = frontier.wake().at_s
        clock.advance_to(clock.now_s if at_s is None else at_s)
    return fetched


# Orders that make no sense


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (FrontierOrder(policy="elf"), "policy elf: elf needs a number of queues"),
        (FrontierOrder(policy="magic"), "policy magic is unknown"),
        (FrontierOrder(policy="bkdr:7:30"), "policy bkdr:7:30: the seed of bkdr must be an odd number"),
        (FrontierOrder(policy="ip"), "ip_of"),
        (FrontierOrder(policy="no.such.module:function"), "no.such.module"),
        (FrontierOrder(group="ip"), "ip_of"),
        (FrontierOrder(group="magic"), "group magic is unknown"),
        (FrontierOrder(cost="magic"), "cost magic is unknown"),
        (FrontierOrder(uri_precedence="magic"), "URI precedence magic is unknown"),
        (FrontierOrder(queue_precedence="highest-uri"), "highest-uri is not offered"),
        (FrontierOrder(precedence_floor=0), "precedence floor 0"),
        (FrontierOrder(politeness=Politeness(min_delay_s=-1.0)), "not negative"),
        (FrontierOrder(max_unacknowledged=0), "max_unacknowledged 0: give at least 1"),
        (
            FrontierOrder(overrides=[Override(("test,a,",), Settings(total_budget=5))]),
            "its queues hold many hosts",
        ),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(order: FrontierOrder, message: str, tmp_path: Path) -> None:
    """Before anything is made; the error says what is wrong."""
    with pytest.raises(PolicyError, match=message):
        open_frontier(tmp_path / "state", order)
    assert not (tmp_path / "state").exists()


def test_a_folder_that_is_no_path_is_refused(tmp_path: Path) -> None:
    """Text might name a database as well, for which `store` is there."""
    with pytest.raises(TypeError, match="a Path, or None for memory alone; not "):
        open_frontier(str(tmp_path / "state"), ORDER)  # type: ignore[arg-type]
    assert not (tmp_path / "state").exists()


def test_filter_parameters_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """The filter's error becomes a PolicyError of this room."""
    with pytest.raises(PolicyError):
        open_frontier(tmp_path / "state", FrontierOrder(uniq=replace(SMALL, leaf_bits=1000)))


# In memory


def test_without_a_folder_all_is_in_memory() -> None:
    """No file, an exact filter, the system's clock; it crawls."""
    with open_frontier(None, FrontierOrder(policy="host", politeness=Politeness(min_delay_s=0.0))) as frontier:
        assert isinstance(frontier._seen, ExactFilter)
        assert frontier.schedule(candidates("http://a.test/", "http://a.test/")) == [NEW, SEEN]
        lease = frontier.lease()
        assert lease is not None
        assert abs(lease.since_s - time.time()) < 60.0
        frontier.finish(lease, DONE)
        assert frontier.is_done


def test_politeness_off_never_closes_a_gate(opened_in_memory: Opens) -> None:
    """For one's own sites: as many fetches at once as there are queues, no rests."""
    frontier = opened_in_memory(replace(ORDER, policy="bkdr:50", scope=PolitenessScope.OFF))
    frontier.schedule(candidates(*pages("a.test", 200)))
    leases = lease_all(frontier)
    assert len(leases) == 50
    for lease in leases:
        frontier.finish(lease, Outcome(kind=OutcomeKind.DONE, start_s=START_S, end_s=START_S + 100))
    assert len(lease_all(frontier)) > 40


# On disk


def test_a_job_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    """Queued, waiting and ended URLs, counts, gates and what was seen survive a clean end."""
    clock = FakeClock()
    urls = pages("a.test", 30)
    with opened(tmp_path / "state", clock) as frontier:
        assert frontier.schedule(candidates(*urls)) == [NEW] * 30
        (first,) = lease_all(frontier)
        frontier.finish(first, Outcome(kind=OutcomeKind.RETRY, after_s=500.0, start_s=START_S, end_s=START_S + 1))
        clock.advance(6.0)
        (second,) = lease_all(frontier)
        outcome = Outcome(kind=OutcomeKind.DONE, status=200, start_s=clock.now_s, end_s=clock.now_s + 2)
        clock.advance(2.0)
        frontier.finish(second, outcome, candidates("http://b.test/"))
        frontier.set_delay(GateKey("b.test"), 7.0)
    with opened(tmp_path / "state", clock) as frontier:
        statistics = frontier.operations.statistics()
        assert (statistics.pending, statistics.waiting, statistics.done, statistics.accepted) == (30, 1, 1, 31)
        assert frontier.schedule(candidates(*urls)) == [SEEN] * 30
        assert frontier.schedule(candidates("http://b.test/")) == [SEEN]
        (lease,) = lease_all(frontier)
        assert lease.gate == "b.test", "a.test rests"
        assert lease.via == second.url
        frontier.release(lease)
        frontier.block(GateKey("b.test"), clock.now_s + 1000.0)
        assert frontier.wake().at_s == clock.now_s + 10.0
        frontier.unblock(GateKey("b.test"))
        frontier.operations.check()
        fetched = drain(frontier, clock)
        assert sorted(fetched) == sorted({*urls, "http://b.test/"} - {second.url})
        frontier.operations.check()
        record = frontier.operations.get(first.url.encode())
        assert record is not None
        assert (record.outcome, record.attempts) == ("done", 1)
        assert clock.now_s >= START_S + 500.0


def test_after_a_crash_nothing_is_lost(tmp_path: Path) -> None:
    """Leased URLs are queued again, the filter gets all keys of the store, and each gate keeps its last rest."""
    clock = FakeClock()
    urls = pages("a.test", 30)
    frontier = opened(tmp_path / "state", clock)
    frontier.schedule(candidates(*urls))
    (done,) = lease_all(frontier)
    clock.advance(1.0)
    frontier.finish(done, Outcome(kind=OutcomeKind.DONE, start_s=START_S, end_s=clock.now_s))
    clock.advance(5.0)
    (leased,) = lease_all(frontier)
    crash(frontier)
    clock.advance(100.0)
    with opened(tmp_path / "state", clock) as frontier:
        assert (frontier.pending, frontier.in_flight) == (29, 0)
        assert frontier.schedule(candidates(*urls)) == [SEEN] * 30
        assert lease_all(frontier) == []
        assert frontier.wake().at_s == clock.now_s + 5.0
        fetched = drain(frontier, clock)
        assert leased.url in fetched
        assert sorted(fetched) == sorted(set(urls) - {done.url})
        frontier.operations.check()


def test_after_a_crash_the_filter_learns_what_it_had_not_been_told(tmp_path: Path) -> None:
    """The store's keys are marked again, own keys and ended URLs included, in chunks."""
    frontier = opened(tmp_path / "state")
    frontier.schedule([Candidate(url="http://a.test/", key=b"own"), Candidate(url="http://b.test/")])
    for lease in lease_all(frontier):
        frontier.finish(lease, DONE)
    crash(frontier)
    for path in sorted((tmp_path / "state" / "seen").rglob("*"), reverse=True):
        if path.is_file():
            path.unlink()
        else:
            path.rmdir()
    with opened(tmp_path / "state") as frontier:
        again = [Candidate(url="http://c.test/", key=b"own"), *candidates("http://a.test/", "http://b.test/")]
        assert frontier.schedule(again) == [SEEN, NEW, SEEN]


@pytest.mark.parametrize("count", [100, 250, 600], ids=["compact", "moving", "mapped"])
@pytest.mark.parametrize("ends", [crash, Frontier.close])
def test_a_filter_knows_its_jobs_urls_whatever_its_age(
    ends: Callable[[Frontier], None], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SMM keeps few keys in a compact form, which moves to mapped files when they are more."""
    monkeypatch.setattr("anabranch.dedup.smm.store.GrowingBits", partial(GrowingBits, limit=200))
    known = candidates(*[f"http://a.test/{number}" for number in range(count)])
    frontier = opened(tmp_path)
    for start in range(0, count, 50):
        frontier.schedule(known[start : start + 50])
        frontier.flush()
    frontier.operations.checkpoint()
    ends(frontier)
    with opened(tmp_path) as again:
        assert again.schedule(known) == [SEEN] * count
        assert again.pending == count
        again.operations.check()
    with opened(tmp_path) as third:
        assert third.unseen([one.dedup_key() for one in known]) == [False] * count


def test_a_clock_that_went_back_delays_nothing_for_ever(tmp_path: Path) -> None:
    """Rests, blocks and retries of the future move back with it: they last as long as they would have, no less."""
    clock = FakeClock(START_S + 1e6)
    with opened(tmp_path / "state", clock) as frontier:
        frontier.schedule(candidates(*pages("a.test", 2), "http://b.test/", "http://c.test/"))
        for lease in lease_all(frontier):
            kind = OutcomeKind.RETRY if lease.gate == "c.test" else OutcomeKind.DONE
            frontier.finish(lease, Outcome(kind, start_s=clock.now_s, end_s=clock.now_s, after_s=500.0))
        frontier.schedule(candidates("http://b.test/2"))
        frontier.block(GateKey("b.test"), clock.now_s + 100.0)
    with opened(tmp_path / "state", clock := FakeClock()) as frontier:
        assert lease_all(frontier) == []
        ends = {}
        while not frontier.is_done:
            for lease in lease_all(frontier):
                ends[lease.gate] = clock.now_s
                frontier.finish(lease, DONE)
            clock.advance_to(frontier.wake().at_s or 0.0)
        assert ends == {"a.test": START_S + 3.0, "b.test": START_S + 100.0, "c.test": START_S + 500.0}
        frontier.operations.check()


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    """No ordinal is given twice."""
    with opened(tmp_path / "state") as frontier:
        frontier.schedule(candidates("http://a.test/"))
    with opened(tmp_path / "state") as frontier:
        frontier.schedule(candidates("http://b.test/"))
        assert sorted(lease.ordinal for lease in lease_all(frontier)) == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "bkdr:8"},
        {"policy": "host"},
        {"scope": PolitenessScope.QUEUE},
        {"uniq": replace(SMALL, expected=2000)},
        {"uniq": replace(SMALL, signature="md5")},
    ],
)
def test_a_job_of_another_policy_or_filter_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    """They may not change while a job lives; the job is left as it was."""
    with opened(tmp_path / "state") as frontier:
        frontier.schedule(candidates("http://a.test/"))
    with pytest.raises(FormatMismatch):
        opened(tmp_path / "state", order=replace(ORDER, **change))  # type: ignore[arg-type]
    with opened(tmp_path / "state") as frontier:
        assert frontier.pending == 1


def test_delays_slots_and_bounds_may_change_between_runs(tmp_path: Path) -> None:
    """They belong to a run, not to the job."""
    with opened(tmp_path / "state") as frontier:
        frontier.schedule(candidates(*pages("a.test", 50)))
    faster = replace(ORDER, politeness=Politeness(min_delay_s=0.0, slots=3), max_unacknowledged=5)
    with opened(tmp_path / "state", order=faster) as frontier:
        assert len(lease_all(frontier)) == 3


def test_a_job_that_is_open_is_refused(tmp_path: Path) -> None:
    """One owner at a time; the first goes on undisturbed."""
    with opened(tmp_path / "state") as frontier:
        with pytest.raises(StoreInUse):
            opened(tmp_path / "state")
        assert frontier.schedule(candidates("http://a.test/")) == [NEW]


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_store_that_is_open_is_refused_and_its_owner_goes_on(kind: str, tmp_path: Path) -> None:
    """Also one that is given: a second owner may not close it for the first."""
    store = MemoryStore() if kind == "memory" else SqlStore(tmp_path / "rows.db")
    with open_frontier(None, ORDER, store=store, clock=FakeClock()) as frontier:
        with pytest.raises(StoreInUse, match="open already"):
            open_frontier(None, ORDER, store=store, clock=FakeClock())
        assert frontier.schedule(candidates("http://a.test/")) == [NEW]
        frontier.operations.check()
    open_frontier(None, ORDER, store=store, clock=FakeClock()).close()


def test_the_owner_of_a_job_that_is_open_is_named(tmp_path: Path) -> None:
    """By its process and machine."""
    with opened(tmp_path / "state"), pytest.raises(StoreInUse, match=rf"process {os.getpid()}\b"):
        opened(tmp_path / "state")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The error says which and what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"file/state: .*; choose a folder that can be written"):
        opened(tmp_path / "file" / "state")


def test_a_filter_that_cannot_be_opened_lets_the_store_go(tmp_path: Path) -> None:
    """A file where its folder should be: one error of this room; afterwards the job can be opened."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "seen").write_text("")
    with pytest.raises(FrontierError, match="seen"):
        opened(state)
    (state / "seen").unlink()
    opened(state).close()


def test_a_filter_whose_numbers_make_no_sense_is_an_error_of_this_room(tmp_path: Path) -> None:
    """The filter's own error is translated, its message kept."""
    with pytest.raises(FrontierError, match="leaf_bits"):
        opened(tmp_path / "state", order=replace(ORDER, uniq=replace(SMALL, leaf_bits=1000)))


def test_a_store_that_fails_while_the_filter_is_filled_lets_both_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys cannot be read after a crash: the filter is not held open, the next opening works."""
    crash_me = opened(tmp_path / "state")
    crash_me.schedule(candidates("http://a.test/"))
    crash(crash_me)
    with monkeypatch.context() as patch:
        patch.setattr(SqlStore, "keys", _unreadable)
        with pytest.raises(StoreUnavailable, match="unreadable") as caught:
            opened(tmp_path / "state")
    with opened(tmp_path / "state") as frontier:
        assert frontier.schedule(candidates("http://a.test/")) == [SEEN]
    del caught


@pytest.mark.parametrize("fails_at", ["died", "budgets"])
def test_a_store_that_fails_while_a_note_is_taken_lets_both_go(
    fails_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step of the opening it is, the next one works, and no thread is left."""
    crash_me = opened(tmp_path / "state")
    crash_me.schedule(candidates("http://a.test/"))
    crash(crash_me)
    note = SqlStore.note

    def failing(store: SqlStore, notes: Mapping[str, str]) -> None:
        if fails_at in notes:
            raise StoreUnavailable("it cannot be noted")
        note(store, notes)

    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(SqlStore, "note", failing)
        with pytest.raises(StoreUnavailable, match="it cannot be noted"):
            opened(tmp_path / "state", order=replace(ORDER, budgets=Budgets(total_budget=7)))
    assert set(threading.enumerate()) <= before
    with opened(tmp_path / "state") as frontier:
        assert frontier.schedule(candidates("http://a.test/")) == [SEEN]


def _unreadable(store: SqlStore, chunk: int, after: int) -> None:
    raise StoreUnavailable(f"unreadable {store} {chunk} {after}")


def test_a_filter_that_cannot_be_filled_is_a_full_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: the error names the filter's folder."""
    crash_me = opened(tmp_path / "state")
    crash_me.schedule(candidates("http://a.test/"))
    crash(crash_me)
    with monkeypatch.context() as patch:
        patch.setattr(DedupFilter, "mark", _full)
        with pytest.raises(StoreUnavailable, match=r"the filter in .*seen cannot be written: No space left"):
            opened(tmp_path / "state")
    opened(tmp_path / "state").close()


def _full(_: DedupFilter, keys: list[bytes]) -> None:
    raise OSError(28, "No space left on device", len(keys))


def test_the_filters_figures_are_in_the_statistics(tmp_path: Path) -> None:
    """By the names that every filter has."""
    with opened(tmp_path / "state") as frontier:
        frontier.schedule(candidates(*pages("a.test", 5)))
        frontier.flush()
        facts = frontier.operations.statistics().seen
        assert facts.keys() >= ExactFilter().facts().keys() - {"memory_new"}
        assert facts["keys"] == 5.0
        assert 0.0 <= facts["false_drop_probability"] < 1e-3


def test_the_store_says_when_it_has_answered(tmp_path: Path) -> None:
    """`on_change` is called from its thread, at least once per answer."""
    heard = threading.Event()
    with open_frontier(tmp_path / "state", ORDER, on_change=heard.set) as frontier:
        frontier.schedule(candidates("http://a.test/"))
        assert heard.wait(10.0)


# What lasts


@pytest.mark.parametrize("ends", ["clean", "unclean"])
def test_what_was_said_of_gates_lasts(ends: str, tmp_path: Path) -> None:
    """Crawl-delay, blocks, slots and troubles in a row, also of gates that nobody had read."""
    clock = FakeClock()
    frontier = opened(tmp_path / "state", clock)
    frontier.schedule(candidates(*pages("a.test", 2), *pages("t.test", 2)))
    for lease in lease_all(frontier):
        trouble = HostTrouble.UNREACHABLE if lease.gate == "t.test" else HostTrouble.NONE
        frontier.finish(lease, Outcome(OutcomeKind.DONE, start_s=START_S, end_s=START_S, trouble=trouble))
    frontier.set_delay(GateKey("a.test"), 20.0)
    frontier.set_delay(GateKey("new.test"), 40.0)
    frontier.block(GateKey("b.test"), START_S + 600.0)
    frontier.set_slots(GateKey("c.test"), 3)
    frontier.flush()
    if ends == "clean":
        frontier.close()
    else:
        crash(frontier)
    clock.advance(30.0)
    with opened(tmp_path / "state", clock) as frontier:
        frontier.schedule(candidates("http://b.test/", "http://new.test/1", "http://new.test/2", *pages("c.test", 20)))
        rates = {host: frontier.operations.explain(f"http://{host}.test/").highest_rate for host in ("a", "new", "c")}
        assert rates == {"a": pytest.approx(1 / 20), "new": pytest.approx(1 / 40), "c": pytest.approx(1.0)}
        assert frontier.operations.explain("http://b.test/").earliest_s == START_S + 600.0
        assert "troubles in a row: 1" in frontier.operations.explain("http://t.test/page1").reason
        frontier.operations.check()


def test_paused_and_retired_queues_last(tmp_path: Path) -> None:
    """With their budgets, after either end; the crawl is done with the retired one, not with the paused one."""
    clock, order = FakeClock(), replace(ORDER, policy="host", politeness=HASTE)
    frontier = opened(tmp_path / "state", clock, order)
    frontier.schedule(candidates(*pages("a.test", 2), *pages("b.test", 2), *pages("c.test", 2)))
    frontier.operations.pause(QueueKey("a.test"))
    frontier.operations.retire(QueueKey("b.test"))
    frontier.operations.set_budget(QueueKey("c.test"), 1)
    for end in (crash, Frontier.close):
        end(frontier)
        clock.advance(60.0)
        frontier = opened(tmp_path / "state", clock, order)
        states = [frontier.operations.explain(f"{host}.test").state for host in "abc"]
        assert states == ["paused", "retired", "inactive"]
    for lease in lease_all(frontier):
        frontier.finish(lease, DONE)
    frontier.flush()
    assert frontier.operations.explain("c.test").state == "retired"
    assert (frontier.pending, frontier.is_done) == (2, False)
    frontier.operations.retire(QueueKey("a.test"))
    assert frontier.is_done
    frontier.operations.check()
    frontier.close()


@pytest.mark.parametrize("end", [crash, Frontier.close])
def test_a_budget_that_was_raised_between_two_runs_wakes_by_itself(end: object, tmp_path: Path) -> None:
    """No command is needed."""
    clock, order = FakeClock(), replace(ORDER, policy="host", politeness=HASTE, budgets=Budgets(total_budget=1))
    frontier = opened(tmp_path / "state", clock, order)
    frontier.schedule(candidates(*pages("a.test", 3)))
    assert drain(frontier, clock) == ["http://a.test/page0"]
    end(frontier)  # type: ignore[operator]
    clock.advance(60.0)
    frontier = opened(tmp_path / "state", clock, order)
    assert frontier.is_done
    end(frontier)  # type: ignore[operator]
    clock.advance(60.0)
    with opened(tmp_path / "state", clock, replace(order, budgets=Budgets(total_budget=2))) as frontier:
        assert not frontier.is_done
        assert drain(frontier, clock) == ["http://a.test/page1"]
        frontier.operations.check()


def test_large_and_odd_things_last(tmp_path: Path) -> None:
    """A key of 10,000 bytes, a URL of 10,000 characters, a payload of 10 MB, bytes that are no text."""
    long, key, payload = f"http://a.test/{'ä' * 10_000}", bytes(range(250)) * 40, b"\0\xff" * 5_000_000
    with opened(tmp_path / "state") as frontier:
        batch = [
            Candidate(long),
            Candidate("http://b.test/", key=key, payload=payload),
            Candidate("http://c.test/\udce4"),
        ]
        kinds = [verdict.kind for verdict in frontier.schedule(batch)]
        assert kinds == [VerdictKind.NEW, VerdictKind.NEW, VerdictKind.REFUSED]
    with opened(tmp_path / "state") as frontier:
        assert frontier.schedule([Candidate(long), Candidate("http://x.test/", key=key)]) == [SEEN, SEEN]
        leases = {lease.gate: lease for lease in lease_all(frontier)}
        assert leases[GateKey("a.test")].url == long
        assert (leases[GateKey("b.test")].key, leases[GateKey("b.test")].payload) == (key, payload)


# Overrides and groups


def test_an_override_gives_a_gate_delays_and_slots_of_its_own(opened_in_memory: Opens) -> None:
    """For the hosts it covers; the others keep the order's."""
    sheets = [Override(("test,b,",), Settings(min_delay_s=50.0, max_connections=2))]
    frontier = opened_in_memory(replace(ORDER, policy="bkdr:50", overrides=sheets))
    frontier.schedule(candidates(*pages("a.test", 50), *pages("x.b.test", 50)))
    leases = lease_all(frontier)
    assert sorted(lease.gate for lease in leases) == ["a.test", "x.b.test", "x.b.test"]
    for lease in leases:
        frontier.finish(lease, Outcome(OutcomeKind.DONE, start_s=START_S, end_s=START_S))
    rests = {host: frontier.operations.explain(f"http://{host}/").highest_rate for host in ("a.test", "x.b.test")}
    assert rests == {"a.test": pytest.approx(1 / 3), "x.b.test": pytest.approx(2 / 50)}
    assert frontier.wake().at_s == START_S + 3.0


def test_an_override_names_the_queue_of_its_urls(opened_in_memory: Opens) -> None:
    """Whatever the policy says; with a budget of its own."""
    sheets = [Override(("test,b,",), Settings(key=QueueKey("own"), total_budget=1))]
    frontier = opened_in_memory(replace(ORDER, politeness=HASTE, overrides=sheets))
    frontier.schedule(candidates(*pages("b.test", 3)))
    (lease,) = lease_all(frontier)
    assert lease.queue == "own"
    frontier.finish(lease, DONE)
    frontier.flush()
    assert frontier.is_done
    assert frontier.operations.statistics().retired == 2


@pytest.mark.parametrize(
    ("group", "named"),
    [
        ("domain", "domain:d.test"),
        ("ip", "ip:10.0.0.1"),
        ({"test,d,": "servers"}, "group:servers"),
        (f"{__name__}:server_of", "group:one"),
    ],
)
def test_hosts_of_a_group_pass_its_gate_too(group: object, named: str, opened_in_memory: Opens) -> None:
    """One after the other, as the group's politeness says, whatever their own gates allow; a host without is free."""
    clock = FakeClock()
    order = replace(
        ORDER,
        politeness=HASTE,
        policy="host",
        group=group,  # type: ignore[arg-type]
        group_politeness=Politeness(min_delay_s=10.0),
        ip_of={"a.d.test": "10.0.0.1", "b.d.test": "10.0.0.1"}.get,
    )
    frontier = opened_in_memory(order, clock)
    frontier.schedule(candidates("http://a.d.test/", "http://b.d.test/", "http://free.example/"))
    first = {lease.gate: lease for lease in lease_all(frontier)}
    assert len(first) == 2
    (mine,) = first.keys() - {"free.example"}
    frontier.finish(first[mine], Outcome(OutcomeKind.DONE, start_s=START_S, end_s=START_S))
    assert lease_all(frontier) == []
    assert frontier.operations.explain(f"http://{mine}/").group == named
    assert frontier.wake().at_s == START_S + 10.0
    clock.advance(10.0)
    (other,) = lease_all(frontier)
    assert {other.gate, mine} == {"a.d.test", "b.d.test"}
    frontier.operations.check()


def server_of(host: str) -> str | None:
    """One server for all, but none for a host that is free; a host "bad" makes it fail."""
    if host == "bad.test":
        raise RuntimeError("no server")
    return None if host.startswith("free") else "one"


def test_a_group_function_that_fails_ends_the_frontier() -> None:
    """Every call says so: a host whose group is not known may not be fetched. The end is not clean, nothing is lost."""
    store = MemoryStore()
    order = replace(ORDER, group=f"{__name__}:server_of")
    frontier = open_frontier(None, order, store=store, clock=FakeClock())
    frontier.schedule(candidates("http://a.test/", "http://bad.test/"))
    message = r"group .*:server_of for bad\.test failed: RuntimeError: no server"
    for call in (frontier.lease, frontier.lease, frontier.wake, frontier.flush):
        with pytest.raises(PolicyError, match=message):
            call()
    frontier.close()
    again = open_frontier(None, replace(order, group=None), store=store, clock=FakeClock(START_S + 60.0))
    assert again.pending == 2
    again.operations.check()
    again.close()


# A filter of one's own


class SlowFilter(ExactFilter):
    """One that may wait for a network; it remembers which threads asked and marked."""

    blocks = True

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()
        self.is_closed = False

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        self.threads.add(threading.current_thread().name)
        return super().unseen(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        if keys:
            self.threads.add(threading.current_thread().name)
        super().mark(keys)

    def close(self) -> None:
        self.is_closed = True


def test_a_filter_that_blocks_is_asked_in_the_stores_thread(tmp_path: Path) -> None:
    """Verdicts are LATER; what it knows dies there, the counts follow; a URL that is new is fetched and marked."""
    clock, seen = FakeClock(), SlowFilter()
    seen.mark([b"http://a.test/known"])
    seen.threads.clear()
    store = SqlStore(tmp_path / "store.db", seen=seen)
    order = replace(ORDER, politeness=HASTE)
    with open_frontier(None, order, store=store, seen=seen, clock=clock) as frontier:
        batch = candidates("http://a.test/new", "http://a.test/known", "http://a.test/new", "no url")
        kinds = [verdict.kind for verdict in frontier.schedule(batch)]
        assert kinds == [VerdictKind.LATER, VerdictKind.LATER, VerdictKind.SEEN, VerdictKind.REFUSED]
        assert frontier.pending == 2
        assert frontier.schedule(candidates("http://a.test/new")) == [LATER]
        assert drain(frontier, clock) == ["http://a.test/new"]
        assert frontier.operations.explain("http://b.test/").state == "never scheduled"
        frontier.operations.check()
    assert seen.threads == {"anabranch-store"}
    assert seen.is_closed
    assert list(seen.unseen([b"http://a.test/new", b"http://a.test/other"])) == [False, True]


def test_a_filter_of_ones_own_is_told_what_the_store_has(tmp_path: Path) -> None:
    """At the opening, if it is new; without a folder the usual one is too."""
    clock = FakeClock()
    with open_frontier(None, ORDER, store=SqlStore(tmp_path / "store.db"), clock=clock) as frontier:
        assert frontier.schedule(candidates("http://a.test/")) == [NEW]
    seen = ExactFilter()
    for given in (seen, None):
        with open_frontier(None, ORDER, store=SqlStore(tmp_path / "store.db"), seen=given, clock=clock) as frontier:
            assert frontier.schedule(candidates("http://a.test/")) == [SEEN]
            frontier.operations.check()
    assert seen.facts()["keys"] == 1.0


class LastingFilter(ExactFilter):
    """One with a name and a number of syncs, as a filter on disk has."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._syncs = 0

    def sync(self) -> None:
        self._syncs += 1

    def position(self) -> str:
        return f"{self._name}-{self._syncs}" if self._syncs else ""


def test_a_filter_that_was_made_anew_twice_is_not_taken_for_another_crawls() -> None:
    """An opening that began from nothing notes it, whatever filter an earlier one that did so had."""
    store = MemoryStore()
    frontier = open_frontier(None, ORDER, store=store, seen=LastingFilter("first"), clock=FakeClock())
    frontier.schedule(candidates("http://a.test/"))
    frontier.flush()
    store.note({"checkpoint": "0", "filter": "first-1"})
    crash(frontier)
    seen = LastingFilter("second")
    for _ in range(2):
        frontier = open_frontier(None, ORDER, store=store, seen=seen, clock=FakeClock())
        seen.sync()  # a checkpoint that died before it was noted
        assert frontier.schedule(candidates("http://a.test/")) == [SEEN]
        crash(frontier)


def test_a_look_at_a_state_whose_owner_died_shortens_no_rest(tmp_path: Path) -> None:
    """A fetch may have been under way at any gate; whoever opens the state for a moment has not read them all."""
    clock = FakeClock()
    order = FrontierOrder(policy="host", uniq=SMALL, politeness=Politeness(min_delay_s=30.0))
    frontier = opened(tmp_path, clock, order)
    frontier.schedule([Candidate(f"http://{name}.test/{number}") for name in "abc" for number in range(3)])
    for lease in lease_all(frontier):
        frontier.finish(lease, DONE._replace(start_s=clock.now_s, end_s=clock.now_s))
    clock.now_s += 30.0
    assert len(lease_all(frontier)) == 3
    crash(frontier)
    for _ in range(2):
        clock.now_s += 1.0
        opened(tmp_path, clock, order).close()
    with opened(tmp_path, clock, order) as again:
        assert lease_all(again) == []
    clock.now_s += 30.0
    with opened(tmp_path, clock, order) as later:
        assert len(lease_all(later)) == 3


def test_parameters_of_another_filter_are_refused() -> None:
    """An order does not know what they are; the composition does, before anything is opened."""
    with pytest.raises(PolicyError, match="uniq 3: give UniqParameters"):
        open_frontier(None, FrontierOrder(uniq=3))
