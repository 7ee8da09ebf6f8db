"""The kinds of rules: what each decides, and of what it says nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.scope import rules
from anabranch.crawler.scope.rules import LONGEST_GROUP, DecideRule, Decision, Target, has_repeats
from anabranch.frontier.errors import PolicyError
from tests.rows import each_row

ACCEPT, REJECT = Decision.ACCEPT, Decision.REJECT
A = "http://a.test/"
HOME = "tests.crawler.scope.test_rules"


def says(rule: DecideRule, url: str = A, hops: str = "", via: str | None = None) -> Decision | None:
    return rule.ask(url, hops, via)


def test_the_first_rule_rejects_everything() -> None:
    """A URL that no later rule accepts is out of scope."""
    assert says(rules.reject_all()) is REJECT


@each_row(("hops", "said"), [("", None), ("LE", None), ("LLL", REJECT), ("LRE", REJECT), ("XXP", REJECT)])
def test_all_hops_count(hops: str, said: Decision | None) -> None:
    """Embeds and redirects too, as in Heritrix; the limit itself is allowed."""
    assert says(rules.max_hops(2), hops=hops) is said


@each_row(
    ("hops", "said"),
    [
        ("", None),
        ("L", None),
        ("E", ACCEPT),
        ("LE", ACCEPT),
        ("LER", ACCEPT),
        ("LERE", None),
        ("EL", None),
        ("LX", ACCEPT),
        ("LXE", ACCEPT),
        ("LXX", None),
        ("XLXE", ACCEPT),
        ("LM", None),
        ("ELS", None),
    ],
)
def test_embeds_are_accepted_wherever_they_lie(hops: str, said: Decision | None) -> None:
    """The last one or two hops, at most one of them speculative; a link begins anew."""
    assert says(rules.embeds(2), hops=hops) is said


@pytest.mark.parametrize("decision", list(Decision))
def test_surt_prefixes_decide_for_what_they_cover(decision: Decision) -> None:
    """Hosts, URLs and Heritrix's form; the detail is the prefix."""
    rule = rules.surt(["example.com", "http://(test,a,)/x/"], decision)
    assert says(rule, "https://www.example.com/") is decision
    assert says(rule, "http://a.test/x/y") is decision
    assert says(rule, "http://a.test/") is None
    assert (rule.detail("http://a.test/x/y"), rule.detail("http://a.test/")) == ("http://(test,a,)/x/", "")


def test_what_is_no_surt_prefix_is_refused() -> None:
    """At the start, by its text."""
    with pytest.raises(PolicyError, match="com,exa mple"):
        rules.surt(["com,exa mple"], ACCEPT)


@pytest.mark.parametrize("decision", list(Decision))
def test_patterns_are_found_anywhere_in_the_url(decision: Decision) -> None:
    """The detail is the first that is found; the query counts."""
    rule = rules.regex([r"\.zip$", "[?&]print="], decision)
    assert says(rule, "http://a.test/x.zip") is decision
    assert says(rule, "http://a.test/x.zip?y&print=1") is decision
    assert says(rule, "http://a.test/x.zipped") is None
    assert (rule.detail("http://a.test/?print=x.zip"), rule.detail(A)) == (r"\.zip$", "")


def test_a_broken_pattern_is_refused() -> None:
    """The order has checked it; nobody else may slip one in."""
    with pytest.raises(re.error):
        rules.regex(["("], ACCEPT)


@each_row(
    ("path", "said"),
    [
        ("a/a/x", None),
        ("a/a/a/x", REJECT),
        ("a/a/a", None),
        ("x/a/a/a/", REJECT),
        ("a/b/a/b/a/b/", REJECT),
        ("a/b/a/b/a/", None),
        ("a/b/a/b/b/a/", None),
        ("////", REJECT),
        ("x?u=/a/a/a/", REJECT),
        ("a/x/a/x/b/a/", None),
        ("1/2/3/4/5/6/7/8/9", None),
    ],
)
def test_segments_and_groups_stand_at_most_twice_in_a_row(path: str, said: Decision | None) -> None:
    """Relative links that a server answers at any depth; what stands behind the last slash does not count."""
    rule = rules.path_repeats(2)
    assert says(rule, A + path) is said
    assert rule.threshold is not None
    assert said is None or (A + path).count("/") >= rule.threshold.slashes


