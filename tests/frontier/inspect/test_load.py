"""Loading: batches, back-pressure, and what is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.inspect import load as loading
from anabranch.frontier.inspect.dump import dump_lines, load_dump
from anabranch.frontier.inspect.load import Entry, Known, Queued, load
from anabranch.frontier.records import (
    BUSY,
    LATER,
    NEW,
    SEEN,
    Candidate,
    Lease,
    Outcome,
    OutcomeKind,
    UrlState,
    Verdict,
    VerdictKind,
    WaitsFor,
)
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.stores.contract import FrontierStore
from anabranch.frontier.stores.memory.store import MemoryStore
from anabranch.frontier.stores.sql.store import SqlStore


class Target:
    """Takes `room` entries between two waits and is busy then; what is known is SEEN."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.said: list[tuple[str, list[str]]] = []
        self.taken: list[str] = []
        self.waits = 0
        self.unmeant: dict[str, Verdict] = {}
        self._room = self._left = room

    def schedule_loaded(self, queued: Sequence[Queued]) -> list[Verdict]:
        return self._take("queued", [entry.candidate.url for entry in queued])

    def note_ended(self, ended: Sequence[Known]) -> list[Verdict]:
        return self._take("ended", [entry.url for entry in ended])

    def wait_until_durable(self) -> None:
        self.waits += 1
        self._left = self._room

    def _take(self, what: str, urls: list[str]) -> list[Verdict]:
        self.said.append((what, urls))
        return [self._verdict(url) for url in urls]

    def _verdict(self, url: str) -> Verdict:
        if url in self.unmeant:
            return self.unmeant[url]
        if not self._left:
            return BUSY
        self._left -= 1
        if url in self.taken:
            return SEEN
        self.taken.append(url)
        return NEW


def queued_entry(number: int, payload: bytes | None = None) -> Queued:
    return Queued(f"dump:{number}", Candidate(f"http://q.example/{number}", payload=payload))


def ended_entry(number: int) -> Known:
    return Known(f"dump:{number}", f"http://k.example/{number}")


