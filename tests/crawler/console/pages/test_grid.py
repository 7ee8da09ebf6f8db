"""Tests of the parameters that a browser sends, and of the words about the rows."""

import pytest
from starlette.datastructures import QueryParams

from anabranch.crawler.console.pages.grid import first_query, page_query, page_words
from anabranch.crawler.console.queues import RowsFound
from anabranch.crawler.outcomes.errors import UsageError
from tests.rows import each_row


def test_a_page_is_asked_for_by_place_order_and_filter() -> None:
    """Empty boxes filter nothing."""
    asked = page_query(QueryParams("offset=600000&limit=100&sort=urls&descending=true&text=&least=0"))
    assert (asked.offset, asked.limit, asked.sort, asked.descending) == (600_000, 100, "urls", True)
    assert (asked.text, asked.states, asked.least_urls) == ("", (), 0)
    asked = page_query(QueryParams("text=+ab+&state=ready&state=paused&least=7"))
    assert (asked.text, asked.states, asked.least_urls) == ("ab", ("ready", "paused"), 7)


@each_row("asked", ["offset=-1", "limit=x", "least=1.5", "offset=٣", f"limit={'9' * 5000}"])
def test_a_number_that_is_none_is_refused_by_its_name(asked: str) -> None:
    """Addresses may be typed."""
    with pytest.raises(UsageError, match=f"^{asked.split('=', maxsplit=1)[0]} must be a whole number"):
        page_query(QueryParams(asked))


def test_nobody_gets_all_rows_at_once() -> None:
    """A page has a bound, whatever is asked for."""
    assert page_query(QueryParams("limit=1000000")).limit == 1000


def test_the_words_say_how_many_rows_there_are_and_how_old_they_are() -> None:
    """The facts from the crawl's memory have an age of their own."""
    page = RowsFound[str]([], 1_000_000, 0, 100.0, None)
    assert page_words(page, "queue", 142.0) == "1,000,000 queues, as of 42s ago"
    assert page_words(page, "queue", 99.0) == "1,000,000 queues, as of now"
    live = page._replace(total=1, live_s=139.0)
    assert page_words(live, "gate", 142.0) == "1 gate, as of 42s ago; active ones as of 3.0s ago"
    assert page_words(live._replace(unknown="no answer from b"), "gate", 142.0) == (
        "1 gate, as of 42s ago; active ones as of 3.0s ago; no answer from b, so states are from the database"
    )


def test_a_page_begins_with_what_its_address_says() -> None:
    """Without that with the longest that have URLs; what is wrong counts as left out."""
    usual = first_query(QueryParams(""))
    assert (usual.sort, usual.descending, usual.least_urls) == ("urls", True, 1)
    asked = first_query(QueryParams("sort=spent&descending=false&state=ready,paused&least=0&text=a&queue=b"))
    assert (asked.sort, asked.descending, asked.least_urls, asked.text) == ("spent", False, 0, "a")
    assert asked.states == ("ready", "paused")
    assert first_query(QueryParams("least=many")) == usual
