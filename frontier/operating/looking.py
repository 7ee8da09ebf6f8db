"""What an operator may look at while the crawl goes on: every answer comes in steps, see `frontier.operating.steps`.

An answer mixes what memory and the store said at different moments of its making; each of its numbers was true in one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.leases import LeaseElsewhere
from anabranch.frontier.models import GateKey, QueueKey
from anabranch.frontier.operating.explain import Explanation, GateView, QueueView, explain_queue, explain_url
from anabranch.frontier.operating.statistics import FrontierStatistics, ReadyQueues, examine, ready
from anabranch.frontier.operating.steps import Steps, asked, flushed
from anabranch.frontier.operating.views import Views
from anabranch.frontier.parts import Parts
from anabranch.frontier.scheduling.gates import Gate, stand_as
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.base import FrontierStore, QueueFacts

#: Queues that are listed in one go.
PAGE = 1000
#: What a store's whole numbers stay below.
_MOST = 1 << 63


class Looking:
    """Looks that change nothing; what was said is written first. Errors: UnknownQueue; StoreUnavailable as everywhere."""

    def __init__(self, store: FrontierStore, seen: SeenFilter, parts: Parts, clock: Callable[[], float]) -> None:
        self._store = store
        self._seen = seen
        self._parts = parts
        self._views = Views(store, seen, parts, clock)
        self._clock = clock

    def statistics(self) -> Steps[FrontierStatistics]:
        """The counts and more, with the reason if nothing runs. Costs a look at every lane, and at every gate in memory."""
        self._parts.books.drain()
        behind = self._parts.books.backlog.behind
        yield from self.flush()
        tally = yield from asked(self._store.tally)
        statistics = examine(self._parts, tally, behind, self._clock())
        queues = yield from self._views.tally(statistics.queues)
        return statistics._replace(queues=queues, seen=self._seen.facts())

    def ready(self) -> ReadyQueues:
        """The queues that may be served now, by what is in memory; never waits. Costs a look at the lanes of open gates."""
        return ready(self._parts, self._clock())

    def queues(
        self, state: QueueState | None = None, after: int | None = None, limit: int = PAGE
    ) -> Steps[list[QueueView]]:
        """Queues that have rows or are held back, of one state if given, by id behind one. Costs their number at worst."""
        if not isinstance(state, QueueState | None):
            raise TypeError(f"a queue's state is a QueueState, such as QueueState.PAUSED; not {state!r}")
        _check_numbers(limit, 0 if after is None else after)
        yield from self.flush()
        return (yield from self._views.queues(state, after, limit))

    def longest(self, limit: int = 20) -> Steps[list[QueueView]]:
        """The queues with most URLs, longest first. Costs the store a look at every lane."""
        _check_numbers(limit)
        yield from self.flush()
        views: list[QueueView] = []
        for facts in (yield from asked(self._store.longest, limit)):
            view = yield from self._views.queue(facts)
            views.append(view)
        return views

    def view(self, queue: QueueKey) -> Steps[QueueView]:
        """One queue, with the first of its gates. Raises: UnknownQueue."""
        return (yield from self._views.queue((yield from self.facts(queue))))

    def gate(self, gate: GateKey) -> Steps[GateView]:
        """One gate, live if it is in memory, as it was written last if not; a new one for a host that nobody has met."""
        yield from self.flush()
        return (yield from self._views.gate(gate))

    def explain(self, subject: str, key: bytes | None = None) -> Steps[Explanation]:
        """Why a URL (it has "://") or a queue is where it is, and when it can go on. Raises: UnknownQueue.

        `key` is what dedup knows the URL by; the URL in UTF-8 if None.
        """
        if not isinstance(subject, str):
            raise TypeError(f"a URL or a queue's key is text; not {subject!r}")
        if "://" not in subject:
            return explain_queue((yield from self.view(QueueKey(subject))), self._clock())
        self._parts.books.drain()
        is_behind = self._parts.books.backlog.is_full
        yield from self.flush()
        facts = yield from self._views.url(subject, key)
        return explain_url(facts._replace(store_behind=is_behind), self._clock())

    def explain_all(self, url: str, words: Callable[[int], str] = str) -> Steps[list[Explanation]]:
        """The same of each row of a URL, whatever dedup knows it by: a host's requests have keys of their own.

        `words` tells a status. Costs the store a look at every row. Nothing if there is no such row.
        """
        yield from self.flush()
        found: list[Explanation] = []
        for facts in (yield from self._views.urls(url)):
            status = facts.record.status if facts.record is not None else 0
            found.append(explain_url(facts._replace(status_words=words(status) if status else ""), self._clock()))
        return found

    def beside(self, leases: Sequence[LeaseElsewhere], rests: Mapping[int, float]) -> None:
        """Look as the process does whose state this is a copy of: it has these leases out, and these gates rest until then.

        For a Frontier that is only looked at.
        """
        self._parts.leases.elsewhere = {lease.ordinal: lease for lease in leases}
        self._views.beside(leases)
        out = Counter(lease.gate for lease in leases)

        def stand(gate: Gate) -> None:
            stand_as(gate, out[gate.id], rests.get(gate.id, 0.0))

        self._parts.schedule.window.maker.stand = stand

    def facts(self, queue: QueueKey) -> Steps[QueueFacts]:
        """What the store has of a queue. Raises: UnknownQueue."""
        yield from self.flush()
        facts = yield from asked(self._store.queue, name_id(queue))
        if facts is None:
            raise UnknownQueue(f"there is no queue {queue}; `frontier ls` shows those that hold URLs")
        return facts

    def flush(self) -> Steps[None]:
        """All that was said is durable."""
        yield from flushed(self._parts, self._store)


def _check_numbers(*numbers: int) -> None:
    """Raises: TypeError. A store that is asked for anything else fails, and all with it."""
    for number in numbers:
        if not isinstance(number, int) or not -_MOST <= number < _MOST:
            raise TypeError(f"a limit, or a queue's id, is a whole number of 64 bits; not {number!r}")
