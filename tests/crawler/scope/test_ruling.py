"""Scope: the last rule that decides wins, and the trace says which it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.scope import rules, ruling
from anabranch.crawler.scope.places import PLACES
from anabranch.crawler.scope.rules import Decision, Quiet, Rule, Target
from anabranch.crawler.scope.ruling import Scope, Step

ACCEPT, REJECT = Decision.ACCEPT, Decision.REJECT
A = "http://a.test/"


def scope(*made: Rule) -> Scope:
    return Scope(made, PLACES["any"]())


def saying(decision: Decision | None, *, quiet: Quiet | None = None, by_hops: bool = False) -> Rule:
    return Rule("said", f"says {decision}", lambda _url, _hops, _via: decision, quiet=quiet, by_hops=by_hops)


def test_the_last_rule_that_decides_wins() -> None:
    """Whatever those before it say; those that say nothing are passed over."""
    assert scope(saying(REJECT), saying(ACCEPT), saying(None)).accepts(A)
    assert not scope(saying(ACCEPT), saying(REJECT)).accepts(A)


def test_what_no_rule_accepts_is_out() -> None:
    """Also without any rule."""
    for empty in (scope(), scope(saying(None))):
        assert not empty.accepts(A)
        assert empty.decide(Target(A)) == ruling.Ruling(is_accepted=False, step=None)


def test_the_ruling_names_the_rule() -> None:
    """By its number, from 1."""
    decided = scope(saying(REJECT), saying(ACCEPT), saying(None)).decide(Target(A))
    assert (decided.is_accepted, decided.step) == (True, Step(2, "said", "says Decision.ACCEPT", ACCEPT))


def test_the_trace_has_all_rules_in_order_with_what_decides_in_them() -> None:
    """Those that say nothing, too."""
    made = scope(rules.reject_all(), rules.regex(["x", "y"], ACCEPT), rules.max_hops(1))
    assert [
        (step.number, step.name, step.decision, step.detail) for step in made.trace(Target("http://a.test/y", "L"))
    ] == [
        (1, "all", REJECT, ""),
        (2, "regex", ACCEPT, "y"),
        (3, "max_hops", None, ""),
    ]


def test_a_seed_opens_its_place_in_the_rules() -> None:
    """At once; what it is depends on the kind of place."""
    place = PLACES["host"]()
    made = Scope([rules.reject_all(), rules.seeds(place)], place)
    assert not made.accepts(A)
    made.add_seed("http://a.test/x")
    assert made.accepts(A)


def test_a_rule_is_not_asked_for_what_it_promised_to_be_quiet_of() -> None:
    """Neighbours share one look; the smallest limits count."""
    asked: list[str] = []

    def ask(url: str, _hops: str, _via: str | None) -> None:
        asked.append(url)

    noting = Rule("noting", "", ask, quiet=Quiet(chars=20))
    made = scope(saying(ACCEPT), noting, saying(None, quiet=Quiet(slashes=5)))
    for url in (A, A + "123456", A + "1/2/", A + "1/"):
        assert made.accepts(url)
    assert asked == [A + "123456", A + "1/2/"]


def test_rules_on_hops_are_asked_once_for_the_same_hops(monkeypatch) -> None:
    """The links of a page share them; what is remembered is bounded."""
    monkeypatch.setattr(ruling, "MAX_KNOWN_HOPS", 2)
    asked: list[str] = []

    def ask(_url: str, hops: str, _via: str | None) -> None:
        asked.append(hops)

    made = scope(saying(ACCEPT), Rule("noting", "", ask, by_hops=True))
    for hops in ("L", "L", "E", "L", "R", "L"):
        assert made.accepts(A, hops)
    assert asked == ["L", "E", "R", "L"]


DECISIONS = st.sampled_from([ACCEPT, REJECT, None])
RULES = st.one_of(
    st.builds(saying, DECISIONS),
    st.builds(saying, DECISIONS, by_hops=st.just(True)),
    st.builds(rules.max_hops, st.integers(0, 3)),
    st.builds(rules.embeds, st.integers(1, 2)),
    st.builds(rules.path_depth, st.integers(1, 4)),
    st.builds(rules.path_repeats, st.integers(1, 2)),
    st.builds(rules.url_length, st.integers(15, 30)),
    st.builds(rules.regex, st.just(["a/b"]), st.sampled_from([ACCEPT, REJECT])),
)
TARGETS = st.builds(
    Target,
    st.lists(st.sampled_from(["a/", "b/", "x", "?"]), max_size=9).map("".join).map(A.__add__),
    st.text("LERX", max_size=4),
)


@given(st.lists(RULES, max_size=7), st.lists(TARGETS, max_size=5))
def test_the_quick_answer_is_that_of_the_trace(made: list[Rule], targets: list[Target]) -> None:
    """What is spared and remembered changes nothing."""
    whole = scope(*made)
    for target in targets:
        said = [step.decision for step in whole.trace(target) if step.decision is not None]
        assert whole.accepts(*target) is whole.decide(target).is_accepted is (said[-1:] == [ACCEPT])


@given(st.lists(RULES, max_size=7), st.lists(TARGETS, max_size=5), st.text("LE", max_size=2))
def test_of_many_links_those_are_accepted_that_each_would_be(
    made: list[Rule], targets: list[Target], hops: str
) -> None:
    """With the page's hops and the link's own."""
    whole, links = scope(*made), [(target.url, target.hops[-1:] or "L", "a/@href") for target in targets]
    assert whole.accepted(links, hops, A) == [link for link in links if whole.accepts(link[0], hops + link[1], A)]


def test_a_link_is_a_hop_further_than_its_page() -> None:
    """By which it is judged."""
    whole, links = scope(rules.embeds(1)), [(A, "L"), (A, "E")]
    assert whole.accepted(links, "", A) == whole.accepted(links, "L", A) == [(A, "E")]
    assert whole.accepted(links, "E", A) == []
