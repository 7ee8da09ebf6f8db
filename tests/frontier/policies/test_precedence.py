"""Precedence: which URL of a queue goes first, and which queue."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.budgets import parse_cost
from anabranch.frontier.policies.precedence import (
    FLOOR,
    LAST,
    QueueHistory,
    is_precedence,
    parse_queue_precedence,
    parse_uri_precedence,
)
from anabranch.frontier.records import FRONT, NORMAL, WAITING, Candidate, QueueKey
from tests.rows import each_row

URL = "http://example.com/"
PLAIN = Candidate(URL)
#: Heritrix's scheduling directives.
NORMAL_DIRECTIVE, HIGH_DIRECTIVE = 3, 1


def finds(function: Callable[..., object]) -> Callable[[str], Callable[..., object]]:
    """An importer that answers every name with this function."""
    return lambda name: function


def history(successes: int = 0, base: int = 3) -> QueueHistory:
    """A queue with so many successes."""
    return QueueHistory(QueueKey("example.com"), base, successes, successes, 0)


def by_heritrix(successes: int, base: int, tiers: list[int]) -> int:
    """Heritrix's count of tiers: one step per tier that is passed, the last tier again and again."""
    precedence, left, number = base - 1, successes, 0
    while left >= 0:
        left -= tiers[min(number, len(tiers) - 1)]
        number += 1
        precedence += 1
    return precedence


# Rows


@pytest.mark.parametrize("name", ["cost", "base", "base:1", "hops"])
def test_a_plain_candidate_has_normal_precedence(name: str) -> None:
    """Every policy gives a seed the precedence that the Frontier calls normal."""
    assert parse_uri_precedence(name).in_row(PLAIN) == NORMAL


def test_a_candidate_for_the_front_has_the_front_precedence() -> None:
    """`front` is the directive HIGH."""
    assert parse_uri_precedence("cost").in_row(PLAIN._replace(front=True)) == FRONT


@given(st.booleans(), st.integers(0, LAST), st.booleans(), st.integers(0, LAST))
def test_the_directive_is_stronger_than_any_uri_precedence(one: bool, a: int, other: bool, b: int) -> None:
    """Rows sort by directive first, then by URI precedence, and all of them before rows that wait."""
    policy = parse_uri_precedence("base")
    first, second = (
        policy.in_row(PLAIN._replace(front=front), None, number) for front, number in ((one, a), (other, b))
    )
    assert (first < second) == ((not one, a) < (not other, b))
    assert max(first, second) < WAITING


def test_a_policy_that_always_says_the_same_says_it_beforehand() -> None:
    """Most crawls need not ask for each URL."""
    assert parse_uri_precedence("cost").plain == NORMAL
    assert parse_uri_precedence("base:7").plain == NORMAL_DIRECTIVE << 8 | 7
    assert parse_uri_precedence("hops").plain is None
    assert parse_uri_precedence("cost", cost=parse_cost("wag")).plain is None


@given(st.integers(0, LAST))
def test_base_gives_every_url_its_number(number: int) -> None:
    """`base:N` is N for all, and the rule agrees with the constant."""
    policy = parse_uri_precedence(f"base:{number}")
    assert policy.in_row(PLAIN) == NORMAL_DIRECTIVE << 8 | number
    assert policy.rule(PLAIN, None) == policy.constant == number


def test_cost_makes_expensive_urls_wait() -> None:
    """Under `cost` a URL's precedence is its cost, up to the last precedence."""
    wag = parse_uri_precedence("cost", cost=parse_cost("wag"))
    query = Candidate(URL + "?a=1")
    assert [wag.rule(PLAIN, None), wag.rule(query, None), wag.rule(query, URL)] == [1, 2, 3]
    dear = parse_uri_precedence("cost", cost=parse_cost("m:f", finds(lambda url, via, hops: 1000)))
    assert dear.in_row(PLAIN) == NORMAL_DIRECTIVE << 8 | LAST


def test_cost_sees_the_hops_of_the_candidate() -> None:
    """The cost policy gets the candidate's own path."""
    policy = parse_uri_precedence("cost", cost=parse_cost("m:f", finds(lambda url, via, hops: len(hops))))
    assert policy.rule(PLAIN._replace(hops="LRE"), None) == 3


@pytest.mark.parametrize(("name", "number"), [("hops", 3), ("hops:all", 6)])
def test_hops_puts_pages_far_from_the_seed_last(name: str, number: int) -> None:
    """`hops` counts links only; embeds and redirects do not make a page worse unless every hop counts."""
    assert parse_uri_precedence(name).rule(PLAIN._replace(hops="LRLEE"), None) == number


@pytest.mark.parametrize("name", ["hops", "hops:all"])
def test_a_path_longer_than_the_scale_stays_on_it(name: str) -> None:
    """The 300th hop is as bad as the 255th."""
    assert parse_uri_precedence(name).rule(PLAIN._replace(hops="L" * 300), None) == LAST


def test_a_users_function_sees_the_candidate_and_where_it_was_found() -> None:
    """A policy of the user's own decides from the whole candidate."""
    asked: list[tuple[object, ...]] = []
    policy = parse_uri_precedence("m:f", finds(lambda *given: asked.append(given) or 9))
    assert policy.in_row(PLAIN, "http://via/") == NORMAL_DIRECTIVE << 8 | 9
    assert asked == [(PLAIN, "http://via/")]


@pytest.mark.parametrize("name", ["base:7", "hops", "m:f"])
def test_what_a_candidate_brings_is_stronger_than_sheet_and_policy(name: str) -> None:
    """Candidate, then sheet, then policy: the nearest word counts, 0 included."""
    policy = parse_uri_precedence(name, finds(lambda *given: 9))
    brings = PLAIN._replace(precedence=0)
    assert policy.in_row(brings, None, 4) == NORMAL_DIRECTIVE << 8
    assert policy.in_row(PLAIN, None, 0) == NORMAL_DIRECTIVE << 8
    assert policy.in_row(brings._replace(front=True)) == HIGH_DIRECTIVE << 8


