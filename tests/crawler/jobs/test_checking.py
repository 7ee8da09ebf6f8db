"""What a run would find wrong with an order, found without a run."""

import pytest

from crawler.jobs.checking import check, check_names
from crawler.orders.order import CrawlOrder
from crawler.orders.sources import load_order, read_layers
from crawler.outcomes.errors import BadArgument, OrderError
from frontier.errors import PolicyError


def faults(**sections):
    return check(CrawlOrder.model_validate(sections)).faults


def test_the_defaults_are_sound() -> None:
    """Without seeds, too: they may come with the command."""
    found = check(CrawlOrder())
    assert (found.faults, found.warnings) == ((), ())


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("frontier", "policy", "nope"),
        ("frontier", "policy", "no.such:function"),
        ("frontier", "cost", "nope"),
        ("frontier", "uri_precedence", "nope"),
        ("frontier", "queue_precedence", "nope"),
        ("politeness", "group", "nope"),
    ],
)
def test_a_policy_that_does_not_exist_is_one_fault(section, key, value) -> None:
    """Own functions are imported, as a run imports them."""
    (fault,) = faults(**{section: {key: value}})
    assert value in fault


def test_all_of_them_are_told_at_once() -> None:
    """Each once, overrides by their prefix."""
    found = faults(
        frontier={"policy": "nope", "cost": "nope"},
        politeness={"group": "nope"},
        override=[
            {"surt": "http://a.test/x/", "min_delay": 1},
            {"surt": "b.test", "min_delay": 1},
            {"surt": "http://c.test/x/", "max_delay": 40},
        ],
    )
    assert len(found) == 5
    assert sum("override http://" in fault for fault in found) == 2


def test_functions_of_ones_own_are_imported_one_by_one() -> None:
    """As many faults as there are; rules by name are no functions."""
    found = faults(
        urls={"canonicalization": ["www", "nosuch:key"]},
        scope={"rules": ["nosuch:rule", "os:getcwd"]},
        job={"processors": ["nosuch:processor", "os:getcwd"]},
    )
    assert [fault.partition(" cannot")[0] for fault in found] == [
        "[urls] canonicalization nosuch:key",
        "[scope] rules nosuch:rule",
        "[job] processors nosuch:processor",
        "[job] processors os:getcwd is not async; write `async def getcwd(visit)`",
    ]


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("urls", "canonicalization", ["nosuch:key"], r"\[urls\] canonicalization nosuch:key"),
        ("frontier", "policy", "nosuch", "nosuch"),
    ],
)
def test_a_run_refuses_what_does_not_exist_as_the_fault_of_who_named_it(tmp_path, section, key, value, said) -> None:
    """The command line, or the file; the same words."""
    file = tmp_path / "x.toml"
    file.write_text(f"[{section}]\n{key} = {value!r}")
    written = [f"{section}.{key}={value}"]
    with pytest.raises(BadArgument, match=said):
        check_names(load_order(None, {}, written), read_layers(None, {}, written))
    with pytest.raises((OrderError, PolicyError), match=said) as raised:
        check_names(load_order(file, {}), read_layers(file, {}))
    assert not isinstance(raised.value, BadArgument)
    check_names(load_order(None, {}), read_layers(None, {}))


def test_what_contradicts_itself_only_as_a_whole_is_told() -> None:
    """A lease that is shorter than two fetches."""
    (fault,) = faults(frontier={"lease": "1s"})
    assert "lease" in fault


def test_seeds_that_are_none_are_warnings_unless_none_is_left(tmp_path) -> None:
    """A run would skip them, and could not begin without any."""
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("http://a.test/\nno host at all\n")
    found = check(CrawlOrder.model_validate({"job": {"seed_files": [str(seeds)], "seeds": ["::"]}}))
    assert found.faults == ()
    assert [warning.partition(": it is")[0] for warning in found.warnings] == [
        "crawl order: '::'",
        f"{seeds}:2: 'no host at all'",
    ]
    assert faults(job={"seed_files": ["none.txt"]}) == ("no seed is left",)
