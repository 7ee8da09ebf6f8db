"""A Frontier from its order: in memory, and on disk where it is taken up again."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dedup.uniq import UniqParameters
from frontier.assignment import PolitenessScope
from frontier.composition import DedupFilter, FrontierOrder, open_frontier, steady_clock
from frontier.core import Frontier
from frontier.errors import FormatMismatch, FrontierError, PolicyError, StoreInUse, StoreUnavailable
from frontier.gates import Politeness
from frontier.models import NEW, SEEN, Candidate, GateKey, Lease, Outcome, OutcomeKind, WaitsFor
from frontier.seen import ExactFilter
from frontier.stores.sql import SqlStore
from tests.frontier.builder import START_S, FakeClock, candidates, pages

#: A small filter, so that opening it costs nothing.
SMALL = UniqParameters(levels=(1, 1), expected=1000, leaf_bits=1 << 14)
ORDER = FrontierOrder(policy="bkdr:7", uniq=SMALL)
DONE = Outcome(kind=OutcomeKind.DONE, status=200)


def opened(state: Path | None, clock: FakeClock | None = None, order: FrontierOrder = ORDER) -> Frontier:
    return open_frontier(state, order, clock=clock or FakeClock())


def crash(frontier: Frontier) -> None:
    """End as a killed process does, as far as a test can: all is committed, nothing is called clean."""
    frontier._store.flush()
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
        (FrontierOrder(policy="elf"), "policy elf is unknown"),
        (FrontierOrder(politeness=Politeness(min_delay_s=-1.0)), "not negative"),
        (FrontierOrder(politeness=Politeness(delay_factor=-0.1)), "not negative"),
        (FrontierOrder(politeness=Politeness(max_delay_s=-1.0)), "not negative"),
        (FrontierOrder(politeness=Politeness(max_delay_s=float("nan"))), "not negative"),
        (
            FrontierOrder(politeness=Politeness(min_delay_s=5.0, max_delay_s=2.5)),
            "min_delay 5 s is longer than max_delay 2.5 s",
        ),
        (FrontierOrder(politeness=Politeness(slots=0)), "at least one slot"),
        (FrontierOrder(max_unacknowledged=0), "one lease must be allowed to end"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(order: FrontierOrder, message: str, tmp_path: Path) -> None:
    """Before anything is made; the error says what is wrong."""
    with pytest.raises(PolicyError, match=message):
        open_frontier(tmp_path / "state", order)
    assert not (tmp_path / "state").exists()


def test_filter_parameters_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """What the filter says of them is a PolicyError of this room."""
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


def test_politeness_off_never_closes_a_gate() -> None:
    """For one's own sites: as many fetches at once as there are queues, no rests."""
    frontier = opened(None, order=replace(ORDER, policy="bkdr:50", scope=PolitenessScope.OFF))
    frontier.schedule(candidates(*pages("a.test", 200)))
    leases = lease_all(frontier)
    assert len(leases) == 50
    for lease in leases:
        frontier.finish(lease, Outcome(kind=OutcomeKind.DONE, start_s=START_S, end_s=START_S + 100))
    assert len(lease_all(frontier)) > 40


def test_the_steady_clock_starts_at_the_epoch_and_never_goes_back() -> None:
    """Epoch seconds whose steps are the monotonic clock's."""
    clock = steady_clock()
    times = [clock() for _ in range(100)]
    assert times == sorted(times)
    assert abs(times[0] - time.time()) < 60.0


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
        statistics = frontier.statistics()
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
        frontier.check()
        fetched = drain(frontier, clock)
        assert sorted(fetched) == sorted({*urls, "http://b.test/"} - {second.url})
        frontier.check()
        record = frontier.get(first.url.encode())
        assert record is not None
        assert (record.outcome, record.attempts) == ("done", 1)
        assert clock.now_s >= START_S + 500.0


def test_after_a_crash_nothing_is_lost(tmp_path: Path) -> None:
    """What was leased is queued again, the filter is told all that the store has, each gate opens no earlier than its
    last rest.
    """
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
        frontier.check()


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


def test_a_clock_that_went_back_delays_nothing_for_ever(tmp_path: Path) -> None:
    """Rests of the future are clamped to the longest rest."""
    clock = FakeClock(START_S + 1e6)
    with opened(tmp_path / "state", clock) as frontier:
        frontier.schedule(candidates(*pages("a.test", 2)))
        (lease,) = lease_all(frontier)
        frontier.finish(lease, Outcome(kind=OutcomeKind.DONE, start_s=clock.now_s, end_s=clock.now_s))
    with opened(tmp_path / "state", FakeClock()) as frontier:
        assert lease_all(frontier) == []
        assert frontier.wake().at_s == START_S + 30.0


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


def _unreadable(store: SqlStore, chunk: int) -> None:
    raise StoreUnavailable(f"unreadable {store} {chunk}")


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
    """By the same names as those of the filter in memory."""
    with opened(tmp_path / "state") as frontier:
        frontier.schedule(candidates(*pages("a.test", 5)))
        frontier.flush()
        facts = frontier.statistics().seen
        assert facts.keys() == ExactFilter().facts().keys()
        assert facts["keys"] == 5.0
        assert 0.0 <= facts["false_drop_probability"] < 1e-3


def test_the_store_says_when_it_has_answered(tmp_path: Path) -> None:
    """`on_change` is called from its thread, at least once per answer."""
    heard = threading.Event()
    with open_frontier(tmp_path / "state", ORDER, on_change=heard.set) as frontier:
        frontier.schedule(candidates("http://a.test/"))
        assert heard.wait(10.0)
