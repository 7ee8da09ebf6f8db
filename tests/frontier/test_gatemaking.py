"""A gate is made with the politeness of its host: by the order, its overrides, and its scope."""

from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.gatemaking import gate_maker
from anabranch.frontier.models import GateKey
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.groups import parse_group
from anabranch.frontier.policies.sheets import Override, Settings, Sheets
from anabranch.frontier.scheduling.backoff import Backoff
from anabranch.frontier.scheduling.gategroups import GateMaker
from anabranch.frontier.scheduling.gates import Politeness

USUAL = Politeness(delay_factor=2.0, min_delay_s=1.0, max_delay_s=5.0, slots=3)
OF_GROUPS = Politeness(delay_factor=0.0, min_delay_s=7.0, max_delay_s=7.0, slots=2)
HOST, GROUP = GateKey("www.a.test"), GateKey("domain:a.test")


def maker(sheets: Mapping[str, Settings] | None = None, **asked: Any) -> GateMaker:
    order = FrontierOrder(**{"politeness": USUAL, "group_politeness": OF_GROUPS, "group": "domain", **asked})
    table = Sheets([Override((surt,), settings) for surt, settings in (sheets or {}).items()])
    return gate_maker(order, table, parse_group(order.group))


def test_a_host_has_the_politeness_of_the_order() -> None:
    """And its backoff, under the id of its name."""
    backoff = Backoff(base_s=11.0)
    gate = maker(backoff=backoff).host_gate(HOST)
    assert (gate.id, gate.key, gate.politeness, gate.backoff) == (name_id(HOST), HOST, USUAL, backoff)


def test_an_override_changes_what_it_names_and_leaves_the_rest() -> None:
    """For the hosts that it covers. A least delay lifts the longest one."""
    made = maker({"(test,a,": Settings(min_delay_s=9.0), "(test,a,www,": Settings(max_connections=8)})
    lifted = Politeness(delay_factor=2.0, min_delay_s=9.0, max_delay_s=9.0, slots=8)
    assert made.host_gate(HOST).politeness == lifted
    assert made.host_gate(GateKey("b.test")).politeness == USUAL


def test_an_override_of_queues_and_urls_leaves_gates_as_they_are() -> None:
    """It may name what no gate has."""
    assert maker({"(test,a,": Settings(uri_precedence=7)}).host_gate(HOST).politeness == USUAL


@pytest.mark.parametrize("group", ["domain", None])
def test_a_key_of_a_group_makes_the_gate_of_a_group(group: str | None) -> None:
    """Asked as a host's, too, as an operator may; overrides are for hosts."""
    made = maker({"(": Settings(max_connections=8)}, group=group)
    for gate in (made.host_gate(GROUP), made.group_gate(GROUP)):
        assert (gate.id, gate.politeness) == (name_id(GROUP), OF_GROUPS)


def test_a_host_has_the_group_of_the_rule_and_a_group_has_none() -> None:
    """A group named by an operator stands in no other group."""
    group_of = maker().group_of
    assert group_of is not None
    assert (group_of(HOST), group_of(GROUP)) == (GROUP, None)
    assert maker(group=None).group_of is None


def test_without_politeness_nothing_waits() -> None:
    """No rest, no end of slots, no group; whatever the overrides say."""
    made = maker({"(test,a,": Settings(min_delay_s=9.0, max_connections=1)}, scope=PolitenessScope.OFF)
    politeness = made.host_gate(HOST).politeness
    assert (politeness.rest_s(1e6), made.group_of) == (0.0, None)
    assert politeness.slots > 100_000
