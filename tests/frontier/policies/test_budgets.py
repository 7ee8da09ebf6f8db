"""Budgets: what a lease costs its queue, and when a queue has spent what it may."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.budgets import (
    MOST_EXPENSIVE,
    UNIT,
    UNLIMITED,
    Budgets,
    checked_total,
    parse_cost,
    spend,
)
from anabranch.frontier.records import OutcomeKind
from tests.rows import each_row


def test_the_defaults_are_those_of_heritrix() -> None:
    """Operators find the numbers they know."""
    assert Budgets() == Budgets(balance_replenish=3000, total_budget=-1, error_penalty=100)


@each_row(
    ("kind", "spent"),
    [
        (OutcomeKind.DONE, 7),
        (OutcomeKind.FAILED, 107),
        (OutcomeKind.RETRY, 7),
        (OutcomeKind.DISREGARDED, 0),
        (OutcomeKind.DEFERRED, 0),
        (OutcomeKind.RETIRE, 0),
    ],
)
def test_each_end_of_a_lease_has_its_price(kind: OutcomeKind, spent: int) -> None:
    """Tries cost, failures cost the penalty too, what was not tried is free."""
    assert spend(kind, 7, 100) == spent


def test_every_kind_of_outcome_has_a_price_in_the_test_above() -> None:
    """A new kind of outcome needs a decision about its price."""
    assert {kind.name for kind in OutcomeKind} == {"DONE", "FAILED", "RETRY", "DISREGARDED", "DEFERRED", "RETIRE"}


@each_row(
    ("amounts", "line"),
    [
        ({"balance_replenish": 0}, "balance_replenish 0: give a whole number of cost units, 1 or more"),
        ({"error_penalty": -1}, "error_penalty -1: give a whole number of cost units, 0 or more"),
        ({"total_budget": -2}, "total_budget -2: give a whole number of cost units, -1, which is without end, or more"),
        ({"error_penalty": 1.5}, "error_penalty 1.5: give a whole number of cost units, 0 or more"),
        ({"error_penalty": True}, "error_penalty True: give a whole number of cost units, 0 or more"),
    ],
)
def test_an_amount_that_makes_no_sense_is_refused(amounts: dict[str, int], line: str) -> None:
    """One line names the setting and what it may be."""
    with pytest.raises(PolicyError) as raised:
        Budgets(**amounts)
    assert str(raised.value) == line


def test_the_least_amounts_are_taken() -> None:
    """The limits belong to what is allowed."""
    assert Budgets(balance_replenish=1, total_budget=0, error_penalty=0).balance_replenish == 1
    assert checked_total(UNLIMITED) == UNLIMITED


def test_a_budget_of_one_queue_is_checked_too() -> None:
    """A budget that an operator types for one queue has the same limits."""
    with pytest.raises(PolicyError, match="total_budget -5"):
        checked_total(-5)


URL = "http://example.com/"


def finds(function: Callable[..., object]) -> Callable[[str], Callable[..., object]]:
    """An importer that answers every name with this function."""
    return lambda name: function


def test_unit_costs_1_and_says_so_beforehand() -> None:
    """The default need not be asked for each URL."""
    assert UNIT.constant == 1
    assert UNIT.of(URL, None, "") == 1
    assert parse_cost("unit").constant == 1


def test_zero_costs_nothing() -> None:
    """Budgets never end under it."""
    zero = parse_cost("zero")
    assert (zero.constant, zero.of(URL, None, "")) == (0, 0)


@each_row(
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


@each_row(
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


@each_row(
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
    assert cost.constant is None
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


@each_row("answer", [-1, MOST_EXPENSIVE + 1, 1.0, "1", None, True])
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


@each_row("name", ["", "units", "unit:2", "wag:", ":f", "m:"])
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
