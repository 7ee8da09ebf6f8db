"""The shares that this Frontier holds: what belongs to others is sent, what comes is queued, shares are taken and given back.

A candidate whose host is in a share of ours is queued. Any other becomes a `LinkRow` in the same batch, so in the transaction
of the page that it was found on. The holder of the share gets it as `LinksRead`, and decides whether it is new: several workers
may have found it at the same time. A worker sends a URL once, because its filter knows it from then on.

A share that leaves serves nothing more from that moment on: its gates leave memory, each as soon as its leases have ended. Then
the store gives it back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from anabranch.frontier.admission import Admission, Outbound
from anabranch.frontier.completion import Completion, Leases
from anabranch.frontier.errors import Passing, PolicyError
from anabranch.frontier.records import GateKey
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.stores.contract import Counters, JobRead, LinkRow, LinksRead, SharesHeld


class SharedStore(Protocol):
    """The extra methods of a shared store."""

    def release(self, shares: Collection[int]) -> None:
        """Give shares back that are leaving, after all that was written for them; `SharesHeld` answers."""

    def safe_until_s(self) -> float:
        """Until when this worker certainly holds its shares, by the monotonic clock."""
        ...


class Hosting:
    """Takes shares and links from the store, and gives shares back."""

    def __init__(
        self,
        outbound: Outbound,
        store: SharedStore,
        admission: Admission,
        schedule: Schedule,
        completion: Completion,
        leases: Leases,
        monotonic: Callable[[], float],
    ) -> None:
        self._outbound = outbound
        self._rule = outbound.rule
        self._store = store
        self._admission = admission
        self._schedule = schedule
        self._retries = completion.retries
        self._completion = completion
        self._leases = leases
        self._monotonic = monotonic
        self.done_at = -1  #: number of this worker's last batch when the whole job was done last; -1: it never was
        self.others = Counters()  #: the job's totals less this worker's, as they were seen last
        self._leaving: frozenset[int] = frozenset()
        self._released: frozenset[int] = frozenset()  #: of these, those that the store gives back
        self._links: Sequence[LinkRow] = ()  #: those that came and are not queued yet; no others are read meanwhile
        self.waits_for = ""  #: why not: a policy cannot answer now

    @property
    def serving(self) -> frozenset[int]:
        """The shares whose URLs may be leased."""
        return self._outbound.serving

    @property
    def holds_all(self) -> bool:
        """All shares of the job are this worker's."""
        return len(self._outbound.serving) == self._rule.shares

    def may_lease(self) -> bool:
        """The lease has not ended yet, so no other worker has taken over."""
        return self._monotonic() < self._store.safe_until_s()

    def is_ours(self, gate: GateKey) -> bool:
        """A gate is in a share that this worker holds."""
        return self._rule.of_gate(gate) in self._outbound.serving | self._leaving

    def take(self, answer: SharesHeld | LinksRead | JobRead) -> None:
        """Take what the store says of the job's workers."""
        match answer:
            case SharesHeld():
                self._take_shares(answer)
            case LinksRead():
                self._links = answer.links
                self._adopt()
            case JobRead():
                if self._links:
                    self._adopt()
                self.others = answer.others
                if answer.done_at is not None:
                    self.done_at = answer.done_at

    def _adopt(self) -> None:
        """Queue the links that came, or keep them while a policy cannot answer: each look at the job tries again.

        The links of other shares stay in the store, for whoever holds them next.
        """
        self._links = [link for link in self._links if link.share in self._outbound.serving]
        try:
            self._admission.adopt(self._links)
        except PolicyError as error:
            if not isinstance(error.__cause__, Passing):
                raise
            self.waits_for = str(error)
        else:
            self._links, self.waits_for = (), ""

    def _take_shares(self, held: SharesHeld) -> None:
        """Serve what is new, and let go of what leaves. The store link counts the rows."""
        self._outbound.serving, self._leaving = held.serving, held.leaving
        self._released &= held.leaving
        window = self._schedule.window
        for share, died_s in held.died_s.items():
            window.died_s[share] = died_s
        if held.gained.queued:
            window.stored.note_woken()
        if held.gained.waiting:
            self._retries.read_again()
        self._completion.count_waiting(held.gained.waiting - held.released.waiting)

    def let_go(self, now_s: float) -> None:
        """Let the gates of shares that leave go, each as soon as its leases have ended. Cost: O(gates), while one leaves."""
        left = self._leaving - self._released
        if left:
            window, of_gate = self._schedule.window, self._rule.of_gate
            for line in [line for line in window if of_gate(line.gate.key) in left]:
                window.let_go(line, now_s)

    def give_back(self) -> None:
        """Give back the shares that leave and have neither leases nor gates in memory.

        All that was written for them must have been sent before: after it, another worker may hold them.
        """
        left = self._leaving - self._released
        if not left:
            return
        of_gate = self._rule.of_gate
        busy = {of_gate(line.gate.key) for line in self._schedule.window}
        busy.update(of_gate(lease.gate) for lease, _, _ in self._leases)
        done = left - busy
        if done:
            self._retries.remove(self._retries.of(lambda row: self._rule.of_url(row.url) in done))
            self._released |= done
            self._store.release(done)

    def is_leaving(self, gate: GateKey) -> bool:
        """The gate is in a share that is to be given back."""
        return bool(self._leaving) and self._rule.of_gate(gate) in self._leaving
