"""The store in memory and the stores in SQL give the same answers to the same words, whatever they are."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.frontier.records import FRONT, NORMAL, OutcomeKind, Row, Turn, turn_of
from anabranch.frontier.stores.contract import (
    Answer,
    Ended,
    GatesRead,
    HeadsRead,
    LaneId,
    LanesRead,
    LeftGate,
    Moved,
    RetriesRead,
    Standing,
)
from tests.frontier.stores.rows import (
    NOW_S,
    Home,
    Teller,
    duplicates,
    facts,
    gate_key,
    home,
    lane,
    served_again,
    synced,
    waiting,
)
from tests.frontier.stores.rows import row as make_row

QUEUES, GATES = ["one", "two", "three"], ["a.test", "b.test"]
LANES = [lane(queue, gate) for queue in QUEUES for gate in GATES]
QUEUE_IDS = sorted({queue for queue, _ in LANES})
GATE_IDS = sorted({gate for _, gate in LANES})
KEYS = [f"http://a.test/{number}" for number in range(12)]
ENDS = [OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED]

#: (URL, lane, goes first, how it is entered) of a new row: as seen or not, forced, or as the retry of a failure.
HOW = st.sampled_from(["plain"] * 8 + ["forced", "retried", "retried"])
NEW = st.tuples(st.sampled_from(KEYS), st.sampled_from(LANES), st.booleans(), HOW)
#: What becomes of a live row: (which one, its fate, kind of end).
FATE = st.tuples(st.integers(0, 99), st.sampled_from(["end", "wait", "back", "front"]), st.sampled_from(ENDS))
STANDING = st.tuples(st.sampled_from(QUEUE_IDS), st.sampled_from(Standing))
WRITE = st.fixed_dictionaries(
    {
        "new": st.lists(NEW, max_size=5),
        "fates": st.lists(FATE, max_size=4),
        "announced": st.lists(st.sampled_from(LANES), max_size=3, unique=True),
        "turned": st.lists(
            st.tuples(st.sampled_from(LANES), st.integers(0, 5)), max_size=2, unique_by=lambda said: said[0]
        ),
        "standings": st.lists(STANDING, max_size=2),
        "woken": st.lists(st.sampled_from(GATE_IDS), max_size=2),
        "left": st.lists(
            st.tuples(st.sampled_from(GATE_IDS), st.sampled_from(["turn", "time", "neither"])),
            max_size=2,
            unique_by=lambda said: said[0],
        ),
        "removed": st.lists(st.sampled_from(LANES), max_size=2),
    }
)
ASK = st.one_of(
    st.tuples(st.just("heads"), st.sampled_from(LANES), st.integers(1, 5)),
    st.tuples(st.just("lanes"), st.sampled_from(GATE_IDS), st.integers(1, 5)),
    st.tuples(st.just("gate"), st.sampled_from(GATE_IDS), st.integers(1, 3)),
    st.tuples(st.just("gates"), st.integers(0, 6), st.integers(1, 3)),
    st.tuples(st.just("retries"), st.integers(0, 99), st.integers(1, 5)),
)
FLUSH = st.just("flush")
REOPEN = st.sampled_from(["close", "crash"])


@dataclass
class Pair:
    """Says the same to both stores; which rows live is known from the store in memory, which answers at once."""

    homes: tuple[Home, Home]
    live: list[Row] = field(default_factory=list)
    last_number: int = 0
    now_s: float = NOW_S
    expected: list[Answer] = field(default_factory=list)
    told: list[Answer] = field(default_factory=list)
    has_asked: bool = False  #: since all was compared
    named: set[int] = field(default_factory=set)  #: gates that have a row: no other one is ever woken, or leaves

    @property
    def tellers(self) -> tuple[Teller, Teller]:
        return self.homes[0].teller, self.homes[1].teller

    def write(self, said: dict[str, list]) -> None:
        """One batch; a lane that gets rows is announced, as the core does. Reads before it could see it: they come first."""
        if self.has_asked:
            self.settle()
        rows, forced, retried = self._rows(said["new"])
        ended, moved = self._decide(said["fates"])
        needed = {found[:2] for found in rows} | {found.new[:2] for found in moved}
        announced = {found: self._turn(3) for found in [*said["announced"], *sorted(needed)]}
        turns = {found: self._turn(precedence) for found, precedence in said["turned"]}
        self.named |= {gate for _, gate in announced}
        woken = [(gate, self._turn(3)) for gate in said["woken"] if gate in self.named]
        left = [self._left(gate, how) for gate, how in said["left"] if gate in self.named]
        for teller in self.tellers:
            teller.last_number = self.last_number
            lists = {"standings": said["standings"], "woken": woken, "left": left, "removed": said["removed"]}
            teller.say(rows, turns=announced, forced=forced, retried=retried, ended=ended, moved=moved, **lists)
            if turns:
                teller.change_turns(turns)
        answers = self.tellers[0].store.take_answers()
        self.expected += answers
        dead = {row.ordinal for answer in synced(answers) for row in answer.duplicates}
        self.live += [row for row in rows if row.ordinal not in dead]

    def ask(self, what: str, about: object, limit: int) -> None:
        """One question; time goes on with each that is about gates."""
        self.has_asked = True
        for teller in self.tellers:
            store = teller.store
            if what == "heads":
                store.ask_heads(about, limit, with_queue=True)  # type: ignore[arg-type]
            elif what == "lanes":
                store.ask_lanes(about, turn_of(3, self.last_number // 2), limit)  # type: ignore[arg-type]
            elif what == "gate":
                self.named.add(about)  # type: ignore[arg-type]
                store.ask_gate(about, gate_key(about), limit)  # type: ignore[arg-type]
            elif what == "gates":
                store.ask_gates(self.now_s + about, len(GATE_IDS), limit)  # type: ignore[operator]
            else:
                store.ask_retries((NOW_S + about, 0), limit)  # type: ignore[operator]
        if what == "gates":
            self.now_s += about  # type: ignore[operator]

    def settle(self) -> None:
        """Compare all that was answered so far."""
        self.has_asked = False
        self.expected += self.tellers[0].store.take_answers()
        self.told += self.tellers[1].answers()
        assert reads(self.told) == reads(self.expected)
        assert duplicates(self.told) == duplicates(self.expected)
        assert synced(self.told)[-1:] == [] or synced(self.told)[-1][2:] == synced(self.expected)[-1][2:]

    def reopen(self, how: str) -> None:
        """Both again."""
        self.settle()
        for place in self.homes:
            place.reopen(clean=how == "close", now_s=self.now_s)

    def _turn(self, precedence: int) -> Turn:
        self.last_number += 1
        return turn_of(precedence, self.last_number)

    def _left(self, gate: int, how: str) -> LeftGate:
        turn = None if how == "neither" else self._turn(3)
        return LeftGate(gate, turn, self.now_s + self.last_number % 7 if how == "time" else None)

    def _rows(self, new: list[tuple[str, LaneId, bool, str]]) -> tuple[list[Row], set[int], dict[int, int]]:
        rows: list[Row] = []
        forced: set[int] = set()
        retried: dict[int, int] = {}
        failures = self.tellers[0].store.retry_reads.failed_after(0, 100)
        for new_url, found, goes_first, how in new:
            self.last_number += 1
            number, precedence, url, more = self.last_number, FRONT if goes_first else NORMAL, new_url, {}
            if how == "retried" and failures:  # one of them maybe twice: the second dies
                failure = failures[number % len(failures)]
                retried[number] = failure.ordinal
                url, more = failure.url, {"hops": failure.hops}
            forced |= {number} if how == "forced" else set()
            more = more or {"hops": "L" * (number % 3), "payload": b"more" if number % 4 == 0 else None}
            rows.append(make_row(number, url, found, precedence, via=number // 2, **more))
        return rows, forced, retried

    def _decide(self, fates: list[tuple[int, str, OutcomeKind]]) -> tuple[list[Ended], list[Moved]]:
        """Each row at most once in a batch, as a lease comes back once."""
        ended, moved, back = [], [], []
        for index, fate, kind in fates[: len(self.live)]:
            row = self.live.pop(index % len(self.live))
            if fate == "end":
                ended.append(Ended(row, index, kind))
                continue
            if fate == "front":
                moved.append(Moved(row, served_again(row)._replace(precedence=FRONT)))
            else:
                moved.append(Moved(row, waiting(row, NOW_S + index) if fate == "wait" else served_again(row)))
            back.append(moved[-1].new)
        self.live += back
        return ended, moved


def reads(answers: list[Answer]) -> list[Answer | list[object]]:
    """The reads in their order; gates that were taken together by id: a turn may be out of date when its lane is shelved."""
    found = [answer for answer in answers if isinstance(answer, HeadsRead | LanesRead | GatesRead | RetriesRead)]
    return [[sorted(answer.gates), answer.asked] if isinstance(answer, GatesRead) else answer for answer in found]


@contextmanager
def a_pair(kind: str) -> Iterator[Pair]:
    with (
        tempfile.TemporaryDirectory() as folder,
        home("memory", Path(folder)) as memory,
        home(kind, Path(folder)) as sql,
    ):
        for place in (memory, sql):
            place.open()
        yield Pair((memory, sql))


@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        pytest.param("sqlite", 60, id="sqlite"),
        pytest.param("postgres", 12, id="postgres"),  # 130 ms of CPU time each, and an unmarked test may take 3 s
        pytest.param("postgres", 60, id="postgres, longer", marks=pytest.mark.slow),
    ],
)
def test_both_stores_say_the_same(kind: str, examples: int) -> None:
    """Reads, duplicates, lists and counts: neither grouping nor coalescing can be seen from outside."""
    settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])(
        given(steps=STEPS)(agree)
    )(kind)


STEPS = st.lists(st.one_of(WRITE, WRITE, ASK, ASK, ASK, FLUSH, REOPEN), max_size=12)


def agree(kind: str, steps: list[object]) -> None:
    """Both stores are asked and told the same."""
    with a_pair(kind) as pair:
        for step in steps:
            if isinstance(step, dict):
                pair.write(step)
            elif isinstance(step, tuple):
                pair.ask(*step)
            elif step == "flush":
                pair.settle()
            else:
                pair.reopen(str(step))
        pair.settle()
        memory, sql = (teller.store for teller in pair.tellers)
        assert facts(sql) == facts(memory)
        assert [sql.gate(gate) for gate in GATE_IDS] == [memory.gate(gate) for gate in GATE_IDS]
