"""The settings of a Frontier: one frozen record, checked before anything is opened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.groups import GroupRule
from anabranch.frontier.policies.hosts import IpOf
from anabranch.frontier.policies.sheets import Override
from anabranch.frontier.scheduling.fairness import WorkerLimits
from anabranch.frontier.scheduling.gates import Backoff, Politeness, check_politeness


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierOrder:
    """Settings of a Frontier; `policy`, `scope`, `uniq` are fixed for a job. Policies: `package.module:function`."""

    policy: str = "bkdr:997"  #: assignment policy: which queue a URL goes to
    scope: PolitenessScope = PolitenessScope.HOST  #: what a gate limits
    politeness: Politeness = field(default_factory=Politeness)
    backoff: Backoff = field(default_factory=Backoff)  #: how long a gate stays closed after trouble
    group: GroupRule | None = None  #: the second gate: ip, domain, a table of SURT prefixes, a function
    group_politeness: Politeness = field(default_factory=Politeness)  #: of those second gates
    overrides: Sequence[Override] = ()  #: settings for parts of the web
    budgets: Budgets = field(default_factory=Budgets)
    cost: str = "unit"  #: the cost of a URL
    uri_precedence: str = "cost"  #: which URL of a queue goes first
    queue_precedence: str = "base"  #: which queue of a gate goes first
    precedence_floor: int = 255  #: a queue at this precedence or above never runs
    per_queue: int = 1  #: URLs of one queue that may be leased at a time
    uniq: object | None = None  #: the filter's `dedup.uniq.UniqParameters`
    max_unacknowledged: int = 1000  #: finished leases that may not be durable yet; set it to the number of workers
    lease_s: float | None = None  #: a lease not renewed for so long is lost; None = it ends only with its process
    fetch_limit_s: float = 1200.0  #: the longest time of a fetch; a lease must last at least twice as long
    checkpoint_s: float = 60.0  #: how often the filter is made durable
    gates_in_memory: int = 10_000  #: the other gates are in the store only
    workers: int | None = None  #: leases at once, of which domains and slow hosts have a part; None = no limits
    worker_limits: WorkerLimits = field(default_factory=WorkerLimits)
    ip_of: IpOf | None = None  #: a host's address, for the policy and the group `ip`; never blocks
    withheld: frozenset[str] = frozenset()  #: user functions that must not be imported; then it can only be viewed
    #: Of a job of several workers, whose store must be shared; fixed for a job; None = one owner.
    shares: int | None = None


def check_numbers(order: FrontierOrder) -> None:
    """Raises: PolicyError for numbers that make no sense, and for contradictions."""
    if order.scope is PolitenessScope.QUEUE and order.group:
        raise PolicyError(
            "politeness queue and a group: a queue's gate belongs to no host; leave the group out, or say host"
        )
    for politeness in (order.politeness, order.group_politeness):
        check_politeness(politeness)
    _check_backoff(order.backoff)
    _check_workers(order)
    for name in ("max_unacknowledged", "per_queue", "gates_in_memory"):
        if getattr(order, name) < 1:
            raise PolicyError(f"{name} {getattr(order, name)}: give at least 1")
    if order.lease_s is not None and not order.lease_s >= 2 * order.fetch_limit_s:
        raise PolicyError(
            f"lease_s {order.lease_s:g}: a lease must last at least twice as long as a fetch may take, "
            f"{2 * order.fetch_limit_s:g} s"
        )
    if not order.checkpoint_s > 0:
        raise PolicyError(f"checkpoint_s {order.checkpoint_s:g}: give more than 0 seconds")


def _check_workers(order: FrontierOrder) -> None:
    limits = order.worker_limits
    if order.workers is not None and order.workers < 1:
        raise PolicyError(f"workers {order.workers}: give at least 1, or None")
    for name in ("domain", "slow"):
        limit = getattr(limits, name)
        if not 0 < limit <= 1:
            raise PolicyError(f"worker limit {name} {limit:g}: give a number above 0, up to 1")
    if not (math.isfinite(limits.slow_s) and limits.slow_s > 0):
        raise PolicyError(f"worker limit slow_s {limits.slow_s:g}: give more than 0 seconds")


def _check_backoff(backoff: Backoff) -> None:
    for name in ("base_s", "cap_s", "jitter", "forgive_s", "longest_retry_after_s"):
        number = getattr(backoff, name)
        if not (math.isfinite(number) and number >= 0):
            raise PolicyError(f"backoff {name} {number:g}: give a number that is not negative")
    if backoff.base_s > backoff.cap_s:
        raise PolicyError(f"backoff base_s {backoff.base_s:g} is longer than cap_s {backoff.cap_s:g}")
