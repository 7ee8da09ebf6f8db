"""The politeness ledger finds every breach of a rule, and nothing else."""

from collections.abc import Callable

import pytest

from anabranch.frontier.records import GateKey, HostTrouble, Lease, Outcome, OutcomeKind, QueueKey
from anabranch.frontier.scheduling.gates import Backoff, Politeness
from tests.frontier.ledger import PolitenessLedger

HOST, SISTER, OTHER = GateKey("a.test"), GateKey("b.test"), GateKey("c.test")
EARLY_S = 0.001


class Book:
    """A ledger under test; leases by number."""

    def __init__(self, slots: int = 1, group_of: Callable[[GateKey], GateKey | None] = lambda host: None) -> None:
        self.ledger = PolitenessLedger(
            Politeness(slots=slots),
            backoff=Backoff(),
            rules={OTHER: Politeness(slots=2, min_delay_s=1.0)},
            group_of=group_of,
            group_politeness=Politeness(slots=1, min_delay_s=7.0),
        )
        self._leases: dict[int, Lease] = {}

    def start(self, number: int, now_s: float, host: GateKey = HOST) -> None:
        self._leases[number] = Lease(number, f"http://{host}/", b"", "", None, 0, None, QueueKey(""), host, now_s)
        self.ledger.start(self._leases[number])

    def end(
        self, number: int, now_s: float, trouble: HostTrouble = HostTrouble.NONE, retry_after_s: float = 0.0
    ) -> None:
        lease = self._leases.pop(number)
        outcome = Outcome(OutcomeKind.DONE, 200, lease.since_s, now_s, 0.0, trouble, retry_after_s)
        self.ledger.end(lease, outcome, now_s)

    def release(self, number: int, now_s: float) -> None:
        self.ledger.end(self._leases.pop(number), None, now_s)

    def fetch(
        self, number: int, now_s: float, trouble: HostTrouble = HostTrouble.NONE, retry_after_s: float = 0.0
    ) -> None:
        """A fetch of no time."""
        self.start(number, now_s)
        self.end(number, now_s, trouble, retry_after_s)

    def opens_at(self, at_s: float, rule: str, host: GateKey = HOST) -> None:
        """A start just before is a breach of this rule, a start then is none."""
        with pytest.raises(AssertionError, match=rule):
            self.start(-1, at_s - EARLY_S, host)
        self.release(-1, at_s - EARLY_S)
        self.start(-1, at_s, host)
        self.release(-1, at_s)


def test_more_fetches_than_slots_are_a_breach() -> None:
    """Two of one slot at once; a slot that was released unused is free."""
    book = Book()
    book.start(1, 100.0)
    with pytest.raises(AssertionError, match=r"a\.test at 100\.000000: slots: 1 out, 0 resting, 1 slots"):
        book.start(2, 100.0)
    book.release(2, 100.0)
    book.release(1, 100.0)
    book.start(3, 100.0)
    assert (book.ledger.starts, book.ledger.out) == (3, 1)


@pytest.mark.parametrize(("fetch_s", "rest_s"), [(0.0, 3.0), (1.0, 5.0), (100.0, 30.0)])
def test_a_start_within_the_rest_is_a_breach(fetch_s: float, rest_s: float) -> None:
    """The rest is clamped and counts from the end of the fetch."""
    book = Book()
    book.start(1, 100.0)
    book.end(1, 100.0 + fetch_s)
    book.opens_at(100.0 + fetch_s + rest_s, "slots: 0 out, 1 resting")


def test_each_host_has_its_own_account_and_may_have_its_own_rule() -> None:
    """Two hosts at once are no breach; an override has other slots and rests."""
    book = Book()
    book.start(1, 100.0)
    book.start(2, 100.0, OTHER)
    book.start(3, 100.0, OTHER)
    book.end(2, 100.0)
    book.opens_at(101.0, "1 out, 1 resting, 2 slots", OTHER)


def test_slots_that_were_set_count_until_they_are_taken_back() -> None:
    """An operator's k, then the rule's again."""
    book = Book()
    book.ledger.set_slots(HOST, 2)
    book.start(1, 100.0)
    book.start(2, 100.0)
    book.ledger.set_slots(HOST, None)
    book.release(2, 100.0)
    with pytest.raises(AssertionError, match="slots"):
        book.start(3, 100.0)


def test_starts_closer_than_the_crawl_delay_are_a_breach() -> None:
    """It leaves one slot, the slot rests for so long, and the starts before it count."""
    book = Book(slots=2)
    book.fetch(1, 100.0)
    book.ledger.set_delay(HOST, 20.0)
    book.opens_at(120.0, "spacing: 19.999000 s apart, not 20")
    book.start(2, 120.0)
    with pytest.raises(AssertionError, match="1 out, 0 resting, 1 slots"):
        book.start(3, 140.0)
    book.release(3, 140.0)
    book.end(2, 122.0)
    book.opens_at(142.0, "slots")


