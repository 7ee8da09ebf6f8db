"""Failures that an operator queues again."""

from __future__ import annotations

import pytest

from anabranch.frontier.inspect import retry
from anabranch.frontier.inspect.retry import RetryReport
from anabranch.frontier.parts import run
from anabranch.frontier.records import Candidate, GateKey, Outcome, OutcomeKind, QueueKey, VerdictKind
from anabranch.frontier.stores.contract import FailedRecord
from tests.frontier.builder import HASTE, Rig, build, pages

A = QueueKey("a.test")


def failed(*urls: str, **order: object) -> Rig:
    """A crawl in which these have failed, each once."""
    rig = build(politeness=HASTE, **order)
    rig.add(*urls)
    for _ in urls:
        rig.finish(rig.settled(), OutcomeKind.FAILED)
    rig.core.flush()
    return rig


def everything(_: FailedRecord) -> bool:
    return True


def test_a_retried_url_is_fetched_again_and_no_failure_any_more() -> None:
    """The sum of all states stays, and its tries begin anew."""
    rig = failed(*pages("a.test", 3))
    report = rig.core.operations.retry(everything)
    assert (report.queued, report.retired, report.blocked, report.more) == (3, 0, 0, None)
    counts = rig.core.counts()
    assert (counts.failed, counts.pending) == (0, 3)
    assert sorted(rig.drain(0.0)) == sorted(pages("a.test", 3))
    assert (rig.core.counts().done, rig.core.counts().failed) == (3, 0)
    assert rig.core.operations.statistics().accepted == 3
    rig.core.operations.check()


def test_hops_page_and_payload_come_back_in_the_lease() -> None:
    """They are the same as when the URL was found."""
    rig = build(politeness=HASTE)
    core = rig.core
    core.schedule([Candidate("http://a.test/")])
    page = core.lease()
    assert page is not None
    core.finish(page, Outcome(OutcomeKind.DONE, 200), [Candidate("http://a.test/1", b"key", "LE", b"payload")])
    first = core.lease()
    assert first is not None
    core.finish(first, Outcome(OutcomeKind.FAILED, -4))
    core.operations.retry(everything)
    again = core.lease()
    assert again is not None
    assert again._replace(ordinal=0, since_s=0.0) == first._replace(ordinal=0, since_s=0.0)
    assert (again.hops, again.via, again.payload, again.attempts) == ("LE", "http://a.test/", b"payload", 0)


def test_only_what_matches_is_retried() -> None:
    """By status, URL or time: the caller decides."""
    rig = failed(*pages("a.test", 2), *pages("b.test", 1))
    report = rig.core.operations.retry(lambda failure: failure.url.startswith("http://b.test/"))
    assert (report.queued, rig.core.counts().failed) == (1, 2)
    assert rig.drain(0.0) == pages("b.test", 1)


def test_what_holds_a_url_back_is_told() -> None:
    """A budget that is spent, a pause, a block: they hold again."""
    rig = failed(*pages("a.test", 2), *pages("b.test", 3), *pages("c.test", 1))
    rig.core.operations.retire(A)
    rig.core.operations.pause(QueueKey("c.test"))
    rig.core.block(GateKey("b.test"), rig.clock() + 60.0)
    report = rig.core.operations.retry(everything)
    assert report[:5] == RetryReport(queued=6, retired=2, paused=1, blocked=3)[:5]
    assert rig.lease_all() == []
    rig.core.operations.check()


def test_a_failure_that_another_command_has_queued_is_not_queued_twice() -> None:
    """The second of two concurrent commands does not find it any more."""
    rig = failed(*pages("a.test", 3))
    one, other = (rig.core.operations.retrying.steps(everything) for _ in range(2))
    answers: list[RetryReport] = []
    questions = [(steps, next(steps)) for steps in (one, other)]
    while questions:  # in turns, as a loop would do them
        steps, question = questions.pop(0)
        try:
            questions.append((steps, steps.send(question())))
        except StopIteration as end:
            answers.append(end.value)
    assert sorted(rig.drain(0.0)) == sorted(pages("a.test", 3))
    assert len(answers) == 2
    rig.core.operations.check()


def test_a_url_that_was_forced_since_it_failed_is_not_retried() -> None:
    """It is queued, or has succeeded: its failure is none any more."""
    rig = failed("http://a.test/1")
    (verdict,) = rig.core.schedule([Candidate("http://a.test/1", force=True)])
    assert verdict.kind is VerdictKind.NEW
    rig.core.flush()
    assert rig.core.counts().failed == 0
    assert rig.core.operations.retry(everything).queued == 0
    assert rig.drain(0.0) == ["http://a.test/1"]
    assert (rig.core.counts().done, rig.core.counts().failed) == (1, 0)


def test_what_fails_again_meanwhile_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call looks at a bounded number of failures, and names where the next one goes on."""
    monkeypatch.setattr(retry, "PAGE", 2)
    monkeypatch.setattr(retry, "PAGES", 1)
    rig = failed(*pages("a.test", 5))
    retrying = rig.core.operations.retrying
    report = run(retrying.steps(everything))
    assert (report.queued, report.more is None) == (2, False)
    rig.clock.advance(1.0)
    for _ in range(2):
        lease = rig.lease_now()
        rig.finish(lease, OutcomeKind.FAILED)
    rig.core.flush()
    while report.more is not None:
        report = report.and_then(run(retrying.steps(everything, report.more, report.before_s)))
    assert (report.queued, rig.core.counts().failed, rig.core.counts().pending) == (5, 2, 3)


def test_a_retry_goes_to_a_queue_over_its_budget_and_stays_there() -> None:
    """Budgets stay in force."""
    rig = failed(*pages("a.test", 2))
    rig.core.operations.set_budget(A, 1)
    assert rig.core.operations.retry(everything).retired == 2
    assert rig.core.counts().retired == 2
    assert rig.core.is_done