@each_row(("number", "is_one"), [(None, True), (0, True), (LAST, True), (-1, False), (256, False), (True, False)])
def test_a_candidate_may_bring_a_number_of_the_scale_only(number: int | None, is_one: bool) -> None:
    """Anything else would sort among other directives."""
    assert is_precedence(number) is is_one


@each_row("answer", [-1, 256, 1.0, None, False])
def test_a_users_answer_outside_the_scale_names_function_and_url(answer: object) -> None:
    """A user's slip is one line that says where to look."""
    with pytest.raises(PolicyError) as raised:
        parse_uri_precedence("m:f", finds(lambda *given: answer)).in_row(PLAIN)
    line = f"URI precedence m:f for {URL} gave {answer!r}; a whole number from 0 to 255 is needed"
    assert str(raised.value) == line


# Queues


def test_a_queue_keeps_its_base_by_default() -> None:
    """Heritrix's base is 3, and no one needs to ask again."""
    policy = parse_queue_precedence("base")
    assert (policy.base, policy.floor, policy.rule) == (3, FLOOR, None)
    assert policy.of(history(10_000, base=5)) == 5


def test_the_base_can_be_chosen() -> None:
    """`base:N` is N for queues without a sheet."""
    assert parse_queue_precedence("base:0").base == 0
    assert parse_queue_precedence("base:255").base == LAST


@each_row(("successes", "precedence"), [(0, 3), (99, 3), (100, 4), (1099, 4), (1100, 5), (2099, 5), (2100, 6)])
def test_success_lowers_a_queue_by_tiers(successes: int, precedence: int) -> None:
    """New sites go before sites of which much is known; the numbers are those of Heritrix's documentation."""
    for name in ("success", "success:100,1000"):
        policy = parse_queue_precedence(name)
        assert policy.rule is not None
        assert policy.of(history(successes)) == precedence


@given(st.integers(0, 20_000), st.integers(0, 100), st.lists(st.integers(100, 1000), min_size=1, max_size=4))
def test_success_counts_as_heritrix_does(successes: int, base: int, tiers: list[int]) -> None:
    """For any tiers, the same steps at the same successes, as far as the floor allows."""
    policy = parse_queue_precedence("success:" + ",".join(map(str, tiers)))
    assert policy.of(history(successes, base)) == min(by_heritrix(successes, base, tiers), FLOOR - 1)


def test_success_never_brings_a_queue_to_the_floor() -> None:
    """A site with millions of pages goes last, but it goes; only its base can put it at the floor."""
    policy = parse_queue_precedence("success:1", floor=10)
    assert policy.of(history(10**9)) == 9
    assert policy.of(history(10**9, base=12)) == 12


def test_a_users_function_sees_the_history_of_the_queue() -> None:
    """A policy of the user's own decides from what the queue did so far."""
    asked: list[tuple[object, ...]] = []
    policy = parse_queue_precedence("m:f", finds(lambda *given: asked.append(given) or 8))
    assert policy.of(history(7)) == 8
    assert asked == [(history(7),)]


def test_a_users_answer_for_a_queue_names_function_and_queue() -> None:
    """A user's slip is one line that says where to look."""
    with pytest.raises(PolicyError) as raised:
        parse_queue_precedence("m:f", finds(lambda given: 300)).of(history())
    line = "queue precedence m:f for example.com gave 300; a whole number from 0 to 255 is needed"
    assert str(raised.value) == line


# Orders that make no sense


@each_row("name", ["base:", "base:256", "base:-1", "base:x", "base:²", "base:" + "9" * 5000])
@each_row("parse", [parse_uri_precedence, parse_queue_precedence])
def test_a_base_outside_the_scale_is_refused(parse: Callable[[str], object], name: str) -> None:
    """One line names the policy and the scale."""
    with pytest.raises(PolicyError, match=r"precedence base:.*: give a whole number from 0 to 255$"):
        parse(name)


@each_row("name", ["success:", "success:0", "success:100,", "success:1,0,1", "success:-1", "success:a"])
def test_a_tier_that_is_no_number_is_refused(name: str) -> None:
    """A tier without successes would never end."""
    with pytest.raises(PolicyError, match=f"queue precedence {name}: "):
        parse_queue_precedence(name)


@pytest.mark.parametrize("floor", [0, 256, 1.5, True])
def test_a_floor_outside_the_scale_is_refused(floor: int) -> None:
    """A floor of 0 would stop every queue."""
    with pytest.raises(PolicyError, match="precedence floor"):
        parse_queue_precedence("base", floor=floor)


def test_highest_uri_is_refused_with_what_to_do() -> None:
    """Operators who know it learn that it is not there, and what is."""
    with pytest.raises(PolicyError, match="highest-uri is not offered; give URLs precedence in their queues"):
        parse_queue_precedence("highest-uri", finds(lambda given: 1))


@pytest.mark.parametrize(
    ("parse", "line"),
    [
        (
            parse_uri_precedence,
            "URI precedence best is unknown; choose one of base:N, cost, hops, hops:all, package.module:function",
        ),
        (
            parse_queue_precedence,
            "queue precedence best is unknown; choose one of base:N, success:A,B, package.module:function",
        ),
    ],
)
def test_an_unknown_policy_lists_the_known_ones(parse: Callable[[str], object], line: str) -> None:
    """One line names what was asked for and what there is."""
    with pytest.raises(PolicyError) as raised:
        parse("best")
    assert str(raised.value) == line
