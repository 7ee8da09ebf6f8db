"""Runs and settings as plain data."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.crawler.lab.policies.series import Balance, Repeat, RunResult, Sample, Setting
from anabranch.crawler.lab.web.ledger import HostEntry, PolitenessLedger, PolitenessRule


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


def repeats_of(*active: float) -> tuple[Repeat, ...]:
    """Repeats that all count, with so many active workers."""
    return tuple(Repeat(each, each, 60.0, is_kept=True, compared_active=each) for each in active)


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


def entry_of(host: str, **more) -> HostEntry:
    facts = {
        "host": host,
        "requests": 9,
        "most_at_once": 2,
        "shortest_gap_s": 0.05,
        "shortest_start_gap_s": 0.1,
        "starts_per_s": 3.0,
        "size_bytes": 900,
        "gone": 0,
        "crawl_delay_s": None,
        "too_many": 0,
        "too_early": 0,
    }
    return HostEntry(**(facts | more))


def ledger_of(*hosts: HostEntry) -> PolitenessLedger:
    return PolitenessLedger(rule=PolitenessRule(), hosts=hosts, strangers=0, wall_s=10.0, cpu_s=2.0, longest_lag_s=0.03)
