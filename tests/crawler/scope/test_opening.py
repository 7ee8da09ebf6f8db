"""From the order to the scope: which rules there are, and in which order they decide."""

from __future__ import annotations

import pytest

from anabranch.crawler.orders.scope import ScopeSection
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.scope.opening import ORDER, open_scope
from anabranch.crawler.scope.rules import Target

SEED = "http://a.test/dir/seed.html"
HOME = "tests.crawler.scope.test_opening"


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
        "max_path_repeats",
        "max_path_depth",
        "max_url_length",
        "schemes",
    ]


@pytest.mark.parametrize(
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
    """Of what opens and closes, the later wins; the operator's own have the last word."""
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
