"""The shares of a job that several workers crawl: which share a host is in.

A share is a fixed part of a job's hosts, by the hash of the host's name. A worker holds some shares for a while; so all URLs of
a host, its gate and its group are at one worker at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.groups import GroupOf, is_group
from anabranch.frontier.policies.hosts import authority, domain_of
from anabranch.frontier.records import GateKey, QueueKey, name_id

#: More shares than that cost more than they spread.
MOST_SHARES = 4096
_QUEUE_GATE = "queue:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRule:
    """The number of shares, and the name that decides for a host. Neither may change while the job lives."""

    shares: int
    decides: str = "host"  #: what kind of name decides: host, domain, group
    name_of: Callable[[str], str] = field(default=str, compare=False)  #: the deciding name of a host

    def of_host(self, host: str) -> int:
        """The share of a host, from 0. Cost: under 1 µs."""
        return name_id(self.name_of(host)) % self.shares

    def of_url(self, url: str) -> int | None:
        """The share of a URL; None if it has no host."""
        found = authority(url)
        return None if found is None else self.of_host(found.host)

    def of_gate(self, key: GateKey) -> int:
        """The share of a gate: its host's, its group's, or the one that the key of a queue's gate names."""
        if key.startswith(_QUEUE_GATE):
            return int(key[len(_QUEUE_GATE) :].partition("/")[0])
        return name_id(key) % self.shares if is_group(key) else self.of_host(key)

    def __str__(self) -> str:
        """Return the text that a store keeps of this, and without which it cannot be opened."""
        return f"{self.shares} by {self.decides}"


def share_queue(share: int, queue: QueueKey) -> QueueKey:
    """The key of a share's own part of a queue that holds many hosts, such as `3/bkdr:12`."""
    return QueueKey(f"{share}/{queue}")


def policy_queue(queue: QueueKey) -> QueueKey:
    """The queue that the policy assigns, of the key of a share's part of it."""
    return QueueKey(queue.partition("/")[2])


def share_rule(shares: int, policy: str, group: object | None, group_of: GroupOf | None) -> ShareRule:
    """The rule of an order: hosts that have a queue or a group in common are in one share.

    Raises: PolicyError for a number out of range; for groups by IP, because a host's address may change and its share may not.
    """
    if not 1 <= shares <= MOST_SHARES:
        raise PolicyError(f"shares {shares}: give a whole number from 1 to {MOST_SHARES}")
    if group == "ip":
        raise PolicyError(
            "group ip and several workers: a host's address may change, its share may not; "
            "group by domain, or begin a job of one worker with shares = 1"
        )
    if group_of is not None and group != "domain":
        return ShareRule(shares=shares, decides="group", name_of=lambda host: group_of(host) or host)
    if policy == "domain" or group == "domain":
        return ShareRule(shares=shares, decides="domain", name_of=lambda host: f"domain:{domain_of(host) or host}")
    return ShareRule(shares=shares)
