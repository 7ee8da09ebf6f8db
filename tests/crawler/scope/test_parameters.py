"""Rules about parameters that change nothing: when one is learnt, what it skips, what undoes it."""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extract.links import Link
from anabranch.crawler.scope.parameters import (
    LEARNT,
    MAX_PARAMETERS,
    SAMPLED,
    ParameterRules,
    Template,
    payload_without_values,
    signature,
    templates_of,
    without_values,
)
from tests.rows import each_row

SITE = "http://a.test"
TOKEN = Template("token", f"{SITE}/s?token=")


def tokens(count: int, start: int = 0) -> list[str]:
    return [f"{SITE}/s?token={number:x}" for number in range(start, start + count)]


def learnt(*, urls: list[str] | None = None) -> ParameterRules:
    """Rules after so many equal answers."""
    rules = ParameterRules()
    for url in tokens(LEARNT) if urls is None else urls:
        assert rules.learn(url, lambda _: b"same") == []
    return rules


@each_row(
    ("url", "templates"),
    [
        (f"{SITE}/s", []),
        (f"{SITE}/s?token=1", [("token", f"{SITE}/s?token=")]),
        (f"{SITE}/s?token=", [("token", f"{SITE}/s?token=")]),
        (f"{SITE}/s?a=1&b=2", [("a", f"{SITE}/s?a=&b=2"), ("b", f"{SITE}/s?a=1&b=")]),
        (f"{SITE}/s?b=2&a=1", [("b", f"{SITE}/s?b=&a=1"), ("a", f"{SITE}/s?b=2&a=")]),
        (f"{SITE}/s?a=1&a=2", [("a", f"{SITE}/s?a=&a=")]),
        (f"{SITE}/s?token=/x?y=1", [("token", f"{SITE}/s?token=")]),
        (f"{SITE}/s;sid=1/t;sid=2;v=3?p=4", [
            ("sid", f"{SITE}/s;sid=/t;sid=;v=3?p=4"), ("v", f"{SITE}/s;sid=1/t;sid=2;v=?p=4"),
            ("p", f"{SITE}/s;sid=1/t;sid=2;v=3?p="),
        ]),
        (f"{SITE}/s?flag", []),
        (f"{SITE}/s?=1", []),
    ],
)  # fmt: skip
def test_a_template_is_a_url_without_the_values_of_one_parameter(url: str, templates: list[tuple[str, str]]) -> None:
    """Its query and path (behind a semicolon) have parameters; a name that occurs twice is one parameter."""
    assert [tuple(template) for template in templates_of(url)] == templates


def test_of_a_url_with_many_parameters_the_first_are_looked_at() -> None:
    """A site may invent thousands."""
    url = f"{SITE}/?" + "&".join(f"p{number}={number}" for number in range(1000))
    assert [template.name for template in templates_of(url)] == [f"p{number}" for number in range(MAX_PARAMETERS)]


def test_after_so_many_equal_answers_one_url_in_so_many_is_fetched() -> None:
    """One less is no proof; the sampled URL is the last of its group, so the same URLs are skipped in each run."""
    rules = learnt(urls=tokens(LEARNT - 1))
    assert rules.skips(f"{SITE}/s?token=x") is None
    rules = learnt()
    skipped = [rules.skips(url) for url in tokens(3 * SAMPLED, start=LEARNT)]
    assert skipped == [*[TOKEN] * (SAMPLED - 1), None] * 3
    assert rules.rule_for(f"{SITE}/s?token=y") == TOKEN
    assert rules.skips(f"{SITE}/t?token=x") is None, "another template"


@pytest.mark.parametrize("found", [b"other", None])
def test_the_first_difference_undoes_a_rule_for_good(found: bytes | None) -> None:
    """Another payload, or no page at all."""
    rules = learnt()
    assert rules.learn(f"{SITE}/s?token=x", lambda _: found) == [TOKEN]
    assert rules.skips(f"{SITE}/s?token=y") is None
    for url in tokens(2 * LEARNT):
        assert rules.learn(url, pytest.fail) == [], "nothing is compared any more"
    assert rules.rule_for(f"{SITE}/s?token=y") is None


def test_a_session_changes_nothing_and_a_page_number_does() -> None:
    """Each of two parameters in one URL is judged by itself, for each value of the other."""
    rules = ParameterRules()
    for page in range(3):
        for session in range(LEARNT):
            rules.learn(f"{SITE}/l?page={page}&sid={session}", lambda _, page=page: b"%d" % page)
    for page in range(3):
        assert rules.rule_for(f"{SITE}/l?page={page}&sid=x") == Template("sid", f"{SITE}/l?page={page}&sid=")
    assert rules.skips(f"{SITE}/l?page=3&sid=1") is None, "a page that was never seen is fetched"


def test_a_parameter_that_a_sitemap_lists_matters() -> None:
    """Its owner says so: before or after it was learnt."""
    rules = learnt()
    assert rules.keep(f"{SITE}/s?token=x") == [TOKEN]
    assert rules.skips(f"{SITE}/s?token=y") is None
    rules = ParameterRules()
    assert rules.keep(f"{SITE}/s?token=x") == []
    for url in tokens(2 * LEARNT):
        rules.learn(url, lambda _: b"same")
    assert rules.skips(f"{SITE}/s?token=y") is None


