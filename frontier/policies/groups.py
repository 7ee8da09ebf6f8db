"""Groups: the second gate of a URL, for hosts that share what politeness spares, such as one server.

The order's rule is one of

    ip                        all hosts at one address
    domain                    all hosts of one registrable domain
    a table                   SURT prefix -> name: all hosts that the table gives one name; the longest prefix decides
    package.module:function   a function of one's own: host (without port) to name, or None

A host for which the rule answers None has its own gate only. The keys of group gates begin with `ip:`, `domain:` or `group:`,
which no host does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import IpOf, address_of, domain_of, parse_surt
from anabranch.frontier.policies.sheets import HostTable
from anabranch.frontier.policies.userfunctions import (
    Import,
    call_own,
    check_name,
    checked,
    is_user_function,
    shown,
    user_function,
)
from anabranch.frontier.records import GateKey

#: The group gate of a host, if it has one. An address may become known, so the answer for one host can change once.
GroupOf = Callable[[str], GateKey | None]
#: What an order, or an embedder, may say.
GroupRule = str | Mapping[str, str] | Callable[[str], str | None]

_KINDS = ("ip:", "domain:", "group:")


def is_group(key: str) -> bool:
    """The gate of this key is a group's, not a host's."""
    return key.startswith(_KINDS)


def parse_group(rule: GroupRule | None, *, ip_of: IpOf | None = None, imported: Import | None = None) -> GroupOf | None:
    """The second gate of a host under this rule; None if there are no groups.

    `ip_of` is what the rule ip needs, `imported` what a function's name does. Asking raises PolicyError if a function of one's
    own fails. Raises: PolicyError for a rule that does not exist or lacks what it needs.
    """
    if rule is None:
        return None
    if isinstance(rule, Mapping):
        return _by_table(rule)
    if not isinstance(rule, str):
        name = getattr(rule, "__qualname__", None) or shown(repr(rule))
        return _by_own(name, checked(rule, name, "group", "host"))
    if rule == "ip":
        if ip_of is None:
            raise PolicyError("group ip needs the hosts' addresses; pass `ip_of`, which knows them")
        return _by_ip(ip_of)
    if rule == "domain":
        return _by_domain
    if is_user_function(rule):
        return _by_own(rule, user_function(rule, "group", imported, "host"))
    raise PolicyError(
        f"group {shown(rule)} is unknown; choose one of ip, domain, package.module:function, or give a table"
    )


def _by_ip(ip_of: IpOf) -> GroupOf:
    def group_of(host: str) -> GateKey | None:
        address = address_of(host, ip_of)
        return GateKey(f"ip:{address}") if address else None

    return group_of


def _by_domain(host: str) -> GateKey | None:
    domain = domain_of(host)
    return GateKey(f"domain:{domain}") if domain else None


def _by_table(names: Mapping[str, str]) -> GroupOf:
    table: HostTable[GateKey] = HostTable()
    for surt, name in names.items():
        prefix = parse_surt(surt)
        if not prefix.covers_hosts:
            raise PolicyError(f"group {shown(name)}: {shown(surt)} does not cover a whole host")
        table.put(prefix, GateKey(f"group:{check_name(name, f'group of {shown(surt)}')}"))
    return table.get


def _by_own(name: str, function: Callable[[str], str | None]) -> GroupOf:
    def group_of(host: str) -> GateKey | None:
        whose = f"group {name} for {shown(host)}"
        group = call_own(function, host, whose)
        return None if group is None else GateKey(f"group:{check_name(group, whose)}")

    return group_of
