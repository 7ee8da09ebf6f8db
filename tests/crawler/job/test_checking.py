"""Checks that find the faults of an order without a run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from anabranch.crawler.job.checking import check, check_names, division_faults, order_warnings
from anabranch.crawler.order.loading import examine, load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sources import Layer, read_layers
from anabranch.crawler.outcomes.errors import BadArgument, OrderError
from anabranch.frontier.errors import PolicyError
from tests.rows import each_row


def checked(**sections):
    file = Layer(
        tables=sections,
        section_form="x.toml: [{section}]",
        key_form="x.toml: [{section}] {key}",
        origin_form="x.toml",
    )
    return check(examine([file]), "x.toml")


def faults(**sections):
    return checked(**sections).faults


def test_the_defaults_are_sound() -> None:
    """Without seeds, too: they may come with the command."""
    found = checked()
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
    """Told by its key. Own functions are imported, as a run imports them."""
    (fault,) = faults(**{section: {key: value}})
    assert fault.startswith(f"x.toml: [{section}] {key}: ")
    assert value in fault


def test_a_dictionary_that_is_missing_is_one_fault(tmp_path) -> None:
    """Of an order that writes WARC files; a run would refuse it."""
    write = {"compression": "zstd", "zstd_dictionary": str(tmp_path / "none")}
    assert faults(write=write) == ()
    (fault,) = faults(write={"warc": True, **write})
    assert fault == f"x.toml: [write] zstd_dictionary '{tmp_path}/none': no such file or directory"


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
    assert sum(fault.startswith("x.toml: [[override]]: override http://") for fault in found) == 2


def test_functions_of_ones_own_are_imported_one_by_one() -> None:
    """Each bad function has a fault of its own, also one of the wrong kind; built-in rules such as `www` are no functions."""
    found = faults(
        urls={"canonicalization": ["www", "nosuch:key"]},
        scope={"rules": ["nosuch:rule", "os:getcwd"]},
        job={"processors": ["nosuch:processor", "os:getcwd"]},
    )
    assert [fault.partition(" cannot")[0] for fault in found] == [
        "x.toml: [urls] canonicalization nosuch:key",
        "x.toml: [scope] rules nosuch:rule",
        "x.toml: [scope] rules os:getcwd",
        "x.toml: [job] processors nosuch:processor",
        "x.toml: [job] processors os:getcwd is not async; write `async def getcwd(visit)`",
    ]


def test_sinks_are_looked_for_and_need_the_file_of_pages() -> None:
    """A class without `write` is no sink."""
    found = faults(job={"sinks": ["nosuch:Sink", "os:getcwd"]}, write={"pages": False})
    assert [fault.partition(" cannot")[0] for fault in found] == [
        "x.toml: [job] sinks: get the pages of pages.jsonl, which the order does not write; set [write] pages = true",
        "x.toml: [job] sinks nosuch:Sink",
        "x.toml: [job] sinks os:getcwd",
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


def test_a_poor_policy_is_a_warning() -> None:
    """A run reports it and continues."""
    found = checked(frontier={"policy": "length:997"})
    assert found.faults == ()
    (warning,) = found.warnings
    assert warning.startswith("x.toml: [frontier] policy: policy length:N is a poor choice")


def test_seeds_that_are_none_are_warnings_unless_none_is_left(tmp_path) -> None:
    """A run would skip them, and could not begin without any. The line names key and source, and the advice fits."""
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("http://a.test/\nno host at all\n")
    found = checked(job={"seed_files": [str(seeds)], "seeds": ["::"]})
    assert found.faults == ()
    assert [warning.partition("': ")[0] + "'" for warning in found.warnings] == [
        "x.toml: [job] seeds: '::'",
        f"{seeds}:2: 'no host at all'",
    ]
    missing = tmp_path / "none.txt"
    assert faults(job={"seed_files": [str(missing)]}) == (
        f"x.toml: [job] seed_files: '{missing}': there is no such file",
        "x.toml: no seed is left",
    )


def test_a_fault_does_not_hide_those_behind_it() -> None:
    """One look tells of values, policies, overrides, the whole, own functions and seeds."""
    found = faults(
        frontier={"policy": "nope", "lease": "1s"},
        crawl={"nokey": 3},
        scope={"rules": ["os:getcwd"], "include": ["("]},
        override=[{"surt": "http://a.test/x/", "min_delay": 1}],
        job={"seeds": ["ftp://a.test/"]},
    )
    assert [fault[:24] for fault in found] == [
        "x.toml: [crawl] nokey is",
        "x.toml: [scope] include ",
        "x.toml: [frontier] polic",
        "x.toml: [[override]]: ov",
        "x.toml: lease_s 1: a lea",
        "x.toml: [scope] rules os",
        "x.toml: [job] seeds: 'ft",
        "x.toml: no seed is left",
    ]


def test_no_fault_comes_of_what_was_left_out() -> None:
    """A short lease may fit the time of a fetch that could not be read; a seed may be among those that could not."""
    (fault,) = faults(frontier={"lease": "4s"}, fetch={"timeout": "1 sec"})
    assert fault.startswith("x.toml: [fetch] timeout must be")
    found = checked(job={"seeds": 3, "seed_files": ["none.txt"]})
    assert [fault[:25] for fault in found.faults] == ["x.toml: [job] seeds must "]
    assert len(found.warnings) == 1


@pytest.mark.parametrize("policy", [3, "hosst"])
def test_whether_hosts_can_be_divided_is_not_told_of_a_policy_that_is_none(policy: object) -> None:
    """The default in its place would have a queue's hosts in several processes."""
    (fault,) = faults(crawl={"processes": 2}, frontier={"policy": policy, "politeness": "queue"})
    assert fault.startswith("x.toml: [frontier] policy")


