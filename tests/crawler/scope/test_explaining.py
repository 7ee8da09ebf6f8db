"""Why a URL is in scope or not, in words."""

from __future__ import annotations

from anabranch.crawler.orders.scope import ScopeSection
from anabranch.crawler.scope.explaining import explain_scope
from anabranch.crawler.scope.opening import open_scope
from anabranch.crawler.scope.places import PLACES
from anabranch.crawler.scope.ruling import Scope


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
    """Of many patterns and prefixes the operator wants to see the one; a single one stands in the rule's words already."""
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
    place = PLACES["any"]()
    assert explain_scope(Scope([], place), "http://a.test/", "", None) == "out of scope: no rule accepts it"
