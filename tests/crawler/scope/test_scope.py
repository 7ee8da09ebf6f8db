"""Scope: the order of the rules, the last that decides wins, the trace says which it was; host quotas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.status import FetchStatus, StatusClass, class_of
from anabranch.crawler.scope import rules
from anabranch.crawler.scope.rules import DecideRule, Decision, Target, Threshold
from anabranch.crawler.scope.scope import (
    ORDER,
    OverQuota,
    Quotas,
    Scope,
    Used,
    explain_scope,
    open_scope,
    over_quota,
)
from anabranch.crawler.scope.seeds import SEED_SCOPES
from tests.rows import each_row

SEED = "http://a.test/dir/seed.html"
HOME = "tests.crawler.scope.test_scope"


def opened(**keys):
    made = open_scope(ScopeSection(**keys))
    made.add_seed(SEED)
    return made


def rules_of(**keys) -> list[str]:
    return [rule.name for rule in opened(**keys).rules]


def test_the_default_order_is_heritrix_s() -> None:
    """Traps are closed by default."""
    assert rules_of() == [
        "all",
        "seeds",
        "max_hops",
        "embeds",
        "path_repeats",
        "path_depth",
        "url_length",
        "schemes",
    ]


def test_what_the_order_switches_off_makes_no_rule() -> None:
    """0 hops is a limit; 0 of the others is none."""
    off = dict.fromkeys(("max_hops", "max_embeds", "max_path_repeats", "max_path_depth", "max_url_length"), 0)
    assert rules_of(**off) == ["all", "seeds", "max_hops", "schemes"]
    assert not opened(**off).accepts("http://a.test/", "L")


def test_every_key_that_makes_a_rule_is_one_of_the_section() -> None:
    """And what opens stands before the hop limit, what closes behind the embeds."""
    assert set(ORDER) <= set(ScopeSection.model_fields)
    assert list(ORDER) == [
        "accept",
        "include",
        "max_hops",
        "max_embeds",
        "reject",
        "exclude",
        "ignore",
        "max_path_repeats",
        "max_path_depth",
        "max_url_length",
        "schemes",
    ]


@each_row(
    ("keys", "url", "hops", "is_in"),
    [
        ({}, SEED, "", True),
        ({}, "http://a.test/", "L", True),
        ({}, "http://b.test/", "L", False),
        ({}, "http://b.test/i.png", "LE", True),
        ({"max_embeds": 0}, "http://b.test/i.png", "LE", False),
        ({"max_hops": 1}, "http://a.test/", "LL", False),
        ({"max_hops": 1}, "http://a.test/i.png", "LE", True),
        ({"scope": "prefix"}, "http://a.test/", "L", False),
        ({"scope": "domain"}, "http://www.a.test/", "L", True),
        ({"scope": "any"}, "http://b.test/", "L", True),
        ({"scope": "page"}, "http://a.test/dir/", "L", False),
        ({"accept": ["b.test"]}, "http://b.test/", "L", True),
        ({"accept": ["b.test"], "max_hops": 1}, "http://b.test/", "LL", False),
        ({"include": [r"//b\.test/"]}, "http://b.test/", "L", True),
        ({"include": [r"//b\.test/"], "max_hops": 1}, "http://b.test/", "LL", False),
        ({"exclude": ["/dir/"]}, SEED, "", False),
        ({"include": ["/x/"], "exclude": ["/x/y"]}, "http://b.test/x/y", "L", False),
        ({"reject": ["b.test"]}, "http://b.test/i.png", "LE", False),
        ({"accept": ["b.test"], "reject": ["http://b.test/x/"]}, "http://b.test/x/y", "L", False),
        ({}, "http://a.test/x/x/x/", "L", False),
        ({"max_path_repeats": 0}, "http://a.test/x/x/x/", "L", True),
        ({}, "http://a.test/" + "".join(f"{n}/" for n in range(20)), "L", False),
        ({}, "http://a.test/?" + "x" * 2083, "L", False),
        ({"schemes": ["https"]}, "http://a.test/", "L", False),
        ({"exclude": ["/dir/"], "rules": [f"{HOME}:everything"]}, SEED, "", True),
        ({"rules": [f"{HOME}:everything", f"{HOME}:nothing"]}, SEED, "", False),
    ],
)
def test_the_order_of_the_rules_decides(keys, url: str, hops: str, is_in: bool) -> None:
    """A later rule overrides the ones before it; the operator's own come last."""
    assert opened(**keys).accepts(url, hops) is is_in


