"""Runs and settings as plain data."""

from __future__ import annotations

from collections.abc import Sequence

from crawler.lab.policies.comparison import Setting
from crawler.lab.policies.series import RunResult, Sample
from frontier.policies.balance import Balance


def run_of(policy: str = "host", active: Sequence[float] = (0, 10, 10), **more) -> RunResult:
    """A run with so many active workers in the second up to 0 s, 1 s, …, that ends one URL and 1,000 bytes for each of them."""
    totals = [sum(active[: place + 1]) for place in range(len(active))]
    samples = [
        Sample(float(second), total - totals[0], count, 4, 2, 1, total, total * 1000)
        for second, (count, total) in enumerate(zip(active, totals, strict=True))
    ]
    facts = {
        "policy": policy,
        "samples": tuple(samples),
        "duration_s": float(len(active) - 1),
        "is_drained": True,
        "queue_lengths": Balance(urls=100, queues=10, longest=20),
    }
    return RunResult(**(facts | more))


def setting_of(**more) -> Setting:
    """Ten hosts, 100 workers, one slot a host."""
    facts = {
        "web": "small web",
        "size": "5,000 URLs on 10 hosts",
        "hosts": 10,
        "workers": 100,
        "politeness": "polite",
        "connections": 1,
        "delays": "delays: none to speak of.",
    }
    return Setting(**(facts | more))
