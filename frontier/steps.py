"""Work in steps: what needs the core's memory is done between them, and each step is one question that may block.

A function in steps is a generator that yields its questions (plain calls, such as one of the store's) and gets their
answers. Whoever has the core's thread to himself answers them there (`run`); an event loop has them answered in another
thread, and lets the crawl go on meanwhile (`AsyncFrontier.look`). So there is one function for both.

Between two steps the core may have gone on: what memory said before a question may be over after it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from anabranch.frontier.parts import Parts
    from anabranch.frontier.stores.contract import FrontierStore


T = TypeVar("T")

#: One question after another; what it comes to is returned.
Steps = Generator[Callable[[], Any], Any, T]


def asked(question: Callable[..., T], *arguments: Any) -> Steps[T]:
    """One step: the answer to a call that may block and may be made in any thread."""
    answer: T = yield lambda: question(*arguments)
    return answer


def run(steps: Steps[T]) -> T:
    """Do it all here and now (blocks). Raises: what the steps or their questions raise."""
    try:
        question = next(steps)
        while True:
            try:
                answer = question()
            except Exception as error:  # noqa: BLE001  the steps may know what to do
                question = steps.throw(error)
            else:
                question = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def flushed(parts: Parts, store: FrontierStore) -> Steps[None]:
    """As `Parts.flush`: all that was said when it was asked is durable and marked, and the answers are taken.

    Raises: StoreUnavailable.
    """
    parts.store_link.drain()
    parts.schedule.index.save_all()
    while True:
        parts.store_link.say()
        yield from asked(store.flush)
        parts.store_link.drain()
        if parts.outbox.batch.is_empty:  # else answers have led to more, such as the change of a gate that was read
            break
    # Slice by slice, and with a step between them: whoever has a loop to keep turning does so.
    for _ in range(parts.admission.marking.slices):
        yield from asked(_nothing)
        parts.store_link.drain()


def _nothing() -> None:
    """A question that has no answer."""
