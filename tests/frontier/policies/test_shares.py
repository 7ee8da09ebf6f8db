"""Which share a host is in."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.groups import parse_group
from anabranch.frontier.policies.shares import MOST_SHARES, ShareRule, share_rule
from anabranch.frontier.records import GateKey


def test_hosts_are_spread_evenly() -> None:
    """By a hash: the fullest share has hardly more than the mean."""
    rule = ShareRule(shares=16)
    counts = Counter(rule.of_host(f"h{number}.test") for number in range(16_000))
    assert len(counts) == 16
    assert max(counts.values()) < 1200


def test_all_that_a_host_has_is_in_one_share() -> None:
    """Its URLs, whatever their port, and its gate."""
    rule = ShareRule(shares=128)
    share = rule.of_host("example.org")
    assert {rule.of_url("http://example.org/"), rule.of_url("https://example.org:8443/a?b")} == {share}
    assert rule.of_gate(GateKey("example.org")) == share
    assert rule.of_url("mailto:a@example.org") is None


@pytest.mark.parametrize(("policy", "group"), [("domain", None), ("host", "domain")])
def test_hosts_of_one_domain_are_in_one_share_if_they_have_something_in_common(policy: str, group: str | None) -> None:
    """A queue or a group of the domain; the group's gate is there, too."""
    rule = share_rule(128, policy, group, parse_group(group))
    assert len({rule.of_host(f"h{number}.example.org") for number in range(50)}) == 1
    assert rule.of_gate(GateKey("domain:example.org")) == rule.of_host("www.example.org")
    assert str(rule) == "128 by domain"


def test_hosts_of_one_named_group_are_in_one_share() -> None:
    """Hosts without a group are on their own."""
    table = {"org,example,": "ours", "test,h,": "ours"}
    rule = share_rule(128, "host", table, parse_group(table))
    assert rule.of_host("example.org") == rule.of_host("h.test") == rule.of_gate(GateKey("group:ours"))
    assert rule.of_host("other.test") == ShareRule(shares=128).of_host("other.test")


def test_the_gate_of_a_queue_names_its_share() -> None:
    """With a gate for each queue, each share has queues of its own."""
    assert ShareRule(shares=8).of_gate(GateKey("queue:5/17")) == 5


@pytest.mark.parametrize("shares", [0, -1, MOST_SHARES + 1])
def test_a_number_out_of_range_is_refused(shares: int) -> None:
    """It is said which numbers there are."""
    with pytest.raises(PolicyError, match=f"shares {shares}: give a whole number from 1 to {MOST_SHARES}"):
        share_rule(shares, "host", None, None)


def test_groups_by_address_are_refused() -> None:
    """A host's address may change."""
    with pytest.raises(PolicyError, match="group ip and several workers: a host's address may change"):
        share_rule(8, "host", "ip", None)