def test_a_start_before_a_block_ends_is_a_breach() -> None:
    """The longest block counts, until all are taken back."""
    book = Book()
    book.ledger.block(HOST, 500.0)
    book.ledger.block(HOST, 300.0)
    book.opens_at(500.0, "block")
    book.ledger.block(HOST, 900.0)
    book.ledger.unblock(HOST)
    book.start(1, 510.0)


def test_a_trouble_is_owed_the_backoff() -> None:
    """60 s, 120 s, … up to 3600 s, or what the host asked for; anew after 600 s of quiet."""
    book = Book()
    book.fetch(1, 0.0, HostTrouble.UNREACHABLE)
    book.opens_at(60.0, "block")
    book.fetch(2, 60.0, HostTrouble.UNAVAILABLE)
    book.opens_at(180.0, "block")
    book.fetch(3, 180.0, HostTrouble.UNAVAILABLE, retry_after_s=1000.0)
    book.opens_at(1180.0, "block")
    book.fetch(4, 1780.0, HostTrouble.UNAVAILABLE)
    book.opens_at(1840.0, "block")


def test_a_host_that_asks_for_a_rest_without_trouble_is_owed_it() -> None:
    """Retry-After of another answer, up to a day."""
    book = Book()
    book.fetch(1, 0.0, retry_after_s=40.0)
    book.opens_at(40.0, "block")
    book.fetch(2, 40.0, retry_after_s=1e9)
    book.opens_at(40.0 + 86_400, "block")


def test_the_backoff_that_is_owed_has_a_cap() -> None:
    """From the seventh trouble in a row on it is an hour, and after 86,400 s a Retry-After is forgotten."""
    book, now_s = Book(), 0.0
    for number, wait_s in enumerate((60, 120, 240, 480, 960, 1920, 3600, 3600), 1):
        book.fetch(number, now_s, HostTrouble.UNAVAILABLE)
        now_s += wait_s
        book.opens_at(now_s, "block")
    book.fetch(9, now_s, HostTrouble.UNAVAILABLE, retry_after_s=1e9)
    book.opens_at(now_s + 86_400, "block")


def test_a_good_fetch_after_quiet_time_forgives() -> None:
    """The next trouble is the first again."""
    book = Book()
    book.fetch(1, 0.0, HostTrouble.UNAVAILABLE)
    book.fetch(2, 660.0)
    book.fetch(3, 664.0, HostTrouble.UNAVAILABLE)
    book.opens_at(724.0, "block")


def test_a_good_fetch_forgives_for_those_that_are_out_with_it() -> None:
    """They began before the quiet time was over, but the host has shown since that it is well."""
    book = Book(slots=2)
    book.fetch(1, 0.0, HostTrouble.UNAVAILABLE)
    book.start(2, 100.0)
    book.start(3, 100.0)
    book.end(2, 700.0)
    book.end(3, 701.0, HostTrouble.UNAVAILABLE)
    book.opens_at(761.0, "block")


def test_a_429_leaves_one_slot_until_a_fetch_ends_well() -> None:
    """Starts are as far apart as the wait; a fetch that was out before proves nothing."""
    book = Book(slots=2)
    book.start(1, 0.0)
    book.fetch(2, 0.0, HostTrouble.THROTTLED)
    book.end(1, 1.0)
    book.start(3, 61.0)
    with pytest.raises(AssertionError, match="1 slots"):
        book.start(4, 61.0)
    book.release(4, 61.0)
    book.end(3, 62.0)
    book.start(5, 62.0)


def test_a_group_is_an_account_of_its_own() -> None:
    """Two hosts of one server fetch one at a time; troubles and blocks are the host's alone."""
    book = Book(group_of=lambda host: None if host == OTHER else GateKey("server"))
    book.start(1, 100.0, SISTER)
    book.start(2, 100.0, OTHER)
    with pytest.raises(AssertionError, match="group server at 100"):
        book.start(3, 100.0)
    book.release(3, 100.0)
    book.end(1, 100.0, HostTrouble.UNREACHABLE)
    book.opens_at(107.0, "group server at .*: slots: 0 out, 1 resting")


def test_after_a_kill_nothing_starts_before_the_opening_and_a_rest() -> None:
    """The ledger forgets blocks that were not durable and leases, and keeps the smallest rest."""
    book = Book()
    book.start(1, 100.0)
    book.ledger.block(HOST, 5000.0)
    book.ledger.died(200.0)
    assert book.ledger.out == 0
    book.opens_at(203.0, "reopened")


def test_after_a_kill_all_that_was_durable_is_still_owed() -> None:
    """Blocks and rests, and each gate's last rest from the opening on."""
    book = Book()
    book.start(1, 100.0)
    book.end(1, 104.0)
    book.start(2, 124.0)
    book.ledger.died(130.0, durable=True)
    book.opens_at(150.0, "reopened")
    book.ledger.block(HOST, 500.0)
    book.ledger.died(200.0, durable=True)
    book.opens_at(500.0, "block")


def test_one_lease_is_started_and_ended_once() -> None:
    """Twice out is a defect whatever the politeness."""
    book = Book(slots=5)
    book.start(1, 100.0)
    with pytest.raises(AssertionError, match="leased twice"):
        book.start(1, 100.0)
