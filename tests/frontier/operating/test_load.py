"""Loading: batches, back-pressure, and what is reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.models import BUSY, LATER, NEW, SEEN, Candidate, Verdict, VerdictKind
from anabranch.frontier.operating import load as loading
from anabranch.frontier.operating.load import Entry, Known, Queued, load


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


def queued(number: int, payload: bytes | None = None) -> Queued:
    return Queued(f"dump:{number}", Candidate(f"http://q.example/{number}", payload=payload))


def known(number: int) -> Known:
    return Known(f"dump:{number}", f"http://k.example/{number}")


@given(
    st.lists(st.builds(queued, st.integers(0, 20)) | st.builds(known, st.integers(0, 20)), max_size=40),
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
    load([queued(1), known(2), queued(3)], target)
    assert [what for what, _ in target.said] == ["ended", "queued"]


def test_a_batch_is_cut_when_its_payloads_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand payloads of ten megabytes must not stand in memory together."""
    monkeypatch.setattr(loading, "BATCH_BYTES", 1000)
    target = Target()
    load([queued(number, b"x" * 400) for number in range(6)], target)
    assert [len(urls) for _, urls in target.said] == [3, 3]


def test_load_returns_when_all_is_durable() -> None:
    """Whoever deletes the dump then loses nothing."""
    target = Target()
    load([queued(1)], target)
    assert target.waits == 1


def test_nothing_is_said_of_nothing() -> None:
    """An empty source makes no empty batch."""
    target = Target()
    assert load([], target) == loading.LoadReport()
    assert target.said == []


def test_refused_entries_are_named_the_first_of_them() -> None:
    """The operator sees where they stood and why; a million of them do not fill the memory."""
    target = Target()
    entries = [queued(number) for number in range(30)]
    for entry in entries:
        target.unmeant[entry.candidate.url] = Verdict(VerdictKind.REFUSED, "it has no host")
    report = load(entries, target)
    assert report.refused == 30
    assert len(report.refusals) == loading.NAMED
    assert report.refusals[3] == ("dump:3", "http://q.example/3", "it has no host")


def test_what_other_shares_take_is_counted_with_the_first_of_it() -> None:
    """It may be most of the source, and nothing is wrong with it; what is wrong must still be seen."""
    target = Target()
    for number in range(30):
        target.unmeant[queued(number).candidate.url] = loading.FOREIGN
    target.unmeant["http://q.example/28"] = loading.SENT
    target.unmeant["http://q.example/29"] = Verdict(VerdictKind.REFUSED, "it has no host")
    report = load([queued(number) for number in range(40)], target)
    assert (report.queued, report.foreign, report.sent, report.later, report.refused) == (10, 28, 1, 0, 1)
    assert report.first_foreign == ("dump:0", "http://q.example/0", loading.FOREIGN.reason)
    assert [refusal.place for refusal in report.refusals] == ["dump:29"]


def test_what_a_blocking_filter_will_decide_is_counted_apart() -> None:
    """It is neither new nor known yet."""
    target = Target()
    target.unmeant["http://q.example/1"] = LATER
    report = load([queued(1)], target)
    assert (report.later, report.queued, report.seen) == (1, 0, 0)


def test_an_error_of_the_source_comes_after_whole_batches() -> None:
    """What was handed over stays; loading again goes on behind it."""

    def source():
        yield from map(queued, range(5))
        raise StoreUnavailable("the file ends here")

    target = Target()
    with pytest.raises(StoreUnavailable, match="ends here"):
        load(source(), target, batch=2)
    assert len(target.taken) == 4
