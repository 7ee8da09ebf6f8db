"""Tests of the keywords of a program: functions are kept by their names."""

from functools import partial

import pytest

import anabranch
from anabranch.crawler.api.keywords import function_name, keyword_layers, order_layer
from anabranch.crawler.outcomes.errors import BadArgument


def rule(target):
    return None


class Filter:
    @staticmethod
    def inner(target):
        return None


NAME = f"{__name__}:rule"


def test_functions_are_kept_by_their_names() -> None:
    """Wherever they are given: as a flag, in a section, in an order; alone, or in a list with names."""
    flags, sections = keyword_layers({"rules": [rule, "ours:x"], "policy": rule, "dedup": {"filter": Filter}})
    assert flags.tables == {"scope": {"rules": [NAME, "ours:x"]}, "frontier": {"policy": NAME}}
    assert sections.tables == {"dedup": {"filter": f"{__name__}:Filter"}}
    assert order_layer({"job": {"processors": (rule,)}}).tables == {"job": {"processors": [NAME]}}


def test_a_function_that_cannot_be_found_by_its_name_is_refused() -> None:
    """In one line that says why; the job's next run could not find it."""

    def local(target):
        return None

    for function in (lambda target: None, local, partial(rule, 1), Filter.inner):
        with pytest.raises(BadArgument) as refused:
            function_name(function, "rules=")
        assert str(refused.value).startswith("rules= ")
        assert str(refused.value).endswith(
            "must be a def or a class at the top level of a module: the order, which is kept with the job, has its name"
        )
        assert "\n" not in str(refused.value)
    with pytest.raises(anabranch.CrawlerError, match=r'^fetch\["body_rules"\] .*<lambda> must'):
        keyword_layers({"fetch": {"body_rules": [lambda head: None]}})
    with pytest.raises(anabranch.CrawlerError, match=r'^order\["scope"\]\["rules"\] an object of partial must'):
        order_layer({"scope": {"rules": [partial(rule, 1)]}})


def test_a_function_that_another_one_replaced_is_refused(monkeypatch) -> None:
    """Its name leads to the other."""
    old = rule
    monkeypatch.setitem(globals(), "rule", lambda target: True)
    with pytest.raises(BadArgument, match=r"^policy= rule must be"):
        function_name(old, "policy=")
