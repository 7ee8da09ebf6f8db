"""Assignment policies on portal-like URLs: balance of the queues and cost of a URL; and overrides."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from statistics import median

from anabranch.crawler.lab.policies.series import balance
from anabranch.crawler.lab.urls import portal_urls
from anabranch.frontier.policies.assignment import parse_policy
from anabranch.frontier.policies.sheets import NOTHING, Override, Settings, Sheets
from anabranch.frontier.records import QueueKey
from scripts.benchmarks.frontier.links import BATCH
from scripts.benchmarks.rows import Row, Setting

QUEUES = (100, 997, 1024)
HASHES = ("bkdr", "elf", "sdbm")
POLICIES = ("host", "surt", *(f"{name}:{queues}" for queues in QUEUES for name in HASHES))

#: Entries `[[override]]` of one order.
OVERRIDES = 100_000

_URLS = 100_000
_ROUNDS = 3


def compared(setting: Setting) -> Iterator[Row]:
    """Two rows for each policy, then overrides. The small version is the same: balance depends on the number of URLs."""
    urls = [url.decode() for url in portal_urls(_URLS)]
    for policy in POLICIES:
        setting.say(policy)
        yield from rows_of(policy, urls)
    setting.say("overrides")
    yield from override_rows(OVERRIDES)


def rows_of(policy: str, urls: list[str]) -> Iterator[Row]:
    """Balance and cost of one policy, for batches of a page's links."""
    batches = [urls[start : start + BATCH] for start in range(0, len(urls), BATCH)]
    costs = []
    for _ in range(_ROUNDS):
        assign = parse_policy(policy)
        started = time.perf_counter()
        keys: list[list[QueueKey]] = [assign(batch) for batch in batches]
        costs.append((time.perf_counter() - started) / len(urls))
    found = balance(chain.from_iterable(keys))
    name = policy.replace(":", "-")
    yield Row(
        name=f"policies-{name}-balance",
        what=f"{policy}: longest queue over mean",
        measured=found.max_over_mean,
        unit="",
        note=f"{found.queues:,} queues used, the longest has {found.longest:,} of {found.urls:,} URLs",
    )
    yield Row(
        name=f"policies-{name}-cost",
        what=f"{policy}: cost per URL, batches of {BATCH}",
        measured=median(costs) * 1e6,
        unit="µs",
        note=f"median of {_ROUNDS} rounds, {min(costs) * 1e6:.2f} to {max(costs) * 1e6:.2f} µs",
    )


def override_rows(count: int) -> Iterator[Row]:
    """The cost of many overrides: once when the order is read, and per look-up, half of which find one."""
    overrides = [Override((f"www.site-{number}.example",), Settings(min_delay_s=1.0)) for number in range(count)]
    hosts = [f"www.site-{number}.example" for number in range(0, 2 * count, 2)]
    compiling, looking = [], []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        sheets = Sheets(overrides)
        compiled = time.perf_counter()
        found = sum(sheets.for_host(host) is not NOTHING for host in hosts)
        compiling.append(compiled - started)
        looking.append((time.perf_counter() - compiled) / len(hosts))
        assert found == -(-count // 2), "an override was lost"
    yield Row(
        name="policies-overrides-compile",
        what=f"{count:,} entries [[override]], each for a host: to compile them",
        measured=median(compiling),
        unit="s",
        note=f"median of {_ROUNDS} rounds, {min(compiling):.2f} to {max(compiling):.2f} s",
    )
    yield Row(
        name="policies-overrides-look-up",
        what=f"{count:,} entries [[override]]: a look-up of a host",
        measured=median(looking) * 1e6,
        unit="µs",
        note=f"half of the hosts have one; median of {_ROUNDS} rounds, {min(looking) * 1e6:.2f} to {max(looking) * 1e6:.2f} µs",
    )
