"""A visit tells its status, times and type from what the processors left in it."""

import pytest

from anabranch.crawler.outcomes.failures import ConnectFailed, RobotsUnavailable
from anabranch.crawler.visit import ChainDecision
from tests.crawler.builder import END_S, START_S, response, visit
from tests.rows import each_row

TIMED = ConnectFailed("refused").timed(START_S, END_S)


@each_row(
    ("left", "status"),
    [
        ({}, 0),
        ({"answer": response(404)}, 404),
        ({"failure": ConnectFailed("refused")}, -2),
        ({"answer": response(200), "broken": KeyError("odd")}, -5),
        ({"decision": ChainDecision.EXCLUDED}, -9998),
        ({"failure": RobotsUnavailable("not now")}, -61),
        ({"decision": ChainDecision.DEFERRED, "answer": response(200)}, 200),
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
    assert visit(**left).fetch_times == times


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


@pytest.mark.parametrize(("status", "is_busy"), [(429, True), (503, True), (500, False), (200, False)])
def test_a_host_says_by_429_and_503_that_it_is_busy(status, is_busy) -> None:
    """No other answer asks for a rest."""
    assert visit(answer=response(status)).is_busy is is_busy


@pytest.mark.parametrize(
    "left",
    [
        {},
        {"answer": response(503), "broken": KeyError("odd")},
        {"answer": response(503), "decision": ChainDecision.NO_RULES},
        {"answer": response(503), "decision": ChainDecision.DEFERRED},
    ],
    ids=["no answer", "broken", "unruled", "deferred"],
)
def test_only_the_urls_own_answer_says_that_its_host_is_busy(left) -> None:
    """Not what broke in our hands, and not what was fetched in the URL's place."""
    assert not visit(**left).is_busy
