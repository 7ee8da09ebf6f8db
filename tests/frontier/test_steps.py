"""Work in steps: questions go out, answers come back, and an error comes to where the question was asked."""

from __future__ import annotations

import pytest

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.steps import Steps, asked, flushed, run
from tests.frontier.builder import DelayingStore, build


def failing() -> int:
    raise StoreUnavailable("gone")


def test_each_answer_comes_back_to_its_question() -> None:
    """And what the steps come to is the result."""

    def steps() -> Steps[str]:
        first = yield from asked(int, "17")
        second = yield from asked(max, first, 20)
        return f"{first}, {second}"

    assert run(steps()) == "17, 20"


def test_steps_without_a_question_are_done_at_once() -> None:
    """What memory knows needs nobody else."""

    def steps() -> Steps[int]:
        yield from ()
        return 3

    assert run(steps()) == 3


def test_an_error_is_raised_where_the_question_was_asked() -> None:
    """So that the steps may go on, as any caller may."""

    def steps() -> Steps[str]:
        try:
            yield from asked(failing)
        except StoreUnavailable as error:
            return f"{error}, {(yield from asked(str, 5))}"
        return "no error"

    assert run(steps()) == "gone, 5"


def test_an_error_that_nobody_meets_ends_the_steps() -> None:
    """As it was raised."""
    with pytest.raises(StoreUnavailable, match="gone"):
        run(asked(failing))


def test_a_flush_goes_on_until_nothing_more_follows_from_the_answers() -> None:
    """A gate that is read meanwhile is changed, and the change is written too."""
    store = DelayingStore()
    rig = build(store=store)
    rig.core.block("a.test", 2_000_000.0)  # type: ignore[arg-type]  # its gate is read first, then it is blocked
    run(flushed(rig.parts, store))
    assert rig.core.said == rig.core.durable > 0
    assert rig.parts.outbox.batch.is_empty
    assert [row.blocked_until_s for batch in store.batches for row in batch.gates] == [2_000_000.0]
