"""Cost policies: what a URL takes from its queue's budgets."""

from collections.abc import Callable

import pytest

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.costs import MOST_EXPENSIVE, UNIT, parse_cost

URL = "http://example.com/"


def finds(function: Callable[..., object]) -> Callable[[str], Callable[..., object]]:
    """An importer that answers every name with this function."""
    return lambda name: function


def test_unit_costs_1_and_says_so_beforehand() -> None:
    """The default need not be asked for each URL."""
    assert UNIT.constant == 1
    assert UNIT.of(URL, None, "") == 1
    assert parse_cost("unit").name == "unit"


def test_zero_costs_nothing() -> None:
    """Budgets never end under it."""
    zero = parse_cost("zero")
    assert (zero.constant, zero.of(URL, None, "")) == (0, 0)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/calendar/",
        "http://example.com/showCalendar.php",
        "http://example.com/viewcal?x=1",
        "http://example.com/2019/05/03/",
        "http://example.com/a?y=1999",
        "http://example.com/events/7",
        "http://example.com/list?Date=5",
        "http://example.com/list?yr=12",
        "http://example.com/jour/3",
        "http://example.com/by-month/x",
    ],
)
def test_what_looks_like_a_calendar_costs_one_more(url: str) -> None:
    """Calendars have pages without end: they use up a budget sooner."""
    assert parse_cost("anticalendar").of(url, None, "") == 2


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "http://example.com/update/1",
        "http://example.com/candidates",
        "http://example.com/holidays-in-spain",
        "http://example.com/prevention",
        "http://example.com/dateline",
        "http://example.com/item/12019",
        "http://example.com/item/20195",
        "http://example.com/2150/x",
        "http://date.example.com/about",
        "http://www.calendar.org/about",
    ],
)
def test_what_is_no_calendar_costs_1(url: str) -> None:
    """A word inside another word, a longer number, or the name of the host is no calendar."""
    assert parse_cost("anticalendar").of(url, None, "") == 1


@pytest.mark.parametrize(
    ("url", "via", "cost"),
    [
        ("http://example.com/a", None, 1),
        ("http://example.com/a", "http://example.com/a?x=1", 1),
        ("http://example.com/a?x=1", None, 2),
        ("http://example.com/a?x=1", "http://example.com/b", 2),
        ("http://example.com/a?x=1", "http://example.com/ab?x=1", 2),
        ("http://example.com/a?x=1", "http://example.com/a", 3),
        ("http://example.com/a?x=2", "http://example.com/a?x=1", 3),
    ],
)
def test_wag_charges_queries_and_pages_that_lead_to_themselves(url: str, via: str | None, cost: int) -> None:
    """A query costs 1, the same page under another query 1 more; a page whose address only begins alike is another page."""
    wag = parse_cost("wag")
    assert wag.constant is None
    assert wag.of(url, via, "L") == cost


def test_a_users_function_is_called_with_url_via_and_hops() -> None:
    """A policy of the user's own sees all that the built-in ones see."""
    asked: list[tuple[object, ...]] = []
    cost = parse_cost("shop.costs:of", finds(lambda *given: asked.append(given) or 5))
    assert (cost.name, cost.constant) == ("shop.costs:of", None)
    assert cost.of(URL, "http://via/", "LL") == 5
    assert asked == [(URL, "http://via/", "LL")]


def test_the_importer_is_asked_for_the_name_as_it_stands() -> None:
    """The name in the order is the name that is looked for."""
    names: list[str] = []

    def imported(name: str) -> Callable[..., object]:
        names.append(name)
        return lambda url, via, hops: 0

    parse_cost("shop.costs:of", imported)
    assert names == ["shop.costs:of"]


@pytest.mark.parametrize("answer", [0, MOST_EXPENSIVE])
def test_the_least_and_the_highest_cost_are_taken(answer: int) -> None:
    """The limits belong to what is allowed."""
    assert parse_cost("m:f", finds(lambda *given: answer)).of(URL, None, "") == answer


@pytest.mark.parametrize("answer", [-1, MOST_EXPENSIVE + 1, 1.0, "1", None, True])
def test_an_answer_that_is_no_cost_names_the_function_and_the_url(answer: object) -> None:
    """A user's slip is one line that says where to look."""
    with pytest.raises(PolicyError) as raised:
        parse_cost("m:f", finds(lambda *given: answer)).of(URL, None, "")
    line = f"cost m:f for {URL} gave {answer!r}; a whole number from 0 to 1000000 is needed"
    assert str(raised.value) == line


def test_a_function_that_raises_is_named_with_its_reason() -> None:
    """Whatever it raises becomes one line, and the cause is kept."""

    def fails(url: str, via: str | None, hops: str) -> int:
        raise ValueError("two\nlines")

    with pytest.raises(PolicyError) as raised:
        parse_cost("m:f", finds(fails)).of(URL, None, "")
    assert str(raised.value) == f"cost m:f for {URL} failed: ValueError: two lines"
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_long_url_is_cut_in_the_error() -> None:
    """A URL of 10,000 characters does not make a line of 10,000 characters."""
    with pytest.raises(PolicyError) as raised:
        parse_cost("m:f", finds(lambda *given: "x" * 10_000)).of(URL + "a" * 10_000, None, "")
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("name", ["", "units", "unit:2", "wag:", ":f", "m:"])
def test_an_unknown_policy_lists_the_known_ones(name: str) -> None:
    """One line names what was asked for and what there is."""
    line = f"cost {name} is unknown; choose one of unit, zero, anticalendar, wag, package.module:function"
    with pytest.raises(PolicyError) as raised:
        parse_cost(name, finds(lambda *given: 1))
    assert str(raised.value) == line


def test_a_function_that_cannot_be_imported_is_told_at_once() -> None:
    """An order with such a name is refused before the first URL."""
    with pytest.raises(PolicyError, match=r"^cost m:f: functions cannot be imported here"):
        parse_cost("m:f")