def everything(target: Target) -> bool:
    return True


def nothing(target: Target) -> bool:
    return False


def test_a_function_that_cannot_be_had_is_refused() -> None:
    """The line names the key."""
    with pytest.raises(OrderError, match=r"^\[scope\] rules no\.such:rule cannot be imported: ModuleNotFoundError"):
        open_scope(ScopeSection(rules=["no.such:rule"]))


def test_a_section_that_nobody_checked_is_checked_here() -> None:
    """A SURT prefix that is none never becomes a rule that covers nothing."""
    with pytest.raises(OrderError, match=r"^\[scope\] reject has a fault: SURT prefix 'a b' is refused"):
        open_scope(ScopeSection.model_construct(reject=("a b",)))


ACCEPT, REJECT = Decision.ACCEPT, Decision.REJECT
A = "http://a.test/"


def scope_of(*made: DecideRule) -> Scope:
    return Scope(made, SEED_SCOPES["any"]())


def saying(decision: Decision | None, *, threshold: Threshold | None = None, by_hops: bool = False) -> DecideRule:
    return DecideRule(
        "said", f"says {decision}", lambda _url, _hops, _via: decision, threshold=threshold, by_hops=by_hops
    )


def test_the_last_rule_that_decides_wins() -> None:
    """Whatever those before it say; those that say nothing are passed over."""
    assert scope_of(saying(REJECT), saying(ACCEPT), saying(None)).accepts(A)
    assert not scope_of(saying(ACCEPT), saying(REJECT)).accepts(A)


def test_what_no_rule_accepts_is_out() -> None:
    """Also without any rule."""
    for empty in (scope_of(), scope_of(saying(None))):
        assert not empty.accepts(A)
        assert explain_scope(empty, A, "", None) == "out of scope: no rule accepts it"


def test_the_explanation_names_the_rule_that_decided() -> None:
    """By its number, from 1."""
    explained = explain_scope(scope_of(saying(REJECT), saying(ACCEPT), saying(None)), A, "", None)
    assert explained.splitlines()[0] == "in scope as a seed, by rule 2 (said)"


def test_the_trace_has_all_rules_in_order_with_what_decides_in_them() -> None:
    """Those that say nothing, too."""
    made = scope_of(rules.reject_all(), rules.regex(["x", "y"], ACCEPT), rules.max_hops(1))
    assert [
        (step.number, step.name, step.decision, step.detail) for step in made.trace(Target("http://a.test/y", "L"))
    ] == [
        (1, "all", REJECT, ""),
        (2, "regex", ACCEPT, "y"),
        (3, "max_hops", None, ""),
    ]


def test_a_seed_opens_its_place_in_the_rules() -> None:
    """At once; what it is depends on the kind of place."""
    place = SEED_SCOPES["host"]()
    made = Scope([rules.reject_all(), rules.seeds(place)], place)
    assert not made.accepts(A)
    made.add_seed("http://a.test/x")
    assert made.accepts(A)


def test_a_rule_is_not_asked_for_what_it_promised_to_be_quiet_of() -> None:
    """Neighbours share one look; the smallest limits count."""
    asked: list[str] = []

    def ask(url: str, _hops: str, _via: str | None) -> None:
        asked.append(url)

    noting = DecideRule("noting", "", ask, threshold=Threshold(chars=20))
    made = scope_of(saying(ACCEPT), noting, saying(None, threshold=Threshold(slashes=5)))
    for url in (A, A + "123456", A + "1/2/", A + "1/"):
        assert made.accepts(url)
    assert asked == [A + "123456", A + "1/2/"]


def test_rules_on_hops_are_asked_once_for_the_same_hops(monkeypatch) -> None:
    """The links of a page share them; what is remembered is bounded."""
    monkeypatch.setattr("anabranch.crawler.scope.scope.MAX_KNOWN_HOPS", 2)
    asked: list[str] = []

    def ask(_url: str, hops: str, _via: str | None) -> None:
        asked.append(hops)

    made = scope_of(saying(ACCEPT), DecideRule("noting", "", ask, by_hops=True))
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
def test_the_quick_answer_is_that_of_the_trace(made: list[DecideRule], targets: list[Target]) -> None:
    """Shortcuts and memory change no decision."""
    whole = scope_of(*made)
    for target in targets:
        said = [step.decision for step in whole.trace(target) if step.decision is not None]
        assert whole.accepts(*target) is (said[-1:] == [ACCEPT])
        assert explain_scope(whole, *target).startswith("in scope") is whole.accepts(*target)


