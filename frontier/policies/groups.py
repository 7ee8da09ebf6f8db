"""Groups: a second gate for hosts that share a resource, such as one server.

The order's rule is one of

    ip                        all hosts at one address
    domain                    all hosts of one registrable domain
    a table                   SURT prefix -> name: all hosts that the table gives one name; the longest prefix decides
    package.module:function   a user function: host (without port) to name, or None

A host for which the rule gives None has its own gate only. No host begins with `ip:`, `domain:` or `group:`, as groups do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import IpOf, address_of, domain_of, parse_surt
from anabranch.frontier.policies.sheets import HostTable
from anabranch.frontier.policies.userfunctions import (
    Import,
    call_user_function,
    check_name,
    checked,
    is_user_function,
    shown,
    user_function,
)
from anabranch.frontier.records import GateKey

#: The group gate of a host, if it has one. An address may become known, so the answer for one host can change once.
GroupOf = Callable[[str], GateKey | None]
#: The rule that an order, or an embedder, may give.
GroupRule = str | Mapping[str, str] | Callable[[str], str | None]


def is_group(key: str) -> bool:
    """The gate of this key is a group's, not a host's."""
    return key.startswith(("ip:", "domain:", "group:"))


def parse_group(rule: GroupRule | None, *, ip_of: IpOf | None = None, imported: Import | None = None) -> GroupOf | None:
    """The second gate of a host under this rule; None: no groups. It raises PolicyError if a user function fails.

    The rule ip needs `ip_of`, a function's name `imported`. Raises: PolicyError if these are missing, or for another rule.
    """
    if rule is None:
        return None
    if isinstance(rule, Mapping):
        return _by_table(rule)
    if not isinstance(rule, str):
        name = getattr(rule, "__qualname__", None) or shown(repr(rule))
        return _by_user_function(name, checked(rule, name, "group", "host"))
    if rule == "ip":
        if ip_of is None:
            raise PolicyError("group ip needs the hosts' addresses; pass `ip_of`, which knows them")
        known: IpOf = ip_of
        return lambda host: GateKey(f"ip:{address}") if (address := address_of(host, known)) else None
    if rule == "domain":
        return lambda host: GateKey(f"domain:{domain}") if (domain := domain_of(host)) else None
    if is_user_function(rule):
        return _by_user_function(rule, user_function(rule, "group", imported, "host"))
    raise PolicyError(
        f"group {shown(rule)} is unknown; choose one of ip, domain, package.module:function, or give a table"
    )


def _by_table(names: Mapping[str, str]) -> GroupOf:
    table: HostTable[GateKey] = HostTable()
    for surt, name in names.items():
        prefix = parse_surt(surt)
        if not prefix.covers_hosts:
            raise PolicyError(f"group {shown(name)}: {shown(surt)} does not cover a whole host")
        table.put(prefix, GateKey(f"group:{check_name(name, f'group of {shown(surt)}')}"))
    return table.get


def _by_user_function(name: str, function: Callable[[str], str | None]) -> GroupOf:
    def group_of(host: str) -> GateKey | None:
        call = f"group {name} for {shown(host)}"
        group = call_user_function(function, host, call)
        return None if group is None else GateKey(f"group:{check_name(group, call)}")

    return group_of
