"""The first part of an ordered set whose rest is in the store, and rows that wait for their retry."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.frontier.records import OutcomeKind, Row
from anabranch.frontier.scheduling import heaps as module
from anabranch.frontier.scheduling.heaps import Prefix, Retries
from tests.frontier.builder import HASTE, START_S, build, pages, row


def behind(keys: dict[int, int], after: int | None, limit: int) -> list[tuple[int, int]]:
    """Answer as a store does: the first members after a key, in order."""
    entries = sorted((key, member) for member, key in keys.items() if after is None or key > after)
    return entries[:limit]


def filled(most: int, keys: Iterable[int]) -> Prefix[int]:
    """A complete prefix in which each key is its own member."""
    prefix: Prefix[int] = Prefix(most, is_complete=True)
    for key in keys:
        prefix.offer(key, key)
    return prefix


def drained(prefix: Prefix[int]) -> list[int]:
    members = []
    while (entry := prefix.pop()) is not None:
        members.append(entry[1])
    return members


def test_members_come_by_key() -> None:
    """The smallest first, whatever the order in which they came."""
    prefix = filled(10, [5, 2, 9])
    assert prefix.first() == (2, 2)
    assert (len(prefix), 9 in prefix, 4 in prefix) == (3, True, False)
    assert drained(prefix) == [2, 5, 9]
    assert not prefix.may_have_any


def test_a_member_stands_at_its_last_key() -> None:
    """Being offered again moves it; what it stood at before is forgotten."""
    prefix = filled(10, [1, 2])
    prefix.offer(7, 1)
    prefix.offer(1, 2)
    assert prefix.pop() == (1, 2)
    assert prefix.pop() == (7, 1)
    assert prefix.pop() is None


def test_a_prefix_of_what_is_stored_knows_nothing_until_it_has_read() -> None:
    """It may have any, has none in memory, and takes nothing in: a read will bring it."""
    prefix: Prefix[int] = Prefix(10, is_complete=False)
    prefix.offer(4, 4)
    assert (prefix.may_have_any, prefix.wants_more, prefix.first(), len(prefix)) == (True, True, None, 0)
    assert prefix.ask() is None, "from the very beginning"
    assert not prefix.wants_more, "it is asked"
    prefix.answer([(4, 4), (6, 6)], 2)
    assert prefix.first() == (4, 4)
    assert prefix.may_have_any


def test_fewer_than_were_asked_for_are_all_there_are() -> None:
    """Then whatever arrives is taken in, and an empty prefix has nothing."""
    prefix: Prefix[int] = Prefix(10, is_complete=False)
    prefix.ask()
    prefix.answer([(4, 4)], 2)
    prefix.offer(99, 99)
    assert drained(prefix) == [4, 99]
    assert not prefix.may_have_any
    assert not prefix.wants_more


def test_what_comes_behind_the_horizon_is_left_to_the_next_read() -> None:
    """An entry before the horizon is taken in at once."""
    prefix: Prefix[int] = Prefix(4, is_complete=False)
    prefix.ask()
    prefix.answer([(10, 10), (20, 20)], 2)
    prefix.offer(30, 30)
    prefix.offer(15, 15)
    assert drained(prefix) == [10, 15, 20]
    assert prefix.ask() == 20, "it reads on behind the last one that it read"
    prefix.answer([(30, 30)], 2)
    assert drained(prefix) == [30]


def test_more_are_wanted_when_a_quarter_remains() -> None:
    """Before the last one is taken, so that nobody waits for the read."""
    prefix: Prefix[int] = Prefix(8, is_complete=False)
    prefix.ask()
    prefix.answer([(key, key) for key in range(8)], 8)
    wanted = []
    while prefix.pop() is not None:
        wanted.append(prefix.wants_more)
    assert wanted == [False] * 5 + [True] * 3


def test_what_comes_while_a_read_is_under_way_is_not_lost() -> None:
    """The read was written before it came, so the answer cannot hold it."""
    prefix: Prefix[int] = Prefix(4, is_complete=False)
    prefix.ask()
    prefix.offer(5, 5)
    prefix.answer([(1, 1)], 2)
    assert drained(prefix) == [1, 5]


def test_what_was_read_is_where_a_member_stands() -> None:
    """It was offered with a later key meanwhile, but the store had it already and keeps its place."""
    prefix: Prefix[int] = Prefix(4, is_complete=False)
    prefix.ask()
    prefix.offer(9, 1)
    prefix.answer([(1, 1), (2, 2)], 2)
    assert drained(prefix) == [1, 2]


def test_what_goes_while_a_read_is_under_way_is_not_brought_back() -> None:
    """The answer has it still; unless it came again after it went."""
    prefix: Prefix[int] = Prefix(4, is_complete=False)
    prefix.ask()
    prefix.discard(1)
    prefix.discard(2)
    prefix.offer(9, 2)
    prefix.answer([(1, 1), (2, 2), (3, 3)], 4)
    assert drained(prefix) == [2, 3]


def test_too_many_members_are_cut_to_the_first_ones() -> None:
    """Beyond twice the bound, down to it; the others are rows, and are read when few remain."""
    keys = {key: key for key in range(9)}
    prefix = filled(4, keys)
    assert len(prefix) == 4
    assert drained(prefix) == [0, 1, 2, 3]
    prefix.answer(behind(keys, prefix.ask(), 10), 10)
    assert drained(prefix) == [4, 5, 6, 7, 8]


def test_a_cut_waits_for_the_read_that_is_under_way() -> None:
    """The read began behind the old horizon: what a cut gave up before that would be lost between the two."""
    keys = {key: key for key in (100, 101, 102)}
    prefix: Prefix[int] = Prefix(2, is_complete=False)
    prefix.ask()
    prefix.answer(behind(keys, None, 1), 1)
    answer = behind(keys, prefix.ask(), 5)
    for key in (50, 51, 52, 53):
        prefix.offer(key, key)
    members = [prefix.pop(), prefix.pop()]
    prefix.answer(answer, 5)
    keys |= {52: 52, 53: 53}
    assert members == [(50, 50), (51, 51)]
    assert drained(prefix) + [key for key, _ in behind(keys, prefix.ask(), 5)] == sorted(keys)


class PrefixModel(RuleBasedStateMachine):
    """A prefix over a sorted list whose reads are answered later, as they saw the list when they were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[int, int] = {}
        self.answer: list[tuple[int, int]] | None = None
        self.number = 0

    @initialize(most=st.integers(1, 5), limit=st.integers(1, 4), stored=st.integers(0, 12))
    def begin(self, most: int, limit: int, stored: int) -> None:
        self.most, self.limit = most, limit
        self.prefix: Prefix[int] = Prefix(most, is_complete=not stored)
        for _ in range(stored):
            self.number += 10
            self.keys[self.number] = self.number

    @rule(low=st.integers(0, 60), rises=st.booleans())
    def come(self, low: int, rises: bool) -> None:
        """A new member, mostly behind all others, sometimes among them."""
        self.number += 10
        key = self.number if rises else low * 10 + self.number % 97 % 9 + 1
        if key not in self.keys.values():
            self.keys[self.number] = key
            self.prefix.offer(key, self.number)

    @precondition(lambda self: self.keys and self.answer is None)
    @rule(data=st.data(), low=st.integers(0, 60))
    def move(self, data: st.DataObject, low: int) -> None:
        """A member gets another key."""
        member = data.draw(st.sampled_from(sorted(self.keys)))
        if low * 10 + 5 not in self.keys.values():
            self.keys[member] = low * 10 + 5
            self.prefix.offer(low * 10 + 5, member)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def come_again(self, data: st.DataObject) -> None:
        """A member that is not in memory is taken for a new one; the store has it, and keeps its key."""
        member = data.draw(st.sampled_from(sorted(self.keys)))
        if member not in self.prefix:
            self.number = max(self.number, *self.keys.values()) + 10
            self.prefix.offer(self.number, member)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.keys)))
        del self.keys[member]
        self.prefix.discard(member)

    @rule()
    def pop(self) -> None:
        entry = self.prefix.pop()
        if entry is not None:
            assert entry == min((key, member) for member, key in self.keys.items())
            del self.keys[entry[1]]

    @precondition(lambda self: self.prefix.wants_more)
    @rule()
    def ask(self) -> None:
        self.answer = behind(self.keys, self.prefix.ask(), self.limit)

    @precondition(lambda self: self.answer is not None)
    @rule()
    def read(self) -> None:
        assert self.answer is not None
        self.prefix.answer(self.answer, self.limit)
        self.answer = None

    @invariant()
    def the_first_is_the_first_of_all(self) -> None:
        if not hasattr(self, "prefix"):
            return
        first = self.prefix.first()
        if first is not None:
            assert first == min((key, member) for member, key in self.keys.items())
        elif self.keys:
            assert self.prefix.may_have_any, "what is in the store will be read"

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "prefix") and self.answer is None:
            assert len(self.prefix) <= 2 * self.most + self.limit

    def teardown(self) -> None:
        """At the end everything comes, in order."""
        if not hasattr(self, "prefix"):
            return
        if self.answer is not None:
            self.read()
        expected = [member for _, member in sorted((key, member) for member, key in self.keys.items())]
        came = []
        for _ in range(1000):
            came += drained(self.prefix)
            if not self.prefix.may_have_any:
                break
            assert self.prefix.wants_more
            self.prefix.answer(behind(self.keys, self.prefix.ask(), self.limit), self.limit)
        assert came == expected


