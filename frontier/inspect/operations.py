"""Commands of an operator: pause, resume, retire and budget queues, remove URLs, and view and explain everything.

All of them may block. A running crawl views through `views`, which does not stop it; a change takes some milliseconds,
in which the crawl waits. Changes are written as batches and are durable when the call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from anabranch.frontier.checkpoints import Checkpoints
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.inspect.audit import audit
from anabranch.frontier.inspect.dump import dump_lines
from anabranch.frontier.inspect.explain import Explanation, GateView, QueueView
from anabranch.frontier.inspect.load import Entry, Loading, LoadReport, load
from anabranch.frontier.inspect.retry import Retrying, RetryReport
from anabranch.frontier.inspect.statistics import FrontierStatistics
from anabranch.frontier.inspect.views import PAGE, Views
from anabranch.frontier.parts import Parts, flushed, run
from anabranch.frontier.policies.budgets import NOTHING_MORE, checked_total
from anabranch.frontier.records import GateKey, Head, OutcomeKind, QueueKey, UrlRecord, name_id
from anabranch.frontier.scheduling.gates import Politeness, check_politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.scheduling.queues import is_over_total
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import Ended, FailedRecord, FrontierStore, Place, QueueFacts, Standing

#: Heritrix's status of a URL that the operator removed.
DELETED_BY_USER = -6000


class Operations:
    """The operator's verbs. Errors: UnknownQueue; StoreUnavailable as everywhere.

    One of several workers changes queues of the shares that it holds. What concerns all queues needs all shares: dump, load,
    remove. Otherwise PolicyError is raised.
    """

    def __init__(
        self,
        store: FrontierStore,
        seen: SeenFilter,
        parts: Parts,
        checkpoints: Checkpoints,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._parts = parts
        self._checkpoints = checkpoints
        self.views = Views(store, seen, parts, clock)  #: the same views in steps, for a crawl that goes on meanwhile
        self.loading = Loading(store, parts, clock)  #: the target of a dump or a journal
        self.retrying = Retrying(store, parts, clock)  #: failures in steps, for a crawl that goes on meanwhile

    def limit_retries(self) -> None:
        """The crawl ends: if the store is away, fail after a short time instead of waiting until it is back."""
        self._store.limit_retries()

    def set_politeness(self, politeness: Politeness, group_politeness: Politeness) -> None:
        """Spare hosts and groups by these rules from the next fetch on; current rests remain. Raises: PolicyError."""
        for rules in (politeness, group_politeness):
            check_politeness(rules)
        self._parts.schedule.window.set_politeness(politeness, group_politeness)

    def queues(self, state: QueueState | None = None, after: int | None = None, limit: int = PAGE) -> list[QueueView]:
        """Return `Views.queues`; blocks."""
        return run(self.views.queues(state, after, limit))

    def longest(self, limit: int = 20) -> list[QueueView]:
        """Return `Views.longest`; blocks."""
        return run(self.views.longest(limit))

    def view(self, queue: QueueKey) -> QueueView:
        """Return `Views.view`; blocks."""
        return run(self.views.view(queue))

    def gate(self, gate: GateKey) -> GateView:
        """Return `Views.gate`; blocks."""
        return run(self.views.gate(gate))

    def knows_gate(self, gate: GateKey) -> bool:
        """Return `Views.knows_gate`; blocks."""
        return run(self.views.knows_gate(gate))

    def explain(self, subject: str, key: bytes | None = None) -> Explanation:
        """Return `Views.explain`; blocks."""
        return run(self.views.explain(subject, key))

    def matching(self, matches: Callable[[str], bool], queue: QueueKey | None = None) -> int:
        """How many URLs `remove` would end. Costs a look at every queued row, or at those of the queue."""
        self._flush()
        leases = self._parts.leases.ordinals()
        pages = self._pages(None if queue is None else name_id(queue))
        return sum(matches(head.row.url) and head.row.ordinal not in leases for page in pages for head in page)

    def statistics(self) -> FrontierStatistics:
        """Return `Views.statistics`; blocks."""
        return run(self.views.statistics())

    def opens_s(self, gate: GateKey) -> float | None:
        """When a gate opens (epoch seconds), or since when it is open; infinity if time alone does not open it.

        None if it is not in memory. O(1), never blocks.
        """
        line = self._parts.schedule.window.get(name_id(gate))
        return None if line is None else line.opens_s()

    def get(self, key: bytes) -> UrlRecord | None:
        """The record of the URL with this dedup key. Costs a scan for a queued one. Any thread."""
        _check_key(key)
        return self._store.look_up(key)

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """The records of the URLs with these dedup keys that have ended. Any thread."""
        for key in keys:
            _check_key(key)
        return self._store.ended(keys)

    def failures(self) -> Mapping[int, int]:
        """How many URLs have failed, by their status. Costs a look at each of them. Any thread."""
        return self._store.retry_reads.by_status()

    def check(self) -> None:
        """Recount memory, and compare its totals with the store's, recounted too. Costs a scan. Raises: InvariantBroken."""
        self._flush()
        audit(self._parts, self._store)

    def dump(self, facts: Mapping[str, str | float] | None = None, *, with_ended: bool = True) -> Iterator[str]:
        """The lines of a dump, see `frontier.inspect.dump`. Call nothing else until the last line."""
        self._require_whole("dump")
        self._flush()
        return dump_lines(self._store, facts, with_ended=with_ended)

    def load(self, entries: Iterable[Entry]) -> LoadReport:
        """Take over the URLs of another Frontier, see `frontier.inspect.load`."""
        self._require_whole("load")
        return load(entries, self.loading)

    def checkpoint(self) -> None:
        """Make the filter durable up to what is marked, so that an unclean end costs less. Any thread."""
        self._checkpoints.now()

    def pause(self, queue: QueueKey) -> None:
        """Serve nothing more of this queue until it is resumed; its leases may end. A retired one is paused instead."""
        self._require_held("pause", queue)
        self._stand(self._without_retirement(queue), Standing.PAUSED)

    def resume(self, queue: QueueKey) -> None:
        """Serve a queue again that an operator paused or retired; one over its total budget stays retired."""
        self._require_held("resume", queue)
        facts = self._without_retirement(queue)
        self._stand(facts, self._open_or_retired(facts))

    def retire(self, queue: QueueKey) -> None:
        """Put a queue aside and keep its URLs: its total budget becomes `NOTHING_MORE`. This ends a pause."""
        self._require_held("retire", queue)
        self._set_budget(self._facts(queue), NOTHING_MORE)
        self._stand(self._facts(queue), Standing.RETIRED)

    def set_budget(self, queue: QueueKey, units: int | None) -> None:
        """Set a queue's own total budget (-1 = without end, None = the order's); wakes or retires it. Raises: PolicyError."""
        self._require_held("set_budget", queue)
        facts = self._facts(queue)
        self._set_budget(facts, units if units is None else checked_total(units))
        facts = self._facts(queue)
        if facts.row.standing is not Standing.PAUSED:
            self._stand(facts, self._open_or_retired(facts))

    def remove(
        self,
        matches: Callable[[str], bool],
        queue: QueueKey | None = None,
        note: Callable[[Sequence[Head]], object] | None = None,
    ) -> int:
        """End every queued URL that matches and is not leased, as disregarded with status -6000; returns how many.

        `note` gets some of them at a time, before these are ended.
        """
        self._require_whole("remove")
        self._flush()
        removed = 0
        for heads in self._pages(None if queue is None else name_id(queue)):
            removed += self._remove([head for head in heads if matches(head.row.url)], note)
        return removed

    def retry(self, matches: Callable[[FailedRecord], bool]) -> RetryReport:
        """Queue the failures that match again, all of them; see `frontier.inspect.retry`."""
        report = run(self.retrying.steps(matches))
        while report.more is not None:
            report = report.and_then(run(self.retrying.steps(matches, report.more, report.before_s)))
        return report

    def wake_by_budget(self) -> int:
        """Open every retired queue that is no longer over its total budget, as after the order raised it.

        One of several workers opens those of the shares that it holds.
        """
        woken, after = 0, None
        while page := self._store.queues(Standing.RETIRED, after, PAGE):
            after = page[-1].row.id
            for facts in page:
                if self._is_held(facts.row.key) and self._open_or_retired(facts) is Standing.OPEN:
                    self._stand(facts, Standing.OPEN)
                    woken += 1
        return woken

    def _require_whole(self, verb: str) -> None:
        hosting = self._parts.store_link.hosting
        if hosting is not None and not hosting.holds_all:
            raise PolicyError(f"{verb}: this is one worker of several, and has a part of the job's queues only")

    def _is_held(self, queue: QueueKey) -> bool:
        hosting = self._parts.store_link.hosting
        return hosting is None or self._parts.admission.assignment.share_of_queue(queue) in hosting.serving

    def _require_held(self, verb: str, queue: QueueKey) -> None:
        if not self._is_held(queue):
            raise PolicyError(f"{verb} {queue}: another worker holds its share of the job")

    def _flush(self) -> None:
        run(flushed(self._parts, self._store))

    def _facts(self, queue: QueueKey) -> QueueFacts:
        return run(self.views.facts(queue))

    def _without_retirement(self, queue: QueueKey) -> QueueFacts:
        """The queue without an operator's retirement; a budget that it has used up stays."""
        facts = self._facts(queue)
        if facts.row.budget == NOTHING_MORE:
            self._set_budget(facts, None)
            facts = self._facts(queue)
        return facts

    def _open_or_retired(self, facts: QueueFacts) -> Standing:
        row = facts.row
        total = self._parts.rules.total_budget(row.key, row.budget)
        return Standing.RETIRED if is_over_total(row.spent, total) else Standing.OPEN

    def _set_budget(self, facts: QueueFacts, units: int | None) -> None:
        queue = self._parts.schedule.index.get(facts.row.id)
        if queue is not None and queue.is_known:
            queue.set_budget(units, self._parts.rules.total_budget(queue.key, units))
            row = queue.row()
        else:
            row = facts.row._replace(budget=units)
        self._parts.outbox.batch.queues.append(row)
        self._flush()

    def _stand(self, facts: QueueFacts, standing: Standing) -> None:
        if facts.row.standing is standing:
            return
        schedule = self._parts.schedule
        queue = schedule.index.get(facts.row.id)
        if queue is not None:
            if standing is Standing.OPEN:
                schedule.placement.reopen(queue)
            else:
                schedule.placement.suspend(queue, standing)
        self._parts.outbox.batch.standings.append((facts.row.id, standing))
        self._flush()
        if standing is Standing.OPEN:
            # Its lanes wait at the gates in memory again; the store has informed the other gates.
            after: int | None = None
            while page := self._store.lanes(facts.row.id, after, PAGE):
                after = page[-1].gate
                for lane in page:
                    line = schedule.window.get(lane.gate)
                    if line is not None and lane.count > lane.waiting:
                        schedule.lane_waits(line, facts.row.id, lane.turn)
            schedule.window.stored.note_woken()

    def _pages(self, queue: int | None) -> Iterator[list[Head]]:
        """Queued rows by place, all or those of one queue."""
        after: Place | None = None if queue is None else (queue, -(1 << 63), -1, 0)
        while page := self._store.queued(after, PAGE):
            kept = [head for head in page if queue is None or head.row.queue == queue]
            if kept:
                yield kept
            if len(kept) < len(page):
                return
            after = page[-1].row[:4]

    def _remove(self, heads: list[Head], note: Callable[[Sequence[Head]], object] | None) -> int:
        leases = self._parts.leases.ordinals()
        heads = [head for head in heads if head.row.ordinal not in leases]
        if not heads:
            return 0
        if note is not None:
            note(heads)
        rows = [head.row for head in heads]
        schedule = self._parts.schedule
        ordinals = {row.ordinal for row in rows}
        for line in {row.gate: schedule.window.get(row.gate) for row in rows}.values():
            if line is not None:
                schedule.placement.drop_rows(line, ordinals)
        self._parts.retries.remove(ordinals)
        self._parts.completion.count_waiting(-sum(row.due_s is not None for row in rows))
        self._parts.outbox.batch.ended.extend(Ended(row, DELETED_BY_USER, OutcomeKind.DISREGARDED) for row in rows)
        self._flush()
        return len(rows)


def _check_key(key: bytes) -> None:
    """Raises: TypeError. Anything else would make the store fail."""
    if not isinstance(key, bytes):
        raise TypeError(f"a dedup key is bytes, such as url.encode(); not {key!r}")
