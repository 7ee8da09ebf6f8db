"""A ledger of starts and ends that proves the politeness invariant (I6). It knows the rules, not the gates and not the store.

Every start and end is told to it; a start that breaks a rule is an AssertionError that names the gate and the rule:

    slots      fewer than k fetches run or rest when one starts; one slot while there is a Crawl-delay or a throttle
    rest       a slot rests clamp(factor × fetch, min, max) from the end of its fetch, and at least Crawl-delay and throttle
    spacing    starts are a Crawl-delay (after a 429: a throttle) apart
    block      nothing starts before a block ends: an operator's, or the backoff's after a trouble
    reopened   after an unclean end nothing starts before the opening + the gate's last rest

The group of a host has slots, rests and an operator's blocks only. Each call costs O(log k) or less, so that long campaigns
can use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from anabranch.frontier.records import GateKey, HostTrouble, Lease, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Backoff, Politeness

#: Times pass through databases and sums: differences below this are no impoliteness.
SLACK_S = 1e-6


class Account:
    """The ledger's record of one gate."""

    def __init__(self, rule: Politeness, backoff: Backoff) -> None:
        self.rule = rule
        self.backoff = backoff
        self.slots = rule.slots
        self.out = 0
        self.rests: list[float] = []  #: heap of the times when slots have rested
        self.last_rest_s = rule.min_delay_s
        self.crawl_delay_s = 0.0
        self.throttle_s = 0.0
        self.last_start_s = -math.inf  #: of the fetches that have ended
        self.last_lease_s = -math.inf
        self.blocked_until_s = -math.inf
        self.troubles = 0
        self.troubled_s = -math.inf
        self.resumes_s = -math.inf  #: nothing starts before, after an unclean end

    def start(self, now_s: float) -> str:
        """A lease was handed out; answers the rule that it breaks, or nothing."""
        while self.rests and self.rests[0] <= now_s + SLACK_S:
            heappop(self.rests)
        apart_s = max(self.crawl_delay_s, self.throttle_s)
        slots = 1 if apart_s else self.slots
        broken = ""
        if self.out + len(self.rests) >= slots:
            broken = f"slots: {self.out} out, {len(self.rests)} resting, {slots} slots"
        elif now_s + SLACK_S < self.blocked_until_s:
            broken = f"block: {self.blocked_until_s - now_s:.6f} s too early"
        elif now_s + SLACK_S < self.resumes_s:
            broken = f"reopened: {self.resumes_s - now_s:.6f} s too early"
        elif apart_s and now_s + SLACK_S < self.last_start_s + apart_s:
            broken = f"spacing: {now_s - self.last_start_s:.6f} s apart, not {apart_s:g}"
        self.out += 1
        self.last_lease_s = now_s
        return broken

    def end(self, fetch: tuple[float, float] | None) -> None:
        """A slot came back, after a fetch (start, end) or without one."""
        self.out -= 1
        assert self.out >= 0, "more ends than starts"
        if fetch is None:
            return
        start_s, end_s = fetch
        rule = self.rule
        rest_s = sorted((rule.min_delay_s, rule.delay_factor * (end_s - start_s), rule.max_delay_s))[1]
        self.last_rest_s = max(rest_s, self.crawl_delay_s, self.throttle_s)
        heappush(self.rests, end_s + self.last_rest_s)
        self.last_start_s = max(self.last_start_s, start_s)

    def trouble(self, kind: HostTrouble, retry_after_s: float, now_s: float) -> None:
        """The host is in trouble: the block that is owed at least, jitter left out."""
        quiet_since_s = max(self.troubled_s, self.blocked_until_s)
        if self.last_lease_s - quiet_since_s >= self.backoff.forgive_s:
            self.troubles = 0
        if self.troubles == 0 or self.last_lease_s > self.troubled_s:
            self.troubles += 1
        wait_s = self.backoff.base_s
        for _ in range(min(self.troubles, 100) - 1):
            wait_s = min(2 * wait_s, self.backoff.cap_s)
        wait_s = min(wait_s, self.backoff.cap_s)
        self.troubled_s = now_s
        if kind is HostTrouble.THROTTLED:
            self.throttle_s = wait_s
        owed_s = max(wait_s, min(retry_after_s, self.backoff.longest_retry_after_s))
        self.block(now_s + owed_s)

    def well(self, now_s: float) -> None:
        """A fetch ended without trouble: the row of troubles is one shorter, or forgotten if it was quiet for long."""
        if self.last_lease_s <= self.troubled_s:
            return
        self.throttle_s = 0.0
        is_forgiven = now_s - max(self.troubled_s, self.blocked_until_s) >= self.backoff.forgive_s
        self.troubles = 0 if is_forgiven else max(self.troubles - 1, 0)

    def block(self, until_s: float) -> None:
        """Nothing may start before then."""
        self.blocked_until_s = max(self.blocked_until_s, until_s)

    def unblock(self) -> None:
        """An operator took the block back."""
        self.blocked_until_s = -math.inf
        self.troubles = 0
        self.throttle_s = 0.0

    def die(self, opened_s: float) -> None:
        """The owner died; fetches that were out may have gone on until the next owner opened the store."""
        self.out = 0
        self.resumes_s = opened_s + max(self.last_rest_s, self.crawl_delay_s, self.throttle_s)


