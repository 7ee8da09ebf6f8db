"""A visit tells its status, times and type from what the processors left in it."""

import pytest

from crawler.failures import ConnectFailed, RobotsUnavailable
from crawler.visit import Ending
from tests.crawler.builder import END_S, START_S, response, visit

TIMED = ConnectFailed("refused").timed(START_S, END_S)


@pytest.mark.parametrize(
    ("left", "status"),
    [
        ({}, 0),
        ({"answer": response(404)}, 404),
        ({"failure": ConnectFailed("refused")}, -2),
        ({"answer": response(200), "broken": KeyError("odd")}, -5),
        ({"ending": Ending.EXCLUDED}, -9998),
        ({"ending": Ending.UNRULED, "answer": response(503)}, -61),
        ({"ending": Ending.DEFERRED, "answer": response(200)}, 200),
    ],
)
def test_the_status_is_what_weighs_most(left, status) -> None:
    """An exclusion weighs more than a fault of ours, that more than the site's, that more than the answer."""
    assert visit(**left).status == status


@pytest.mark.parametrize(
    ("left", "times"),
    [
        ({}, None),
        ({"answer": response()}, (START_S, END_S)),
        ({"failure": TIMED}, (START_S, END_S)),
        ({"failure": RobotsUnavailable("not now")}, None),
    ],
)
def test_only_what_was_fetched_has_times(left, times) -> None:
    """A failure without a fetch has none, so that its slot does not rest."""
    assert visit(**left).fetched == times


@pytest.mark.parametrize(
    ("header", "mime"),
    [
        ({"Content_Type": "Text/HTML; charset=utf-8"}, "text/html"),
        ({"Content_Type": " text/css "}, "text/css"),
        ({}, ""),
    ],
)
def test_the_mime_type_is_bare_and_in_lower_case(header, mime) -> None:
    """Parameters and blanks are not part of it."""
    assert visit(answer=response(**header)).mime == mime


def test_without_an_answer_there_is_no_mime_type() -> None:
    """It is empty, not missing."""
    assert visit().mime == ""


def test_a_busy_hosts_answer_to_robots_txt_is_not_the_pages() -> None:
    """The URL itself was not fetched: it has no page, no type, but the answer tells how long the host rests."""
    busy = response(503, b"sorry", Content_Type="text/plain")
    one = visit(ending=Ending.UNRULED, answer=busy)
    assert (one.page, one.mime, one.busy) == (None, "", busy)


@pytest.mark.parametrize(("status", "is_busy"), [(429, True), (503, True), (500, False), (200, False)])
def test_a_host_says_by_429_and_503_that_it_is_busy(status, is_busy) -> None:
    """No other answer asks for a rest."""
    answer = response(status)
    assert visit(answer=answer).busy is (answer if is_busy else None)


def test_a_broken_visit_asks_for_no_rest() -> None:
    """What failed was ours, and the URL is not tried again."""
    assert visit(answer=response(503), broken=KeyError("odd")).busy is None
