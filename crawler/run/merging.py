"""Answers of several shares as one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.crawler.run.explain import ABOUT_URLS
from anabranch.crawler.run.verbs import Arguments, Facts, gate_key, text_argument, whole_argument
from anabranch.crawler.urls.parsing import seed_url
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.inspect.statistics import NOTHING_QUEUED

#: Columns of a queue that are sums over its parts in the shares.
_SUMS = ("urls", "waiting", "in_flight", "spent", "gates")


def merged_listing(shares: Sequence[Facts], given: Arguments) -> Facts:
    """The longest queues of all, those of one name as one, and the sums of the totals."""
    queues: dict[str, dict[str, Any]] = {}
    for share in shares:
        for queue in share["queues"]:
            known = queues.get(queue["queue"])
            queues[queue["queue"]] = dict(queue) if known is None else _joined(known, queue)
    limit = whole_argument(given, "limit", least=0)
    longest = sorted(queues.values(), key=lambda queue: (-queue["urls"], queue["queue"]))[:limit]
    return {
        "now_s": max(share["now_s"] for share in shares),
        "queues": longest,
        "totals": summed_totals([share["totals"] for share in shares]),
    }


def largest_part(known: Sequence[Facts]) -> Facts:
    """Of the answers of shares that each have a part of a queue, the one of the largest part. There must be one."""
    return max(known, key=lambda facts: (facts.get("queue") or {}).get("urls", 0))


def owner_of_subject(division: Division, verb: str, given: Arguments) -> int | None:
    """The share that owns what a verb is about; None: several may have a part of it. Raises: UsageError."""
    if verb in {"block", "unblock"}:
        return division.owner_of(gate_key(text_argument(given, "host")))
    subject = given.get(ABOUT_URLS.get(verb, ""))
    if isinstance(subject, str) and (verb == "why" or "://" in subject):
        url = seed_url(subject)
        return 0 if url is None else division.owner_of_url(url)  # any share says why it is none
    return None


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two parts of a queue: the larger one says how it stands."""
    larger = one if one["urls"] >= other["urls"] else other
    return {**larger, **{name: one[name] + other[name] for name in _SUMS}}


def summed_totals(shares: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How much all shares have of what; idle for a reason only if each is."""
    sums: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for share in shares:
        sums.update({name: number for name, number in share.items() if isinstance(number, int)})
        queues.update(share["queues"])
    return {**sums, "queues": dict(queues), "why_idle": why_all_idle([share["why_idle"] for share in shares])}


def why_all_idle(reasons: Sequence[str]) -> str:
    """Why all shares are idle, empty if one is not. That a share has no URLs is said only if all have none."""
    if not all(reasons):
        return ""
    return "; ".join(sorted({*reasons} - {NOTHING_QUEUED} or {*reasons}))
