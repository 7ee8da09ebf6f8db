"""How gates are made: by the order, its sheets, and its scope of politeness."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import GateKey
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.groups import is_group
from anabranch.frontier.policies.sheets import Delays, Sheets
from anabranch.frontier.scheduling.gategroups import GateMaker
from anabranch.frontier.scheduling.gates import Gate, Politeness


def gate_maker(order: FrontierOrder, sheets: Sheets, rule: Callable[[str], GateKey | None] | None) -> GateMaker:
    """How gates are made: by the order, its sheets, and its scope of politeness; `rule` says which group a host belongs to."""
    usual = order.politeness
    is_off = order.scope is PolitenessScope.OFF
    if is_off:
        usual = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=1_000_000)

    def host_gate(key: GateKey) -> Gate:
        if is_group(key):  # an operator may name one before any of its hosts came
            return group_gate(key)
        politeness = usual
        if sheets.has_host_settings and not is_off:
            politeness = _politeness_of(sheets, key, usual)
        return Gate(name_id(key), key, politeness, backoff=order.backoff)

    def group_gate(key: GateKey) -> Gate:
        return Gate(name_id(key), key, order.group_politeness, backoff=order.backoff)

    if is_off or rule is None:
        return GateMaker(host_gate, group_gate, None)
    return GateMaker(host_gate, group_gate, lambda key: None if is_group(key) else rule(key))


def _politeness_of(sheets: Sheets, host: GateKey, usual: Politeness) -> Politeness:
    settings = sheets.for_host(host)
    delays = settings.delays(Delays(usual.delay_factor, usual.min_delay_s, usual.max_delay_s))
    slots = usual.slots if settings.max_connections is None else settings.max_connections
    return Politeness(
        delay_factor=delays.delay_factor,
        min_delay_s=delays.min_delay_s,
        max_delay_s=delays.max_delay_s,
        slots=slots,
    )
