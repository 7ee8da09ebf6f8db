"""Loading URLs that another Frontier knew: queued ones are scheduled, ended ones are never fetched again.

A source (a dump, or Heritrix's journal) is an iterator of entries; `load` hands them to a `LoadTarget` in batches, and sends
again what the target is too busy to take. Loading the same source again is harmless: what is known stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from anabranch.frontier.models import Candidate, OutcomeKind, Verdict, VerdictKind

#: Entries that go to the target at a time, and about how many bytes of them (a payload may be large).
BATCH = 1_000
BATCH_BYTES = 8 << 20
#: Refused entries that the report names; the others are counted.
NAMED = 20
#: What is said of an entry that another share of the crawl takes; such entries may be most of a source.
FOREIGN = Verdict(VerdictKind.REFUSED, "its host belongs to another share of the crawl")
#: What is said of one that was under way to such a share, and is again: that share will decide.
SENT = Verdict(VerdictKind.LATER, "it goes to the share of the crawl that its host belongs to")


class Queued(NamedTuple):
    """A URL that was queued there and shall be queued here."""

    place: str  #: where it stood, as in `backup.jsonl:17`
    candidate: Candidate
    via: str | None = None  #: the page it was found on
    attempts: int = 0  #: tries that counted so far
    due_s: float | None = None  #: earliest time of the next try, epoch seconds
    share: int | None = None  #: it was under way to this share of the crawl


class Known(NamedTuple):
    """A URL that ended there and shall not be fetched here."""

    place: str  #: where it stood
    url: str
    key: bytes | None = None  #: what dedup sees; the URL in UTF-8 if None
    status: int = 0  #: 0 = the source does not tell
    outcome: OutcomeKind = OutcomeKind.DONE
    attempts: int = 0


Entry = Queued | Known


class LoadTarget(Protocol):
    """What takes the entries. A batch is one transaction; one verdict per entry, in order; BUSY = send it again later."""

    def schedule_loaded(self, queued: Sequence[Queued]) -> Sequence[Verdict]:
        """Enqueue what is new, with its attempts and its time."""
        ...

    def note_ended(self, ended: Sequence[Known]) -> Sequence[Verdict]:
        """Keep what is new as ended: NEW if it is kept, SEEN if the URL was known, queued or ended."""
        ...

    def wait_until_durable(self) -> None:
        """Return when the store has all that was said (blocks). Raises: StoreUnavailable."""
        ...


class Refusal(NamedTuple):
    """An entry that could not be taken."""

    place: str
    url: str
    reason: str


@dataclass(slots=True, kw_only=True)
class LoadReport:
    """What became of the entries."""

    queued: int = 0  #: are queued now
    known: int = 0  #: will not be fetched: they had ended
    seen: int = 0  #: were known here before
    later: int = 0  #: the filter will decide
    sent: int = 0  #: are under way to the share of the crawl that they belong to
    refused: int = 0  #: cannot be taken
    refusals: list[Refusal] = field(default_factory=list)  #: the first `NAMED` of these
    foreign: int = 0  #: belong to another share of the crawl
    first_foreign: Refusal | None = None  #: the first of these
    skipped: int = 0  #: the source has them, but they are no URLs to fetch
    unknown: int = 0  #: lines of the source that nobody understands
    cuts: list[str] = field(default_factory=list)  #: where the source ends too early, in words


def load(entries: Iterable[Entry], target: LoadTarget, *, batch: int = BATCH) -> LoadReport:
    """Hand over all entries, `batch` at a time (blocks). What ended goes first, within a batch too.

    Memory: one batch. Errors: those of the source, whose place they name, and of the target; what was handed over before
    stays, and loading again goes on behind it.
    """
    loader = _Loader(target)
    for entry in entries:
        loader.take(entry)
        if loader.count >= batch or loader.size_bytes >= BATCH_BYTES:
            loader.hand_over()
    loader.hand_over()
    target.wait_until_durable()
    return loader.report


_E = TypeVar("_E", Queued, Known)


class _Loader:
    """One batch that grows, and the report."""

    def __init__(self, target: LoadTarget) -> None:
        self.report = LoadReport()
        self.size_bytes = 0
        self._target = target
        self._known: list[Known] = []
        self._queued: list[Queued] = []

    @property
    def count(self) -> int:
        return len(self._known) + len(self._queued)

    def take(self, entry: Entry) -> None:
        if isinstance(entry, Known):
            self._known.append(entry)
            self.size_bytes += len(entry.url) + len(entry.key or b"")
        else:
            self._queued.append(entry)
            url, key, _, payload, *_ = entry.candidate
            self.size_bytes += len(url) + len(key or b"") + len(payload or b"")

    def hand_over(self) -> None:
        known, queued = self._known, self._queued
        self._known, self._queued, self.size_bytes = [], [], 0
        self.report.known += self._say(self._target.note_ended, known)
        self.report.queued += self._say(self._target.schedule_loaded, queued)

    def _say(self, say: Callable[[Sequence[_E]], Sequence[Verdict]], entries: list[_E]) -> int:
        """Say all of them, the busy ones again when the store has caught up; how many were new."""
        new = 0
        while entries:
            verdicts = say(entries)
            busy = []
            for entry, verdict in zip(entries, verdicts, strict=True):
                if verdict.kind is VerdictKind.NEW:
                    new += 1
                elif verdict.kind is VerdictKind.BUSY:
                    busy.append(entry)
                else:
                    self._count(entry, verdict)
            entries = busy
            if entries:
                self._target.wait_until_durable()
        return new

    def _count(self, entry: Entry, verdict: Verdict) -> None:
        report = self.report
        if verdict.kind is VerdictKind.SEEN:
            report.seen += 1
        elif verdict.kind is VerdictKind.LATER:
            is_sent = verdict.reason == SENT.reason
            report.sent += is_sent
            report.later += not is_sent
        else:
            url = entry.url if isinstance(entry, Known) else entry.candidate.url
            self._refuse(Refusal(entry.place, url, verdict.reason))

    def _refuse(self, refusal: Refusal) -> None:
        report = self.report
        if refusal.reason == FOREIGN.reason:
            report.foreign += 1
            report.first_foreign = report.first_foreign or refusal
            return
        report.refused += 1
        if len(report.refusals) < NAMED:
            report.refusals.append(refusal)
