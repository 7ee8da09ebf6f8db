"""What one run counts."""

import pytest

from crawler.outcomes.failures import ConnectFailed
from crawler.reporting.statistics import CrawlStatistics
from crawler.visit import Ending
from frontier.models import OutcomeKind
from tests.crawler.builder import START_S, response, visit

PAGE = visit(answer=response(404, b"12345", Content_Type="text/html; charset=utf-8"))
BARE = visit(answer=response(200))
DEAD = visit(failure=ConnectFailed("refused"))
SHUT = visit(ending=Ending.EXCLUDED)


def counted(*ended):
    statistics = CrawlStatistics(started_s=START_S)
    for one, kind in ended:
        statistics.count(one, kind)
    return statistics


@pytest.mark.parametrize(
    ("one", "kind", "changed"),
    [
        (
            PAGE,
            OutcomeKind.DONE,
            {"pages": 1, "fetched_bytes": 5, "by_status": {404: 1}, "by_mime": {"text/html": 1}},
        ),
        (BARE, OutcomeKind.DONE, {"pages": 1, "by_status": {200: 1}, "by_mime": {"no-type": 1}}),
        (DEAD, OutcomeKind.FAILED, {"failed": 1, "by_status": {-2: 1}, "seed_failures": {"http://a.test/": "refused"}}),
        (SHUT, OutcomeKind.DISREGARDED, {"excluded": 1, "by_status": {-9998: 1}}),
        (DEAD, OutcomeKind.RETRY, {"retries": 1, "seed_failures": {"http://a.test/": "refused"}}),
        (PAGE, OutcomeKind.DEFERRED, {"fetched_bytes": 5}),
    ],
)
def test_a_visit_counts_where_its_outcome_says(one, kind, changed) -> None:
    """Only what ended a URL has a status; bytes count whatever they were fetched for."""
    assert counted((one, kind)) == CrawlStatistics(started_s=START_S, **changed)


def test_visits_add_up() -> None:
    """Two pages of a kind are two."""
    statistics = counted((PAGE, OutcomeKind.DONE), (PAGE, OutcomeKind.DONE))
    assert (statistics.pages, statistics.by_status[404], statistics.by_mime["text/html"]) == (2, 2, 2)


def test_only_a_seeds_failure_is_kept_in_words() -> None:
    """The words of every failing link would fill the memory."""
    assert counted((visit(failure=ConnectFailed("refused"), hops="L"), OutcomeKind.FAILED)).seed_failures == {}


def test_a_seed_that_was_answered_at_last_has_no_failure() -> None:
    """The seeds report must not give an answered seed the reason of an earlier try."""
    assert counted((DEAD, OutcomeKind.RETRY), (BARE, OutcomeKind.DONE)).seed_failures == {}