class PolitenessLedger:
    """Accounts of all hosts and groups. `starts` counts the leases that were looked at."""

    def __init__(
        self,
        politeness: Politeness,
        *,
        backoff: Backoff | None = None,
        rules: Mapping[GateKey, Politeness] | None = None,
        group_of: Callable[[GateKey], GateKey | None] = lambda host: None,
        group_politeness: Politeness | None = None,
    ) -> None:
        self._politeness = politeness
        self._backoff = backoff or Backoff()
        self._rules = rules or {}  #: hosts with a politeness of their own
        self._group_of = group_of
        self._group_politeness = group_politeness or politeness
        self._hosts: dict[GateKey, Account] = {}
        self._groups: dict[GateKey, Account] = {}
        self._out: dict[int, Lease] = {}
        self.starts = 0

    @property
    def out(self) -> int:
        """Leases that were started and not ended."""
        return len(self._out)

    def start(self, lease: Lease) -> None:
        """A lease was handed out, at its `since_s`."""
        assert lease.ordinal not in self._out, f"{lease.url} is leased twice"
        self._out[lease.ordinal] = lease
        self.starts += 1
        for name, account in self._accounts(lease.gate):
            broken = account.start(lease.since_s)
            assert not broken, f"{name} at {lease.since_s:.6f}: {broken}"

    def end(self, lease: Lease, outcome: Outcome | None, now_s: float) -> None:
        """A lease ended; None = it was released."""
        del self._out[lease.ordinal]
        fetch = None
        if outcome is not None and outcome.start_s is not None and outcome.end_s is not None:
            fetch = outcome.start_s, outcome.end_s
        host = self._host(lease.gate)
        in_trouble = outcome is not None and outcome.trouble is not HostTrouble.NONE
        has_answered = outcome is not None and (outcome.kind is OutcomeKind.DONE or outcome.status > 0)
        if fetch is not None and has_answered and not in_trouble:
            host.well(now_s)  # before its rest, which is the usual one again
        for _, account in self._accounts(lease.gate):
            account.end(fetch)
        if outcome is not None and in_trouble:
            host.trouble(outcome.trouble, outcome.retry_after_s, now_s)
        elif outcome is not None and outcome.retry_after_s > 0:
            host.block(now_s + min(outcome.retry_after_s, self._backoff.longest_retry_after_s))

    def set_delay(self, gate: GateKey, delay_s: float) -> None:
        """The host has this Crawl-delay from now on; 0 = none."""
        self._host(gate).crawl_delay_s = delay_s

    def set_slots(self, gate: GateKey, slots: int | None) -> None:
        """The host has so many slots from now on; None = as its rule says."""
        host = self._host(gate)
        host.slots = host.rule.slots if slots is None else slots

    def block(self, gate: GateKey, until_s: float) -> None:
        """An operator closed the gate, of a host or of a group."""
        self._named(gate).block(until_s)

    def unblock(self, gate: GateKey) -> None:
        """An operator took every block back."""
        self._named(gate).unblock()

    def died(self, opened_s: float, *, durable: bool = False) -> None:
        """The owner was killed, and the next one opened the store at `opened_s`.

        What had been told may not have been kept, so of all that only the smallest rest from `opened_s` on is demanded; with
        `durable` (all was synced before) everything is: rests, blocks, and each gate's last rest from `opened_s` on.
        """
        self._out.clear()
        for accounts in (self._hosts, self._groups):
            for gate, account in accounts.items():
                if durable:
                    account.die(opened_s)
                    continue
                fresh = accounts[gate] = Account(account.rule, account.backoff)
                fresh.die(opened_s)

    def _named(self, gate: GateKey) -> Account:
        """The account of a host, or of a group, whose key has a colon."""
        return self._group(gate) if ":" in gate else self._host(gate)

    def _group(self, group: GateKey) -> Account:
        if group not in self._groups:
            self._groups[group] = Account(self._group_politeness, self._backoff)
        return self._groups[group]

    def _host(self, gate: GateKey) -> Account:
        account = self._hosts.get(gate)
        if account is None:
            rule = self._rules.get(gate, self._politeness)
            account = self._hosts[gate] = Account(rule, self._backoff)
        return account

    def _accounts(self, gate: GateKey) -> list[tuple[str, Account]]:
        """The host's account and its group's, if it has one."""
        accounts: list[tuple[str, Account]] = [(gate, self._host(gate))]
        group = self._group_of(gate)
        if group is not None:
            accounts.append((f"group {group}", self._group(group)))
        return accounts
