"""Answers of several shares as one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from crawler.operating.arguments import Arguments, Facts, whole

#: Columns of a queue that are sums over its parts in the shares.
_SUMS = ("urls", "waiting", "in_flight", "spent", "gates")


def merged_listing(shares: Sequence[Facts], given: Arguments) -> Facts:
    """The longest queues of all, those of one name as one, and the sums of the totals."""
    queues: dict[str, dict[str, Any]] = {}
    for share in shares:
        for queue in share["queues"]:
            known = queues.get(queue["queue"])
            queues[queue["queue"]] = dict(queue) if known is None else _joined(known, queue)
    limit = whole(given, "limit", least=0)
    longest = sorted(queues.values(), key=lambda queue: (-queue["urls"], queue["queue"]))[:limit]
    return {
        "now_s": max(share["now_s"] for share in shares),
        "queues": longest,
        "totals": _totals([share["totals"] for share in shares]),
    }


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two parts of a queue: the larger one says how it stands."""
    larger = one if one["urls"] >= other["urls"] else other
    return {**larger, **{name: one[name] + other[name] for name in _SUMS}}


def _totals(shares: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sums: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for share in shares:
        sums.update({name: number for name, number in share.items() if isinstance(number, int)})
        queues.update(share["queues"])
    idle = [share["why_idle"] for share in shares]
    why = "; ".join(dict.fromkeys(idle)) if all(idle) else ""
    return {**sums, "queues": dict(queues), "why_idle": why}
