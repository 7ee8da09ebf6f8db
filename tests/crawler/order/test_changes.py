"""Changes of an order: what can be changed, and what differs then."""

import pytest

from anabranch.crawler.order.changes import CHANGEABLE, Change, changed_order, values
from anabranch.crawler.order.order import KEYS, CrawlOrder
from anabranch.crawler.outcomes.errors import BadArgument, UsageError

ORDER = CrawlOrder.model_validate({"limits": {"pages": 100}, "scope": {"exclude": ["/a"]}})


def test_a_setting_changes_its_key_alone() -> None:
    """The change has both values as in TOML, and reads with units."""
    order, changes = changed_order(ORDER, ["limits.pages=500", "politeness.min_delay=500ms"])
    assert (order.limits.pages, order.politeness.min_delay_s) == (500, 0.5)
    assert changes == [Change("limits.pages", 100, 500), Change("politeness.min_delay", "3s", "500ms")]
    assert list(map(str, changes)) == ["limits.pages: 100 -> 500", "politeness.min_delay: 3s -> 500ms"]
    assert order.model_copy(update={"limits": ORDER.limits, "politeness": ORDER.politeness}) == ORDER


def test_a_value_that_the_order_has_changes_nothing() -> None:
    """Setting it again is no error."""
    assert changed_order(ORDER, ["limits.pages=100"]) == (ORDER, [])


@pytest.mark.parametrize("text", [r"/b\d", r'["/b\\d"]'])
def test_a_list_is_replaced_or_added_to(text) -> None:
    """`=` replaces, `+=` adds; patterns keep their backslashes."""
    assert changed_order(ORDER, [f"scope.exclude={text}"])[0].scope.exclude == (r"/b\d",)
    assert changed_order(ORDER, [f"scope.exclude+={text}"])[0].scope.exclude == ("/a", r"/b\d")
    assert changed_order(ORDER, ["scope.exclude="])[0].scope.exclude == ()


def test_a_list_keeps_all_that_one_command_adds() -> None:
    """Each setting goes on from the one before it."""
    assert changed_order(ORDER, ["scope.exclude+=/b", "scope.exclude+=/c"])[0].scope.exclude == ("/a", "/b", "/c")
    assert changed_order(ORDER, ["scope.exclude=/b", "scope.exclude+=/c"])[0].scope.exclude == ("/b", "/c")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("frontier.policy=host", "frontier.policy: cannot be changed after a job has begun"),
        ("scope.scope=domain", "scope.scope: cannot be changed"),
        ("limits.pages+=3", "is not a list"),
        ("pages=3", "write it as section.key=value"),
        ("limits", "write it as section.key=value"),
    ],
)
def test_what_cannot_be_changed_is_refused_by_name(setting, words) -> None:
    """With what can be."""
    with pytest.raises(UsageError, match=words):
        changed_order(ORDER, [setting])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("limits.pgaes=3", "limits.pgaes.*did you mean"),
        ("limits.pages=many", "limits.pages"),
        ("scope.exclude=(", "scope.exclude"),
        ("politeness.min_delay=40s", "min_delay"),
    ],
)
def test_a_wrong_value_is_refused_as_on_the_command_line(setting, words) -> None:
    """The line names the key as it was typed."""
    with pytest.raises(BadArgument, match=words):
        changed_order(ORDER, [setting])


def test_each_changeable_key_is_one_of_the_order() -> None:
    """Its value is as in TOML."""
    assert all(key in KEYS[section] for section, keys in CHANGEABLE.items() for key in keys)
    assert values(ORDER)["scope.exclude"] == ["/a"]
