"""I6 in crawls of 50 hosts by 500 workers: a ledger that knows the rules, not the gates, looks at every start and end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.policies.sheets import Override, Settings
from anabranch.frontier.records import Candidate, GateKey, HostTrouble, Lease, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Backoff, Politeness
from anabranch.frontier.stores.contract import FrontierStore
from anabranch.frontier.stores.memory.store import MemoryStore
from anabranch.frontier.stores.sql.store import SqlStore
from tests.frontier.builder import FakeClock
from tests.frontier.late_store import LateStore
from tests.frontier.ledger import PolitenessLedger
from tests.stress.virtual_crawl import VirtualCrawl

HOSTS = [GateKey(f"h{number}.d{number % 7}.test") for number in range(50)]
PAGES = 24
WORKERS = 500
#: Hosts with a Crawl-delay, with other slots, and with a sheet of their own.
DELAYED, WIDENED, OVERRIDDEN = HOSTS[:8:2], HOSTS[8:16:2], HOSTS[16:24:2]
POLITENESS = Politeness(slots=2)
GROUP_POLITENESS = Politeness(min_delay_s=0.5, max_delay_s=4.0, delay_factor=1.0, slots=5)
SHEET = Politeness(delay_factor=2.0, min_delay_s=1.0, max_delay_s=9.0, slots=3)
BACKOFF = Backoff(base_s=20.0, cap_s=300.0)

POLICIES = ["host", "surt", "domain", "bucket:7", "bkdr:97", "elf:97", "sdbm:97", "parallel:4"]


def order(policy: str, group: str | None) -> FrontierOrder:
    surts = tuple(f"http://({','.join(reversed(host.split('.')))}," for host in OVERRIDDEN)
    sheet = Settings(delay_factor=2.0, min_delay_s=1.0, max_delay_s=9.0, max_connections=3)
    return FrontierOrder(
        policy=policy,
        politeness=POLITENESS,
        backoff=BACKOFF,
        group=group,
        group_politeness=GROUP_POLITENESS,
        overrides=[Override(surts, sheet)],
        gates_in_memory=20,
    )


class Job:
    """A crawl that is opened again and again; its ledger stays."""

    def __init__(self, policy: str, group: str | None, file: Path | None) -> None:
        self.order = order(policy, group)
        self.clock, self.dice = FakeClock(), random.Random(policy)
        self.ledger = PolitenessLedger(
            POLITENESS,
            backoff=BACKOFF,
            rules=dict.fromkeys(OVERRIDDEN, SHEET),
            group_of=(lambda host: GateKey(host.partition(".")[2])) if group else (lambda host: None),
            group_politeness=GROUP_POLITENESS,
        )
        self._memory, self._file = MemoryStore(), file
        self.ended: list[str] = []
        self.open()

    def open(self) -> None:
        inner: FrontierStore = self._memory if self._file is None else SqlStore(self._file)
        self.store = LateStore(inner, late=False)
        self.core = open_frontier(None, self.order, store=self.store, clock=self.clock)
        self.crawl = VirtualCrawl(
            self.core, self.clock, WORKERS, fetch=self.fetch, started=self.ledger.start, ended=self.end
        )

    def fetch(self, lease: Lease) -> tuple[float, Outcome]:
        """One of many fetches ends in trouble."""
        trouble = self.dice.choice(list(HostTrouble)) if self.dice.random() < 0.03 else HostTrouble.NONE
        kind = OutcomeKind.DONE if trouble is HostTrouble.NONE else OutcomeKind.RETRY
        return self.dice.lognormvariate(-1.0, 1.0), Outcome(kind, 200, after_s=30.0, trouble=trouble, retry_after_s=0.0)

    def end(self, lease: Lease, outcome: Outcome) -> None:
        self.ledger.end(lease, outcome, self.clock())
        if outcome.kind is OutcomeKind.DONE:
            self.ended.append(lease.url)

    def stop(self) -> None:
        """An end in order: what is out goes back."""
        for lease in self.crawl.abandon():
            self.core.release(lease)
            self.ledger.end(lease, None, self.clock())
        self.core.close()

    def die(self) -> None:
        self.core.flush()
        self.store.die()
        self.core._checkpoints.close(final=False)
        self.crawl.abandon()


def crawl_with_interruptions(policy: str, group: str | None, file: Path | None) -> Job:
    job = Job(policy, group, file)
    urls = [f"http://{host}/{page}" for page in range(PAGES) for host in HOSTS]
    job.core.schedule([Candidate(url) for url in urls])
    for host in DELAYED:
        job.core.set_delay(host, 12.0)
        job.ledger.set_delay(host, 12.0)
    for host in WIDENED:
        job.core.set_slots(host, 6)
        job.ledger.set_slots(host, 6)
    for number in range(6):
        leases = job.crawl.run()
        for _ in range(150):
            next(leases)
        if number % 2:
            job.stop()
            job.clock.advance(job.dice.uniform(0.0, 1.0))
            job.open()
        else:
            job.die()
            job.clock.advance(job.dice.uniform(0.0, 1.0))
            job.open()
            job.ledger.died(job.clock(), durable=True)
    for _ in job.crawl.run():
        pass
    assert job.core.is_done
    assert sorted(job.ended) == sorted(urls)
    job.core.operations.check()
    job.core.close()
    return job


@pytest.mark.slow
@pytest.mark.parametrize("group", [None, "domain"])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_start_breaks_a_rule_of_politeness(policy: str, group: str | None) -> None:
    """Whatever spreads URLs over queues, across ends in order and deaths; and everything is fetched."""
    job = crawl_with_interruptions(policy, group, None)
    assert job.ledger.starts >= len(HOSTS) * PAGES


@pytest.mark.slow
def test_no_start_breaks_a_rule_of_politeness_across_restarts_of_a_file(tmp_path: Path) -> None:
    """No fetch starts too early either where rests, blocks and Crawl-delays must survive in tables."""
    crawl_with_interruptions("bkdr:97", "domain", tmp_path / "frontier.db")