def test_rules_of_an_earlier_run_go_on() -> None:
    """With what their answers had in common; those that were undone stay so."""
    rules, other = ParameterRules(), Template("x", f"{SITE}/o?x=")
    rules.restore(TOKEN, b"same")
    rules.restore(other, None)
    assert rules.skips(f"{SITE}/s?token=y") == TOKEN
    assert rules.skips(f"{SITE}/o?x=1") is None
    assert rules.learn(f"{SITE}/s?token=z", lambda _: b"same") == []
    assert rules.learn(f"{SITE}/s?token=z", lambda _: b"other") == [TOKEN]


def test_memory_is_bounded_for_each_site_and_for_all() -> None:
    """A site with ever new templates forgets its own; many sites forget those that came least recently."""
    rules = ParameterRules(site_templates=4, templates=10)
    for number in range(100):
        rules.learn(f"{SITE}/{number}?a=1", lambda _: b"")
    assert len(rules) == 4
    for number in range(100):
        rules.learn(f"http://{number}.test/?a=1", lambda _: b"")
    assert len(rules) == 10


def test_a_rule_in_use_is_not_forgotten_for_others() -> None:
    """Each look-up renews it."""
    rules = ParameterRules(site_templates=4, templates=10)
    for url in tokens(LEARNT):
        rules.learn(url, lambda _: b"same")
    for number in range(20):
        rules.learn(f"{SITE}/{number}?a=1", lambda _: b"")
        rules.skips(f"{SITE}/s?token=x")
    assert rules.holds(TOKEN)


def test_links_and_pages_are_compared_without_the_parameters_values() -> None:
    """In any order of the links. Another parameter's value is a difference; so is the value as text of the page."""

    def of(token: str, other: str = "1", text: str = "") -> bytes:
        page = f'<a href="/s?token={token}&amp;o={other}">s</a><IMG src=/s;token={token}?o={other}>{text}'.encode()
        links = [Link(f"{SITE}/s?token={token}&o={other}", "L"), Link(f"{SITE}/s;token={token}?o={other}", "E")]
        payload = payload_without_values(page, "token")
        same = signature(payload, reversed(links), "token")
        assert signature(payload, links, "token") == same
        return same

    assert of("a") == of("bb") == of("")
    assert of("a") != of("a", other="2")
    assert of("a", text="token=a") != of("b", text="token=b")
    assert of("a") != signature(b"", [], "token")


def test_a_name_that_only_ends_like_the_parameter_is_another_one() -> None:
    """`xtoken` is not `token`."""
    assert without_values(f"{SITE}/?xtoken=1&token=2", "token") == f"{SITE}/?xtoken=1&token="
    assert payload_without_values(b'<a href="?xtoken=1&token=2">', "token") == b'<a href="?xtoken=1&token=">'
    assert payload_without_values(rb'<a href="?a\b=1&c=2">', r"a\b") == rb'<a href="?a\b=&c=2">'


VALUES = st.text(alphabet="ab=?;/%1", max_size=6)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "sid"]), VALUES), max_size=4), st.text("/;=abc", max_size=8))
def test_a_template_says_nothing_of_the_values_and_all_of_the_rest(query: list[tuple[str, str]], path: str) -> None:
    """Another value has the same template, and the template of a template is itself."""
    url = f"{SITE}/{path}?" + "&".join(f"{name}={value}" for name, value in query)
    for template in templates_of(url):
        assert without_values(template.url, template.name) == template.url
        changed = f"{SITE}/{path}?" + "&".join(
            f"{name}={'zz' if name == template.name else value}" for name, value in query
        )
        if f";{template.name}=" not in path:
            assert without_values(changed, template.name) == template.url


@given(st.lists(st.integers(0, 3), min_size=1, max_size=400), st.integers(0, 60))
def test_what_stays_skipped_is_only_of_templates_in_which_all_that_was_fetched_was_equal(
    contents: list[int], equal: int
) -> None:
    """Whatever values matter: after a first difference nothing is skipped, and what was skipped comes back, once."""
    contents = [0] * (LEARNT + equal) + contents
    rules, fetched, skipped, queue = ParameterRules(), Counter[int](), set[int](), list(range(len(contents)))
    while queue:
        number = queue.pop(0)
        url = f"{SITE}/s?token={number}"
        if rules.skips(url) is not None:
            skipped.add(number)
            continue
        fetched[number] += 1
        if rules.learn(url, lambda _, number=number: b"%d" % contents[number]):
            queue += sorted(skipped)
            skipped.clear()
    assert fetched.keys() | skipped == set(range(len(contents)))
    assert set(fetched.values()) == {1}
    kinds = {contents[number] for number in fetched}
    assert not skipped or kinds == {0}
    assert len(skipped) <= (len(contents) - LEARNT) * (SAMPLED - 1) / SAMPLED + 1


def test_a_language_that_matters_now_and_then_is_fetched() -> None:
    """Two values that alternate differ at the second URL."""
    rules = ParameterRules()
    for number, lang in enumerate(islice(cycle(["de", "en"]), 200)):
        url = f"{SITE}/p{number % 2}?lang={lang}{number}"
        assert rules.skips(url) is None
        rules.learn(url, lambda _, number=number: b"%d" % (number % 3))