@given(st.lists(RULES, max_size=7), st.lists(TARGETS, max_size=5), st.text("LE", max_size=2))
def test_of_many_links_those_are_accepted_that_each_would_be(
    made: list[DecideRule], targets: list[Target], hops: str
) -> None:
    """With the page's hops and the link's own."""
    whole, links = scope_of(*made), [(target.url, target.hops[-1:] or "L", "a/@href") for target in targets]
    assert whole.accepted(links, hops, A) == [link for link in links if whole.accepts(link[0], hops + link[1], A)]


def test_a_link_is_a_hop_further_than_its_page() -> None:
    """By which it is judged."""
    whole, links = scope_of(rules.embeds(1)), [(A, "L"), (A, "E")]
    assert whole.accepted(links, "", A) == whole.accepted(links, "L", A) == [(A, "E")]
    assert whole.accepted(links, "E", A) == []


def words(url: str, hops: str = "", via: str | None = None, **keys) -> list[str]:
    scope = open_scope(ScopeSection(**keys))
    scope.add_seed("http://a.test/")
    return explain_scope(scope, url, hops, via).splitlines()


def test_the_first_line_names_the_rule_that_decided() -> None:
    """By number and name; then all rules that spoke, in order, and no other."""
    assert words("http://a.test/x", "LL") == [
        "in scope after 2 hops (LL), by rule 2 (seeds)",
        "  1 all rejects: reject everything",
        "  2 seeds accepts: accept what is on the host of a seed",
    ]


def test_a_seed_is_called_one() -> None:
    """It has no hops."""
    assert words("http://a.test/")[0] == "in scope as a seed, by rule 2 (seeds)"


def test_what_is_out_says_so_with_the_entry_that_decided() -> None:
    """The operator wants to see the one entry among many; a single one is in the rule's words already."""
    said = words("http://a.test/x.zip", "L", exclude=["y", r"\.zip$"], accept=["a.test", "b.test"], reject=["c.test"])
    assert said == [
        "out of scope after 1 hop (L), by rule 7 (regex)",
        "  1 all rejects: reject everything",
        "  2 seeds accepts: accept what is on the host of a seed",
        "  3 surt accepts: accept what one of 2 SURT prefixes covers: http://(test,a,",
        r"  7 regex rejects: reject what matches one of 2 patterns: \.zip$",
    ]
    assert words("http://a.test/x", "L", exclude=["/x"])[-1] == "  5 regex rejects: reject what matches the pattern /x"


def test_without_rules_nothing_is_in() -> None:
    """There is no rule to name."""
    place = SEED_SCOPES["any"]()
    assert explain_scope(Scope([], place), "http://a.test/", "", None) == "out of scope: no rule accepts it"


@pytest.mark.parametrize(
    ("quotas", "used", "annotation", "status"),
    [
        (Quotas(pages=2), Used(pages=2), "Q:pages_per_host", -5003),
        (Quotas(bytes=10), Used(bytes=11), "Q:bytes_per_host", -5003),
        (Quotas(time=1.5), Used(time=1.5), "Q:time_per_host", -5004),
        (Quotas(pages=1, time=1), Used(pages=1, time=1), "Q:pages_per_host", -5003),
    ],
)
def test_a_limit_that_is_reached_is_named(quotas: Quotas, used: Used, annotation: str, status: int) -> None:
    """Pages and bytes are quotas, time is the time to run; the codes are Heritrix's. Of several the first one counts."""
    assert over_quota(quotas, used) == OverQuota(FetchStatus(status), annotation)
    assert class_of(status) is StatusClass.DISREGARDED


def test_below_its_limit_a_host_may_be_fetched() -> None:
    """One page, byte or second less."""
    assert over_quota(Quotas(pages=2, bytes=10, time=1.5), Used(1, 9, 1.4)) is None


def test_without_limits_everything_may_be_fetched() -> None:
    """0 is no limit."""
    assert over_quota(Quotas(), Used(10**9, 10**15, 1e9)) is None