TestPrefixModel = PrefixModel.TestCase
TestPrefixModel.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


# Rows that wait, by the time they are due


def waiting(ordinal: int, due_s: float) -> Row:
    return row(ordinal, due_s=due_s)


def due_ordinals(retries: Retries, now_s: float) -> list[int]:
    return [due.ordinal for due in retries.take_due(now_s)]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has room for four rows; two are read at a time."""
    monkeypatch.setattr(module, "RETRIES", 4)
    monkeypatch.setattr(module, "RETRIES_AT_ONCE", 2)


def test_rows_come_when_they_are_due_and_the_older_url_first() -> None:
    """By time, then by acceptance; what is not due stays."""
    retries = Retries(may_have_any=False)
    for ordinal, due_s in [(4, 9.0), (3, 5.0), (2, 5.0), (1, 20.0)]:
        retries.add(waiting(ordinal, due_s))
    assert retries.next_time() == 5.0
    assert due_ordinals(retries, 4.999) == []
    assert due_ordinals(retries, 9.0) == [2, 3, 4]
    assert retries.next_time() == 20.0


def test_no_time_is_named_when_nothing_waits() -> None:
    """None, not a time in the past."""
    assert Retries(may_have_any=False).next_time() is None


def test_a_row_without_a_time_cannot_wait() -> None:
    """It would wait for ever."""
    with pytest.raises(AssertionError, match="has a time"):
        Retries(may_have_any=False).add(row(1))


def test_a_row_that_is_removed_waits_no_more() -> None:
    """Its time passes, and nothing comes."""
    retries = Retries(may_have_any=False)
    retries.add(waiting(1, 5.0))
    retries.add(waiting(2, 6.0))
    retries.remove({1, 99})
    assert retries.next_time() == 6.0
    assert due_ordinals(retries, 9.0) == [2]


@pytest.mark.usefixtures("few")
def test_rows_of_an_earlier_run_are_read() -> None:
    """From the first one due on, until fewer come than were asked for."""
    retries = Retries(may_have_any=True)
    assert (retries.wants_more, retries.ask()) == (True, None)
    retries.read([waiting(3, 1.0), waiting(1, 2.0)])
    assert due_ordinals(retries, 1.0) == [3]
    assert (retries.wants_more, retries.ask()) == (True, (2.0, 1))
    retries.read([waiting(2, 3.0)])
    assert not retries.wants_more
    assert due_ordinals(retries, 9.0) == [1, 2]


@pytest.mark.usefixtures("few")
def test_a_row_that_waits_while_the_others_are_read_is_not_lost() -> None:
    """The answer cannot hold it; it comes when it is due."""
    retries = Retries(may_have_any=True)
    retries.ask()
    retries.add(waiting(7, 5.0))
    retries.read([waiting(3, 1.0)])
    assert due_ordinals(retries, 9.0) == [3, 7]


@pytest.mark.usefixtures("few")
def test_a_row_that_is_due_behind_what_was_read_is_read_in_its_turn() -> None:
    """Memory does not keep it: the store has it, and gives it with its like."""
    retries = Retries(may_have_any=True)
    retries.ask()
    retries.add(waiting(7, 5.0))
    retries.read([waiting(1, 1.0), waiting(2, 2.0)])
    assert due_ordinals(retries, 9.0) == [1, 2]
    assert retries.ask() == (2.0, 2)
    retries.read([waiting(7, 5.0)])
    assert due_ordinals(retries, 9.0) == [7]


@pytest.mark.usefixtures("few")
def test_memory_holds_the_first_of_many() -> None:
    """The others are rows and are read again when few remain; all of them come in order."""
    rows = [waiting(ordinal, float(ordinal)) for ordinal in range(1, 30)]
    retries = Retries(may_have_any=False)
    for number in (*range(20, 29), *range(20)):
        retries.add(rows[number])
    assert len(retries._rows) <= 4 * module.RETRIES
    came = []
    while len(came) < len(rows):
        came += due_ordinals(retries, 99.0)
        if retries.wants_more:
            after = retries.ask() or (0.0, 0)
            retries.read([some for some in rows if (some.due_s, some.ordinal) > after][:2])
    assert came == list(range(1, 30))


def test_a_retry_leaves_the_head_of_its_queue() -> None:
    """A URL that fails does not block the others: it waits beside them and comes back to its place when it is due."""
    rig = build(politeness=HASTE)
    urls = pages("a.test", 4)
    rig.add(*urls)
    lease = rig.lease_now()
    rig.finish(lease, OutcomeKind.RETRY, after_s=60.0)
    other = rig.lease_now()
    assert other.url == urls[1]
    assert rig.core.operations.statistics().waiting == 1
    rig.clock.advance(60.0)
    assert rig.lease() is None, "it comes due, and its gate is taken"
    rig.finish(other)
    again = rig.lease_now()
    assert (again.url, again.attempts) == (urls[0], 1)


def test_a_queue_whose_urls_all_wait_is_asleep_and_wakes_by_time() -> None:
    """`wake` names the moment; nothing is asked of the store until then."""
    rig = build(politeness=HASTE)
    rig.add("http://a.test/")
    rig.finish(rig.lease_now(), OutcomeKind.RETRY, after_s=60.0)
    assert rig.lease() is None
    assert rig.state_of("a.test") == "snoozed"
    assert rig.core.wake().at_s == START_S + 60.0
    rig.clock.advance(60.0)
    assert rig.lease_now().attempts == 1