@given(
    st.lists(st.builds(queued_entry, st.integers(0, 20)) | st.builds(ended_entry, st.integers(0, 20)), max_size=40),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_every_entry_is_taken_once_however_busy_the_store_is(entries: list[Entry], batch: int, room: int) -> None:
    """Only what was refused for being busy is sent again, and the counts add up to the entries."""
    target = Target(room)
    report = load(entries, target, batch=batch)
    urls = [entry.url if isinstance(entry, Known) else entry.candidate.url for entry in entries]
    assert sorted(target.taken) == sorted(set(urls))
    assert report.queued + report.known == len(set(urls))
    assert report.seen == len(urls) - len(set(urls))
    assert all(len(urls) <= batch for _, urls in target.said)


def test_in_a_batch_what_has_ended_is_said_first() -> None:
    """Else a URL that the source has both ways would be fetched again."""
    target = Target()
    load([queued_entry(1), ended_entry(2), queued_entry(3)], target)
    assert [what for what, _ in target.said] == ["ended", "queued"]


def test_a_batch_is_cut_when_its_payloads_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand payloads of ten megabytes must not stand in memory together."""
    monkeypatch.setattr(loading, "BATCH_BYTES", 1000)
    target = Target()
    load([queued_entry(number, b"x" * 400) for number in range(6)], target)
    assert [len(urls) for _, urls in target.said] == [3, 3]


def test_load_returns_when_all_is_durable() -> None:
    """Whoever deletes the dump then loses nothing."""
    target = Target()
    load([queued_entry(1)], target)
    assert target.waits == 1


def test_nothing_is_said_of_nothing() -> None:
    """An empty source makes no empty batch."""
    target = Target()
    assert load([], target) == loading.LoadReport()
    assert target.said == []


def test_refused_entries_are_named_the_first_of_them() -> None:
    """The operator sees where they stood and why; a million of them do not fill the memory."""
    target = Target()
    entries = [queued_entry(number) for number in range(30)]
    for entry in entries:
        target.unmeant[entry.candidate.url] = Verdict(VerdictKind.REFUSED, "it has no host")
    report = load(entries, target)
    assert report.refused == 30
    assert len(report.refusals) == loading.NAMED
    assert report.refusals[3] == ("dump:3", "http://q.example/3", "it has no host")


def test_what_a_blocking_filter_will_decide_is_counted_apart() -> None:
    """It is neither new nor known yet."""
    target = Target()
    target.unmeant["http://q.example/1"] = LATER
    report = load([queued_entry(1)], target)
    assert (report.later, report.queued, report.seen) == (1, 0, 0)


def test_an_error_of_the_source_comes_after_whole_batches() -> None:
    """Batches that were handed over stay; a second load continues after them."""

    def source():
        yield from map(queued_entry, range(5))
        raise StoreUnavailable("the file ends here")

    target = Target()
    with pytest.raises(StoreUnavailable, match="ends here"):
        load(source(), target, batch=2)
    assert len(target.taken) == 4


START_S = 1_000_000.0
HASTE = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0)
ORDER = FrontierOrder(policy="host", politeness=HASTE)
DONE = Outcome(OutcomeKind.DONE, 200)


class Clock:
    now_s = START_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FrontierStore:
    return MemoryStore() if request.param == "memory" else SqlStore(tmp_path / "frontier.db")


@pytest.fixture
def reopen(store: FrontierStore, clock: Clock, tmp_path: Path) -> Iterator[Callable[[], Frontier]]:
    """Opens the same state, again and again."""
    opened: list[Frontier] = []

    def open_again() -> Frontier:
        for frontier in opened:
            frontier.close()
        opened.append(open_frontier(tmp_path, ORDER, store=store, clock=clock))
        return opened[-1]

    yield open_again
    for frontier in opened:
        frontier.close()


@pytest.fixture
def frontier(reopen: Callable[[], Frontier]) -> Frontier:
    return reopen()


def queued(
    url: str, *, via: str | None = None, attempts: int = 0, due_s: float | None = None, **more: object
) -> Queued:
    return Queued("here:1", Candidate(url, **more), via, attempts, due_s)  # type: ignore[arg-type]


def known(url: str, outcome: OutcomeKind = OutcomeKind.DONE, status: int = 200, attempts: int = 0) -> Known:
    return Known("here:2", url, None, status, outcome, attempts)


def kinds(verdicts: Sequence[Verdict]) -> list[VerdictKind]:
    return [verdict.kind for verdict in verdicts]


def leased(frontier: Frontier) -> Lease | None:
    """The next lease, waiting for the store but for no time."""
    while (lease := frontier.lease()) is None and WaitsFor.STORE in frontier.wake().waits_for:
        frontier.flush()
    return lease


def drained(frontier: Frontier) -> list[str]:
    """The URLs that can be leased now, each fetched."""
    urls = []
    while (lease := leased(frontier)) is not None:
        urls.append(lease.url)
        frontier.finish(lease, DONE)
    return urls


def test_a_loaded_url_keeps_what_it_was_elsewhere(frontier: Frontier) -> None:
    """Its tries, its path, its payload, and the page that it was found on, if that has ended."""
    frontier.operations.load(
        [
            known("http://a.test/page"),
            queued("http://a.test/x", via="http://a.test/page", attempts=2, hops="LLE", payload=b"\0p"),
            queued("http://a.test/y", via="http://a.test/nobody-knows-it"),
        ]
    )
    first, second = leased(frontier), None
    assert first is not None
    assert (first.url, first.via, first.attempts) == ("http://a.test/x", "http://a.test/page", 2)
    assert (first.hops, first.payload) == ("LLE", b"\0p")
    frontier.finish(first, DONE)
    second = leased(frontier)
    assert second is not None
    assert (second.url, second.via) == ("http://a.test/y", None)


def test_the_pages_of_a_batch_are_one_question(frontier: Frontier, store: FrontierStore, monkeypatch) -> None:
    """A question for each URL would make loading a hundred times slower."""
    asked: list[Sequence[bytes]] = []
    plain = store.ended
    monkeypatch.setattr(store, "ended", lambda keys: (asked.append(keys), plain(keys))[1])
    frontier.operations.load(
        [queued(f"http://a.test/{number}", via=f"http://a.test/p{number % 3}") for number in range(50)]
    )
    assert [sorted(keys) for keys in asked] == [[b"http://a.test/p0", b"http://a.test/p1", b"http://a.test/p2"]]


def test_a_loaded_url_whose_time_is_to_come_waits_for_it(frontier: Frontier, clock: Clock) -> None:
    """It is no head, blocks nobody, and comes when it is due."""
    frontier.operations.load(
        [queued("http://a.test/late", due_s=START_S + 60, attempts=1), queued("http://a.test/now")]
    )
    assert frontier.counts().waiting == 1
    assert drained(frontier) == ["http://a.test/now"]
    assert frontier.wake().at_s == START_S + 60
    frontier.operations.check()
    clock.now_s += 60
    assert drained(frontier) == ["http://a.test/late"]
    assert frontier.is_done
    frontier.operations.check()


def test_a_loaded_url_whose_time_has_passed_waits_for_nothing(frontier: Frontier) -> None:
    """A dump may be old."""
    frontier.operations.load([queued("http://a.test/x", due_s=START_S - 1, attempts=1)])
    assert frontier.counts().waiting == 0
    lease = leased(frontier)
    assert lease is not None
    assert lease.attempts == 1


def test_a_loaded_url_joins_a_lane_that_is_active(frontier: Frontier, clock: Clock) -> None:
    """Whether it waits or not: its lane is in memory, with a lease out."""
    frontier.schedule([Candidate("http://a.test/1"), Candidate("http://a.test/2")])
    lease = leased(frontier)
    assert lease is not None
    frontier.operations.load([queued("http://a.test/3"), queued("http://a.test/4", due_s=START_S + 5)])
    frontier.operations.check()
    frontier.finish(lease, DONE)
    assert drained(frontier) == ["http://a.test/2", "http://a.test/3"]
    clock.now_s += 5
    assert drained(frontier) == ["http://a.test/4"]
    frontier.operations.check()


def test_what_waits_is_known_after_a_reopening(reopen: Callable[[], Frontier], clock: Clock) -> None:
    """Only the store knows the waiting rows at an opening."""
    reopen().operations.load([queued("http://a.test/late", due_s=START_S + 60)])
    again = reopen()
    assert again.counts().waiting == 1
    assert drained(again) == []
    clock.now_s += 60
    assert drained(again) == ["http://a.test/late"]
    again.operations.check()


def test_what_ended_elsewhere_is_never_fetched(frontier: Frontier) -> None:
    """It counts as it ended there, can be looked up, and a link to it is known."""
    frontier.operations.load(
        [
            known("http://a.test/d", OutcomeKind.DONE, 404, 3),
            known("http://a.test/f", OutcomeKind.FAILED, -2),
            known("http://a.test/x", OutcomeKind.DISREGARDED, -9998),
        ]
    )
    counts = frontier.counts()
    assert (counts.done, counts.failed, counts.disregarded, counts.pending) == (1, 1, 1, 0)
    assert kinds(frontier.schedule([Candidate("http://a.test/d")])) == [VerdictKind.SEEN]
    record = frontier.operations.get(b"http://a.test/d")
    assert record is not None
    assert (record.state, record.status, record.outcome, record.attempts) == (UrlState.ENDED, 404, "done", 3)
    assert leased(frontier) is None
    assert frontier.is_done
    frontier.operations.check()


def test_the_end_of_a_url_that_is_queued_here_changes_nothing(frontier: Frontier) -> None:
    """A known URL stays as it is and counts as seen; so loading twice is harmless."""
    frontier.schedule([Candidate("http://a.test/1")])
    entries = [known("http://a.test/1"), known("http://a.test/2"), queued("http://a.test/2"), queued("http://a.test/3")]
    first = frontier.operations.load(entries)
    assert (first.known, first.queued, first.seen) == (1, 1, 2)
    second = frontier.operations.load(entries)
    assert (second.known, second.queued, second.seen) == (0, 0, 4)
    assert drained(frontier) == ["http://a.test/1", "http://a.test/3"]
    frontier.operations.check()


class Forgetful:
    """A filter that knows nothing and says so later: the store has the last word."""

    blocks = False

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        return [True] * len(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        pass


def test_what_dies_in_the_store_is_uncounted(frontier: Frontier, monkeypatch) -> None:
    """A filter that knows less than the store lets entries through; queued, waiting and ended ones are made good."""
    urls = [f"http://a.test/{number}" for number in range(3)]
    frontier.schedule([Candidate(url) for url in urls])
    frontier.flush()
    monkeypatch.setattr(frontier._parts.admission, "_seen", Forgetful())
    report = frontier.operations.load(
        [
            known(urls[0]),
            queued(urls[1]),
            queued(urls[2], due_s=START_S + 60),
            queued("http://a.test/new", due_s=START_S + 9),
        ]
    )
    assert (report.known, report.queued) == (1, 3)
    frontier.flush()
    counts = frontier.counts()
    assert (counts.pending, counts.waiting, counts.done) == (4, 1, 0)
    frontier.operations.check()


def test_an_entry_that_no_store_can_hold_is_refused(frontier: Frontier) -> None:
    """A URL without a host, with a NUL or a lone surrogate, or a path that is no plain text; the others go in."""
    bad = ["nohost", "http://a.test/\0", "http://a.test/\ud800"]
    entries = [*map(queued, bad), *map(known, bad), queued("http://a.test/h", hops="L\0"), queued("http://a.test/ok")]
    entries.append(queued("http://a.test/via", via="http://a.test/\udcff"))
    report = frontier.operations.load(entries)
    assert (report.queued, report.known, report.refused) == (2, 0, 7)
    assert all(refusal.reason for refusal in report.refusals)
    assert sorted(drained(frontier)) == ["http://a.test/ok", "http://a.test/via"]


def test_a_forced_entry_is_queued_though_it_ended(frontier: Frontier) -> None:
    """A line written by hand may say so."""
    frontier.operations.load([known("http://a.test/1")])
    report = frontier.operations.load([queued("http://a.test/1", force=True)])
    assert report.queued == 1
    assert drained(frontier) == ["http://a.test/1"]
    frontier.operations.check()


def test_entries_are_busy_while_the_store_is_behind(frontier: Frontier, monkeypatch) -> None:
    """They are BUSY as any other URL; nothing of them is kept."""
    monkeypatch.setattr(frontier._parts.store_link.unacknowledged, "is_full", True)
    assert frontier.operations.loading.schedule_loaded([queued("http://a.test/1")]) == [BUSY]
    assert frontier.operations.loading.note_ended([known("http://a.test/2")]) == [BUSY]
    monkeypatch.undo()
    assert frontier.operations.load([queued("http://a.test/1"), known("http://a.test/2")]).seen == 0


def test_a_loaded_url_is_known_before_it_is_durable(frontier: Frontier) -> None:
    """A link to it in the very next call is seen."""
    frontier.operations.loading.schedule_loaded([queued("http://a.test/1")])
    frontier.operations.loading.note_ended([known("http://a.test/2")])
    links = [Candidate("http://a.test/1"), Candidate("http://a.test/2")]
    assert kinds(frontier.schedule(links)) == [VerdictKind.SEEN, VerdictKind.SEEN]


ENTRY = st.builds(
    lambda number, is_known, due_s: (
        known(f"http://h{number % 3}.test/{number}")
        if is_known
        else queued(f"http://h{number % 3}.test/{number}", attempts=number % 2, due_s=due_s)
    ),
    st.integers(0, 12),
    st.booleans(),
    st.none() | st.sampled_from([START_S - 1, START_S + 1, START_S + 9]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(ENTRY, max_size=6), max_size=5), st.integers(1, 4), st.integers(0, 3))
def test_whatever_is_loaded_in_whatever_pieces_adds_up(pieces: list[list], batch: int, leases: int) -> None:
    """Each URL is once in one place: its first mention decides; what is queued is served, in its time; I1 holds throughout."""
    clock = Clock()
    frontier = open_frontier(None, ORDER, clock=clock)
    urls: dict[str, bool] = {}
    served: list[str] = []
    for entries in pieces:
        for at in range(0, len(entries), batch):
            part = entries[at : at + batch]
            for entry in sorted(part, key=lambda entry: isinstance(entry, Queued)):
                url = entry.url if isinstance(entry, Known) else entry.candidate.url
                urls.setdefault(url, isinstance(entry, Queued))
            frontier.operations.load(part)
            frontier.operations.check()
        for _ in range(leases):
            lease = leased(frontier)
            if lease is not None:
                served.append(lease.url)
                frontier.finish(lease, DONE)
        clock.now_s += 0.5
    clock.now_s += 20
    served += drained(frontier)
    frontier.operations.check()
    assert sorted(served) == sorted(url for url, is_queued in urls.items() if is_queued)
    assert frontier.counts().done == len(urls)
    frontier.close()


def test_a_dump_loaded_elsewhere_is_the_same_frontier(frontier: Frontier, store: FrontierStore, clock: Clock) -> None:
    """Everything comes over, under another policy too; dumped again it says the same, but for the queues."""
    frontier.operations.load(
        [known("http://a.test/page"), queued("http://b.test/late", due_s=START_S + 60, attempts=2)]
    )
    frontier.schedule([Candidate("http://a.test/1", hops="L", payload=b"x"), Candidate("http://a.test/2", front=True)])
    lines = list(frontier.operations.dump({"policy": "host"}))
    other = open_frontier(None, FrontierOrder(policy="bkdr:7", politeness=HASTE), clock=clock)
    report = load_dump(lines, other.operations.loading)
    assert (report.queued, report.known, report.refused, report.cuts) == (3, 1, 0, [])
    other.operations.check()
    again = [line.partition(',"queue"')[0] for line in other.operations.dump({"policy": "host"})]
    assert sorted(again) == sorted(line.partition(',"queue"')[0] for line in lines)
    assert list(dump_lines(store, {"policy": "host"})) == lines
    other.close()


def test_a_failure_of_a_dump_can_be_queued_again_as_it_was(frontier: Frontier, clock: Clock) -> None:
    """With its hops, page, payload and time; one of a dump without them counts as one hop from a seed."""
    frontier.schedule([Candidate("http://a.test/")])
    page = leased(frontier)
    assert page is not None
    frontier.finish(page, DONE, [Candidate("http://a.test/1", hops="LL", payload=b"x", precedence=9)])
    clock.now_s += 5
    link = leased(frontier)
    assert link is not None
    frontier.finish(link, Outcome(OutcomeKind.FAILED, -2))
    lines = list(frontier.operations.dump())
    (failed,) = (line for line in lines if '"failed"' in line)
    older = failed.replace("/1", "/2").partition(',"failed_s"')[0] + "}"
    other = open_frontier(None, FrontierOrder(policy="host", politeness=HASTE), clock=clock)
    for part in (lines, [lines[0], older, lines[-1]]):
        load_dump(part, other.operations.loading)
    assert failed in list(other.operations.dump())
    failed_s = clock.now_s
    assert other.operations.retry(lambda failure: failure.ended_s in {None, failed_s}).queued == 2
    served = {}
    while (lease := leased(other)) is not None:
        served[lease.url] = lease.hops, lease.via, lease.payload, lease.attempts
        other.finish(lease, DONE)
    assert served == {
        "http://a.test/1": ("LL", "http://a.test/", b"x", 0),
        "http://a.test/2": ("?", None, None, 0),
    }
    other.close()


@pytest.mark.parametrize(
    "wrong",
    [
        Queued("dump:7", Candidate("http://a.test/"), attempts="2"),  # type: ignore[arg-type]
        Queued("dump:7", Candidate("http://a.test/"), due_s="soon"),  # type: ignore[arg-type]
        Queued("dump:7", Candidate("http://a.test/"), via=b"http://a.test/"),  # type: ignore[arg-type]
        Known("dump:7", "http://a.test/", status=None),  # type: ignore[arg-type]
        Known("dump:7", "http://a.test/", outcome="done"),  # type: ignore[arg-type]
        Known("dump:7", "http://a.test/", attempts=None),  # type: ignore[arg-type]
        Queued("dump:7", None),  # type: ignore[arg-type]
        Queued("dump:7", Candidate("http://a.test/"), attempts=1 << 70),
        Queued("dump:7", Candidate("http://a.test/"), due_s=float("inf")),
        Known("dump:7", "http://a.test/", status=1 << 70),
        Known("dump:7", "http://a.test/", outcome=OutcomeKind.RETRY),
    ],
)
def test_an_entry_of_another_kind_is_told_by_its_place_before_anything_is_taken(
    reopen: Callable[[], Frontier], wrong: Queued | Known
) -> None:
    """A store would keep it, or fail for good by it."""
    frontier = reopen()
    is_queued = isinstance(wrong, Queued)
    right = Queued("dump:6", Candidate("http://b.test/")) if is_queued else Known("dump:6", "http://b.test/")
    take: Any = frontier.operations.loading.schedule_loaded if is_queued else frontier.operations.loading.note_ended
    with pytest.raises(TypeError, match=r"^dump:7: .*: see (Queued|Known) for what it may be$"):
        take([right, wrong])
    frontier.operations.check()
    assert (frontier.counts().pending, frontier.counts().done) == (0, 0)


def test_hops_that_are_no_text_are_refused(reopen: Callable[[], Frontier]) -> None:
    """They are refused as hops that are not plain text."""
    (verdict,) = reopen().operations.loading.schedule_loaded([Queued("p", Candidate("http://a.test/", hops=None))])  # type: ignore[arg-type]
    assert verdict == Verdict(VerdictKind.REFUSED, "its path from the seed is not plain ASCII text")
