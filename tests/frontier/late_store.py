"""A store before another one: it works things off when it is told to, and can lose the rest as a dead process does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.frontier.stores.contract import Answer, Batch, FrontierStore


class LateStore:
    """Keeps what is said to `inner` back until it is worked off, oldest first; questions that block work off everything.

    Not `late`: everything is worked off before answers are taken, so that stores with a thread give the same answers at
    the same calls as the store in memory.
    """

    def __init__(self, inner: FrontierStore, *, late: bool) -> None:
        self._inner = inner
        self._late = late
        self._todo: deque[Callable[[], None]] = deque()
        self._told: list[Answer] = []
        self.kept = 0  #: number of the last batch that the inner store has

    def __getattr__(self, name: str) -> Any:
        """Everything else is the inner store's, which has all that was said by then."""
        self.work(len(self._todo))
        return getattr(self._inner, name)

    @property
    def is_behind(self) -> bool:
        """Something is kept back, or an answer was not taken."""
        return bool(self._todo or self._told)

    def open(self, identity: Mapping[str, str], now_s: float, on_change: Callable[[], None]) -> Any:
        return self._inner.open(identity, now_s, on_change)

    def write(self, batch: Batch) -> None:
        self._todo.append(lambda: self._write(batch))

    def ask_heads(self, *question: Any, **more: Any) -> None:
        self._todo.append(lambda: self._inner.ask_heads(*question, **more))

    def ask_lanes(self, *question: Any) -> None:
        self._todo.append(lambda: self._inner.ask_lanes(*question))

    def ask_gate(self, *question: Any) -> None:
        self._todo.append(lambda: self._inner.ask_gate(*question))

    def ask_gates(self, *question: Any) -> None:
        self._todo.append(lambda: self._inner.ask_gates(*question))

    def ask_retries(self, *question: Any) -> None:
        self._todo.append(lambda: self._inner.ask_retries(*question))

    def hurry(self) -> None:
        """Ignore the request to begin soon: late work stays late."""

    def work(self, steps: int) -> None:
        """Work off the oldest things."""
        steps = min(steps, len(self._todo))
        for _ in range(steps):
            self._todo.popleft()()
        if steps:
            self._inner.flush()
            self._told += self._inner.take_answers()

    def take_answers(self) -> list[Answer]:
        if not self._late:
            self.work(len(self._todo))
        told, self._told = self._told, []
        return told

    def note(self, notes: Mapping[str, str]) -> None:
        """From any thread, so nothing is worked off."""
        self._inner.note(notes)

    def close(self, *, clean: bool) -> None:
        if clean:
            self.work(len(self._todo))
        self._inner.close(clean=clean)

    def lose(self) -> None:
        """Lose all work that is kept back, as a dying process does. The inner store still answers."""
        self._todo.clear()

    def die(self) -> None:
        """Let go of the inner store as a kill does."""
        self.lose()
        self._inner.close(clean=False)

    def _write(self, batch: Batch) -> None:
        self._inner.write(batch)
        self.kept = batch.number
