"""A plain model of the truths of a crawl after each call: it knows URLs and queues and no stores, gates or lanes."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field

from anabranch.frontier.policies.budgets import NOTHING_MORE, spend
from anabranch.frontier.records import ENDING, OutcomeKind
from anabranch.frontier.scheduling.queues import is_over_total
from anabranch.frontier.stores.contract import Standing


@dataclass
class Queue:
    """A work queue as an operator sees it."""

    standing: Standing = Standing.OPEN
    spent: int = 0
    budget: int | None = None  #: its own; None = the order's


@dataclass
class Truth:
    """URLs by what became of them. A URL that was forced counts again."""

    total_budget: int = -1
    error_penalty: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    kinds: Counter[OutcomeKind] = field(default_factory=Counter)
    attempts: Counter[int] = field(default_factory=Counter)
    waiting: dict[int, tuple[str, float]] = field(default_factory=dict)  #: ordinal -> (URL, due)
    queues: dict[str, Queue] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)  #: URL -> the ordinal of its last row, if it was queued again
    failures: set[str] = field(default_factory=set)  #: URLs whose last row has failed

    def copy(self) -> Truth:
        return deepcopy(self)

    @property
    def queued(self) -> Counter[str]:
        """URLs that have not ended, leased and waiting ones included."""
        return self.accepted - self.ended

    def queue(self, key: str) -> Queue:
        return self.queues.setdefault(key, Queue())

    def may_run(self, key: str) -> bool:
        """The queue is neither paused nor retired nor over its budget."""
        queue = self.queue(key)
        return queue.standing is Standing.OPEN and not self.is_spent(queue)

    def is_spent(self, queue: Queue) -> bool:
        return is_over_total(queue.spent, self.total_budget if queue.budget is None else queue.budget)

    # Calls

    def queue_again(self, url: str, ordinal: int) -> None:
        """It was forced, or retried: if its last row has failed, that is a failure no more."""
        self.owners[url] = ordinal
        if url not in self.failures:
            self.accepted[url] += 1
            return
        self.failures.remove(url)
        self.ended[url] -= 1
        self.kinds[OutcomeKind.FAILED] -= 1

    def finish(self, ordinal: int, url: str, key: str, kind: OutcomeKind, due_s: float) -> None:
        queue = self.queue(key)
        queue.spent += spend(kind, 1, self.error_penalty)
        if kind in ENDING:
            self.ended[url] += 1
            self.kinds[kind] += 1
            if kind is OutcomeKind.FAILED and ordinal >= self.owners.get(url, 0):
                self.failures.add(url)
        elif kind is OutcomeKind.RETRY:
            self.attempts[ordinal] += 1
            self.waiting[ordinal] = url, due_s
        if queue.standing is Standing.OPEN and kind is OutcomeKind.RETIRE:
            queue.budget = NOTHING_MORE
        if queue.standing is Standing.OPEN and self.is_spent(queue):
            queue.standing = Standing.RETIRED

    def come_due(self, now_s: float) -> None:
        """Retries whose time has come wait no more."""
        self.waiting = {ordinal: wait for ordinal, wait in self.waiting.items() if wait[1] > now_s}

    def pause(self, key: str) -> None:
        queue = self.queue(key)
        self._take_back_retirement(queue)
        queue.standing = Standing.PAUSED

    def resume(self, key: str) -> None:
        queue = self.queue(key)
        self._take_back_retirement(queue)
        self._open(queue)

    def retire(self, key: str) -> None:
        queue = self.queue(key)
        queue.budget, queue.standing = NOTHING_MORE, Standing.RETIRED

    def set_budget(self, key: str, units: int | None) -> None:
        queue = self.queue(key)
        queue.budget = units
        if queue.standing is not Standing.PAUSED:
            self._open(queue)

    def reopen(self, total_budget: int) -> None:
        """Another owner, whose order may have another total budget: if it has, retired queues may run again."""
        if total_budget != self.total_budget:
            self.total_budget = total_budget
            for queue in self.queues.values():
                if queue.standing is Standing.RETIRED:
                    self._open(queue)

    def _take_back_retirement(self, queue: Queue) -> None:
        """Somebody's order to retire it; a budget that it has used up stays."""
        if queue.budget == NOTHING_MORE:
            queue.budget = None

    def _open(self, queue: Queue) -> None:
        queue.standing = Standing.RETIRED if self.is_spent(queue) else Standing.OPEN