def test_what_several_processes_cannot_do_is_a_fault() -> None:
    """A crawl would not begin, so what is said of the order is that."""
    (fault,) = faults(crawl={"processes": 2}, politeness={"group": "ip"})
    assert fault.startswith("x.toml: [crawl] processes = 2: group ip and several workers")
    (fault,) = faults(crawl={"processes": 2}, scope={"similar": "published"})
    assert fault.startswith("x.toml: [scope] similar: whether a URL is similar depends on all that came before it")


def of_processes(processes: int = 2, **sections: dict[str, Any]) -> CrawlOrder:
    return CrawlOrder.model_validate({"crawl": {"processes": processes}, **sections})


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"politeness": {"group": "ip"}}, "group by domain"),
        ({"frontier": {"store": "postgresql://host/name"}}, "[frontier] store"),
        ({"frontier": {"store": "memory"}}, "[frontier] store"),
        ({"scope": {"similar": "published"}}, "[scope] similar"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(sections: dict[str, Any], said: str) -> None:
    """In one line that names the option; one process may do all of it."""
    (fault,) = division_faults(of_processes(**sections))
    assert said in fault
    assert not list(division_faults(of_processes(processes=1, **sections)))


@each_row(
    "sections",
    [
        {"politeness": {"group": "domain"}},
        {"politeness": {"groups": {"com,example,": "one"}}},
        {"frontier": {"politeness": "queue"}},
        {"frontier": {"total_budget": 100}},
        {"dedup": {"leaves": ["redis://a:1"]}},
    ],
)
def test_what_several_processes_can_do(sections: dict[str, Any]) -> None:
    """Hosts of one group are in one share; budgets and filters are the job's."""
    assert not list(division_faults(of_processes(**sections)))


@pytest.mark.parametrize(
    ("agent", "warned"), [({}, True), ({"contact": "http://x.test/"}, False), ({"user_agent": "mine anabranch"}, False)]
)
def test_an_order_without_a_contact_is_warned_of(agent, warned) -> None:
    """A User-Agent of one's own may have it."""
    lines = order_warnings(CrawlOrder.model_validate({"agent": agent}))
    assert any("no contact is configured" in line for line in lines) is warned


@each_row(
    ("dedup", "lost"),
    [
        ({}, ""),
        ({"filter": "exact"}, ""),
        ({"filter": "smm", "expect": 1_000_000}, ""),
        (
            {"filter": "smm"},
            r"expected to lose 11,6\d\d of 10,000,000 URLs, more than false_positive allows \(10,000\)",
        ),
        ({"filter": "smm", "expect": 1000, "levels": (1, 1)}, r"expected to lose 8 of 1,000 URLs"),
        ({"filter": "smm", "expect": 1_000_000, "false_positive": 1e-6}, r"allows \(1\)"),
    ],
)
def test_a_filter_that_is_planned_to_lose_more_than_it_may_warns(dedup: dict[str, object], lost: str) -> None:
    """At the start of a crawl, in one line that names the way out."""
    warnings = [line for line in order_warnings(CrawlOrder(dedup=dedup)) if "[dedup]" in line]
    assert len(warnings) == bool(lost)
    assert not lost or re.search(f"{lost}.*; choose filter both or exact, or expect fewer$", warnings[0])
