"""The order that each process of a job gets, and the reason why the run as a whole has ended."""

from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.processes.supervisor import why_of, worker_order
from tests.rows import each_row


def test_fetches_at_once_are_divided_among_the_processes() -> None:
    """At least one each; time, seeds and reports are the parent's."""
    order = load_order(None, {"workers": 8, "processes": 3, "time_limit": "5s", "seeds": ("http://a.test/",)}, [])
    each = [CrawlOrder.model_validate(worker_order(order, number)) for number in (1, 2, 3)]
    assert [one.crawl.workers for one in each] == [3, 3, 2]
    assert {(one.limits.time_s, one.job.seeds, one.report.reports) for one in each} == {(0.0, (), False)}
    assert [one.job.worker for one in each] == ["1", "2", "3"]
    few = load_order(None, {"workers": 1, "processes": 2}, [])
    assert CrawlOrder.model_validate(worker_order(few, 2)).crawl.workers == 1


@each_row(
    ("asked", "said", "done", "retired", "why"),
    [
        (None, ["FINISHED", "FINISHED"], True, False, WhyEnded.FINISHED),
        (None, ["RETIRED"], True, True, WhyEnded.RETIRED),
        (WhyEnded.SIGNAL, ["SIGNAL", "SIGNAL"], False, False, WhyEnded.SIGNAL),
        (WhyEnded.SIGNAL, ["FINISHED"], True, False, WhyEnded.SIGNAL),
        (None, ["OPERATOR", "OPERATOR"], False, False, WhyEnded.OPERATOR),
        (None, ["OPERATOR", "FINISHED"], True, False, WhyEnded.FINISHED),
        (None, ["OPERATOR", "PAGE_LIMIT"], False, False, WhyEnded.OPERATOR),
        (None, ["PAGE_LIMIT", "PAGE_LIMIT"], False, False, WhyEnded.PAGE_LIMIT),
        (None, ["PAGE_LIMIT", "FINISHED"], True, False, WhyEnded.FINISHED),
        (WhyEnded.TIME_LIMIT, ["SIGNAL"], False, False, WhyEnded.TIME_LIMIT),
        (WhyEnded.TIME_LIMIT, ["SIGNAL"], True, False, WhyEnded.FINISHED),
    ],
)
def test_a_run_ends_as_it_was_asked_to_or_as_its_workers_say(
    asked: WhyEnded | None, said: list[str], done: bool, retired: bool, why: WhyEnded
) -> None:
    """That nothing is left counts for more than a limit."""
    assert why_of(asked, [{"ending": name} for name in said], is_done=done, has_retired=retired) is why