def test_the_folders_that_are_remembered_are_bounded(monkeypatch) -> None:
    """Traps make new ones without end; what is remembered or not is judged alike."""
    monkeypatch.setattr(rules, "_MAX_FOLDERS", 2)
    monkeypatch.setattr(rules, "_LONGEST_FOLDER", 30)
    judged = []
    monkeypatch.setattr(
        rules, "has_repeats", lambda segments, most: judged.append(segments) or has_repeats(segments, most)
    )
    rule = rules.path_repeats(1)
    paths = ["a/a/1", "a/a/2", "b/1", "c/1", "a/a/3", "a/a/4", f"{'x' * 30}/1", f"{'x' * 30}/2"]
    assert [says(rule, A + path) for path in paths] == [REJECT, REJECT, None, None, REJECT, REJECT, None, None]
    assert [segments[0][0] for segments in judged] == ["a", "b", "c", "a", "x", "x"]


def repeats_slowly(segments: list[str], most: int) -> bool:
    """Each group at each place, as one would by hand."""
    return any(
        segments[start : start + size] * (most + 1) == segments[start : start + size * (most + 1)]
        for size in range(1, LONGEST_GROUP + 1)
        for start in range(len(segments) - size * (most + 1) + 1)
    )


@given(st.lists(st.sampled_from("ab"), max_size=14), st.integers(1, 3))
def test_repeats_are_found_as_by_hand(segments: list[str], most: int) -> None:
    """Any group, anywhere."""
    assert has_repeats(segments, most) is repeats_slowly(segments, most)


@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=12).map("/".join), st.integers(1, 3))
def test_repeats_are_those_that_heritrix_finds(path: str, most: int) -> None:
    """Its pattern, on the whole URL."""
    url = A + path
    heritrix = re.fullmatch(rf".*?/(.*?/)\1{{{most},}}.*", url) is not None
    assert (says(rules.path_repeats(most), url) is REJECT) is heritrix


@pytest.mark.parametrize(
    ("url", "said"),
    [("http://a.test/1/2/3", None), ("http://a.test/1/2/3/", REJECT), ("http://a.test/1/2/3?/4/5", None)],
)
def test_paths_are_at_most_so_deep(url: str, said: Decision | None) -> None:
    """Slashes of the path; those of the query do not count."""
    assert says(rules.path_depth(3), url) is said


def test_urls_are_at_most_so_long() -> None:
    """The limit itself is allowed."""
    assert [says(rules.url_length(20), A + "x" * more) for more in (6, 7)] == [None, REJECT]


def test_other_schemes_are_rejected() -> None:
    """A crawl of https alone."""
    assert [says(rules.schemes(["https"]), url) for url in ("https://a.test/", "http://a.test/")] == [None, REJECT]


def only_pdf(target: Target) -> bool | None:
    if target.via == "fail":
        raise LookupError("two\nlines")
    if target.via == "nonsense":
        return "yes"  # type: ignore[return-value]
    return target.url.endswith(".pdf") if target.hops else None


@pytest.mark.parametrize(
    ("url", "hops", "said"), [("http://a.test/x.pdf", "L", ACCEPT), (A, "L", REJECT), (A, "", None)]
)
def test_a_function_of_ones_own_accepts_rejects_or_says_nothing(url: str, hops: str, said: Decision | None) -> None:
    """It sees the URL, the hops and the page that it was found on."""
    assert says(rules.user_rule(f"{HOME}:only_pdf"), url, hops) is said


@pytest.mark.parametrize(
    ("via", "words"), [("fail", "failed: LookupError: two lines"), ("nonsense", "answered 'yes'; it must be True")]
)
def test_a_function_that_fails_is_named(via: str, words: str) -> None:
    """In one line; what is wrong with it decides nothing."""
    with pytest.raises(UserFunctionFailed, match=f"{HOME}:only_pdf {words}"):
        says(rules.user_rule(f"{HOME}:only_pdf"), via=via)


def test_a_function_that_cannot_be_had_is_refused_at_once() -> None:
    """Before the crawl begins."""
    with pytest.raises(OrderError, match=rf"^\[scope\] rules {HOME}:missing cannot be imported: AttributeError"):
        rules.user_rule(f"{HOME}:missing")


URLS = st.lists(st.sampled_from(["a/", "b/", "/", "?", "xyz", "a/a/a/"]), max_size=14).map("".join).map(A.__add__)


@given(URLS, st.integers(1, 4))
def test_a_rule_keeps_its_promise_to_say_nothing_below_its_threshold(url: str, most: int) -> None:
    """It says nothing of URLs with fewer characters and fewer slashes than it names."""
    made = [
        rules.path_repeats(most),
        rules.path_depth(most),
        rules.url_length(20 + most),
        rules.schemes(["http", "https"]),
    ]
    for rule in made:
        assert rule.threshold is not None
        if len(url) < rule.threshold.chars and url.count("/") < rule.threshold.slashes:
            assert says(rule, url) is None
