"""Assignment policies: which work queue a URL goes to, and which gate it passes.

A policy is a function from a batch of (URL, host) to queue keys. `host` here is `host[:port]` as it stands in the URL;
a gate's key is the lower-case host without port or scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from frontier.errors import PolicyError
from frontier.hashes import bkdr_batch
from frontier.models import GateKey, QueueKey

Assign = Callable[[Sequence[str]], list[QueueKey]]


class PolitenessScope(Enum):
    """Whom a gate stands for."""

    HOST = "host"  #: every URL of a host passes one gate, whatever its queue
    QUEUE = "queue"  #: a gate per queue: the published behaviour, which hits a host with as many connections as queues
    OFF = "off"  #: a gate per host without rests; only a Crawl-delay or a 429 closes it: for one's own sites


def authority_of(url: str) -> str | None:
    """host[:port] of an absolute URL, lower case, without userinfo; None if it has none."""
    _, separator, rest = url.partition("://")
    if not separator:
        return None
    for end in "/?#":
        rest = rest.partition(end)[0]
    authority = rest.rpartition("@")[2].lower()
    return authority if host_of(authority) else None


def host_of(authority: str) -> str:
    """The host without its port; an IPv6 literal keeps its brackets."""
    host, colon, port = authority.rpartition(":")
    return host if colon and (port.isdigit() or not port) else authority


def parse_policy(name: str) -> Assign:
    """The assignment of a policy's name: `host`, or `bkdr:N` with N queues. Raises: PolicyError."""
    kind, _, number = name.partition(":")
    if kind == "host" and not number:
        return _by_host
    if kind in _HASHED:
        if not (number.isascii() and number.isdigit() and 1 <= int(number) <= 1_000_000):
            raise PolicyError(f"policy {name}: {kind} needs a number of queues from 1 to 1000000, as in {kind}:997")
        return _HASHED[kind](int(number))
    known = ", ".join(["host", *(f"{kind}:N" for kind in _HASHED)])
    raise PolicyError(f"policy {name} is unknown; choose one of {known}")


def gate_key(scope: PolitenessScope, queue: QueueKey, authority: str) -> GateKey:
    """The gate of a URL with this queue and authority."""
    return GateKey(f"queue:{queue}") if scope is PolitenessScope.QUEUE else GateKey(host_of(authority))


def _by_host(urls: Sequence[str]) -> list[QueueKey]:
    return [QueueKey(authority_of(url) or "") for url in urls]


def _by_bkdr(queues: int) -> Assign:
    names = [QueueKey(f"bkdr:{number}") for number in range(queues)]

    def assign(urls: Sequence[str]) -> list[QueueKey]:
        hashed = bkdr_batch([url.encode() for url in urls])
        return [names[number] for number in (hashed % queues).tolist()]

    return assign


_HASHED: dict[str, Callable[[int], Assign]] = {"bkdr": _by_bkdr}
