"""The fields of the form of a new job, and its TOML."""

from __future__ import annotations

import pytest

from anabranch.crawler.console.pages.newjob import COMMON, joined_order, split_order, tags_in
from anabranch.crawler.order.loading import examine
from anabranch.crawler.order.sources import Layer
from anabranch.crawler.outcomes.errors import OrderError


def test_an_order_is_split_into_fields_and_other_keys_and_joined_again() -> None:
    """Nothing is lost; a duration in seconds is shown as one."""
    tables = {
        "scope": {"scope": "domain", "max_path_depth": 3},
        "limits": {"pages": 7, "time": 90.0},
        "write": {"warc": True},
        "override": [{"surt": ["http://(test,"]}],
    }
    values, rest = split_order(tables)
    assert values == {"scope.scope": "domain", "limits.pages": 7, "limits.time": "90s", "write.warc": True}
    assert rest == {"scope": {"max_path_depth": 3}, "override": [{"surt": ["http://(test,"]}]}
    assert tables["scope"] == {"scope": "domain", "max_path_depth": 3}
    joined = joined_order(values, "[scope]\nmax_path_depth = 3\n")
    assert joined["scope"] == {"scope": "domain", "max_path_depth": 3}
    assert joined["limits"] == {"pages": 7, "time": "90s"}


def test_a_value_that_its_field_cannot_show_stays_in_the_toml() -> None:
    """So that it is seen and refused by its own words."""
    assert split_order({"limits": {"pages": "many"}, "scope": {"scope": "x"}}) == (
        {},
        {"limits": {"pages": "many"}, "scope": {"scope": "x"}},
    )


def test_empty_fields_have_their_defaults_and_the_toml_wins() -> None:
    """A number field gives floats; what is no TOML is refused."""
    values = {"limits.pages": 7.0, "limits.time": "", "scope.max_hops": None, "write.warc": False}
    assert joined_order(values, "") == {"limits": {"pages": 7}}
    assert joined_order(values, "[limits]\npages = 9\nbytes = 5\n") == {"limits": {"pages": 9, "bytes": 5}}
    with pytest.raises(OrderError, match="not TOML"):
        joined_order(values, "[")


def test_each_field_is_a_key_of_the_order() -> None:
    """With a value of its kind."""
    values = {str: "host", int: 5, float: 1.5, bool: True}
    filled = {one.key: values[one.kind] for one in COMMON} | {"limits.time": "5m", "agent.contact": "a@b.test"}
    layer = Layer(tables=joined_order(filled, ""), section_form="", key_form="{key}", origin_form="")
    assert examine([layer]).faults == ()


def test_tags_are_parted_by_commas() -> None:
    """Blanks around them do not count."""
    assert tags_in(" a, b c ,,") == ["a", "b c"]
